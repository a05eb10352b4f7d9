//! `tagged`: `l ADDRESS n` for a load and `s ADDRESS n` for a store, as in traces for courses on
//! computer architecture. The address is hexadecimal after `0x`, or decimal. The optional number
//! counts instructions since the previous reference. It is no size: every reference is to one byte.

use super::input::Input;
use super::lines::{Line, Lines, any_radix, decimal, first_line, quoted, words};
use super::{Granularity, Kind, Opened, Reference};

pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    first_line(head, whole, |line| Some(parse(line).is_some()))
}

pub(super) fn open(input: Input) -> Opened {
    Lines::open(input, Granularity::Bytes, Tagged)
}

struct Tagged;

impl Line for Tagged {
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String> {
        let Some(reference) = parse(line) else {
            let line = quoted(line);
            return Err(format!(
                "{line} is no reference: write 'l 0xADDRESS n' for a load, 's 0xADDRESS n' for a store"
            ));
        };
        references.push(reference);
        Ok(())
    }
}

fn parse(line: &[u8]) -> Option<Reference> {
    let mut words = words(line);
    let kind = match words.next()? {
        b"l" => Kind::Read,
        b"s" => Kind::Write,
        _ => return None,
    };
    let address = any_radix(words.next()?)?;
    if let Some(instructions) = words.next() {
        decimal(instructions)?;
    }
    words.next().is_none().then_some(Reference {
        address,
        bytes: 1,
        kind,
    })
}
