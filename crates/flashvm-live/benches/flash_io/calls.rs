//! Calls that return when the bytes have arrived: `pread`, and `preadv2` with its flags.

use crate::disk::Disk;
use crate::way::{Operation, Way, expect_whole};
use std::os::fd::RawFd;

/// `pread` and `pwrite`.
pub(crate) fn pread(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Calls::boxed(disk, transfer))
}

/// `preadv2` without flags.
pub(crate) fn preadv2(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Calls::boxed(disk, |file, read| vectored(file, read, 0)))
}

/// `preadv2` with `RWF_HIPRI`: the kernel may poll for the end.
pub(crate) fn hipri(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Calls::boxed(disk, |file, read| {
        vectored(file, read, libc::RWF_HIPRI)
    }))
}

/// `preadv2` with `RWF_NOWAIT`, then without if the read could not begin at once.
pub(crate) fn nowait(disk: &Disk, _: usize) -> Option<Box<dyn Way>> {
    Some(Calls::boxed(disk, |file, read| {
        let result = vectored(file, read, libc::RWF_NOWAIT);
        if result < 0 {
            return vectored(file, read, 0);
        }
        result
    }))
}

struct Calls {
    file: RawFd,
    call: fn(RawFd, Operation) -> i64,
    ended: Vec<usize>,
}

impl Calls {
    fn boxed(disk: &Disk, call: fn(RawFd, Operation) -> i64) -> Box<dyn Way> {
        Box::new(Self {
            file: disk.descriptor(),
            call,
            ended: Vec::new(),
        })
    }
}

impl Way for Calls {
    fn push(&mut self, operation: Operation) {
        expect_whole((self.call)(self.file, operation), operation.bytes);
        self.ended.push(operation.buffer);
    }

    fn submit(&mut self) {}

    fn reap(&mut self, ended: &mut Vec<usize>) {
        ended.append(&mut self.ended);
    }

    fn sleep(&mut self) {}
}

/// Carries out an operation. Returns the bytes, or a negative number.
pub(crate) fn transfer(file: RawFd, operation: Operation) -> i64 {
    let (at, bytes) = (operation.at as i64, operation.bytes);
    let address = operation.address as *mut libc::c_void;
    // SAFETY: the buffer is the operation's until it ends.
    let result = unsafe {
        match operation.write {
            true => libc::pwrite(file, address, bytes, at),
            false => libc::pread(file, address, bytes, at),
        }
    };
    result as i64
}

fn vectored(file: RawFd, read: Operation, flags: i32) -> i64 {
    let part = libc::iovec {
        iov_base: read.address as *mut libc::c_void,
        iov_len: read.bytes,
    };
    // SAFETY: one vector, whose buffer is the operation's until it ends.
    unsafe { libc::preadv2(file, &raw const part, 1, read.at as i64, flags) as i64 }
}
