//! The address space of a process: a *region* that the program sees, and its *shadow*, which only
//! the pager sees.
//!
//! [`AddressSpace`] is what a kernel does with pages and how it may answer, including partial
//! success. [`Executor`] has an address space, and copies contents into it. [`Placement`] carries out the engine's
//! memory actions on both, and interprets the answers. The live pager implements them with kernel calls; the simulator
//! with a model that misbehaves by a seed, so that tests meet every answer.
//!
//! # Invariants
//!
//! - A managed page has its contents in one place: region, shadow, flash, or nowhere (zeros).
//! - Only the pager, with the engine locked, puts pages into region or shadow and removes them. The
//!   program can only zap pages, and every zap is reported or counts as zeros.
//! - So a second copy of a page, or a copy where the engine has none, is a bug of the pager or the
//!   kernel. [`Placement`] never guesses which copy is right: it calls [`Executor::fail`].

mod address_space;
mod changes;
mod executor;
mod pins;
mod placement;
mod trace;

pub use address_space::AddressSpace;
pub use changes::{Changes, Range};
pub use executor::{Contents, Executor};
pub use pins::PinnedRanges;
pub use placement::{ActionContext, INFLATE_PAGES_MAX, Pages, Placement};
pub use trace::{HistoryEntry, Trace};

/// The extent of a call: pages done from the start of its run, and why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Pages that the kernel reports as done. More may be done: see [`Stop::Exists`].
    pub pages: u32,
    /// Why it stopped before the end of the run; `None`: it did not.
    pub stop: Option<Stop>,
}

impl Done {
    /// The whole run is done.
    #[must_use]
    pub fn all(pages: u32) -> Self {
        Self { pages, stop: None }
    }

    /// Stopped after this many pages.
    #[must_use]
    pub fn stopped(pages: u32, stop: Stop) -> Self {
        Self {
            pages,
            stop: Some(stop),
        }
    }
}

/// Why a call stopped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `EAGAIN`: the program is changing its mappings, or the page is locked for the moment.
    Again,
    /// `EEXIST`: there is a page at the destination.
    ///
    /// For a move this may concern a page that the same call has moved: Linux 6.18 keeps the
    /// `EAGAIN` of an earlier try, retries although the page has been moved, and finds it at the
    /// destination ("userfaultfd: reset err to be 0 when move_pages_ptes succeeded", August 2026).
    Exists,
    /// `ENOENT`: no page at the source, or, for a copy, no mapping at the destination.
    Missing,
    /// `EINVAL`: the run reaches beyond a mapping, or the mapping may not be stored to, or region and shadow have other
    /// access rights.
    Invalid,
    /// `EBUSY`: the page is pinned, or shared with another process after a fork.
    Busy,
    /// `ESRCH`: the process is exiting.
    Exiting,
    /// Another error number.
    Failed(i32),
}

/// The program's mapping at a page, from that page on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Pages from the page to the end of the mapping.
    pub pages: u32,
    /// The program's access rights there, as `PROT_*` bits.
    pub protection: u32,
    /// The program may load and store there.
    pub writable: bool,
}
