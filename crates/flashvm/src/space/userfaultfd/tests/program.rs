//! An address space with the accesses of a program.
//!
//! Pages are touched through `process_vm_readv` and `process_vm_writev`, which fail with EFAULT where the program would
//! have a fault.

use super::*;
use crate::sys::message::eprint_line;
use rustix::event::{PollFd, PollFlags};

pub(super) const PAGES: u32 = 200;
/// Pages of the region that are mapped and registered.
pub(super) const MAPPED: u32 = 160;

/// An address space, with the accesses of a program.
pub(super) struct Space(pub(super) Userfaultfd);

pub(super) fn run(first: u32, count: u32) -> Run {
    Run::new(PageId(first), count)
}

pub(super) fn page(byte: u8) -> [u8; PAGE_SIZE] {
    [byte; PAGE_SIZE]
}

/// Runs a test on each kind that this machine has; with `shadow`, only with or without a shadow.
pub(super) fn each_kind<T: Fn(&Space)>(shadow: Option<bool>, test: T) {
    each_kind_by(Delivery::Inline, shadow, test);
}

/// The same for either delivery. In handler mode the kernel also reports forks of this process, so nobody may fork.
pub(super) fn each_kind_by<T: Fn(&Space)>(delivery: Delivery, shadow: Option<bool>, test: T) {
    let _no_forks = (delivery == Delivery::Handler).then(forked::exclude);
    // The closure's name contains the test's.
    let name = std::any::type_name::<T>();
    for may_move in [true, false] {
        if shadow.is_some_and(|wanted| wanted != may_move) {
            continue;
        }
        match Userfaultfd::open(PAGES, delivery, may_move) {
            Ok(space) if space.has_shadow() == may_move => {
                let space = Space(space);
                let all = run(0, MAPPED);
                let prot = ProtFlags::READ | ProtFlags::WRITE;
                space.0.range().map_anew(all, prot).unwrap();
                space.0.register(all).unwrap();
                test(&space);
            }
            Ok(_) => eprint_line(&format!("SKIPPED: {name}: no UFFDIO_MOVE before Linux 6.8")),
            Err(error) => eprint_line(&format!("SKIPPED: {name}: {error}")),
        }
    }
}

impl Space {
    /// The operations on its pages.
    pub(super) fn pages(&self) -> &Userfaultfd {
        &self.0
    }

    pub(super) fn at(&self, place: Place, page: u32) -> usize {
        self.0.range().at(place, PageId(page)).get()
    }

    /// Maps a page full of one byte.
    pub(super) fn put(&self, place: Place, at: u32, byte: u8) {
        let done = self
            .0
            .copy(place, run(at, 1), Source::Bytes(&page(byte)), false);
        assert_eq!(done, Done::all(1));
    }

    /// Loads the page's first byte. `None`: a fault.
    pub(super) fn load(&self, place: Place, page: u32) -> Option<u8> {
        let mut byte = 0;
        let (local, remote) = vectors(&mut byte, self.at(place, page));
        // SAFETY: `local` is one writable byte, `byte`; the kernel checks `remote` itself.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        (read == 1).then_some(byte)
    }

    /// Stores to the page's first byte in the region. Returns false at a fault.
    pub(super) fn store(&self, page: u32, mut byte: u8) -> bool {
        let (local, remote) = vectors(&mut byte, self.at(Place::Region, page));
        // SAFETY: `local` is one readable byte, `byte`. `remote` is managed memory, to which no Rust code refers; the
        // kernel checks it itself.
        let written = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
        written == 1
    }

    /// Waits for the kernel's message, and returns it.
    pub(super) fn reported(&self) -> Message {
        self.await_report();
        let mut messages = Vec::new();
        self.0.read(&mut messages).unwrap();
        assert_eq!(messages.len(), 1);
        messages[0]
    }

    pub(super) fn await_report(&self) {
        let mut fds = [PollFd::new(self.0.region(), PollFlags::IN)];
        while rustix::event::poll(&mut fds, None) != Ok(1) {}
    }

    /// Whether a page is there in the region, and in the shadow.
    pub(super) fn held(&self, page: u32) -> (bool, bool) {
        let holds = |place| self.pages().holds(place, PageId(page));
        (holds(Place::Region), holds(Place::Shadow))
    }
}

fn vectors(byte: &mut u8, remote: usize) -> (libc::iovec, libc::iovec) {
    let vector = |at| libc::iovec {
        iov_base: at,
        iov_len: 1,
    };
    (
        vector(std::ptr::from_mut(byte).cast()),
        vector(remote as *mut _),
    )
}
