//! Chameleon, live: a heap of virtual pages of 512 bytes to 4 KiB, packed into frames, over a log.
//!
//! The heap's addresses are a *hole*: nothing is mapped there. A virtual page that is in RAM and in use
//! is an *overlay*: its frame, a page of a memfd, mapped at its address. Lifting it is one `munmap`, after
//! which nobody can store to it; a touch is a SIGSEGV, which its own thread resolves here. All decisions
//! are `flashvm_core::chameleon`'s; this module maps, copies, reads and writes.
//!
//! - `hole`: the addresses, overlays, and the budget of mappings;
//! - `fault`: what a touch finds; `evict`: room for a page;
//! - `round`: writing what has changed, to the log (`log`) or to where it was (`in_place`);
//! - `pages`: handing pages out and taking them back; `pin`: those that the kernel works on;
//! - `fork`: the child's copy.
//!
//! Safety argument: frames are reached through one mapping of the memfd that lives as long as the process
//! (`pool`). A range of a frame is read or written there only with its page lifted or not yet shown, and
//! with the lock held or the page marked as being read, so that neither the program nor another thread of
//! ours does. Ranges of other pages in the same frame are never touched with it.
//!
//! Inline mode only: in handler mode nobody would resolve a SIGSEGV.

mod evict;
mod fault;
mod fork;
mod hole;
mod in_place;
mod log;
mod pages;
mod pin;
mod round;

pub(crate) use fork::ForkedFrames;
pub use hole::{overlays_allowed, overlays_most};
pub use pages::{PageList, RUN_PAGES};

use crate::control::{ChameleonSettings, Process, SharedClusters};
use crate::pager::Pager;
use crate::sys::{descriptors, map};
use flashvm_core::chameleon::{
    BLOCK_BYTES, Clocks, FrameId, Frames, InPlace, Log, Organization, Shape, Svmp, Table,
};
use flashvm_core::{Nanos, PAGE_SIZE};
use rustix::io::Errno;
use rustix_futex_sync::{Condvar, Mutex, MutexGuard};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The heap of small pages of this process.
pub(crate) struct Chameleon {
    /// Where the hole begins.
    base: usize,
    /// Where all frames are mapped one after the other.
    pool: usize,
    /// Two blocks: one to fill, one to clean.
    buffers: usize,
    frames_file: OwnedFd,
    settings: ChameleonSettings,
    /// Bytes that the store reads at least.
    sector_bytes: usize,
    core: Mutex<Core>,
    /// A read or a round has ended, or a fork is over.
    changed: Condvar,
    /// Counts calls for the writer.
    writer_called: AtomicU32,
    /// Frames that it may keep: the page pager needs the others. Written with the engine locked.
    pub(crate) target: AtomicU32,
}

/// What only one thread at a time may touch.
struct Core {
    frames: Frames,
    clocks: Clocks,
    table: Table,
    flash: Organization,
    clusters: SharedClusters,
    /// Changed victims that wait for a round.
    condemned: Vec<Svmp>,
    condemned_sectors: u32,
    overlays: hole::Overlays,
    pins: pin::Pinned,
    pages: pages::Addresses,
    /// Frames of the process' grant that it has.
    held: u32,
    /// Faults until it asks for more frames again.
    ask_again: u32,
    /// Reads under way.
    reads: u32,
    /// A round is under way.
    writing: bool,
    /// A fork is under way: nothing may begin.
    frozen: bool,
    /// Threads that wait for a change.
    waiters: u32,
    counters: Counters,
}

/// What is published of it.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    faults: u64,
    major: u64,
    rescued: u64,
    fresh: u64,
    read_pages: u64,
    read_bytes: u64,
    read_errors: u64,
    evicted_clean: u64,
    evicted_dirty: u64,
    zero_pages: u64,
}

impl Chameleon {
    /// Makes an empty heap.
    ///
    /// # Errors
    /// What the kernel says to address space, memory and a memfd.
    pub(crate) fn new(
        settings: ChameleonSettings,
        process: &Process,
        frames_most: u32,
        store: std::os::fd::RawFd,
        store_blocks: u32,
    ) -> Result<Self, Errno> {
        // What SSDAlloc's page buffer takes, at a frame for each page of it.
        let buffered = settings.page_buffer.map_or(0, |percent| {
            (u64::from(frames_most) * u64::from(percent) / 100) as u32
        });
        let frames_most = frames_most - buffered;
        let frames_file = new_pool(frames_most)?;
        let pool = map::map_shared(&frames_file, frames_most as usize * PAGE_SIZE)?;
        let buffers = map::own(2 * BLOCK_BYTES)?;
        let overlays =
            hole::Overlays::new(settings.overlays, settings.page_buffer.map(|_| buffered));
        Ok(Self {
            base: hole::reserve()?,
            pool,
            buffers,
            frames_file,
            sector_bytes: fault::sector_bytes(store, buffers),
            settings,
            core: Mutex::new(Core {
                frames: Frames::new(frames_most),
                clocks: Clocks::new(frames_most),
                table: Table::new(),
                flash: match settings.log_structuring {
                    true => Organization::Log(Log::new(store_blocks)),
                    false => Organization::InPlace(InPlace::new(store_blocks)),
                },
                clusters: process.clusters(),
                condemned: Vec::with_capacity(1024),
                condemned_sectors: 0,
                overlays,
                pins: pin::Pinned::default(),
                pages: pages::Addresses::new(),
                held: 0,
                ask_again: 0,
                reads: 0,
                writing: false,
                frozen: false,
                waiters: 0,
                counters: Counters::default(),
            }),
            changed: Condvar::new(),
            writer_called: AtomicU32::new(0),
            target: AtomicU32::new(u32::MAX),
        })
    }

    /// Where the heap's addresses begin, and how many bytes they are.
    pub(crate) fn addresses(&self) -> (usize, usize) {
        (self.base, hole::BYTES)
    }

    /// Whether any of these addresses is the heap's.
    #[inline]
    pub(crate) fn holds(&self, address: usize, len: usize) -> bool {
        address < self.base + hole::BYTES && address.saturating_add(len) > self.base
    }

    /// What was asked for.
    pub(crate) fn settings(&self) -> ChameleonSettings {
        self.settings
    }

    fn page_at(&self, address: usize) -> Option<Svmp> {
        let offset = address.wrapping_sub(self.base);
        (offset < hole::BYTES).then_some(Svmp((offset / PAGE_SIZE) as u32))
    }

    fn address(&self, page: Svmp) -> usize {
        self.base + page.0 as usize * PAGE_SIZE
    }

    /// Where a range of a frame is in the pool.
    fn range(&self, frame: FrameId, shape: Shape) -> usize {
        self.pool + frame.0 as usize * PAGE_SIZE + shape.offset()
    }

    /// Locks; waits while a fork is under way.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.await_thaw(self.core.lock())
    }

    /// Waits until a fork is over, if there is one.
    fn await_thaw<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        while core.frozen {
            core = self.await_end(core);
        }
        core
    }

    /// Waits until a read or a round has ended, and no fork is under way: what the thread does next may not be
    /// half done in the child.
    fn await_change<'a>(&'a self, core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        self.await_thaw(self.await_end(core))
    }

    /// Waits until a read, a round or a fork has ended.
    fn await_end<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        core.waiters += 1;
        core = self.changed.wait(core);
        core.waiters -= 1;
        core
    }

    /// Tells those who wait for it that a read or a round has ended.
    fn announce_change(&self, core: &Core) {
        if core.waiters > 0 {
            self.changed.notify_all();
        }
    }

    /// Publishes what has been counted.
    fn publish(&self, core: &Core, pager: &Pager) {
        let (stats, counters, log) = (pager.stats(), &core.counters, core.flash.counters());
        let set =
            |to: &std::sync::atomic::AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
        set(&stats.svmp_faults, counters.faults);
        set(&stats.svmp_major, counters.major);
        set(&stats.svmp_rescued, counters.rescued);
        set(&stats.svmp_fresh, counters.fresh);
        set(&stats.svmp_pages_in, counters.read_pages);
        set(&stats.svmp_bytes_in, counters.read_bytes);
        set(&stats.svmp_read_errors, counters.read_errors);
        set(&stats.svmp_evicted_clean, counters.evicted_clean);
        set(&stats.svmp_evicted_dirty, counters.evicted_dirty);
        set(&stats.svmp_zero_pages, counters.zero_pages);
        set(&stats.log_pages, log.pages_changed);
        set(&stats.log_bytes_changed, log.bytes_changed);
        set(&stats.log_bytes_written, log.bytes_written);
        set(&stats.log_bytes_cleaned, log.bytes_read);
        set(&stats.log_write_errors, log.write_errors);
        set(&stats.overlays_max, core.overlays.most_seen.into());
        set(&stats.svmp_table_bytes, core.table.bytes() as u64);
    }
}

/// A file for so many frames, which takes memory as they are used.
fn new_pool(frames: u32) -> Result<OwnedFd, Errno> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("flashvm-frames", flags).and_then(descriptors::keep)?;
    rustix::fs::ftruncate(&file, u64::from(frames) * PAGE_SIZE as u64)?;
    Ok(file)
}

/// Time on the clock of the latencies.
fn now() -> Nanos {
    crate::pager::now()
}
