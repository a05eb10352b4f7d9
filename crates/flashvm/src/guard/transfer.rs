//! Continues transfers that stopped short because memory was absent: a program may expect a file, a
//! blocking send or a blocking receive to transfer everything.

use super::memory;
use crate::pager;
use crate::program::descriptor_kind::{Kind, kind};
use rustix::fs::{OFlags, fcntl_getfl};
use std::os::fd::BorrowedFd;

/// The kernel's limit of a vector.
const PARTS_MAX: usize = 1024;

/// Which arguments name a transfer's memory.
enum Memory {
    /// Address in this argument, bytes in the next.
    Flat(usize),
    /// Array of `iovec` in argument 1, their number in argument 2.
    Vector,
}

/// How a call moves bytes.
struct Transfer {
    memory: Memory,
    /// The rest follows in any case. Where this is false (a read), it follows from files only:
    /// elsewhere no more data may come.
    goes_on: bool,
    /// Argument 3 is the offset in the file.
    at_offset: bool,
}

fn transfer(number: i64, args: &[usize; 6]) -> Option<Transfer> {
    let (memory, goes_on, at_offset) = match number {
        libc::SYS_read => (Memory::Flat(1), false, false),
        libc::SYS_pread64 => (Memory::Flat(1), false, true),
        libc::SYS_write | libc::SYS_sendto => (Memory::Flat(1), true, false),
        libc::SYS_pwrite64 => (Memory::Flat(1), true, true),
        libc::SYS_readv => (Memory::Vector, false, false),
        libc::SYS_preadv => (Memory::Vector, false, true),
        libc::SYS_writev => (Memory::Vector, true, false),
        libc::SYS_pwritev => (Memory::Vector, true, true),
        libc::SYS_getrandom => (Memory::Flat(0), true, false),
        libc::SYS_vmsplice => (Memory::Vector, is_open_for_writing(args[0]), false),
        // With an offset of -1 they use the file's own.
        libc::SYS_preadv2 => (Memory::Vector, false, args[3] != usize::MAX),
        libc::SYS_pwritev2 => (Memory::Vector, true, args[3] != usize::MAX),
        _ => return None,
    };
    Some(Transfer {
        memory,
        goes_on,
        at_offset,
    })
}

/// Makes the rest of a transfer that has moved `done` bytes, if it stopped at managed memory.
/// Returns the bytes moved in total; `done` for all other calls.
pub(super) fn rest(
    number: i64,
    args: &[usize; 6],
    done: usize,
    again: impl Fn(i64, &[usize; 6]) -> isize,
) -> isize {
    let all = done as isize;
    let Some(Transfer {
        memory,
        goes_on,
        at_offset,
    }) = transfer(number, args)
    else {
        return all;
    };
    let mut next = *args;
    if at_offset {
        next[3] += done;
    }
    let parts;
    match memory {
        Memory::Flat(at) => {
            if done >= args[at + 1] || !is_ours(args[at] + done) {
                return all;
            }
            (next[at], next[at + 1]) = (args[at] + done, args[at + 1] - done);
        }
        Memory::Vector => {
            let Some(left) = left_of(args[1], args[2], done) else {
                return all;
            };
            parts = left;
            (next[1], next[2]) = (parts.as_ptr() as usize, parts.len());
        }
    }
    if !goes_on && kind(args[0] as i32) != Kind::File {
        return all;
    }
    all + again(number, &next).max(0)
}

/// Whether a transfer may have stopped at this address because memory was absent: only managed
/// memory can be.
fn is_ours(next: usize) -> bool {
    pager().is_some_and(|pager| pager.manages(next, 1))
}

/// The parts of a vector after its first `done` bytes, if the transfer stopped at managed memory.
fn left_of(array: usize, count: usize, done: usize) -> Option<Vec<[usize; 2]>> {
    let mut parts = vec![[0_usize; 2]; count.min(PARTS_MAX)];
    let bytes = size_of_val(&parts[..]);
    if !memory::read_part(array, &mut parts, bytes) {
        return None;
    }
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
    if !is_ours(next) {
        return None;
    }
    (part[0], part[1]) = (next, part[1] - done);
    Some(parts.split_off(first))
}

/// Whether a descriptor is the write end of a pipe.
fn is_open_for_writing(fd: usize) -> bool {
    // SAFETY: the descriptor is only queried, during this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd as i32) };
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::WRONLY))
}
