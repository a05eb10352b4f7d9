//! The pager's file descriptors: out of the program's way, and safe from being closed by it.
//!
//! Programs close descriptors that they do not know (daemons all of them, shells those below ten)
//! and expect the lowest free numbers. So ours have high numbers, and the preloaded wrappers of
//! `close` and its family ask [`is_ours`].

use super::disk_space::STORES_MAX;
use super::raw;
use super::spare_descriptors::{self, with_room};
use rustix::io::Errno;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

const OURS_MAX: usize = 96;
/// Our lowest number, if the limit on open files is at least its usual 1024.
const FROM: RawFd = 900;

static OURS: [AtomicI32; OURS_MAX] = [const { AtomicI32::new(-1) }; OURS_MAX];

/// Whether a descriptor belongs to the pager.
#[must_use]
pub fn is_ours(fd: RawFd) -> bool {
    fd >= 0 && OURS.iter().any(|ours| ours.load(Ordering::Relaxed) == fd)
}

/// The pager's descriptors in ascending order.
fn all() -> impl Iterator<Item = RawFd> {
    let mut fds = [RawFd::MAX; OURS_MAX];
    for (fd, ours) in fds.iter_mut().zip(&OURS) {
        let open = ours.load(Ordering::Relaxed);
        if open >= 0 {
            *fd = open;
        }
    }
    fds.sort_unstable();
    fds.into_iter().take_while(|&fd| fd != RawFd::MAX)
}

/// Closes the program's descriptors from `first` to `last`, and none of the pager's.
///
/// # Errors
/// The error of `close_range`.
pub(crate) fn close_program_range(first: u32, last: u32) -> Result<(), Errno> {
    let close = |from: u32, to: u32| {
        // SAFETY: the call takes no pointer. The loop below leaves the pager's descriptors out of
        // each range.
        let closed = unsafe {
            raw::syscall(
                libc::SYS_close_range,
                [from as usize, to as usize, 0, 0, 0, 0],
            )
        };
        raw::result(closed).map(|_| ())
    };
    let mut from = first;
    for fd in all().map(|fd| fd as u32) {
        if fd < from || fd > last {
            continue;
        }
        if fd > from {
            close(from, fd - 1)?;
        }
        from = fd + 1;
    }
    if from > last {
        return Ok(());
    }
    close(from, last)
}

/// Marks a number as that of a descriptor of the pager.
pub(crate) fn note(fd: RawFd) {
    for ours in &OURS {
        if ours
            .compare_exchange(-1, fd, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
    }
    panic!("more than {OURS_MAX} descriptors of the pager's own");
}

/// [`PagerFd::keep`], for a descriptor that stays open as long as the process.
pub(crate) fn keep(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    with_room(|| keep_in_free(&fd))
}

/// [`keep`], if there is a number that nobody uses.
pub(super) fn keep_in_free(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let high = rustix::io::fcntl_dupfd_cloexec(&fd, FROM)
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(&fd, 3))?;
    note(high.as_raw_fd());
    Ok(high)
}

/// A descriptor that forked children keep as well, or -1.
static FOR_LIFE: AtomicI32 = AtomicI32::new(-1);

/// Keeps a descriptor in this process and in those that it forks. Returns its number. Called once.
///
/// # Errors
/// `EMFILE` if there is no number left.
pub(crate) fn keep_for_life(fd: OwnedFd) -> Result<RawFd, Errno> {
    let number = keep(fd)?.into_raw_fd();
    FOR_LIFE.store(number, Ordering::Relaxed);
    Ok(number)
}

/// Descriptors that the programs executed by this process inherit.
static HANDED_ON: [AtomicI32; HANDED_ON_MAX] = [const { AtomicI32::new(-1) }; HANDED_ON_MAX];

/// The control region, the store's files, and the preloaded object.
const HANDED_ON_MAX: usize = STORES_MAX + 2;

/// Keeps a descriptor for the programs that this process and its children execute. Returns its number.
///
/// # Errors
/// `EMFILE` if there is no number left.
///
/// # Panics
/// If there are more than [`HANDED_ON_MAX`] of these.
pub(crate) fn hand_on(fd: OwnedFd) -> Result<RawFd, Errno> {
    let fd = match fd.as_raw_fd() {
        ..FROM => keep(fd)?,
        high => {
            note(high);
            fd
        }
    };
    let number = fd.into_raw_fd();
    let claim = |kept: &AtomicI32| {
        let free = kept.compare_exchange(-1, number, Ordering::Relaxed, Ordering::Relaxed);
        free.is_ok()
    };
    assert!(
        HANDED_ON.iter().any(claim),
        "no room for descriptor {number}"
    );
    let_inherit();
    Ok(number)
}

/// Clears the close-on-exec flags of the descriptors that are handed on: the program may have set them.
pub(crate) fn let_inherit() {
    for kept in &HANDED_ON {
        let fd = kept.load(Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: `hand_on` has left it open for good. In handler mode the program may close it unseen: then the
            // call fails, or clears the flag of another file.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty());
        }
    }
}

/// An open descriptor with its mark of [`note`]. On drop it is closed, and then the mark is removed. Another descriptor with
/// the same number keeps its own.
#[derive(Debug)]
struct Marked(RawFd);

impl Drop for Marked {
    fn drop(&mut self) {
        // The system call: the preloaded `close`, which Rust's owners call, refuses marked descriptors. With the mark, so
        // that the program cannot close the number first, and this call what has got it next.
        // SAFETY: it takes no pointer, and the descriptor has no other owner that closes it.
        unsafe { raw::syscall(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
        let remove = |ours: &AtomicI32| {
            ours.compare_exchange(self.0, -1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        OURS.iter().any(remove);
    }
}

/// A descriptor of the pager with its owner: out of the program's way, close-on-exec, and marked as the pager's until
/// it is closed.
#[derive(Debug)]
pub(crate) struct PagerFd<F = OwnedFd> {
    /// Never dropped: `marked` closes the descriptor.
    holder: ManuallyDrop<F>,
    marked: Marked,
}

impl PagerFd {
    /// Moves a descriptor out of the program's way.
    ///
    /// # Errors
    /// `EMFILE` if there is no number left.
    pub(crate) fn keep(fd: OwnedFd) -> Result<Self, Errno> {
        keep(fd).map(Self::of_kept)
    }

    /// Opens a descriptor out of the program's way, even if the program has all of its numbers in use.
    ///
    /// # Errors
    /// Those of `open`, and as [`with_room`].
    pub(crate) fn open(open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        with_room(open).and_then(Self::keep)
    }

    /// The owner of a descriptor that [`keep`] has returned.
    pub(super) fn of_kept(holder: OwnedFd) -> Self {
        Self {
            marked: Marked(holder.as_raw_fd()),
            holder: ManuallyDrop::new(holder),
        }
    }
}

impl<F> PagerFd<F> {
    /// Puts the descriptor into another owner, which owns nothing else.
    pub(crate) fn map<G>(self, into: impl FnOnce(F) -> G) -> PagerFd<G> {
        PagerFd {
            marked: self.marked,
            holder: ManuallyDrop::new(into(ManuallyDrop::into_inner(self.holder))),
        }
    }
}

impl<F> Deref for PagerFd<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.holder
    }
}

impl<F> DerefMut for PagerFd<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.holder
    }
}

impl<F: AsFd> AsFd for PagerFd<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.holder.as_fd()
    }
}

impl<F: AsRawFd> AsRawFd for PagerFd<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.holder.as_raw_fd()
    }
}

/// In a forked child: closes the copies of the parent's descriptors, the spare ones too, except those in `kept`, those that
/// are handed on, and the one that is kept for life.
pub(crate) fn close_inherited(kept: &[RawFd]) {
    let handed_on = |fd| {
        HANDED_ON
            .iter()
            .chain([&FOR_LIFE])
            .any(|kept| kept.load(Ordering::Relaxed) == fd)
    };
    for ours in &OURS {
        let fd = ours.load(Ordering::Relaxed);
        if fd >= 0 && !kept.contains(&fd) && !handed_on(fd) {
            ours.store(-1, Ordering::Relaxed);
            // SAFETY: the owner of this number is a thread or a structure that only exists in the
            // parent; its copy here is never dropped.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    spare_descriptors::forget();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::fs::File;

    #[test]
    fn a_number_that_is_used_again_stays_ours() {
        // Never open, so that no other test gets it.
        const NUMBER: RawFd = RawFd::MAX;
        let first = Marked(NUMBER);
        note(NUMBER);
        // Another thread gets the number between the two steps of a drop.
        note(NUMBER);
        drop(first);
        assert!(is_ours(NUMBER));
        drop(Marked(NUMBER));
        assert!(!is_ours(NUMBER));
    }

    fn event() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_descriptor_is_the_pagers_until_it_closes() {
        // More than can be open at once.
        for _ in 0..2 * OURS_MAX {
            let kept = PagerFd::keep(event()).unwrap();
            let number = kept.as_raw_fd();
            assert!(is_ours(number));
            let file: PagerFd<File> = kept.map(File::from);
            assert!(is_ours(number) && file.as_raw_fd() == number);
        }
    }
}
