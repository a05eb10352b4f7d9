//! Events and actions: the border between decisions and their execution.
//!
//! An executor (the live pager, the simulator) reports [`Event`]s and carries out [`Action`]s.
//! There are two kinds of actions. *Memory* actions (`Zero` to `Unshare`) are carried out at once, in
//! order, before the next event: when the executor unlocks the engine, its page states are the
//! truth about the address space. *Flash* actions (`Read` to `Discard`) take time; the executor
//! answers each with exactly one event that carries its [`IoId`] (a discard has none).
//! [`crate::Engine::io_pages`] lists the pages of a request until that answer.

use crate::ids::{IoId, PageId, RUN_PAGES_MAX, SlotId};
use crate::pool::{BlockId, Object};
use serde::{Deserialize, Serialize};

/// How a program touched a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// The program's advice on a range (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Advice {
    /// Needed soon: read it ahead.
    WillNeed,
    /// Not needed soon: first choice for reclaim.
    Cold,
    /// Write it to flash now.
    PageOut,
    /// Keep it in RAM (`mlock`), from the next touch of each page on. At most [`crate::lock_share`] pages are locked.
    Lock,
    /// Locked pages may leave again (`munlock`).
    Unlock,
}

/// What has happened, reported to the engine together with the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A thread touched a page that is not mapped in the region (it may lie in the shadow).
    Fault {
        /// The page.
        page: PageId,
        /// Load or store.
        access: Access,
        /// The program wants a huge page there: the aligned [`HUGE_PAGES`](crate::HUGE_PAGES) pages around it are managed.
        #[serde(default)]
        huge: bool,
    },
    /// A thread stored into a write-protected page.
    WriteProtectFault {
        /// The page.
        page: PageId,
    },
    /// A mapped page was referenced. Only executors with full observation (replay) can tell.
    Touched {
        /// The page.
        page: PageId,
        /// Load or store; a store to a write-protected page is a `WriteProtectFault` instead.
        access: Access,
    },
    /// An [`Action::Read`] has ended.
    ReadDone {
        /// The request.
        io: IoId,
        /// Bit `i` set: page `i` of the request could not be read, or its checksum differs.
        failed: u64,
    },
    /// An [`Action::Scan`] has ended. Its result counts only for pages that were not touched during
    /// the scan.
    Scanned {
        /// The request.
        io: IoId,
        /// Bit `i` set: page `i` of the request holds only zero bytes.
        zero: u64,
        /// Bit `i` set: page `i` has the contents of its slot or object ([`crate::Engine::compared_with`]).
        same: u64,
        /// Compressed lengths; the executor keeps the compressed bytes until the actions of this event are done.
        sizes: Sizes,
    },
    /// An [`Action::Write`] has ended.
    WriteDone {
        /// The request.
        io: IoId,
        /// Bit `i` set: page `i` of the request is not on flash; its slot is bad.
        failed: u64,
    },
    /// An [`Action::Discard`] has ended.
    Discarded {
        /// The device does not support discards, or failed: no further command is sent.
        refused: bool,
    },
    /// The move of this page into the shadow (an [`Action::Shadow`] just now) was refused: the page
    /// is pinned, or shared with another process after a fork. It is still mapped, with its
    /// protection unchanged.
    Refused {
        /// The page.
        page: PageId,
    },
    /// The program zapped the pages (`munmap`, `MADV_DONTNEED`): they read as zeros. The executor
    /// drops pages in the region; the engine drops those in the shadow.
    Zap {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// The program moved a range (`mremap`). No page of either range is in flight; see
    /// [`crate::Engine::in_flight`]. The executor has moved mapped and shadow pages likewise.
    Relocate {
        /// First page of the old range.
        from: PageId,
        /// First page of the new range, which an [`Event::Zap`] has just emptied. No fault was handled
        /// since; pages that the zap zero-filled ahead there, for waiting faults, are dropped.
        to: PageId,
        /// Pages; the ranges do not overlap.
        count: u32,
    },
    /// The program's advice on a range.
    Advise {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
        /// The advice.
        advice: Advice,
    },
    /// The frames that this engine may use from now on.
    Limit {
        /// Frames that only this process uses.
        frames: u32,
        /// Pages that may share frames with other processes. Each page beyond counts as a frame of
        /// its own.
        #[serde(default = "no_limit")]
        shared: u32,
    },
    /// The use of a [`crate::WriteLimit`]'s burst: sampling and clustering adapt to it.
    WriteLimit {
        /// In percent: at 100 the executor delays writes.
        used: u8,
    },
    /// The background executor has time: reclaim one batch ahead of need.
    Reclaim,
    /// A fork is ahead (`on`): the pool is to be written to flash before it. Or it will not happen.
    Drain {
        /// Whether a fork is ahead.
        on: bool,
    },
    /// The process forked: every used slot and every used frame is now shared with the other
    /// process. The executor has write-protected every mapped page.
    Forked,
    /// No other process shares the frames of these pages any more. Their protection stays.
    Owned {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// Time has passed [`crate::Engine::deadline`].
    Tick,
}

/// Compressed lengths of the pages of a scan, in bytes. 0: not compressed, or too large to be worth it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u16>", into = "Vec<u16>")]
pub struct Sizes([u16; RUN_PAGES_MAX as usize]);

impl Default for Sizes {
    fn default() -> Self {
        Self([0; RUN_PAGES_MAX as usize])
    }
}

impl Sizes {
    /// The length of page `index` of the request.
    #[must_use]
    pub fn of(&self, index: usize) -> u32 {
        self.0[index].into()
    }

    /// Sets the length of page `index` of the request.
    pub fn set(&mut self, index: usize, bytes: u16) {
        self.0[index] = bytes;
    }
}

impl From<Vec<u16>> for Sizes {
    fn from(list: Vec<u16>) -> Self {
        let mut sizes = Self::default();
        sizes
            .0
            .iter_mut()
            .zip(list)
            .for_each(|(to, from)| *to = from);
        sizes
    }
}

impl From<Sizes> for Vec<u16> {
    fn from(sizes: Sizes) -> Self {
        let used = sizes.0.iter().rposition(|&bytes| bytes > 0);
        sizes.0[..used.map_or(0, |last| last + 1)].to_vec()
    }
}

/// Where the compressed contents of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packed {
    /// In the pool.
    Pool(Object),
    /// In the buffer of a read that has just ended.
    Read {
        /// The read.
        io: IoId,
        /// Byte offset in its buffer.
        skip: u32,
        /// Length in bytes.
        bytes: u32,
    },
}

/// The copy of a page that tells whether the page has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedWith {
    /// A slot, whose checksum the executor has.
    Slot(SlotId),
    /// An object in the pool's RAM.
    Object(Object),
}

/// One of the two places of a page in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The region: the program accesses the page without a fault.
    Region,
    /// The shadow: its first touch is a fault without I/O, which shows that the page was used.
    Shadow,
}

/// What the executor has to do. To *wake* is to wake the threads that wait for the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Map zero-filled frames in the region and wake the threads that wait for them. Pages beside
    /// the touched one are filled ahead; where memory is not managed, the executor may skip them,
    /// or report them zapped.
    Zero {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
        /// Write-protected, so that the first store is reported.
        protect: bool,
    },
    /// Map pages `index..index + count` of a read that has just ended; in the region, wake the
    /// threads that wait for them.
    Map {
        /// The read; its buffer is free for reuse once the event's actions are done.
        io: IoId,
        /// Index of the first page within the read.
        index: u32,
        /// First page; the pages are contiguous in the address space.
        first: PageId,
        /// Pages.
        count: u32,
        /// Region or shadow.
        place: Place,
        /// Write-protected (region only).
        protect: bool,
    },
    /// Decompress a page into a frame of its own; in the region, wake the threads that wait for it.
    Inflate {
        /// The page.
        page: PageId,
        /// Its compressed contents.
        from: Packed,
        /// Region or shadow.
        place: Place,
        /// Write-protected (region only).
        protect: bool,
    },
    /// Copy the compressed form of a page of a scan that has just ended into the pool.
    Keep {
        /// The scan.
        io: IoId,
        /// Index of the page within the scan.
        index: u32,
        /// Its place in the pool.
        object: Object,
    },
    /// Copy an object of the pool to another place of the pool.
    Repack {
        /// Where it is.
        from: Object,
        /// Where it goes: another block.
        to: Object,
    },
    /// Free the frames of a block of the pool.
    Vacate {
        /// The block.
        block: BlockId,
    },
    /// Move a run of pages from the region into the shadow. [`Event::Refused`] answers for a page
    /// that cannot be moved, before any other event.
    Shadow {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// Move a page back from the shadow into the region, writable, and wake.
    Restore {
        /// The page.
        page: PageId,
    },
    /// Copy a page from the shadow into the region and wake. The shadow keeps its copy until a
    /// `Drop`: a scan or a write of it is in flight, or the copy is stale ([`crate::Engine::stale_copies`]).
    RestoreCopy {
        /// The page.
        page: PageId,
        /// Write-protected.
        protect: bool,
    },
    /// Free the frames of a run of pages in the shadow.
    Drop {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// Make a mapped page writable and wake.
    Unprotect {
        /// The page.
        page: PageId,
    },
    /// Make every touch of this page fail (SIGBUS): its contents are lost. Wake.
    Poison {
        /// The page.
        page: PageId,
    },
    /// Wake the threads that wait for a page that is mapped by now.
    Wake {
        /// The page.
        page: PageId,
    },
    /// Leave the frames that these pages shared with other processes: each page has a frame of its
    /// own now, or none. Carried out after the preceding memory actions.
    Unshare {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// Read `count` contiguous slots into a buffer: the slots of the pages of `io`, one each, in order; or the slots
    /// in which the compressed contents of these pages lie.
    Read {
        /// The request.
        io: IoId,
        /// First slot.
        slot: SlotId,
        /// Slots.
        count: u32,
        /// A thread waits for one of the pages; otherwise all of them are prefetched.
        demand: bool,
    },
    /// Find out which pages in the shadow hold only zero bytes, and which hold what is in their slots.
    Scan {
        /// The request.
        io: IoId,
        /// Pages.
        count: u32,
        /// Compress them as well.
        compress: bool,
    },
    /// Write pages from the shadow to contiguous slots.
    Write {
        /// The request.
        io: IoId,
        /// First slot.
        slot: SlotId,
        /// Slots.
        count: u32,
    },
    /// Write a block of the pool to the contiguous slots that it takes ([`crate::pool::BLOCK_SLOTS`]).
    /// [`Event::WriteDone`] answers; after a successful write an [`Action::Vacate`] frees the block's frames.
    WriteBlock {
        /// The request.
        io: IoId,
        /// First slot.
        slot: SlotId,
        /// The block. Its bytes do not change until the answer.
        block: BlockId,
    },
    /// Read a block of the pool back to its place in RAM. [`Event::ReadDone`] answers; bit `i` of its mask is slot `i`
    /// of the block.
    ReadBlock {
        /// The request.
        io: IoId,
        /// First slot.
        slot: SlotId,
        /// The block.
        block: BlockId,
    },
    /// Discard the ranges of slots of [`crate::Engine::discard_ranges`] with one command. At most one
    /// command is in flight.
    Discard {
        /// Ranges.
        ranges: u32,
        /// Slots of all ranges.
        slots: u32,
    },
}

fn no_limit() -> u32 {
    u32::MAX
}

impl Action {
    /// Whether the action takes time and is answered by an event; all others are memory actions.
    #[must_use]
    pub fn is_flash(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Scan { .. }
                | Self::Write { .. }
                | Self::WriteBlock { .. }
                | Self::ReadBlock { .. }
                | Self::Discard { .. }
        )
    }

    /// Whether the action concerns the pool's memory only, not the address space.
    #[must_use]
    pub fn is_of_pool(&self) -> bool {
        matches!(
            self,
            Self::Keep { .. } | Self::Repack { .. } | Self::Vacate { .. }
        )
    }
}
