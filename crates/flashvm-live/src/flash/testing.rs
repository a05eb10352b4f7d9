//! Helpers of the stores' tests: pages with contents, and a layer that spoils reads as scripted.

use super::layer::Layer;
use super::memory::MemoryStore;
use super::nbd::{NbdTrouble, PendingRead, PendingWrite, SideError};
use super::side::{Begun, Half};
use super::store::{Failed, Geometry, Part, Span, Store};
use super::{FlashStore, Place, Setup};
use crate::control::{Control, Inject, Process, RunSettings, SidePlace};
use crate::space::Delivery;
use crate::sys::map;
use flashvm_core::{ClusterSource, Nanos, PAGE_SIZE, Preset};
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Queues need stores that live for ever.
pub(super) fn leak<S>(store: S) -> &'static S {
    Box::leak(Box::new(store))
}

/// The settings of a run with a store of `flash_bytes` bytes.
pub(super) fn settings(flash_bytes: u64) -> RunSettings {
    let engine = Preset::Flashvm.settings();
    RunSettings::new(4 << 20, flash_bytes, engine, Delivery::Inline)
}

/// A file without a name, opened for direct I/O if its file system has it.
pub(super) fn file(bytes: u64) -> OwnedFd {
    let file = OwnedFd::from(tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap());
    rustix::fs::ftruncate(&file, bytes).unwrap();
    if rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).is_err() {
        eprintln!("SKIPPED: direct I/O, which this file system lacks");
    }
    file
}

/// The stack over a [`file`].
pub(super) fn whole_stack(bytes: u64, inject: Option<Inject>) -> FlashStore {
    stack(bytes, inject, false, false)
}

/// [`whole_stack`] for a machine that forbids io_uring.
pub(super) fn stack_without_ring(bytes: u64, inject: Option<Inject>) -> FlashStore {
    stack(bytes, inject, true, false)
}

/// [`whole_stack`] with encryption.
pub(super) fn encrypted_stack(bytes: u64, inject: Option<Inject>) -> FlashStore {
    stack(bytes, inject, false, true)
}

/// [`stack_without_ring`] with encryption.
pub(super) fn encrypted_stack_without_ring(bytes: u64, inject: Option<Inject>) -> FlashStore {
    stack(bytes, inject, true, true)
}

fn stack(bytes: u64, inject: Option<Inject>, without_ring: bool, encrypt: bool) -> FlashStore {
    open(
        Place::File(file(bytes)),
        bytes,
        inject,
        without_ring,
        encrypt,
    )
}

/// A control region for a store of so many bytes, of which a process holds all clusters.
pub(super) fn held(bytes: u64) -> (Control, Process) {
    let control = Control::create(&settings(bytes)).unwrap().0;
    let process = control.register(1, "store").unwrap();
    let mut clusters = process.clusters();
    while clusters.lease().is_some() {}
    (control, process)
}

/// A side in a file.
pub(super) fn side_here() -> SidePlace {
    SidePlace {
        name: "a file".to_owned(),
        server: None,
    }
}

/// The stack over a mirror of two files, with encryption or without.
pub(super) fn mirror_stack(bytes: u64, inject: Option<Inject>, encrypt: bool) -> FlashStore {
    let files = [file(bytes), file(bytes)];
    mirror_of(files, held(bytes).1, bytes, inject, encrypt)
}

/// [`mirror_stack`] over these files, for a process.
pub(super) fn mirror_of(
    files: [OwnedFd; 2],
    process: Process,
    bytes: u64,
    inject: Option<Inject>,
    encrypt: bool,
) -> FlashStore {
    let sides = files.map(|file| (side_here(), Some(file))).into();
    let place = Place::Mirror(sides, process);
    open(place, bytes, inject, false, encrypt)
}

fn open(
    place: Place,
    bytes: u64,
    inject: Option<Inject>,
    without_ring: bool,
    encrypt: bool,
) -> FlashStore {
    let setup = Setup {
        place,
        slots: (bytes / PAGE_SIZE as u64) as u32,
        modelled: None,
        without_ring,
        inject,
        encrypt,
    };
    FlashStore::open(setup).unwrap()
}

/// Pages, aligned for direct I/O, each with contents of its own.
pub(super) struct Pages {
    address: usize,
    count: usize,
}

impl Pages {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let address = map::own(count * PAGE_SIZE).unwrap();
        let mut pages = Self { address, count };
        pages.fill(seed);
        pages
    }

    /// Gives all pages new contents.
    pub(super) fn fill(&mut self, seed: u64) {
        for index in 0..self.count {
            let page = self.page(index);
            // SAFETY: the page lies in memory that `self` alone has, and `self` is borrowed exclusively. Requests that
            // name it have ended.
            let page = unsafe { map::bytes_mut(page.address, page.len) };
            for (at, word) in page.chunks_exact_mut(8).enumerate() {
                let number = seed << 40 | (index as u64) << 16 | at as u64;
                let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                word.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }

    pub(super) fn all(&self) -> Part {
        Part {
            address: self.address,
            len: self.count * PAGE_SIZE,
        }
    }

    pub(super) fn page(&self, index: usize) -> Part {
        assert!(index < self.count);
        Part {
            address: self.address + index * PAGE_SIZE,
            len: PAGE_SIZE,
        }
    }

    pub(super) fn bytes(&self, index: usize) -> &[u8] {
        let page = self.page(index);
        // SAFETY: the page lies in memory that `self` alone has. Tests call this only when no request names the page.
        unsafe { map::bytes(page.address, page.len) }
    }
}

/// How a read is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    Fails,
    Flips,
}

/// A layer that spoils each next read as `next` says, the last entry first.
pub(super) struct Scripted<B> {
    pub(super) below: B,
    pub(super) next: Mutex<Vec<Option<Mishap>>>,
}

impl<B: Store> Layer for Scripted<B> {
    type Below = B;

    fn below(&self) -> &B {
        &self.below
    }

    unsafe fn after_read(&self, _: u64, to: Part, failed: Failed) -> Failed {
        match self.next.lock().unwrap().pop().flatten() {
            None => failed,
            Some(Mishap::Fails) => Failed::all(to.len),
            Some(Mishap::Flips) => {
                // SAFETY: the first byte of `to`. The caller guarantees that `to` is writable and that nobody else
                // uses it before the read is answered.
                unsafe { *(to.address as *mut u8) ^= 0x10 };
                failed
            }
        }
    }
}

/// A side in memory that answers, or is silent.
pub(super) struct SilentSide {
    pub(super) store: MemoryStore,
    pub(super) is_silent: AtomicBool,
    /// Requests that it was asked.
    pub(super) asked: AtomicU32,
}

impl SilentSide {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            store: MemoryStore::new(bytes),
            is_silent: AtomicBool::new(false),
            asked: AtomicU32::new(0),
        }
    }

    fn answers(&self) -> Result<(), NbdTrouble> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.is_silent.load(Ordering::Relaxed) {
            true => Err(NbdTrouble::NoAnswer),
            false => Ok(()),
        }
    }
}

impl Half for SilentSide {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    unsafe fn begin_read(&self, _: u64, _: Part, _: Nanos, _: bool) -> Begun<PendingRead<'_>> {
        unreachable!("mirrors do")
    }

    unsafe fn read_patiently(&self, at: u64, to: Part, _: Nanos) -> Failed {
        self.answers().expect("the process ends");
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.store.read(at, to) }
    }

    unsafe fn begin_write(
        &self,
        _: u64,
        _: &[Part],
        _: Nanos,
        _: &dyn Fn() -> bool,
    ) -> Begun<PendingWrite<'_>> {
        unreachable!("mirrors do")
    }

    unsafe fn write_patiently(&self, at: u64, parts: &[Part], _: Nanos) -> Failed {
        self.answers().expect("the process ends");
        // SAFETY: the caller guarantees what this call asks for.
        unsafe { self.store.write(at, parts) }
    }

    unsafe fn read_until(
        &self,
        at: u64,
        to: Part,
        _: Nanos,
        _: Nanos,
    ) -> Result<Failed, NbdTrouble> {
        self.answers()?;
        // SAFETY: the caller guarantees what this call asks for.
        Ok(unsafe { self.store.read(at, to) })
    }

    unsafe fn write_until(
        &self,
        at: u64,
        parts: &[Part],
        _: Nanos,
        _: Nanos,
    ) -> Result<Failed, NbdTrouble> {
        self.answers()?;
        // SAFETY: the caller guarantees what this call asks for.
        Ok(unsafe { self.store.write(at, parts) })
    }

    fn discard(&self, spans: &[Span]) -> Result<(), SideError> {
        self.answers().map_err(SideError::Lost)?;
        self.store.discard(spans).map_err(SideError::Answered)
    }

    fn sync(&self) -> Result<(), SideError> {
        self.answers().map_err(SideError::Lost)?;
        self.store.sync().map_err(SideError::Answered)
    }
}
