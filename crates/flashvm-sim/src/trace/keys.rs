//! `keys`: one key a line, in decimal or after `0x` in hexadecimal, such as libCacheSim's `txt`
//! traces. Each line is a read of the page that the key stands for.

use super::input::Input;
use super::lines::{Line, Lines, any_radix, first_line, quoted};
use super::{Granularity, Kind, Opened, Reference};

pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    first_line(head, whole, |line| Some(any_radix(line).is_some()))
}

pub(super) fn open(input: Input) -> Opened {
    Lines::open(input, Granularity::Pages, Keys)
}

struct Keys;

impl Line for Keys {
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String> {
        let Some(address) = any_radix(line) else {
            let line = quoted(line);
            return Err(format!(
                "{line} is no key: write a number a line, below 2^64, such as 42 or 0x2a"
            ));
        };
        references.push(Reference {
            address,
            bytes: 0,
            kind: Kind::Read,
        });
        Ok(())
    }
}
