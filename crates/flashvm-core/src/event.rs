//! Events and actions: the border between decisions and their execution.
//!
//! An executor (the live pager, the simulator) reports [`Event`]s and carries out [`Action`]s.
//! There are two kinds of actions. *Memory* actions (`Zero` to `Wake`) are carried out at once, in
//! order, before the next event: when the executor unlocks the engine, its page states are the
//! truth about the address space. *Flash* actions (`Read`, `Scan`, `Write`, `Discard`) take time;
//! the executor answers each with exactly one event that carries its [`IoId`] (a discard has none).
//! [`crate::Engine::io_pages`] lists the pages of a request until that answer.

use crate::ids::{IoId, PageId, SlotId};
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
}

/// What has happened, reported to the engine together with the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A thread touched a page that is not mapped in its region (it may lie in the shadow).
    Fault {
        /// The page.
        page: PageId,
        /// Load or store.
        access: Access,
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
    /// An [`Action::Scan`] has ended. Its result counts only for pages that were not touched
    /// meanwhile.
    Scanned {
        /// The request.
        io: IoId,
        /// Bit `i` set: page `i` of the request holds only zero bytes.
        zero: u64,
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
        /// First page of the new range. It has just been zapped ([`Event::Zap`], with no other
        /// fault handled since); pages zero-filled ahead there are dropped.
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

/// The destination of a page that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Its region: the program accesses it without a fault.
    Region,
    /// The shadow: its first touch is a fault without I/O, which shows that the page was used.
    Shadow,
}

/// What the executor has to do.
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
    /// `Drop`: a scan or a write of it is in flight, or the `Drop` follows at once.
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
    /// Read contiguous slots into a buffer: `count` pages, those of `io`, in order.
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
    /// Find out which pages in the shadow hold only zero bytes.
    Scan {
        /// The request.
        io: IoId,
        /// Pages.
        count: u32,
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
    /// Discard ranges of slots with one command: those of [`crate::Engine::discard_ranges`]. At
    /// most one is in flight.
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
            Self::Read { .. } | Self::Scan { .. } | Self::Write { .. } | Self::Discard { .. }
        )
    }
}
