//! Traces for a translation layer alone: one page a line, as text.
//!
//! `PAGE` or `w PAGE` writes, `d PAGE` discards; `r PAGE`, a read, is ignored; `#` begins a
//! comment. Pages may be any numbers (a disk's block addresses, say): they are renumbered in the
//! order of their first appearance.

use super::simulate::TraceStep;
use std::collections::HashMap;

/// Why a text cannot be used as a trace of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line that cannot be parsed.
    #[error("line {line}: '{text}' is not 'PAGE', 'w PAGE', 'd PAGE' or 'r PAGE'")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// More pages than the device has.
    #[error(
        "line {line}: more than the {pages} pages that the device shows: give it more --blocks"
    )]
    TooManyPages {
        /// The line with the first page too many, from 1.
        line: usize,
        /// Pages of the device.
        pages: u32,
    },
    /// The trace has no write.
    #[error("it writes nothing")]
    NoWrites,
}

/// Reads a trace for a device with `pages` pages.
///
/// # Errors
/// The first line that cannot be used.
pub fn read_trace(text: &str, pages: u32) -> Result<Vec<TraceStep>, TraceError> {
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut steps = Vec::new();
    let mut writes = false;
    for (line, text) in (1..).zip(text.lines()) {
        let said = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = said.split_ascii_whitespace().collect();
        let (kind, page) = match words[..] {
            [] => continue,
            [page] => ("w", page),
            [kind, page] => (kind, page),
            _ => ("", ""),
        };
        let page = page
            .parse::<u64>()
            .ok()
            .filter(|_| ["w", "d", "r"].contains(&kind));
        let page = page.ok_or_else(|| TraceError::Line {
            line,
            text: text.chars().take(60).collect(),
        })?;
        if kind == "r" {
            continue;
        }
        let next = numbers.len() as u64;
        if !numbers.contains_key(&page) && next >= u64::from(pages) {
            return Err(TraceError::TooManyPages { line, pages });
        }
        let number = *numbers.entry(page).or_insert(next as u32);
        writes |= kind == "w";
        steps.push(match kind {
            "w" => TraceStep::Write(number),
            _ => TraceStep::Discard(number),
        });
    }
    if writes {
        Ok(steps)
    } else {
        Err(TraceError::NoWrites)
    }
}

#[cfg(test)]
mod tests {
    use super::TraceStep::{Discard, Write};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read_and_pages_numbered_anew() {
        let text = "77 # first\nw 900000000000\n\nr 5\nd 77\n";
        assert_eq!(
            read_trace(text, 2),
            Ok(vec![Write(0), Write(1), Discard(0)])
        );
        let too_many = TraceError::TooManyPages { line: 2, pages: 1 };
        assert_eq!(read_trace(text, 1), Err(too_many));
        for bad in ["x", "w", "w 1 2", "t 1", "-1", "99999999999999999999"] {
            let error = read_trace(bad, 9).expect_err(bad);
            assert!(matches!(error, TraceError::Line { line: 1, .. }), "{error}");
        }
        assert_eq!(read_trace("r 1\nd 2", 9), Err(TraceError::NoWrites));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            if let Ok(steps) = read_trace(&text, 10) {
                let all = steps.iter().all(|step| matches!(step, Write(0..10) | Discard(0..10)));
                prop_assert!(all);
            }
        }
    }
}
