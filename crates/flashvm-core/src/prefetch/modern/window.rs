//! Windows: the pages of a stream that are requested together.
//!
//! A window has half as many pages as the stream is known to have used, so a stream that ends wastes no more
//! than that. The first windows of a stream go into the shadow, where the engine observes every use. From a length of
//! `TRUSTED_LENGTH` on they go into the region, where a use costs nothing, except for *checkpoints*: pages
//! that wait in the shadow, so that their use is seen. The first use seen at or after the window's *marker* requests
//! the next window, while the program still has part of this one before it (as Linux does with
//! `PG_readahead`).
//! Pages of a window that are in the shadow, about to leave, are asked for as well: they stay there, and their use is seen.
//! A stream through absent pages maps zeros ahead and needs no marker: the page after the window
//! faults anyway. Nor does a stream through compressed pages in RAM: its windows are short, and the fault on the page
//! after each costs no read.

use super::super::{Candidate, Demand, Kind, View, Whereabouts};
use super::fill::FILL_MAX;
use super::streams::Stream;
use crate::event::{Access, Place};
use crate::ids::PageId;

/// Pages of the smallest window.
const WINDOW_MIN: u32 = 4;
/// Longest window of a stream whose pages are not adjacent: each page is a request of its own.
const WINDOW_STRIDED_MAX: u32 = 128;
/// Length from which on the windows of a stream go into the region.
const TRUSTED_LENGTH: u32 = 32;
/// Pages from one checkpoint of a trusted window to the next: `window / CHECKPOINTS_PER_WINDOW`, and at least
/// `CHECKPOINT_SPACING`.
const CHECKPOINTS_PER_WINDOW: u32 = 8;
const CHECKPOINT_SPACING: u32 = 24;
/// A stream of `POOL_LENGTH` pages or more decompresses up to `POOL_MAX` pages ahead. A wasted page costs its
/// compression, not a read.
const POOL_LENGTH: u32 = 8;
pub(super) const POOL_MAX: u32 = 24;
/// Absent pages in a row that end a window over stored pages.
const ABSENT_RUN_MAX: u32 = 16;

/// Most pages in a window of this stream.
fn longest(stream: &Stream, window_max: u32) -> u32 {
    if stream.stride.abs() == 1 {
        window_max
    } else {
        window_max.min(WINDOW_STRIDED_MAX)
    }
}

pub(super) fn is_resident(view: &dyn View, page: i64) -> bool {
    let in_ram = |page| {
        matches!(
            view.page(page),
            Whereabouts::Resident | Whereabouts::Leaving
        )
    };
    u32::try_from(page).is_ok_and(|page| in_ram(PageId(page)))
}

/// Whether a stream can have reached a page without another fault: all pages from its first
/// unrequested one up to this page must be in RAM.
pub(super) fn is_on_its_way(stream: &Stream, page: i64, view: &dyn View) -> bool {
    let mut at = stream.next;
    while stream.steps(at, page) > 0 {
        if !is_resident(view, at) {
            return false;
        }
        at += stream.stride;
    }
    true
}

/// Requests the next window of a stream.
pub(super) fn issue(
    stream: &mut Stream,
    window_max: u32,
    demand: &Demand,
    view: &dyn View,
    out: &mut Vec<Candidate>,
) {
    let fill = demand.from == Whereabouts::Absent;
    let store = stream.stores() || (fill && demand.access == Access::Write);
    let longest = longest(stream, window_max);
    // Zeros ahead cost no read.
    let earned = if fill {
        stream.length
    } else {
        stream.length / 2
    };
    stream.window = earned.clamp(WINDOW_MIN.min(longest), longest);
    let window = stream.window.min(view.room());
    let window = if fill { window.min(FILL_MAX) } else { window };
    let looks = window * 4 + 64;
    stream.trusted = stream.length >= TRUSTED_LENGTH;
    let spacing = (window / CHECKPOINTS_PER_WINDOW).max(CHECKPOINT_SPACING);
    // The marker is the window's first page on flash if the stream is trusted, else one in the window's middle.
    let marker_at = if stream.trusted { 0 } else { window / 2 };
    let (mut issued, mut absent, mut inflated) = (0, 0, 0);
    stream.marker = None;
    for _ in 0..looks {
        if issued >= window || absent >= ABSENT_RUN_MAX {
            break;
        }
        let Ok(page) = u32::try_from(stream.next).map(PageId) else {
            break;
        };
        let place = match view.page(page) {
            Whereabouts::Outside => break,
            Whereabouts::Resident => None,
            Whereabouts::Zero => Some(Place::Region),
            Whereabouts::Pool if stream.length < POOL_LENGTH || inflated == POOL_MAX => break,
            Whereabouts::Pool => {
                inflated += 1;
                Some(Place::Region)
            }
            Whereabouts::Absent if fill => Some(Place::Region),
            Whereabouts::Absent => {
                absent += 1;
                None
            }
            from @ (Whereabouts::Flash(_) | Whereabouts::Leaving) => {
                if issued >= marker_at {
                    stream.marker.get_or_insert(stream.next);
                }
                if !stream.trusted || from == Whereabouts::Leaving {
                    Some(Place::Shadow)
                } else if issued % spacing < stream.gap {
                    if issued % spacing == 0 {
                        stream.add_checkpoint(stream.next);
                    }
                    Some(Place::Shadow)
                } else {
                    Some(Place::Region)
                }
            }
        };
        if let Some(place) = place {
            issued += 1;
            absent = 0;
            out.push(Candidate {
                page,
                place,
                store,
                kind: Kind::Stream,
            });
        }
        stream.next += stream.stride;
    }
}
