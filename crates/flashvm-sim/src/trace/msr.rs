//! `msr`: the block traces of Microsoft Research Cambridge (Narayanan et al., FAST 2008), a CSV of
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, offsets and sizes in bytes. Disks
//! lie side by side, in the order of their first requests.

use super::input::Input;
use super::lines::{Line, Lines, decimal, first_line, quoted};
use super::spaces::Spaces;
use super::{Granularity, Kind, Opened, Reference};

pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    first_line(head, whole, |line| match is_title(line) {
        true => None,
        false => Some(parse(line).is_some()),
    })
}

pub(super) fn open(input: Input) -> Opened {
    Lines::open(input, Granularity::Bytes, Msr::default())
}

#[derive(Default)]
struct Msr {
    disks: Spaces,
}

impl Line for Msr {
    fn parse(&mut self, line: &[u8], references: &mut Vec<Reference>) -> Result<(), String> {
        if is_title(line) {
            return Ok(());
        }
        let Some(request) = parse(line) else {
            let line = quoted(line);
            return Err(format!(
                "{line} is no request: write Timestamp,Hostname,DiskNumber,Read|Write,Offset,Size,ResponseTime"
            ));
        };
        references.push(Reference {
            address: self.disks.place(request.disk, request.offset)?,
            bytes: request.bytes,
            kind: request.kind,
        });
        Ok(())
    }
}

fn is_title(line: &[u8]) -> bool {
    line.starts_with(b"Timestamp,")
}

struct MsrRequest<'a> {
    /// Host and number.
    disk: &'a [u8],
    offset: u64,
    bytes: u32,
    kind: Kind,
}

fn parse(line: &[u8]) -> Option<MsrRequest<'_>> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&byte| byte == b',')?;
        let field = &rest[..end];
        rest = &rest[end + 1..];
        Some(field)
    };
    let (time, host, number, kind) = (field()?, field()?, field()?, field()?);
    let (offset, size) = (field()?, field()?);
    decimal(time)?;
    decimal(number)?;
    decimal(rest)?;
    let kind = match kind {
        b"Read" => Kind::Read,
        b"Write" => Kind::Write,
        _ => return None,
    };
    let disk = time.len() + 1;
    Some(MsrRequest {
        disk: &line[disk..disk + host.len() + 1 + number.len()],
        offset: decimal(offset)?,
        bytes: u32::try_from(decimal(size)?)
            .ok()
            .filter(|&bytes| bytes > 0)?,
        kind,
    })
}
