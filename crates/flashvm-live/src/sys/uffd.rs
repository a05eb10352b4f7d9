//! userfaultfd: the descriptor that delivers faults and places pages.
//!
//! Two descriptors serve a process. The *region* descriptor reports faults and changes of the
//! program's mappings (fork, remove, unmap, remap). The *shadow* descriptor receives the pages that
//! are moved out of the region; nobody faults there, and dropping pages raises no event.

use super::descriptors::PagerFd;
use super::raw;
use super::spare_descriptors::with_room;
use linux_raw_sys::general as sys;
use linux_raw_sys::ioctl as request;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `_IOWR(0xAA, 0x05, struct uffdio_move)`: not yet among the generated constants.
const UFFDIO_MOVE: u32 = 0xC028_AA05;
/// `_IOWR(0xAA, 0x08, struct uffdio_poison)`.
const UFFDIO_POISON: u32 = 0xC020_AA08;
/// `_IO(0xAA, 0x00)`, on `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u32 = 0xAA00;
/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: usize = 1;

/// The kernel's features, as `UFFD_FEATURE_*` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// `UFFDIO_MOVE` (Linux 6.8).
    pub const MOVE: u64 = sys::UFFD_FEATURE_MOVE as u64;
    /// `UFFDIO_POISON` (Linux 6.6).
    pub const POISON: u64 = sys::UFFD_FEATURE_POISON as u64;
    /// Write-protect faults on anonymous memory (Linux 5.7).
    pub const WRITE_PROTECT: u64 = sys::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
    /// Faults as SIGBUS to the faulting thread.
    pub const SIGBUS: u64 = sys::UFFD_FEATURE_SIGBUS as u64;
    /// Fork events; needs `CAP_SYS_PTRACE`.
    pub const EVENT_FORK: u64 = sys::UFFD_FEATURE_EVENT_FORK as u64;
    /// Remove, unmap and remap events.
    pub const EVENTS: u64 = (sys::UFFD_FEATURE_EVENT_REMAP
        | sys::UFFD_FEATURE_EVENT_REMOVE
        | sys::UFFD_FEATURE_EVENT_UNMAP) as u64;

    /// Whether all bits of `wanted` are set.
    #[must_use]
    pub fn has(self, wanted: u64) -> bool {
        self.0 & wanted == wanted
    }
}

/// A message of a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A page fault: address, store, and whether the page is present but write-protected.
    Fault {
        address: usize,
        write: bool,
        protected: bool,
    },
    /// The process forked: the child's descriptor.
    Fork(i32),
    /// An `mremap` that bypassed the pager.
    Remap { from: usize, to: usize, len: usize },
    /// Pages are about to be zapped (`madvise`).
    Remove { start: usize, end: usize },
    /// A mapping is gone.
    Unmap { start: usize, end: usize },
}

/// A userfaultfd. Its registrations end when every process has closed it.
#[derive(Debug)]
pub(crate) struct Uffd(PagerFd);

impl Uffd {
    /// Opens a descriptor with exactly these features. With [`Features::SIGBUS`] it reports faults
    /// in user mode only, which needs no privilege.
    ///
    /// # Errors
    /// `EPERM` where the kernel reserves userfaultfd for privileged users, `ENOSYS` where it has
    /// none, `EINVAL` where a feature is missing.
    pub(crate) fn open(features: u64) -> Result<Self, Errno> {
        let fd = open_raw(features & Features::SIGBUS != 0)?;
        handshake(&fd, features)?;
        PagerFd::keep(fd).map(Self)
    }

    /// Takes over the descriptor of a forked child: a copy of ours, registered and configured.
    pub(crate) fn from_fork(fd: OwnedFd) -> Result<Self, Errno> {
        PagerFd::keep(fd).map(Self)
    }

    /// Registers a range for missing pages and, if asked, write-protection.
    pub(crate) fn register(&self, start: usize, len: usize, protect: bool) -> Result<(), Errno> {
        let mut mode = u64::from(sys::UFFDIO_REGISTER_MODE_MISSING);
        if protect {
            mode |= u64::from(sys::UFFDIO_REGISTER_MODE_WP);
        }
        let mut arg = sys::uffdio_register {
            range: range(start, len),
            mode,
            ioctls: 0,
        };
        // SAFETY: `arg` is the structure that this request reads and writes. Registration changes no contents.
        unsafe { ioctl(self.0.as_fd(), request::UFFDIO_REGISTER, &mut arg) }
    }

    /// Copies `len` bytes from `src` to absent pages at `dst` and wakes their waiters. Returns the
    /// number of bytes placed, and why it stopped short, if it did.
    ///
    /// # Safety
    /// No Rust code may refer to what is at `dst`; at `src` there are `len` bytes that stay while
    /// the call lasts.
    pub(crate) unsafe fn copy(
        &self,
        dst: usize,
        src: *const u8,
        len: usize,
        protect: bool,
    ) -> (usize, Result<(), Errno>) {
        let mode = if protect {
            u64::from(sys::UFFDIO_COPY_MODE_WP)
        } else {
            0
        };
        let mut arg = sys::uffdio_copy {
            dst: dst as u64,
            src: src as u64,
            len: len as u64,
            mode,
            copy: 0,
        };
        // SAFETY: `arg` is the structure that this request reads and writes. The caller guarantees
        // that no Rust code refers to `dst`, and that `src` has `len` bytes until the call returns.
        let result = unsafe { ioctl(self.0.as_fd(), request::UFFDIO_COPY, &mut arg) };
        done(result, arg.copy, len)
    }

    /// Moves pages from `src` to absent pages at `dst`. Returns like [`Uffd::copy`].
    ///
    /// # Safety
    /// No Rust code may refer to what is at either place.
    pub(crate) unsafe fn relocate(
        &self,
        dst: usize,
        src: usize,
        len: usize,
    ) -> (usize, Result<(), Errno>) {
        let mut arg = sys::uffdio_move {
            dst: dst as u64,
            src: src as u64,
            len: len as u64,
            mode: 0,
            move_: 0,
        };
        // SAFETY: `arg` is the structure that this request reads and writes. The caller guarantees
        // that no Rust code refers to `dst` or `src`.
        let result = unsafe { ioctl(self.0.as_fd(), UFFDIO_MOVE, &mut arg) };
        done(result, arg.move_, len)
    }

    /// Write-protects pages, or removes the protection and wakes the waiters.
    pub(crate) fn write_protect(&self, start: usize, len: usize, on: bool) -> Result<(), Errno> {
        let mode = u64::from(on);
        let mut arg = sys::uffdio_writeprotect {
            range: range(start, len),
            mode,
        };
        // SAFETY: `arg` is the structure that this request reads. Protected pages keep their contents.
        unsafe { ioctl(self.0.as_fd(), request::UFFDIO_WRITEPROTECT, &mut arg) }
    }

    /// Makes every touch of these absent pages fail with SIGBUS, and wakes the waiters.
    pub(crate) fn poison(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mut arg = sys::uffdio_poison {
            range: range(start, len),
            mode: 0,
            updated: 0,
        };
        // SAFETY: `arg` is the structure that this request reads and writes. It concerns absent pages, to which no reference
        // can exist.
        unsafe { ioctl(self.0.as_fd(), UFFDIO_POISON, &mut arg) }
    }

    /// Wakes the threads that wait for these pages.
    pub(crate) fn wake(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mut arg = range(start, len);
        // SAFETY: `arg` is the range that this request reads. No memory changes.
        unsafe { ioctl(self.0.as_fd(), request::UFFDIO_WAKE, &mut arg) }
    }

    /// Reads messages without waiting; without messages the result is empty.
    pub(crate) fn read(&self, out: &mut Vec<Message>) -> Result<(), Errno> {
        const BATCH: usize = 32;
        let mut buffer = [const { std::mem::MaybeUninit::<sys::uffd_msg>::uninit() }; BATCH];
        // The message of a fork comes with a new descriptor. Without a number for it, the kernel keeps the message.
        let bytes = with_room(|| {
            let args = [
                self.0.as_raw_fd() as usize,
                buffer.as_mut_ptr() as usize,
                size_of_val(&buffer),
                0,
                0,
                0,
            ];
            // SAFETY: the buffer is writable for the length given.
            raw::result(unsafe { raw::syscall(libc::SYS_read, args) })
        });
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error),
        };
        let count = bytes / size_of::<sys::uffd_msg>();
        for message in &buffer[..count] {
            // SAFETY: the kernel has filled in the first `count` messages.
            let message = unsafe { message.assume_init_ref() };
            out.push(decode(message));
        }
        Ok(())
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn decode(message: &sys::uffd_msg) -> Message {
    // SAFETY: the event field says which member of the union the kernel wrote.
    unsafe {
        match u32::from(message.event) {
            sys::UFFD_EVENT_PAGEFAULT => {
                let fault = message.arg.pagefault;
                Message::Fault {
                    address: fault.address as usize,
                    write: fault.flags & u64::from(sys::UFFD_PAGEFAULT_FLAG_WRITE) != 0,
                    protected: fault.flags & u64::from(sys::UFFD_PAGEFAULT_FLAG_WP) != 0,
                }
            }
            sys::UFFD_EVENT_FORK => Message::Fork(message.arg.fork.ufd as i32),
            sys::UFFD_EVENT_REMAP => {
                let remap = message.arg.remap;
                Message::Remap {
                    from: remap.from as usize,
                    to: remap.to as usize,
                    len: remap.len as usize,
                }
            }
            sys::UFFD_EVENT_REMOVE => {
                let remove = message.arg.remove;
                Message::Remove {
                    start: remove.start as usize,
                    end: remove.end as usize,
                }
            }
            sys::UFFD_EVENT_UNMAP => {
                let remove = message.arg.remove;
                Message::Unmap {
                    start: remove.start as usize,
                    end: remove.end as usize,
                }
            }
            other => unreachable!("userfaultfd event {other}"),
        }
    }
}

fn range(start: usize, len: usize) -> sys::uffdio_range {
    sys::uffdio_range {
        start: start as u64,
        len: len as u64,
    }
}

/// The kernel's answer in `progress`: bytes done, or a negated error code.
fn done(result: Result<(), Errno>, progress: i64, len: usize) -> (usize, Result<(), Errno>) {
    match result {
        Ok(()) => (len, Ok(())),
        Err(error) if progress > 0 => (progress as usize, Err(error)),
        Err(error) => (0, Err(error)),
    }
}

/// # Safety
/// `arg` must be the structure that `request` expects.
unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: u32, arg: &mut T) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `arg` is the structure that `request` reads and writes; it
    // is borrowed for this call alone.
    let result = unsafe {
        raw::syscall(
            libc::SYS_ioctl,
            [
                fd.as_raw_fd() as usize,
                request as usize,
                std::ptr::from_mut(arg) as usize,
                0,
                0,
                0,
            ],
        )
    };
    raw::result(result).map(|_| ())
}

fn open_raw(user_mode_only: bool) -> Result<OwnedFd, Errno> {
    with_room(|| open_in_free(user_mode_only))
}

/// [`open_raw`], if there is a number that nobody uses.
fn open_in_free(user_mode_only: bool) -> Result<OwnedFd, Errno> {
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    let only = if user_mode_only { USER_MODE_ONLY } else { 0 };
    // SAFETY: `userfaultfd` takes flags only, and returns a new descriptor.
    let fd = unsafe { raw::syscall(libc::SYS_userfaultfd, [flags | only, 0, 0, 0, 0, 0]) };
    let refused = match raw::result(fd) {
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(fd) => return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        Err(refused) => refused,
    };
    let Ok(device) = rustix::fs::open(
        "/dev/userfaultfd",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return Err(refused);
    };
    // SAFETY: the request takes its flags by value.
    let fd = unsafe {
        raw::syscall(
            libc::SYS_ioctl,
            [
                device.as_raw_fd() as usize,
                USERFAULTFD_IOC_NEW as usize,
                flags,
                0,
                0,
                0,
            ],
        )
    };
    // SAFETY: a fresh descriptor that nobody else owns.
    raw::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn handshake(fd: &OwnedFd, features: u64) -> Result<u64, Errno> {
    let mut arg = sys::uffdio_api {
        api: 0xAA,
        features,
        ioctls: 0,
    };
    // SAFETY: `arg` is the structure that this request reads and writes.
    unsafe { ioctl(fd.as_fd(), request::UFFDIO_API, &mut arg)? };
    Ok(arg.features)
}

/// The features that this kernel offers to this process.
///
/// # Errors
/// `EPERM` where the kernel reserves userfaultfd for privileged users, `ENOSYS` where it has none.
pub fn probe() -> Result<Features, Errno> {
    Ok(Features(handshake(&open_raw(false)?, 0)?))
}

/// Like [`probe()`], for a descriptor that reports faults in user mode only.
///
/// # Errors
/// As [`probe()`].
pub fn probe_user_mode() -> Result<Features, Errno> {
    Ok(Features(handshake(&open_raw(true)?, 0)?))
}
