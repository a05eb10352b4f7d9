//! `lackey`: output of `valgrind --tool=lackey --trace-mem=yes`. `I` is a fetch, `L` a load, `S` a
//! store, `M` a load and a store of the same bytes. The address in hexadecimal follows and, after a
//! comma, the number of bytes. Valgrind's own lines begin with `==`, `--` or `**`.

use super::input::Input;
use super::lines::{Line, Lines, decimal, first_line, hexadecimal, quoted};
use super::{Granularity, Kind, Opened, Reference};

pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    first_line(head, whole, |line| match LackeyLine::of(line) {
        Some(LackeyLine::Remark) => None,
        other => Some(other.is_some()),
    })
}

pub(super) fn open(input: Input) -> Opened {
    Lines::open(input, Granularity::Bytes, Lackey)
}

struct Lackey;

impl Line for Lackey {
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String> {
        match LackeyLine::of(line) {
            Some(LackeyLine::One(reference)) => references.push(reference),
            Some(LackeyLine::Modify { address, bytes }) => {
                for kind in [Kind::Read, Kind::Write] {
                    references.push(Reference {
                        address,
                        bytes,
                        kind,
                    });
                }
            }
            Some(LackeyLine::Remark) => {}
            None => {
                let line = quoted(line);
                return Err(format!(
                    "{line} is none of lackey's lines, such as ' L 1fff000678,8': keep the program's output out with --log-file"
                ));
            }
        }
        Ok(())
    }
}

/// A line of lackey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackeyLine {
    /// A fetch, a load or a store.
    One(Reference),
    /// A load and then a store of the same bytes.
    Modify {
        /// The first byte.
        address: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// A message of Valgrind.
    Remark,
}

impl LackeyLine {
    /// Parses a line; `None` if it is not lackey's.
    #[must_use]
    #[inline]
    pub fn of(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii();
        let (&tag, rest) = line.split_first()?;
        let kind = match tag {
            b'I' => Some(Kind::Instruction),
            b'L' => Some(Kind::Read),
            b'S' => Some(Kind::Write),
            b'M' => None,
            b'=' | b'-' | b'*' if rest.first() == Some(&tag) => return Some(Self::Remark),
            _ => return None,
        };
        let rest = rest.strip_prefix(b" ")?.trim_ascii_start();
        let comma = rest.iter().position(|&byte| byte == b',')?;
        let address = hexadecimal(&rest[..comma])?;
        let bytes = u32::try_from(decimal(&rest[comma + 1..])?).ok()?;
        if bytes == 0 {
            return None;
        }
        Some(match kind {
            Some(kind) => Self::One(Reference {
                address,
                bytes,
                kind,
            }),
            None => Self::Modify { address, bytes },
        })
    }
}
