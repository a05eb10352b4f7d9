//! What goes into the engine and what comes out of it: the border between deciding and doing.
//!
//! An executor (the live pager, the simulator) reports [`Event`]s and carries out [`Action`]s.
//! Actions are of two kinds. *Memory* actions (`Zero` to `Wake`) are carried out at once, in
//! order, before the next event is handled: when the executor lets go of the engine, the
//! engine's page states are the truth about the address space. *Flash* actions (`Read`, `Scan`,
//! `Write`, `Discard`) take their time; the executor answers each with exactly one event that
//! carries its [`IoId`] (a discard has none). The pages of a request stand in [`crate::Engine::io_pages`] until that answer.

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

/// What a program says of a range in advance (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Advice {
    /// It will be wanted soon: read it ahead.
    WillNeed,
    /// It is not wanted soon: first choice for reclaim.
    Cold,
    /// Put it on flash now.
    PageOut,
}

/// What happened, told to the engine with the time at which it did.
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
    /// A mapped page was referenced. Only executors with full sight (replay) can tell.
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
    /// An [`Action::Scan`] has ended. What it saw counts only for pages that were left alone.
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
        /// The device does not know discards, or failed: none is sent any more.
        refused: bool,
    },
    /// The move of this page into the shadow (an [`Action::Shadow`] just now) was refused:
    /// it is pinned, or shared with another process after a fork. It is still mapped, with the
    /// protection that it had.
    Refused {
        /// The page.
        page: PageId,
    },
    /// The program gave the contents up (`munmap`, `MADV_DONTNEED`): the pages read as zeros.
    /// The executor drops what is mapped in the region; the engine what is in the shadow.
    Zap {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// The program moved a range (`mremap`). Nothing in either range is in flight; see
    /// [`crate::Engine::in_flight`]. The executor has moved mapped and shadow pages likewise.
    Relocate {
        /// First page of the old range.
        from: PageId,
        /// First page of the new range. It has been given up just before ([`Event::Zap`],
        /// with no other fault handled since); what was zero-filled ahead there is given up.
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
    /// How many frames this engine may use from now on.
    Limit {
        /// Frames of its own.
        frames: u32,
        /// Pages that may share frames with other processes. Each page beyond counts as a frame of its own.
        #[serde(default = "no_limit")]
        shared: u32,
    },
    /// How much is used of what may be written at once under a [`crate::WriteLimit`]: sampling and
    /// clustering adapt to it.
    WriteLimit {
        /// In percent: at 100 the executor holds writes back.
        used: u8,
    },
    /// The background executor has time: reclaim one batch ahead of need.
    Reclaim,
    /// The process forked: every slot and every frame in use is now shared with the other side. The
    /// executor has write-protected every mapped page.
    Forked,
    /// Nobody shares the frames of these pages any more: they are this process' own. The protection stays.
    Owned {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
    },
    /// Time has passed [`crate::Engine::deadline`].
    Tick,
}

/// Where a page that was read is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In its region, where the program sees it without a fault.
    Region,
    /// In the shadow: its first touch is a fault without I/O, which tells that it was wanted.
    Shadow,
}

/// What the executor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Map zero-filled frames in the region and wake whoever waits for them. Pages beside the
    /// one that was touched are filled ahead; if there is no managed memory, the executor may
    /// pass over them, or report them given up.
    Zero {
        /// First page.
        first: PageId,
        /// Pages.
        count: u32,
        /// Write-protected, so that the first store is reported.
        protect: bool,
    },
    /// Map pages `index..index + count` of a read that has just ended, and, in the region,
    /// wake whoever waits for them.
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
    /// Move a run of pages from the region into the shadow. A page that cannot be moved is
    /// answered by [`Event::Refused`] before any other event.
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
    /// Copy a page from the shadow into the region and wake; the shadow keeps its copy until a
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
    /// Every touch of this page from now on fails (SIGBUS): its contents are lost. Wake.
    Poison {
        /// The page.
        page: PageId,
    },
    /// Wake whoever waits for a page that is mapped by now.
    Wake {
        /// The page.
        page: PageId,
    },
    /// Give up the frames that these pages shared with other processes: each page has a frame of its own now,
    /// or none. It is carried out after the memory actions before it.
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
        /// A thread waits for a page of it; otherwise it is all prefetch.
        demand: bool,
    },
    /// Look at pages in the shadow: which hold only zero bytes.
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
    /// Tell the device that ranges of slots hold nothing of use any more, in one command:
    /// those of [`crate::Engine::discard_ranges`]. One at a time is in flight.
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
    /// Whether it takes its time, and is answered by an event; all others are about memory.
    #[must_use]
    pub fn is_flash(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::Scan { .. } | Self::Write { .. } | Self::Discard { .. }
        )
    }
}
