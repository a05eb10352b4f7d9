//! An address space with the accesses of a program.
//!
//! Pages are touched through `process_vm_readv` and `process_vm_writev`, which fail with EFAULT where the program would
//! have a fault.

use crate::space::{Backend, Delivery, Older, PageBuffer, Source, Space};
use crate::sys::message::eprint_line;
use flashvm_core::space::{AddressSpace, Done, Stop};
use flashvm_core::{PAGE_SIZE, PageId, Place, Run};
use rustix::mm::ProtFlags;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(in crate::space) const PAGES: u32 = 200;
/// Pages of the region that the program has mapped.
pub(in crate::space) const MAPPED: u32 = 160;

/// A kind of address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) enum Kind {
    /// By userfaultfd, and pages can be moved.
    Moving,
    /// By userfaultfd, without a shadow.
    Unmoving,
    /// By hidden pages.
    Hiding,
    /// By pages that access rights hide.
    HidingByRights,
}

pub(in crate::space) const ALL: &[Kind] = &[
    Kind::Moving,
    Kind::Unmoving,
    Kind::Hiding,
    Kind::HidingByRights,
];
pub(in crate::space) const WITH_SHADOW: &[Kind] =
    &[Kind::Moving, Kind::Hiding, Kind::HidingByRights];
/// More than the pages of a test can take.
const MAPPINGS: u32 = 1000;

/// Tests run in threads of one process. Those that fork, and those to which the kernel reports forks, take turns.
static FORKS: Mutex<()> = Mutex::new(());

/// Nobody forks until this is dropped.
pub(in crate::space) fn exclude_forks() -> MutexGuard<'static, ()> {
    FORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program in an address space.
pub(in crate::space) struct Program(pub(in crate::space) Space);

pub(in crate::space) fn run(first: u32, count: u32) -> Run {
    Run::new(PageId(first), count)
}

pub(in crate::space) fn page(byte: u8) -> [u8; PAGE_SIZE] {
    [byte; PAGE_SIZE]
}

/// Runs a test on those of the kinds that this machine has.
pub(in crate::space) fn each_kind<T: Fn(&Program)>(kinds: &[Kind], test: T) {
    for &kind in kinds {
        let delivery = match kind {
            Kind::Hiding | Kind::HidingByRights => Delivery::Protect,
            Kind::Moving | Kind::Unmoving => Delivery::Inline,
        };
        try_kind(kind, delivery, &test);
    }
}

/// Runs a test on the kinds of userfaultfd in handler mode. The kernel then reports forks of this process, so nobody may
/// fork.
pub(in crate::space) fn each_kind_by_handler<T: Fn(&Program)>(test: T) {
    let _no_forks = exclude_forks();
    for kind in [Kind::Moving, Kind::Unmoving] {
        try_kind(kind, Delivery::Handler, &test);
    }
}

fn try_kind<T: Fn(&Program)>(kind: Kind, delivery: Delivery, test: &T) {
    // The closure's name contains the test's.
    let name = std::any::type_name::<T>();
    let older = Older {
        no_move: kind == Kind::Unmoving,
        no_markers: kind == Kind::HidingByRights,
    };
    match Space::open(PAGES, delivery, older, MAPPINGS) {
        Ok(space) if space.has_shadow() == (kind != Kind::Unmoving) => {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            space.map_anew(run(0, MAPPED), prot).unwrap();
            test(&Program(space));
        }
        Ok(_) => eprint_line(&format!("SKIPPED: {name}: no UFFDIO_MOVE before Linux 6.8")),
        Err(error) => eprint_line(&format!("SKIPPED: {name}: {error}")),
    }
}

impl Program {
    /// The operations on its pages.
    pub(in crate::space) fn pages(&self) -> &Space {
        &self.0
    }

    /// The pager throws pages away; [`Space::zap`] is what the program does.
    pub(in crate::space) fn zap(&self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        AddressSpace::zap(&mut &self.0, place, runs)
    }

    pub(in crate::space) fn at(&self, place: Place, page: u32) -> usize {
        self.0.range().at(place, PageId(page)).get()
    }

    /// Maps a page full of one byte.
    pub(in crate::space) fn put(&self, place: Place, at: u32, byte: u8) {
        let copied = self
            .0
            .copy(place, run(at, 1), Source::Bytes(&page(byte)), false);
        assert_eq!(copied, Done::all(1));
    }

    /// Loads the page's first byte. `None`: a fault.
    pub(in crate::space) fn load(&self, page: u32) -> Option<u8> {
        load(self.at(Place::Region, page))
    }

    /// Stores to the page's first byte. Returns false at a fault.
    pub(in crate::space) fn store(&self, page: u32, byte: u8) -> bool {
        store(self.at(Place::Region, page), byte)
    }

    /// The first byte of a page in the shadow, as the pager reads it. `None`: it is not there.
    pub(in crate::space) fn in_shadow(&self, page: u32) -> Option<u8> {
        if !self.held(page).1 {
            return None;
        }
        let mut copy = PageBuffer::new();
        // SAFETY: no other thread uses the space, so the page stays in the shadow, unchanged.
        unsafe { self.0.copy_out(run(page, 1), &mut copy.0) }.unwrap();
        Some(copy.0[0])
    }

    /// Whether a page is there in the region, and in the shadow.
    pub(in crate::space) fn held(&self, page: u32) -> (bool, bool) {
        let holds = |place| self.pages().holds(place, PageId(page));
        (holds(Place::Region), holds(Place::Shadow))
    }
}

/// Loads a byte. `None`: a fault.
pub(in crate::space) fn load(address: usize) -> Option<u8> {
    let mut byte = 0;
    let (local, remote) = vectors(&mut byte, address);
    // SAFETY: `local` is one writable byte, `byte`; the kernel checks `remote` itself.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (read == 1).then_some(byte)
}

/// Stores a byte to managed memory. Returns false at a fault.
pub(in crate::space) fn store(address: usize, mut byte: u8) -> bool {
    let (local, remote) = vectors(&mut byte, address);
    // SAFETY: `local` is one readable byte, `byte`. `remote` is managed memory, to which no Rust code refers; the kernel
    // checks it itself.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    written == 1
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
