//! The layout of the control region, and the only code that turns offsets into references.
//!
//! Header page, settings as JSON, process slots, records (counters and command of each process
//! slot), orders to the device model, the journal of a report, the decisions of each process slot, the state of a mirror, of other sides and of a tier, holder counts of clusters and of shared frames, two bitmaps
//! for each process slot: the clusters that it leases, the shared frames that it holds; two bitmaps of stale pages, one
//! for each side of a mirror; places, warmth and owners of a tier. The memfd is sparse: pages that nobody touches take no memory, so the bitmaps of unused process slots are free.
//!
//! Safety argument of the module: the file is sealed against shrinking, so no access inside its
//! size raises SIGBUS; the mapping is never removed, so references are `'static`; and every reference
//! is to atomics, for which any bytes are a valid value and which other processes may change at any
//! time. Only an observer's mapping is removed ([`Window`]): the observer keeps no reference into it,
//! and returns copies.
#![allow(unsafe_code, reason = "maps the shared region; the argument is above")]

use super::decisions::Ring;
use super::journal::{Head, SAMPLES, SIGHTINGS, STACK_WORDS};
use super::mirror::MirrorHead;
use super::record::SlotRecord;
use super::sides::SidesHead;
use super::tier::{CHUNK_PAGES, SPARE_CHUNKS, TierHead, Writing};
use super::{Error, PROCESS_SLOTS, os};
use crate::sys::now;
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"flashvmC");
const VERSION: u32 = 10;

/// Bytes for the settings.
const SETTINGS_BYTES: usize = 16 << 10;
const SETTINGS_AT: usize = 4096;
const SLOTS_AT: usize = SETTINGS_AT + SETTINGS_BYTES;
const RECORDS_AT: usize = page_up(SLOTS_AT + PROCESS_SLOTS as usize * size_of::<ProcessSlot>());
const ORDERS_AT: usize = page_up(RECORDS_AT + PROCESS_SLOTS as usize * size_of::<SlotRecord>());
const JOURNAL_AT: usize = page_up(ORDERS_AT + ORDERS * size_of::<Order>());
const SIGHTINGS_AT: usize = page_up(JOURNAL_AT + size_of::<Head>());
const SAMPLES_AT: usize = page_up(SIGHTINGS_AT + SIGHTINGS * 8);
const DECISIONS_AT: usize = page_up(SAMPLES_AT + SAMPLES * size_of::<StackSlot>());
const MIRROR_AT: usize = page_up(DECISIONS_AT + PROCESS_SLOTS as usize * size_of::<Ring>());
const SIDES_AT: usize = page_up(MIRROR_AT + size_of::<MirrorHead>());
const TIER_AT: usize = page_up(SIDES_AT + size_of::<SidesHead>());
const WRITING_AT: usize = page_up(TIER_AT + size_of::<TierHead>());
const HOLDERS_AT: usize = page_up(WRITING_AT + PROCESS_SLOTS as usize * size_of::<Writing>());

/// Numbers for shared frames beyond 5/4 of the budget.
const FRAMES_EXTRA: u32 = 4096;

/// Orders to the device model that can exist at a time.
pub(super) const ORDERS: usize = 256;

const fn page_up(bytes: usize) -> usize {
    bytes.next_multiple_of(4096)
}

/// The first page of the region.
#[repr(C)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    budget_frames: AtomicU32,
    cluster_pages: AtomicU32,
    clusters: AtomicU32,
    settings_len: AtomicU32,
    /// Futex word: changes whenever limits may have.
    pub(super) pressure: AtomicU32,
    /// Pages committed by all process slots.
    pub(super) committed: AtomicU64,
    /// Process slots from this one on have never been taken.
    pub(super) slots_high: AtomicU32,
    /// Start of the search for a free cluster: the first that may be free.
    pub(super) cluster_hint: AtomicU32,
    /// Clusters without a holder, less those that a process is about to take.
    pub(super) clusters_free: AtomicU32,
    /// Frames in use by all process slots, each shared frame once.
    pub(super) used: AtomicU32,
    /// Maximum of `used`.
    pub(super) used_max: AtomicU32,
    /// Frames of the budget that process slots hold, used or not, and shared frames.
    pub(super) granted: AtomicU32,
    /// Start of the search for the number of a shared frame.
    pub(super) frame_hint: AtomicU32,
    /// Futex word: changes with every order.
    pub(super) ordered: AtomicU32,
    /// State of the write limit.
    pub(super) writes: AtomicU64,
    /// This many slots, from the first on, certainly have space on the disk.
    pub(super) backed: AtomicU32,
    /// How often the disk had no space for more of the store.
    pub(super) disk_refusals: AtomicU32,
    /// Nonzero: a process follows the order of `--prefetch-pages`.
    pub(super) followed: AtomicU32,
    /// When the run began, in nanoseconds.
    pub(super) began: AtomicU64,
    /// Process id of the supervisor, as the supervisor sees it.
    pub(super) supervisor: AtomicU32,
    /// The supervisor's pid namespace, as an inode.
    pub(super) pid_namespace: AtomicU64,
}

/// The part of a process that other processes need, on cache lines of its own.
#[repr(C, align(128))]
pub(super) struct ProcessSlot {
    /// Generation and [`super::process::State`].
    pub(super) state: AtomicU32,
    pub(super) pid: AtomicU32,
    /// Who prepares this process slot: the process itself or, before a fork, its parent.
    pub(super) preparer: AtomicU32,
    /// Frames in use by this process alone.
    pub(super) used: AtomicU32,
    /// Frames of the budget that this process slot holds, used or not.
    pub(super) granted: AtomicU32,
    /// Nonzero: it could use more frames than it has.
    pub(super) wanting: AtomicU32,
    /// Shared frames that this process slot holds.
    pub(super) shares: AtomicU32,
    /// This process slot holds no shared frame from this number on.
    pub(super) frames_high: AtomicU32,
    /// This process slot leases no cluster from this number on.
    pub(super) leases_high: AtomicU32,
    /// Nonzero: it leased a cluster itself, so its writes may be in flight.
    pub(super) wrote: AtomicU32,
    /// Pages committed by this process.
    pub(super) committed: AtomicU64,
}

/// A request to the device model, between a process and the supervisor.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Order {
    /// Futex word: phase and owner, see [`super::orders`].
    pub(super) state: AtomicU32,
    pub(super) kind: AtomicU32,
    pub(super) first: AtomicU32,
    pub(super) count: AtomicU32,
    /// Time of the request, in nanoseconds.
    pub(super) since: AtomicU64,
    /// Time at which the model ends it, in nanoseconds.
    pub(super) end: AtomicU64,
    /// Nonzero: the device succeeded.
    pub(super) done: AtomicU32,
}

/// A sample of a stack, between a process and the supervisor.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct StackSlot {
    pub(super) state: AtomicU32,
    pub(super) pid: AtomicU32,
    pub(super) faults: AtomicU64,
    /// The memory that was asked for; 0 pages: this is a sample of a fault.
    pub(super) first: AtomicU32,
    pub(super) pages: AtomicU32,
    pub(super) ip: AtomicU64,
    pub(super) sp: AtomicU64,
    pub(super) fp: AtomicU64,
    /// Words of `stack` that are filled.
    pub(super) words: AtomicU32,
    pub(super) stack: [AtomicU64; STACK_WORDS],
}

/// The sizes of a region, fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionSizes {
    pub(super) budget_frames: u32,
    pub(super) cluster_pages: u32,
    pub(super) clusters: u32,
    pub(super) size: usize,
}

impl RegionSizes {
    /// The sizes for a budget and a store; `None` if a number or the size overflows.
    pub(super) fn new(budget_frames: u32, cluster_pages: u32, clusters: u32) -> Option<Self> {
        clusters.checked_mul(cluster_pages)?;
        let mut sizes = Self {
            budget_frames,
            cluster_pages,
            clusters,
            size: 0,
        };
        // Then `shared_frames` cannot overflow.
        budget_frames.checked_mul(2)?.checked_add(FRAMES_EXTRA)?;
        let bitmaps = |words: usize| words.checked_mul(PROCESS_SLOTS as usize * 8);
        bitmaps(sizes.bitmap_words())?.checked_add(sizes.bitmaps_at())?;
        bitmaps(sizes.frame_bitmap_words())?.checked_add(sizes.frame_bitmaps_at())?;
        let stale = sizes.stale_words().checked_mul(2 * 8)?;
        sizes.stale_at().checked_add(stale)?;
        // A word, a warmth, and an owner of a place.
        let of_chunks = (sizes.chunks() + SPARE_CHUNKS as usize).checked_mul(8 + 4 + 4)?;
        sizes.chunks_at().checked_add(of_chunks)?;
        sizes.size =
            page_up(sizes.chunk_owners_at() + (sizes.chunks() + SPARE_CHUNKS as usize) * 4);
        Some(sizes)
    }

    pub(super) fn slots(&self) -> u32 {
        self.clusters * self.cluster_pages
    }

    /// Bound on commitments: budget + store.
    pub(super) fn commit_pages_max(&self) -> u64 {
        self.commit_pages_with(self.slots())
    }

    /// Bound on commitments with this many slots: budget + slots - slots / 50. The slots / 50 are for free
    /// slots in clusters of other processes, which a process cannot use.
    pub(super) fn commit_pages_with(&self, slots: u32) -> u64 {
        let slots = u64::from(slots);
        u64::from(self.budget_frames) + slots - slots / 50
    }

    /// Slots required to commit `pages`: the inverse of [`Self::commit_pages_with`], or a few more.
    pub(super) fn slots_for(&self, pages: u64) -> u32 {
        let stored = pages.saturating_sub(u64::from(self.budget_frames));
        let slots = (stored.saturating_mul(50).div_ceil(49) + 1).min(u64::from(self.slots()));
        slots as u32
    }

    /// Words of one lease bitmap, in whole cache lines.
    fn bitmap_words(&self) -> usize {
        (self.clusters as usize).div_ceil(64).next_multiple_of(8)
    }

    /// Numbers for shared frames: as many as the budget has frames, and more in case it is overrun.
    pub(super) fn shared_frames(&self) -> u32 {
        (self.budget_frames + self.budget_frames / 4 + FRAMES_EXTRA).next_multiple_of(64)
    }

    fn frame_bitmap_words(&self) -> usize {
        (self.shared_frames() as usize / 64).next_multiple_of(8)
    }

    fn frame_holders_at(&self) -> usize {
        page_up(HOLDERS_AT + self.clusters as usize * 4)
    }

    fn bitmaps_at(&self) -> usize {
        page_up(self.frame_holders_at() + self.shared_frames() as usize * 4)
    }

    fn frame_bitmaps_at(&self) -> usize {
        page_up(self.bitmaps_at() + PROCESS_SLOTS as usize * self.bitmap_words() * 8)
    }

    fn stale_at(&self) -> usize {
        page_up(self.frame_bitmaps_at() + PROCESS_SLOTS as usize * self.frame_bitmap_words() * 8)
    }

    /// Words of one side's bitmap of stale pages.
    fn stale_words(&self) -> usize {
        (self.slots() as usize).div_ceil(64)
    }

    /// Chunks of a tier.
    fn chunks(&self) -> usize {
        (self.slots() as usize).div_ceil(CHUNK_PAGES as usize)
    }

    fn chunks_at(&self) -> usize {
        page_up(self.stale_at() + self.stale_words() * 2 * 8)
    }

    fn warmth_at(&self) -> usize {
        self.chunks_at() + self.chunks() * 8
    }

    fn chunk_owners_at(&self) -> usize {
        self.warmth_at() + self.chunks() * 4
    }
}

/// A part of the control region.
///
/// # Safety
/// The type is made of atomic integers only: processes change it at any time, and any bytes are a value.
unsafe trait Atomics {}

// SAFETY: atomic integers.
unsafe impl Atomics for AtomicU8 {}
// SAFETY: atomic integers.
unsafe impl Atomics for AtomicU32 {}
// SAFETY: atomic integers.
unsafe impl Atomics for AtomicU64 {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for ProcessSlot {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for SlotRecord {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for Order {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for Head {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for StackSlot {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for Ring {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for MirrorHead {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for SidesHead {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for TierHead {}
// SAFETY: structures of atomic integers.
unsafe impl Atomics for Writing {}

/// The mapped region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    sizes: RegionSizes,
}

// SAFETY: any thread may use the mapping behind the pointer: it holds atomics only, and is never removed, except by
// a `Window`, whose owner uses no copy of its region afterwards.
unsafe impl Send for Region {}
// SAFETY: the mapping holds atomics only, so threads may share it.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `fd`, which the caller knows to be at least `sizes.size` long and sealed against shrinking.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        sizes: RegionSizes,
        protection: ProtFlags,
    ) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                sizes.size,
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        }
        .map_err(os("mapping the control region"))?;
        let base = NonNull::new(base.cast()).ok_or(Error::Foreign)?;
        Ok(Self { base, sizes })
    }

    /// Maps a region that another process has created, after validation. With [`ProtFlags::READ`] alone, a store
    /// crashes this process, and leaves the run unharmed.
    pub(super) fn attach(fd: BorrowedFd<'_>, protection: ProtFlags) -> Result<Self, Error> {
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| Error::Foreign)?;
        let size = rustix::fs::fstat(fd)
            .map_err(os("fstat of the control region"))?
            .st_size;
        if !seals.contains(rustix::fs::SealFlags::SHRINK) || size < HOLDERS_AT as i64 {
            return Err(Error::Foreign);
        }
        let mut head = [0_u8; 24];
        if rustix::io::pread(fd, &mut head, 0) != Ok(head.len()) {
            return Err(Error::Foreign);
        }
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let known =
            head[..8] == MAGIC.to_ne_bytes() && word(offset_of!(Header, version)) == VERSION;
        let sizes = RegionSizes::new(
            word(offset_of!(Header, budget_frames)),
            word(offset_of!(Header, cluster_pages)),
            word(offset_of!(Header, clusters)),
        );
        match sizes {
            Some(sizes) if known && sizes.size as i64 == size => Self::map(fd, sizes, protection),
            _ => Err(Error::Foreign),
        }
    }

    /// Writes header and settings into a fresh, zeroed region.
    pub(super) fn initialise(&self, settings: &[u8]) -> Result<(), Error> {
        if settings.len() > SETTINGS_BYTES {
            return Err(Error::Settings(format!(
                "the settings take {} bytes, of {SETTINGS_BYTES} at most",
                settings.len()
            )));
        }
        for (to, from) in self.settings_area().iter().zip(settings) {
            to.store(*from, Ordering::Relaxed);
        }
        let header = self.header();
        header
            .settings_len
            .store(settings.len() as u32, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header
            .budget_frames
            .store(self.sizes.budget_frames, Ordering::Relaxed);
        header
            .cluster_pages
            .store(self.sizes.cluster_pages, Ordering::Relaxed);
        header
            .clusters
            .store(self.sizes.clusters, Ordering::Relaxed);
        header
            .clusters_free
            .store(self.sizes.clusters, Ordering::Relaxed);
        header.backed.store(self.sizes.slots(), Ordering::Relaxed);
        header.began.store(now().0, Ordering::Relaxed);
        header
            .supervisor
            .store(std::process::id(), Ordering::Relaxed);
        let namespace = super::process::pid_namespace()?;
        header.pid_namespace.store(namespace, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(())
    }

    pub(super) fn sizes(&self) -> &RegionSizes {
        &self.sizes
    }

    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: the mapping is page-aligned, and longer than its first page, which holds the header: `RegionSizes::new`
        // counts all parts. The header is made of atomics; the mapping stays, by the module's argument.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The settings as written, in JSON. Allocates.
    pub(super) fn settings_json(&self) -> Vec<u8> {
        let len = self.header().settings_len.load(Ordering::Relaxed) as usize;
        let area = self.settings_area();
        area[..len.min(area.len())]
            .iter()
            .map(|b| b.load(Ordering::Relaxed))
            .collect()
    }

    pub(super) fn process_slots(&self) -> &'static [ProcessSlot] {
        self.slice(SLOTS_AT, PROCESS_SLOTS as usize)
    }

    pub(super) fn records(&self) -> &'static [SlotRecord] {
        self.slice(RECORDS_AT, PROCESS_SLOTS as usize)
    }

    pub(super) fn orders(&self) -> &'static [Order] {
        self.slice(ORDERS_AT, ORDERS)
    }

    /// The numbers of the journal.
    pub(super) fn journal(&self) -> &'static Head {
        &self.slice(JOURNAL_AT, 1)[0]
    }

    pub(super) fn sightings(&self) -> &'static [AtomicU64] {
        self.slice(SIGHTINGS_AT, SIGHTINGS)
    }

    pub(super) fn samples(&self) -> &'static [StackSlot] {
        self.slice(SAMPLES_AT, SAMPLES)
    }

    /// The last decisions on one process slot.
    pub(super) fn decisions(&self, slot: u32) -> &'static Ring {
        &self.slice(DECISIONS_AT, PROCESS_SLOTS as usize)[slot as usize]
    }

    /// How many process slots hold each cluster.
    pub(super) fn holders(&self) -> &'static [AtomicU32] {
        self.slice(HOLDERS_AT, self.sizes.clusters as usize)
    }

    /// The clusters that one process slot holds, one bit each.
    pub(super) fn leases(&self, slot: u32) -> &'static [AtomicU64] {
        self.bitmap(self.sizes.bitmaps_at(), self.sizes.bitmap_words(), slot)
    }

    /// How many process slots hold each shared frame.
    pub(super) fn frame_holders(&self) -> &'static [AtomicU32] {
        self.slice(
            self.sizes.frame_holders_at(),
            self.sizes.shared_frames() as usize,
        )
    }

    /// The shared frames that one process slot holds, one bit each.
    pub(super) fn frames_held(&self, slot: u32) -> &'static [AtomicU64] {
        let sizes = &self.sizes;
        self.bitmap(sizes.frame_bitmaps_at(), sizes.frame_bitmap_words(), slot)
    }

    /// The state of a mirror.
    pub(super) fn mirror(&self) -> &'static MirrorHead {
        &self.slice(MIRROR_AT, 1)[0]
    }

    /// The state of the sides of a stripe or a tier.
    pub(super) fn sides(&self) -> &'static SidesHead {
        &self.slice(SIDES_AT, 1)[0]
    }

    /// The state of a tier.
    pub(super) fn tier(&self) -> &'static TierHead {
        &self.slice(TIER_AT, 1)[0]
    }

    /// What the processes are writing in a tier.
    pub(super) fn writing(&self) -> &'static [Writing] {
        self.slice(WRITING_AT, PROCESS_SLOTS as usize)
    }

    /// The chunks of a tier: where each is.
    pub(super) fn chunks(&self) -> &'static [AtomicU64] {
        self.slice(self.sizes.chunks_at(), self.sizes.chunks())
    }

    /// How warm each chunk of a tier is.
    pub(super) fn warmth(&self) -> &'static [AtomicU32] {
        self.slice(self.sizes.warmth_at(), self.sizes.chunks())
    }

    /// The chunk that each place of a tier is for.
    pub(super) fn chunk_owners(&self) -> &'static [AtomicU32] {
        let places = self.sizes.chunks() + SPARE_CHUNKS as usize;
        self.slice(self.sizes.chunk_owners_at(), places)
    }

    /// The pages of one side of a mirror, one bit each: whether they are stale.
    pub(super) fn stale(&self, side: usize) -> &'static [AtomicU64] {
        assert!(side < 2, "side {side}");
        let words = self.sizes.stale_words();
        self.slice(self.sizes.stale_at() + side * words * 8, words)
    }

    /// One process slot's bitmap in the array of bitmaps that begins at `at`; each has `words` words.
    fn bitmap(&self, at: usize, words: usize, slot: u32) -> &'static [AtomicU64] {
        assert!(slot < PROCESS_SLOTS, "process slot {slot}");
        self.slice(at + slot as usize * words * 8, words)
    }

    fn settings_area(&self) -> &'static [AtomicU8] {
        self.slice(SETTINGS_AT, SETTINGS_BYTES)
    }

    fn slice<T: Atomics>(&self, at: usize, count: usize) -> &'static [T] {
        assert!(
            at + count * size_of::<T>() <= self.sizes.size,
            "past the control region"
        );
        assert!(at.is_multiple_of(align_of::<T>()));
        // SAFETY: the asserts keep the range within the mapping, and `at` aligned for `T`; the base
        // of the mapping is page-aligned. Any bytes are a `T`, by its trait; the mapping stays, by the
        // module's argument.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at).cast::<T>(), count) }
    }
}

/// A region mapped read-only; dropping this removes the mapping.
#[derive(Debug)]
pub(super) struct Window {
    region: Region,
}

impl Window {
    /// Maps a region that another process has created, after validation.
    pub(super) fn open(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        let region = Region::attach(fd, ProtFlags::READ)?;
        Ok(Self { region })
    }

    /// The region, for references that live as long as the process.
    ///
    /// # Safety
    /// Nobody uses the region or its references once this window is dropped.
    pub(super) unsafe fn region(&self) -> Region {
        self.region
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let (base, size) = (self.region.base.as_ptr().cast(), self.region.sizes.size);
        // SAFETY: the range is the mapping that `open` made. Only the observer that owns this window uses it; the
        // observer's methods return copies, so no reference is left. After an error it stays mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(base, size) };
    }
}
