//! Address spaces side by side: devices, hosts or processes whose addresses must not overlap.

use std::collections::HashMap;

/// Bits of an address within its space; the bits above are the space's number.
pub const SPACE_BITS: u32 = 52;

/// Numbers spaces in the order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    numbers: HashMap<Vec<u8>, u64>,
    /// The space used last: most traces have only one, or long runs of one.
    last: Option<(Vec<u8>, u64)>,
}

impl Spaces {
    /// The address in the common space: the space's number above [`SPACE_BITS`] bits of `address`.
    pub(super) fn place(&mut self, name: &[u8], address: u64) -> Result<u64, String> {
        if address >> SPACE_BITS != 0 {
            return Err(format!(
                "{address} is beyond 2^{SPACE_BITS}: this is no offset on a device"
            ));
        }
        let number = match &self.last {
            Some((last, number)) if last == name => *number,
            _ => self.find(name)?,
        };
        Ok(number << SPACE_BITS | address)
    }

    fn find(&mut self, name: &[u8]) -> Result<u64, String> {
        let next = self.numbers.len() as u64;
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None if next >> (u64::BITS - SPACE_BITS) != 0 => {
                return Err(format!(
                    "there are more than {next} devices: split the trace"
                ));
            }
            None => {
                self.numbers.insert(name.to_owned(), next);
                next
            }
        };
        self.last = Some((name.to_owned(), number));
        Ok(number)
    }
}
