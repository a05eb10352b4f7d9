//! `blkparse`: output of blkparse(1) for a block trace in its default format: device, CPU, sequence
//! number, time, process, action, RWBS, then `SECTOR + SECTORS`. Requests count when they are
//! queued (action `Q`), so each counts once, as the program issued it, before it is merged or split.
//! Discards and flushes carry no data and are skipped. Sectors have 512 bytes; devices are placed
//! side by side, in the order of their first requests.

use super::input::Input;
use super::lines::{Line, Lines, decimal, first_line, quoted, words};
use super::spaces::Spaces;
use super::{Granularity, Kind, Opened, Reference};

const SECTOR_BYTES: u64 = 512;

pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    first_line(head, whole, |line| {
        Some(matches!(parse(line), Ok(Parsed::Event | Parsed::Queued(_))))
    })
}

pub(super) fn open(input: Input) -> Opened {
    Lines::open(input, Granularity::Bytes, Blkparse::default())
}

#[derive(Default)]
struct Blkparse {
    devices: Spaces,
    begun: bool,
}

impl Line for Blkparse {
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String> {
        match parse(line)? {
            Parsed::Summary if !self.begun => {
                let line = quoted(line);
                return Err(format!(
                    "{line} is no event: write blkparse's default format, such as '8,0 3 1 0.000000000 697 Q W 223490 + 8 [app]'"
                ));
            }
            // After the events: sums by CPU and device.
            Parsed::Summary => {}
            Parsed::Event => self.begun = true,
            Parsed::Queued(queued) => {
                self.begun = true;
                let kind = match queued.operation {
                    Operation::Read => Kind::Read,
                    Operation::Write => Kind::Write,
                    Operation::Discard => return Ok(()),
                };
                references.push(Reference {
                    address: self.devices.place(queued.device, queued.offset)?,
                    bytes: queued.bytes,
                    kind,
                });
            }
        }
        Ok(())
    }
}

pub(crate) enum Parsed<'a> {
    Queued(QueuedLine<'a>),
    /// An event that is no reference: another action, or a request without data.
    Event,
    /// No event.
    Summary,
}

/// A request as it was queued.
pub(crate) struct QueuedLine<'a> {
    device: &'a [u8],
    /// Ranges of one command share it.
    pub(crate) sequence: &'a [u8],
    /// Seconds, with a fraction.
    pub(crate) time: &'a [u8],
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Discard,
}

pub(crate) fn parse(line: &[u8]) -> Result<Parsed<'_>, String> {
    let mut words = words(line);
    let Some(device) = words.next().filter(|word| is_device(word)) else {
        return Ok(Parsed::Summary);
    };
    let cut = || format!("{} is cut short: copy the trace again", quoted(line));
    let _cpu = words.next().ok_or_else(cut)?;
    let sequence = words.next().ok_or_else(cut)?;
    let time = words.next().ok_or_else(cut)?;
    let _process = words.next().ok_or_else(cut)?;
    let action = words.next().ok_or_else(cut)?;
    if action != b"Q" {
        return Ok(Parsed::Event);
    }
    let rwbs = words.next().ok_or_else(cut)?;
    let operation = match rwbs {
        // A flush before the data (FW, FWS) is still a write; alone it has no sectors.
        _ if rwbs.contains(&b'D') => Operation::Discard,
        _ if rwbs.contains(&b'W') => Operation::Write,
        _ if rwbs.contains(&b'R') => Operation::Read,
        _ => return Ok(Parsed::Event),
    };
    let Some(sector) = words.next() else {
        return Ok(Parsed::Event);
    };
    let request = || {
        let offset = decimal(sector)?.checked_mul(SECTOR_BYTES)?;
        (words.next()? == b"+").then_some(())?;
        let bytes = decimal(words.next()?)?.checked_mul(SECTOR_BYTES)?;
        Some((offset, u32::try_from(bytes).ok()?))
    };
    match { request }() {
        // A flush, queued as a write of 0 sectors.
        Some((_, 0)) => Ok(Parsed::Event),
        Some((offset, bytes)) => Ok(Parsed::Queued(QueuedLine {
            device,
            sequence,
            time,
            operation,
            offset,
            bytes,
        })),
        None if sector.first() == Some(&b'[') => Ok(Parsed::Event),
        None => {
            let line = quoted(line);
            Err(format!(
                "{line} names no sectors: they are written 'SECTOR + SECTORS', below 4 GiB a request"
            ))
        }
    }
}

fn is_device(word: &[u8]) -> bool {
    let mut parts = word.split(|&byte| byte == b',');
    let number = |part: Option<&[u8]>| part.and_then(decimal).is_some();
    number(parts.next()) && number(parts.next()) && parts.next().is_none()
}
