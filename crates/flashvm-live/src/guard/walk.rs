//! The ranges of memory that a system call may touch, from its row and its arguments.
//!
//! The walk follows the program's own structures, which may be garbage or change during the walk:
//! their contents lead to a bounded number of reads and ranges.

use super::table::{self, Case, Direction, Len, Nested, Pointee, Row};

/// Most items of a vector: the kernel's limit.
pub const IOV_MAX: usize = 1024;
/// Most bytes of a range: the kernel moves no more in one call.
pub const RANGE_MAX: usize = 0x7fff_f000;
/// Most bytes of a string: the kernel's limit for an argument of a program.
pub const TEXT_MAX: usize = 128 << 10;
/// Most bytes of an array of strings with its strings: the kernel's limit is 6 MiB.
pub const TEXTS_MAX: usize = 8 << 20;

/// Strings are read in pieces within a page.
const PIECE: usize = 256;
const PAGE: usize = 4096;
const WORD: usize = size_of::<usize>();

/// The program's memory.
pub trait Memory {
    /// Copies program memory; `false` if it does not exist.
    fn read(&self, address: usize, into: &mut [u8]) -> bool;

    /// Whether a process number passed to a call means this process.
    fn is_own_process(&self, process: usize) -> bool {
        let _ = process;
        false
    }
}

/// Memory that a call may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: usize,
    /// Bytes, not 0; does not wrap around the end of the address space.
    pub len: usize,
    /// What the kernel does with these bytes.
    pub direction: Direction,
}

/// Calls `visit` with every range of memory that the call may touch, outermost first: a structure
/// is visited before it is read for its pointers.
///
/// Stops at null pointers and at unreadable memory. Follows at most [`IOV_MAX`] items of a vector
/// (a call with more stops short or fails) and at most [`TEXTS_MAX`] bytes of strings. Does not
/// allocate; safe in a signal handler if `memory` and `visit` are.
pub fn ranges(row: &Row, args: &[usize; 6], memory: &impl Memory, visit: &mut dyn FnMut(Range)) {
    let mut walk = Walk {
        args,
        memory,
        visit,
    };
    for pointer in row.pointers {
        let address = walk.argument(pointer.argument);
        walk.pointee(address, pointer.direction, &pointer.pointee);
    }
}

struct Walk<'a, M> {
    args: &'a [usize; 6],
    memory: &'a M,
    visit: &'a mut dyn FnMut(Range),
}

impl<M: Memory> Walk<'_, M> {
    fn argument(&self, argument: u8) -> usize {
        self.args[usize::from(argument)]
    }

    fn visit(&mut self, start: usize, len: usize, direction: Direction) {
        let len = len.min(RANGE_MAX).min(usize::MAX - start);
        if start != 0 && len != 0 {
            (self.visit)(Range {
                start,
                len,
                direction,
            });
        }
    }

    /// Visits a structure, and reads it.
    fn open<const N: usize>(&mut self, start: usize, direction: Direction) -> Option<[u8; N]> {
        self.visit(start, N, direction);
        self.read(start)
    }

    fn read<const N: usize>(&self, start: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let there = start != 0 && start.checked_add(N).is_some();
        (there && self.memory.read(start, &mut bytes)).then_some(bytes)
    }

    fn u32_at(&self, address: usize) -> Option<usize> {
        let bytes = self.read(address)?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    }

    fn usize_at(&self, address: usize) -> Option<usize> {
        self.read(address).map(usize::from_ne_bytes)
    }

    /// The number of bytes at `start`.
    fn len(&self, start: usize, len: Len) -> usize {
        match len {
            Len::Bytes(bytes) => bytes,
            Len::Arg(argument) => self.argument(argument),
            Len::ArgPlus(argument, more) => self.argument(argument).saturating_add(more),
            Len::Items(argument, bytes) => self.argument(argument).saturating_mul(bytes),
            Len::Bits(argument) => self.argument(argument).div_ceil(8 * WORD) * WORD,
            Len::Pages(argument) => self.argument(argument).div_ceil(PAGE),
            Len::At(argument) => self.u32_at(self.argument(argument)).unwrap_or(0),
            Len::Own {
                offset,
                default,
                plus,
            } => {
                let own = start.checked_add(offset).and_then(|at| self.u32_at(at));
                match own {
                    // The field with the length is touched in any case.
                    None => offset + 4,
                    Some(0) => default + plus,
                    // The kernel refuses structures larger than a page.
                    Some(own) => own.min(PAGE) + plus,
                }
            }
        }
    }

    fn pointee(&mut self, start: usize, direction: Direction, pointee: &Pointee) {
        if start == 0 {
            return;
        }
        match *pointee {
            Pointee::Bytes(len) => self.visit(start, self.len(start, len), direction),
            Pointee::Text => {
                self.text(start);
            }
            Pointee::Texts => self.texts(start),
            Pointee::Iovec { count } => self.iovec(start, self.argument(count), Some(direction)),
            Pointee::IovecOf { count, process } => {
                let own = self.memory.is_own_process(self.argument(process));
                self.iovec(start, self.argument(count), own.then_some(direction));
            }
            Pointee::Message => self.message(start, direction, MSGHDR),
            Pointee::Messages { count } => {
                for i in 0..self.argument(count).min(IOV_MAX) {
                    let Some(at) = start.checked_add(i * MMSGHDR) else {
                        return;
                    };
                    self.message(at, direction, MMSGHDR);
                }
            }
            Pointee::IoControlBlocks { count } => self.control_blocks(start, self.argument(count)),
            Pointee::FutexWaiters(len) => self.futex_waiters(start, self.len(start, len)),
            Pointee::Notification => self.notification(start),
            Pointee::Nested(nested) => self.nested(start, direction, nested),
            Pointee::By {
                command,
                mask,
                cases,
            } => {
                let command = low(self.argument(command)) & mask;
                if let Some(case) = cases.iter().find(|case| case.command == command) {
                    self.case(start, case);
                }
            }
            Pointee::Ioctl => self.case(start, &table::ioctl_case(low(self.argument(1)))),
        }
    }

    fn case(&mut self, start: usize, case: &Case) {
        self.pointee(start, case.direction, &case.pointee);
    }

    /// Visits a string; returns its bytes, with the NUL, if all of it could be read.
    ///
    /// Where it cannot be read, the range includes the first missing byte.
    fn text(&mut self, start: usize) -> Option<usize> {
        let mut len = 0;
        while len < TEXT_MAX {
            let at = start.checked_add(len)?;
            let mut piece = [0; PIECE];
            let piece = &mut piece[..PIECE - at % PIECE];
            if !self.memory.read(at, piece) {
                self.visit(start, len + 1, Direction::In);
                return None;
            }
            if let Some(nul) = piece.iter().position(|&byte| byte == 0) {
                self.visit(start, len + nul + 1, Direction::In);
                return Some(len + nul + 1);
            }
            len += piece.len();
        }
        self.visit(start, len, Direction::In);
        Some(len)
    }

    fn texts(&mut self, start: usize) {
        let mut bytes = 0;
        let mut at = start;
        while bytes < TEXTS_MAX {
            let Some(address) = self
                .open::<WORD>(at, Direction::In)
                .map(usize::from_ne_bytes)
            else {
                return;
            };
            if address == 0 {
                return;
            }
            bytes += WORD + self.text(address).unwrap_or(PIECE);
            let Some(next) = at.checked_add(WORD) else {
                return;
            };
            at = next;
        }
    }

    /// An array of `iovec`, and its buffers if they are in this process.
    fn iovec(&mut self, start: usize, count: usize, buffers: Option<Direction>) {
        let count = count.min(IOV_MAX);
        self.visit(start, count * 2 * WORD, Direction::In);
        let Some(direction) = buffers else { return };
        for i in 0..count {
            let Some(item) = start
                .checked_add(i * 2 * WORD)
                .and_then(|at| self.read::<{ 2 * WORD }>(at))
            else {
                return;
            };
            self.visit(word(&item, 0), word(&item, WORD), direction);
        }
    }

    /// A `msghdr`, or a `mmsghdr` that begins with one.
    fn message(&mut self, start: usize, direction: Direction, bytes: usize) {
        // The kernel writes lengths and flags of a message that it delivers; those of a `mmsghdr` always.
        let written = bytes == MMSGHDR || direction != Direction::In;
        let own = if written {
            Direction::InOut
        } else {
            Direction::In
        };
        self.visit(start, bytes, own);
        let Some(header) = self.read::<MSGHDR>(start) else {
            return;
        };
        let name_len = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        self.visit(word(&header, 0), name_len as usize, direction);
        self.visit(word(&header, 32), word(&header, 40), direction);
        let vector = word(&header, 16);
        if vector != 0 {
            self.iovec(vector, word(&header, 24), Some(direction));
        }
    }

    fn control_blocks(&mut self, start: usize, count: usize) {
        let count = count.min(IOV_MAX);
        self.visit(start, count * WORD, Direction::In);
        for i in 0..count {
            let Some(block) = start.checked_add(i * WORD).and_then(|at| self.usize_at(at)) else {
                return;
            };
            // The kernel writes its key into the control block.
            let Some(block) = self.open::<IOCB>(block, Direction::InOut) else {
                continue;
            };
            let (buffer, len) = (word(&block, 24), word(&block, 32));
            match u16::from_ne_bytes([block[16], block[17]]) {
                IOCB_CMD_PREAD => self.visit(buffer, len, Direction::Out),
                IOCB_CMD_PWRITE => self.visit(buffer, len, Direction::In),
                IOCB_CMD_PREADV if buffer != 0 => self.iovec(buffer, len, Some(Direction::Out)),
                IOCB_CMD_PWRITEV if buffer != 0 => self.iovec(buffer, len, Some(Direction::In)),
                _ => {}
            }
        }
    }

    /// An array of `futex_waitv` of this many bytes, and the words that it waits for.
    fn futex_waiters(&mut self, start: usize, bytes: usize) {
        let count = (bytes / FUTEX_WAITV).min(FUTEX_WAITV_MAX);
        self.visit(start, count * FUTEX_WAITV, Direction::In);
        for i in 0..count {
            let Some(waiter) = start
                .checked_add(i * FUTEX_WAITV)
                .and_then(|at| self.read::<FUTEX_WAITV>(at))
            else {
                return;
            };
            self.visit(word(&waiter, 8), size_of::<u32>(), Direction::InOut);
        }
    }

    fn notification(&mut self, start: usize) {
        let Some(event) = self.open::<SIGEVENT>(start, Direction::In) else {
            return;
        };
        let how = i32::from_ne_bytes([event[12], event[13], event[14], event[15]]);
        if how == libc::SIGEV_THREAD {
            self.visit(word(&event, 0), NOTIFY_COOKIE, Direction::In);
        }
    }

    fn nested(&mut self, start: usize, direction: Direction, nested: Nested) {
        self.visit(start, nested.bytes, direction);
        let at = |offset| start.checked_add(offset);
        let array = at(nested.pointer).and_then(|at| self.usize_at(at));
        let count = at(nested.count).and_then(|at| match nested.width {
            2 => self.read(at).map(|b| usize::from(u16::from_ne_bytes(b))),
            4 => self.u32_at(at),
            _ => self.usize_at(at),
        });
        if let (Some(array), Some(count)) = (array, count) {
            self.visit(array, count.saturating_mul(nested.item), nested.direction);
        }
    }
}

const MSGHDR: usize = 56;
const MMSGHDR: usize = 64;
const IOCB: usize = 64;
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;
const FUTEX_WAITV: usize = 24;
const FUTEX_WAITV_MAX: usize = 128;
const SIGEVENT: usize = 64;
const NOTIFY_COOKIE: usize = 32;

/// The word at an offset of a structure that was read.
fn word(bytes: &[u8], offset: usize) -> usize {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[offset..offset + WORD]);
    usize::from_ne_bytes(word)
}

/// Commands are 32 bits wide: the kernel ignores the rest.
#[expect(clippy::cast_possible_truncation, reason = "that is the point")]
fn low(argument: usize) -> u32 {
    argument as u32
}

#[cfg(test)]
mod tests;
