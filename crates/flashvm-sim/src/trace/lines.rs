//! Shared by text formats: reading line by line, in constant memory, and parsing numbers.

use super::error::{Fault, Position};
use super::input::Input;
use super::{BATCH, Granularity, Opened, Provenance, Reference, Source};
use std::io::{BufRead, Read};

/// Longest line: a longer one is not a trace.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The parser of a line. Lines come trimmed, and empty ones not at all.
pub(super) trait Line: Send {
    /// Appends the references of a line; `Err` names the problem and the remedy.
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String>;
}

/// The references of a text.
pub(super) struct Lines<L> {
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
    parser: L,
}

impl<L: Line + 'static> Lines<L> {
    /// Reads a text from its first line on.
    pub(super) fn open(input: Input, granularity: Granularity, parser: L) -> Opened {
        let lines = Self {
            reader: input.into_reader(),
            line: Vec::new(),
            number: 0,
            parser,
        };
        Opened {
            granularity,
            provenance: Provenance::default(),
            source: Box::new(lines),
        }
    }
}

impl<L: Line> Source for Lines<L> {
    fn fill(&mut self, batch: &mut Vec<Reference>) -> Result<(), Fault> {
        while batch.len() < BATCH {
            self.line.clear();
            self.number += 1;
            let place = Position::Line(self.number);
            let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut self.line);
            if read.map_err(|e| Fault::io(place, e))? == 0 {
                break;
            }
            if self.line.len() as u64 == LINE_BYTES_MAX {
                let why = "the line is longer than 64 KiB: this is no trace in text";
                return Err(Fault::bad(place, why));
            }
            let line = self.line.trim_ascii();
            if !line.is_empty() {
                let parsed = self.parser.parse(line, batch);
                parsed.map_err(|why| Fault::bad(place, why))?;
            }
        }
        Ok(())
    }
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// A number in decimal digits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    number(text, 10)
}

/// A number in hexadecimal digits.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    number(text, 16)
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for &byte in text {
        let digit = char::from(byte).to_digit(radix)?;
        number = number
            .checked_mul(radix.into())?
            .checked_add(digit.into())?;
    }
    Some(number)
}

/// A number as C writes it: decimal, or hexadecimal after `0x`.
pub(super) fn any_radix(text: &[u8]) -> Option<u64> {
    match text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"))
    {
        Some(digits) => hexadecimal(digits),
        None => decimal(text),
    }
}

/// A part of a line, for an error: short, and printable.
pub(super) fn quoted(text: &[u8]) -> String {
    let shown = &text[..text.len().min(60)];
    let dots = if shown.len() < text.len() { "..." } else { "" };
    format!("'{}{dots}'", shown.escape_ascii())
}

/// Whether the first line of a head that `judge` has an opinion on is valid. If the head is not
/// `whole`, its last line may be truncated and is ignored.
pub(super) fn first_line(head: &[u8], whole: bool, judge: impl Fn(&[u8]) -> Option<bool>) -> bool {
    let mut lines: Vec<_> = head.split(|&byte| byte == b'\n').collect();
    if !whole && lines.len() > 1 {
        lines.pop();
    }
    let lines = lines.into_iter().map(<[u8]>::trim_ascii);
    let mut opinions = lines.filter(|line| !line.is_empty()).map(judge);
    opinions.find_map(|opinion| opinion).unwrap_or(false)
}
