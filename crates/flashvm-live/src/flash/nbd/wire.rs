//! The bytes of the NBD protocol: pure encoding and decoding, without I/O.
//!
//! The fixed newstyle handshake, and the transmission phase with simple and structured replies. Numbers are big-endian.
//! The names are those of the protocol's document (`doc/proto.md` of NetworkBlockDevice/nbd), without `NBD_`.

use super::trouble::Trouble;
use std::ops::Range;

/// First words of a server.
const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const IHAVEOPT: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Second word of a server that knows no options.
const OLDSTYLE: u64 = 0x0000_4202_8186_1253;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const STRUCTURED_REPLY: u32 = 0x668e_33ef;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

/// A request of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum HandshakeOption {
    Abort = 2,
    StartTls = 5,
    Go = 7,
    StructuredReply = 8,
}

/// A command of the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
}

/// Bytes of a server's greeting.
pub(super) const GREETING_BYTES: usize = 18;
/// Bytes of the header of an option's reply.
pub(super) const OPTION_REPLY_BYTES: usize = 20;
/// Bytes of a request of the transmission phase, without the data of a write.
pub(super) const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply, without the data of a read; a structured reply's header begins with as many.
pub(super) const REPLY_BYTES: usize = 16;
/// Bytes of the length at the end of a structured reply's header.
pub(super) const CHUNK_LENGTH_BYTES: usize = 4;
/// Longest contents of an option's reply that are read.
pub(super) const OPTION_CONTENTS_MAX: u32 = 64 << 10;
/// Longest name of an export, in bytes.
pub(super) const EXPORT_NAME_MAX: usize = 4096;
/// Largest request without a limit of the server.
const PAYLOAD_MAX: u32 = 32 << 20;

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("of this length")
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// The client's answer to a greeting.
pub(super) fn answer_greeting(greeting: &[u8; GREETING_BYTES]) -> Result<[u8; 4], Trouble> {
    if be64(greeting, 0) != MAGIC {
        return Err(Trouble::NotNbd);
    }
    let flags = be16(greeting, 16);
    match be64(greeting, 8) {
        IHAVEOPT if flags & FIXED_NEWSTYLE != 0 => {
            Ok(u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())
        }
        IHAVEOPT | OLDSTYLE => Err(Trouble::Oldstyle),
        _ => Err(Trouble::NotNbd),
    }
}

/// The header of an option with `len` bytes of data.
pub(super) fn option(option: HandshakeOption, len: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&IHAVEOPT.to_be_bytes());
    bytes[8..12].copy_from_slice(&(option as u32).to_be_bytes());
    bytes[12..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// What follows the name of the export in the data of [`HandshakeOption::Go`]: the one information that is asked for, block
/// sizes. Every server sends size and flags.
pub(super) const GO_ASKS_FOR_BLOCK_SIZES: [u8; 4] = [0, 1, 0, INFO_BLOCK_SIZE as u8];

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// An option's reply, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionReply {
    /// The option is done.
    Done,
    /// Information of this many bytes follows.
    Info(u32),
    /// The server refuses, with an error of the protocol; this many bytes of a message follow.
    Refused(u32, u32),
}

/// Parses the header of the reply to an option.
pub(super) fn option_reply(
    header: &[u8; OPTION_REPLY_BYTES],
    to: HandshakeOption,
) -> Result<OptionReply, Trouble> {
    const ACK: u32 = 1;
    const INFO: u32 = 3;
    const ERROR: u32 = 1 << 31;
    if be64(header, 0) != OPTION_REPLY {
        return Err(Trouble::Protocol(
            "an option's reply has another magic number",
        ));
    }
    if be32(header, 8) != to as u32 {
        return Err(Trouble::Protocol("a reply answers another option"));
    }
    let len = be32(header, 16);
    if len > OPTION_CONTENTS_MAX {
        return Err(Trouble::Protocol("an option's reply is longer than 64 KiB"));
    }
    match be32(header, 12) {
        ACK if len == 0 => Ok(OptionReply::Done),
        INFO => Ok(OptionReply::Info(len)),
        error if error & ERROR != 0 => Ok(OptionReply::Refused(error & !ERROR, len)),
        _ => Err(Trouble::Protocol("an option's reply is of an unknown type")),
    }
}

/// What a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its size in bytes.
    pub bytes: u64,
    /// Its transmission flags.
    pub(super) flags: u16,
    /// The smallest unit of requests, in bytes: a power of two.
    pub unit: u32,
    /// Most bytes of data in one request.
    pub(super) payload_max: u32,
}

impl Export {
    /// Before the server has said anything.
    pub(super) const UNKNOWN: Self = Self {
        bytes: 0,
        flags: 0,
        unit: 1,
        payload_max: PAYLOAD_MAX,
    };

    /// Takes over one piece of information. Unknown pieces are ignored, as the protocol demands.
    pub(super) fn learn(&mut self, info: &[u8]) -> Result<(), Trouble> {
        const MALFORMED: Trouble = Trouble::Protocol("information on the export is malformed");
        if info.len() < 2 {
            return Err(MALFORMED);
        }
        match (be16(info, 0), info.len()) {
            (INFO_EXPORT, 12) => {
                self.bytes = be64(info, 2);
                self.flags = be16(info, 10);
            }
            (INFO_BLOCK_SIZE, 14) => {
                self.unit = be32(info, 2);
                self.payload_max = be32(info, 10);
                if !self.unit.is_power_of_two() || self.payload_max < self.unit {
                    return Err(MALFORMED);
                }
            }
            (INFO_EXPORT | INFO_BLOCK_SIZE, _) => return Err(MALFORMED),
            _ => {}
        }
        Ok(())
    }

    fn has(&self, flag: u16) -> bool {
        const HAS_FLAGS: u16 = 1;
        self.flags & HAS_FLAGS != 0 && self.flags & flag != 0
    }

    /// Whether it refuses writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.has(1 << 1)
    }

    /// Whether it takes flushes.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.has(1 << 2)
    }

    /// Whether it takes discards.
    #[must_use]
    pub fn trims(&self) -> bool {
        self.has(1 << 5)
    }

    /// Whether all connections to it see the same bytes (`CAN_MULTI_CONN`).
    pub(super) fn is_shared(&self) -> bool {
        self.has(1 << 8)
    }
}

/// The header of a request.
pub(super) fn request(command: Command, cookie: u64, at: u64, len: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[6..8].copy_from_slice(&(command as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&at.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// A reply, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Simple: error 0, and the data of a read follow, or an error, and nothing follows.
    Simple(u32),
    /// A chunk of a structured reply; its length follows.
    Chunk { kind: u16, is_last: bool },
}

/// Parses the first bytes of the reply to the request with this cookie.
pub(super) fn reply(bytes: &[u8; REPLY_BYTES], cookie: u64) -> Result<Reply, Trouble> {
    const DONE: u16 = 1;
    let reply = match be32(bytes, 0) {
        SIMPLE_REPLY => Reply::Simple(be32(bytes, 4)),
        STRUCTURED_REPLY => Reply::Chunk {
            kind: be16(bytes, 6),
            is_last: be16(bytes, 4) & DONE != 0,
        },
        _ => return Err(Trouble::Protocol("a reply has another magic number")),
    };
    if be64(bytes, 8) != cookie {
        return Err(Trouble::Protocol("a reply has the cookie of no request"));
    }
    Ok(reply)
}

/// The contents of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// None.
    None,
    /// An offset, then this many bytes of data.
    Data(u32),
    /// An offset and a length: so many zeros.
    Hole,
    /// An error, then this many other bytes.
    Error(u32),
}

/// Bytes of the offset before the data of [`Contents::Data`].
pub(super) const OFFSET_BYTES: usize = 8;
/// Bytes of the contents of [`Contents::Hole`].
pub(super) const HOLE_BYTES: usize = 12;
/// Bytes of the error at the start of [`Contents::Error`].
pub(super) const ERROR_BYTES: usize = 4;

/// The contents of a chunk of this kind, of `len` bytes.
pub(super) fn contents(kind: u16, len: u32) -> Result<Contents, Trouble> {
    const ERROR: u16 = 1 << 15;
    match (kind, len) {
        (0, 0) => Ok(Contents::None),
        (1, 9..) => Ok(Contents::Data(len - OFFSET_BYTES as u32)),
        (2, 12) => Ok(Contents::Hole),
        (ERROR.., 6..=OPTION_CONTENTS_MAX) => Ok(Contents::Error(len - ERROR_BYTES as u32)),
        _ => Err(Trouble::Protocol("a chunk of a reply is malformed")),
    }
}

/// Offset and length of [`Contents::Hole`].
pub(super) fn hole(bytes: &[u8; HOLE_BYTES]) -> (u64, u32) {
    (be64(bytes, 0), be32(bytes, 8))
}

/// The bytes of a read that have arrived. Chunks come in any order; the protocol forbids overlaps, and the layers above
/// find one by its checksum.
#[derive(Debug)]
pub(super) struct Arrived {
    at: u64,
    len: usize,
    bytes: usize,
}

impl Arrived {
    /// A read of `len` bytes at `at`, of which nothing has arrived.
    pub(super) fn nothing(at: u64, len: usize) -> Self {
        Self { at, len, bytes: 0 }
    }

    /// Takes `len` bytes at the export's offset `at`: their place in the read's memory.
    pub(super) fn place(&mut self, at: u64, len: u32) -> Result<Range<usize>, Trouble> {
        let len = len as usize;
        let from = at
            .checked_sub(self.at)
            .and_then(|from| usize::try_from(from).ok());
        match from {
            Some(from) if len <= self.len - self.bytes && from <= self.len - len => {
                self.bytes += len;
                Ok(from..from + len)
            }
            _ => Err(Trouble::Protocol("a reply has bytes that nobody asked for")),
        }
    }

    /// Checks at the end of the reply that all bytes have arrived.
    pub(super) fn finish(&self) -> Result<(), Trouble> {
        match self.bytes == self.len {
            true => Ok(()),
            false => Err(Trouble::Protocol("a reply ends before all bytes have come")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting(first: &[u8; 8], second: u64, flags: u16) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(first);
        bytes[8..16].copy_from_slice(&second.to_be_bytes());
        bytes[16..].copy_from_slice(&flags.to_be_bytes());
        bytes
    }

    #[test]
    fn a_greeting_is_answered_by_what_both_know() {
        let good = answer_greeting(&greeting(b"NBDMAGIC", IHAVEOPT, 0b111));
        assert_eq!(good, Ok([0, 0, 0, 3]));
        let old = [
            greeting(b"NBDMAGIC", OLDSTYLE, 1),
            greeting(b"NBDMAGIC", IHAVEOPT, 2),
        ];
        for old in old {
            assert_eq!(answer_greeting(&old), Err(Trouble::Oldstyle));
        }
        for other in [
            greeting(b"SSH-2.0-", IHAVEOPT, 1),
            greeting(b"NBDMAGIC", 1, 1),
        ] {
            assert_eq!(answer_greeting(&other), Err(Trouble::NotNbd));
        }
    }

    /// Bytes as the protocol's document gives them, not as the code above makes them.
    #[test]
    fn requests_are_those_of_the_document() {
        let bytes = request(Command::Write, 0x0102_0304_0506_0708, 0x1000, 0x2000);
        assert_eq!(
            bytes,
            [
                0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10,
                0, 0, 0, 0x20, 0
            ]
        );
        assert_eq!(
            option(HandshakeOption::Go, 5),
            *b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x05"
        );
        let simple = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(reply(&simple, 9), Ok(Reply::Simple(5)));
        assert!(reply(&simple, 8).is_err());
        let chunk = [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9];
        let last = Reply::Chunk {
            kind: 2,
            is_last: true,
        };
        assert_eq!(reply(&chunk, 9), Ok(last));
    }

    #[test]
    fn information_is_learned_in_any_order_and_checked() {
        let mut export = Export::UNKNOWN;
        let sizes = [0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 0, 4, 0, 0];
        export.learn(&sizes).unwrap();
        export.learn(&[0, 9, 1, 2, 3]).unwrap();
        export
            .learn(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0b0010_0101])
            .unwrap();
        assert_eq!((export.bytes, export.unit), (1 << 16, 512));
        assert_eq!(export.payload_max, 4 << 16);
        assert!(export.is_shared() && export.trims() && export.flushes());
        assert!(!export.is_read_only());
        let odd = [0, 3, 0, 0, 2, 1, 0, 0, 16, 0, 0, 4, 0, 0];
        let smaller = [0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 1, 0];
        for bad in [&odd[..], &smaller, &sizes[..13], &[0, 0], &[0], &[]] {
            assert!(export.learn(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(
            bytes in proptest::array::uniform32(any::<u8>()),
            kind: u16,
            len: u32,
            info in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = answer_greeting(&array(&bytes, 0));
            let _ = option_reply(&array(&bytes, 0), HandshakeOption::Go);
            let _ = reply(&array(&bytes, 0), 0);
            let _ = contents(kind, len);
            let mut export = Export::UNKNOWN;
            let _ = export.learn(&info);
        }

        /// Chunks that cover a read once, in any order, are placed where they belong; others are refused.
        #[test]
        fn chunks_fill_a_read(
            at in 0u64..1 << 40,
            cuts in proptest::collection::btree_set(1usize..4096, 0..12),
            turn: usize,
        ) {
            let ends: Vec<_> = cuts.iter().copied().chain([4096]).collect();
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let mut chunks: Vec<_> = starts.zip(ends).collect();
            let turn = turn % chunks.len();
            chunks.rotate_left(turn);
            let mut arrived = Arrived::nothing(at, 4096);
            let (last, others) = chunks.split_last().unwrap();
            for (from, to) in others {
                let place = arrived.place(at + *from as u64, (to - from) as u32);
                prop_assert_eq!(place, Ok(*from..*to));
                prop_assert!(arrived.finish().is_err());
            }
            let (from, to) = *last;
            let len = (to - from) as u32;
            prop_assert!(arrived.place(at + from as u64, len + 1).is_err());
            prop_assert!(arrived.place(at + 4097 - u64::from(len), len).is_err());
            prop_assert!(arrived.place(at.wrapping_sub(1), len).is_err());
            arrived.place(at + from as u64, len).unwrap();
            prop_assert_eq!(arrived.finish(), Ok(()));
            prop_assert!(arrived.place(at, 1).is_err());
        }
    }
}
