//! Transfers in parts: a program may expect a file, a blocking send or a blocking receive to transfer everything, but not
//! all of its memory can be in RAM at once.

use super::memory;
use crate::pager;
use crate::program::descriptor_kind::{Kind, kind};
use flashvm_core::PAGE_SIZE;
use rustix::fs::{OFlags, fcntl_getfl};
use std::os::fd::BorrowedFd;

/// The kernel's limit of a vector.
const PARTS_MAX: usize = 1024;

/// Which arguments name a transfer's memory.
enum TransferMemory {
    /// Address in this argument, bytes in the next.
    Flat(usize),
    /// Array of `iovec` in argument 1, their number in argument 2.
    Vector,
}

/// How a call moves bytes.
struct TransferCall {
    memory: TransferMemory,
    /// Whether the rest always follows. If not (a read), it follows for files only: other descriptors may have no more
    /// data.
    goes_on: bool,
    /// Argument 3 is the offset in the file.
    at_offset: bool,
}

fn transfer(number: i64, args: &[usize; 6]) -> Option<TransferCall> {
    let (memory, goes_on, at_offset) = match number {
        libc::SYS_read => (TransferMemory::Flat(1), false, false),
        libc::SYS_recvfrom => (
            TransferMemory::Flat(1),
            fills_buffer(args[0], args[3]),
            false,
        ),
        libc::SYS_pread64 => (TransferMemory::Flat(1), false, true),
        libc::SYS_write | libc::SYS_sendto => (TransferMemory::Flat(1), true, false),
        libc::SYS_pwrite64 => (TransferMemory::Flat(1), true, true),
        libc::SYS_readv => (TransferMemory::Vector, false, false),
        libc::SYS_preadv => (TransferMemory::Vector, false, true),
        libc::SYS_writev => (TransferMemory::Vector, true, false),
        libc::SYS_pwritev => (TransferMemory::Vector, true, true),
        libc::SYS_getrandom => (TransferMemory::Flat(0), true, false),
        libc::SYS_vmsplice => (TransferMemory::Vector, is_open_for_writing(args[0]), false),
        // With an offset of -1 they use the file's own.
        libc::SYS_preadv2 => (TransferMemory::Vector, false, args[3] != usize::MAX),
        libc::SYS_pwritev2 => (TransferMemory::Vector, true, args[3] != usize::MAX),
        _ => return None,
    };
    Some(TransferCall {
        memory,
        goes_on,
        at_offset,
    })
}

/// Whether a call moves bytes, so that it can be made in parts.
pub(super) fn is_transfer(number: i64, args: &[usize; 6]) -> bool {
    transfer(number, args).is_some()
}

/// Whether a receive waits until its buffer is full, and takes from the socket what it receives.
fn fills_buffer(fd: usize, flags: usize) -> bool {
    let [waits, peeks] = [libc::MSG_WAITALL, libc::MSG_PEEK].map(|flag| flags & flag as usize != 0);
    waits && !peeks && kind(fd as i32) == Kind::Stream
}

/// A call of the program that may have to be made in parts.
pub(super) struct Parts {
    number: i64,
    /// Arguments for the rest.
    args: [usize; 6],
    /// Bytes moved by earlier parts.
    moved: usize,
    /// The vector of the rest, if `args` refers to it.
    left: Vec<[usize; 2]>,
    /// The vector of a part of a page.
    page: [usize; 2],
}

impl Parts {
    /// A call with nothing done.
    pub(super) fn new(number: i64, args: &[usize; 6]) -> Self {
        Self {
            number,
            args: *args,
            moved: 0,
            left: Vec::new(),
            page: [0; 2],
        }
    }

    /// Bytes moved by earlier parts.
    pub(super) fn moved(&self) -> isize {
        self.moved as isize
    }

    /// Whether signals must not end the transfer now: a part of a file has been moved, and the kernel would move the
    /// rest, too.
    pub(super) fn is_amid_file(&self) -> bool {
        self.moved > 0 && kind(self.args[0] as i32) == Kind::File
    }

    /// Arguments for the rest. With `by_page` they are for one page of the rest, if the descriptor takes parts; the
    /// second result says so. The arguments are valid until the next call of a method.
    pub(super) fn next(&mut self, by_page: bool) -> ([usize; 6], bool) {
        if by_page && let Some(args) = self.page() {
            return (args, true);
        }
        (self.args, false)
    }

    fn page(&mut self) -> Option<[usize; 6]> {
        let transfer = transfer(self.number, &self.args)?;
        let mut args = self.args;
        match transfer.memory {
            TransferMemory::Flat(1) if kind(args[0] as i32) != Kind::Consumed => {
                args[2] = args[2].min(PAGE_SIZE);
            }
            TransferMemory::Vector if kind(args[0] as i32) != Kind::Consumed => {
                let [start, len] = *vector(args[1], args[2])?.iter().find(|part| part[1] > 0)?;
                self.page = [start, len.min(PAGE_SIZE)];
                (args[1], args[2]) = (self.page.as_ptr() as usize, 1);
            }
            _ => return None,
        }
        Some(args)
    }

    /// Notes that `done` more bytes have moved. Returns whether the rest is to follow: the program may expect all of
    /// it, and the call stopped at managed memory or was for one page (`is_page`). Otherwise nothing is noted.
    pub(super) fn advance(&mut self, done: usize, is_page: bool) -> bool {
        let Some(TransferCall {
            memory,
            goes_on,
            at_offset,
        }) = transfer(self.number, &self.args)
        else {
            return false;
        };
        if !goes_on && kind(self.args[0] as i32) != Kind::File {
            return false;
        }
        match memory {
            TransferMemory::Flat(at) => {
                let (start, len) = (self.args[at], self.args[at + 1]);
                if done >= len || !(is_page || is_ours(start + done)) {
                    return false;
                }
                (self.args[at], self.args[at + 1]) = (start + done, len - done);
            }
            TransferMemory::Vector => {
                let Some(left) = left_of(self.args[1], self.args[2], done, is_page) else {
                    return false;
                };
                self.left = left;
                (self.args[1], self.args[2]) = (self.left.as_ptr() as usize, self.left.len());
            }
        }
        if at_offset {
            self.args[3] += done;
        }
        self.moved += done;
        true
    }
}

/// Whether a transfer may have stopped at this address because memory was absent: only managed memory can be absent.
fn is_ours(next: usize) -> bool {
    pager().is_some_and(|pager| pager.manages(next, 1))
}

/// A vector of the program.
fn vector(array: usize, count: usize) -> Option<Vec<[usize; 2]>> {
    let mut parts = vec![[0_usize; 2]; count.min(PARTS_MAX)];
    let bytes = size_of_val(&parts[..]);
    memory::read_part(array, &mut parts, bytes).then_some(parts)
}

/// The parts of a vector after its first `done` bytes, if the transfer stopped at managed memory, or `anywhere`.
fn left_of(array: usize, count: usize, done: usize, anywhere: bool) -> Option<Vec<[usize; 2]>> {
    let mut parts = vector(array, count)?;
    let mut done = done;
    let first = parts.iter().position(|part| {
        let inside = done < part[1];
        if !inside {
            done -= part[1];
        }
        inside
    })?;
    let part = &mut parts[first];
    let next = part[0] + done;
    if !(anywhere || is_ours(next)) {
        return None;
    }
    (part[0], part[1]) = (next, part[1] - done);
    Some(parts.split_off(first))
}

/// Whether a descriptor is the write end of a pipe. No descriptor is.
fn is_open_for_writing(fd: usize) -> bool {
    let fd = fd as i32;
    if fd < 0 {
        return false;
    }
    // SAFETY: the descriptor is not -1, and is only queried, during this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::WRONLY))
}
