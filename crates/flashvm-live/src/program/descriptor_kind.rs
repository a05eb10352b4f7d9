//! Whether a read from a descriptor consumes data, cached for each number until it is closed.
//!
//! A read that stops because memory was absent may be repeated on a file, a pipe or a stream: they
//! keep undelivered data. A datagram, an event or a line from a terminal is gone.

use crate::sys::descriptors::close_program_range;
use crate::sys::raw;
use rustix::fs::{self, FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt::socket_type};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Descriptors in the cache; others are queried every time.
const DESCRIPTORS: usize = 4096;
const UNKNOWN: u8 = 0;
const FILE: u8 = 1;
const STREAM: u8 = 2;
const CONSUMED: u8 = 3;

/// `/dev/zero`, `/dev/random`, `/dev/urandom`: major and minor number.
const ENDLESS: [(u32, u32); 3] = [(1, 5), (1, 8), (1, 9)];

static KINDS: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(UNKNOWN) }; DESCRIPTORS];

/// How a descriptor delivers data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Repeatedly: a regular file, a block device, zeros, random bytes.
    File,
    /// In order, and undelivered data stays: a pipe, a stream socket.
    Stream,
    /// Once: all others.
    Consumed,
}

/// The kind of a descriptor.
#[must_use]
#[inline]
pub fn kind(fd: RawFd) -> Kind {
    let known = KINDS
        .get(fd as usize)
        .map_or(UNKNOWN, |kind| kind.load(Ordering::Relaxed));
    match known {
        FILE => Kind::File,
        STREAM => Kind::Stream,
        CONSUMED => Kind::Consumed,
        _ => look(fd),
    }
}

#[cold]
fn look(fd: RawFd) -> Kind {
    if fd < 0 {
        return Kind::Consumed;
    }
    // SAFETY: the descriptor is only queried, during this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = fstat(borrowed);
    let device = stat.as_ref().map_or((0, 0), |stat| {
        (fs::major(stat.st_rdev), fs::minor(stat.st_rdev))
    });
    let kind = match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::RegularFile | FileType::BlockDevice) => Kind::File,
        Ok(FileType::CharacterDevice) if ENDLESS.contains(&device) => Kind::File,
        Ok(FileType::Fifo) => Kind::Stream,
        Ok(FileType::Socket) if socket_type(borrowed) == Ok(SocketType::STREAM) => Kind::Stream,
        Ok(_) => Kind::Consumed,
        // Not open: there is nothing to cache.
        Err(_) => return Kind::Consumed,
    };
    if let Some(known) = KINDS.get(fd as usize) {
        let code = match kind {
            Kind::File => FILE,
            Kind::Stream => STREAM,
            Kind::Consumed => CONSUMED,
        };
        known.store(code, Ordering::Relaxed);
    }
    kind
}

/// A descriptor is being closed or replaced.
#[inline]
pub fn forget(fd: RawFd) {
    if let Some(known) = KINDS.get(fd as usize) {
        known.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// The same for a range of them.
fn forget_range(first: u32, last: u32) {
    let known = KINDS.iter().take(last as usize + 1).skip(first as usize);
    for kind in known {
        kind.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// `close_range` of the program: closes all but the pager's descriptors, which are close-on-exec anyway.
///
/// # Errors
/// What `close_range` says; `EINVAL` for `CLOSE_RANGE_UNSHARE`, as from a kernel without it: a thread with descriptors of its own
/// would not have those that the pager opens later.
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    static SAID: AtomicBool = AtomicBool::new(false);
    if flags & libc::CLOSE_RANGE_UNSHARE != 0 {
        let refused =
            "close_range with CLOSE_RANGE_UNSHARE is refused (EINVAL): leave the flag out";
        super::end::refuse_once(&SAID, refused);
        return Err(Errno::INVAL);
    }
    if flags != 0 {
        // Nothing is closed now.
        let args = [first as usize, last as usize, flags as usize, 0, 0, 0];
        // SAFETY: the call takes no pointer, and the program has asked for it.
        return raw::result(unsafe { raw::syscall(libc::SYS_close_range, args) }).map(|_| ());
    }
    forget_range(first, last);
    close_program_range(first, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_descriptor_closed_in_a_range_is_forgotten() {
        let file = tempfile::tempfile().unwrap();
        // Beyond the numbers that the other tests use.
        let fd = rustix::io::fcntl_dupfd_cloexec(&file, 3000).unwrap();
        let number = fd.as_raw_fd();
        assert_eq!(kind(number), Kind::File);
        std::mem::forget(fd);
        close_range(number as u32, number as u32, 0).unwrap();
        assert_eq!(KINDS[number as usize].load(Ordering::Relaxed), UNKNOWN);
    }

    #[test]
    fn a_number_may_have_another_kind_after_it_was_closed() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(kind(fd), Kind::File);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(kind(reader.as_raw_fd()), Kind::Stream);
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        assert_eq!(kind(event.as_raw_fd()), Kind::Consumed);
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        assert_eq!(kind(zeros.as_raw_fd()), Kind::File);
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(kind(stream.as_raw_fd()), Kind::Stream);
        let (datagram, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        assert_eq!(kind(datagram.as_raw_fd()), Kind::Consumed);
        let mut again = rustix::io::fcntl_dupfd_cloexec(&datagram, 0).unwrap();
        forget(fd);
        rustix::io::dup2(&file, &mut again).unwrap();
        forget(again.as_raw_fd());
        assert_eq!(kind(again.as_raw_fd()), Kind::File);
        assert_eq!(kind(-1), Kind::Consumed);
        forget_range(0, u32::MAX);
        assert_eq!(kind(fd), Kind::File);
    }
}
