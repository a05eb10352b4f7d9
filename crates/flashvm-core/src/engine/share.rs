//! Frames that processes share after a fork: the run is charged for each once.
//!
//! A fork makes every resident page shared: parent and child use one frame, which is charged to the
//! run. A page leaves that frame when the program stores to it, when reclaim moves it, and when it
//! is written to flash: direct I/O pins the page, and the kernel copies a shared page that it pins.
//! The page then needs a frame of its own. So the fork write-protects all mapped pages, and the first
//! store faults. No page that is condemned or being written is shared. When all other holders have
//! left, the executor reports that the frame belongs to this process alone
//! ([`Event::Owned`](crate::Event::Owned)).

use super::Engine;
use super::pagein::for_runs;
use crate::clusters::ClusterSource;
use crate::event::Action;
use crate::ids::PageId;
use crate::page::{Flag, PageState};
use crate::settings::FRAMES_MIN;

/// Frames beyond the limit that an engine with shared pages may use: `limit / TRANSIT_SHARE`,
/// clamped to `1..=TRANSIT_PAGES_MAX`. A shared page needs a frame of its own to leave the region,
/// even if none is left.
const TRANSIT_SHARE: u32 = 4;
/// Most frames beyond the limit that shared pages may use. The executor reserves as many.
pub const TRANSIT_PAGES_MAX: u32 = 32;

impl<C: ClusterSource> Engine<C> {
    /// Pages that hold a frame: those that a fork makes shared.
    pub fn resident_pages(&self) -> impl Iterator<Item = PageId> {
        self.resident_pages_from(PageId(0))
    }

    /// Resident pages from `first` on.
    pub fn resident_pages_from(&self, first: PageId) -> impl Iterator<Item = PageId> {
        self.present_pages_from(first)
            .filter(|&page| self.page_state(page).is_resident())
    }

    /// The process forked. No request is in flight.
    pub(super) fn forked(&mut self, actions: &mut Vec<Action>) {
        self.drop_stale(actions);
        self.propose_refused_again();
        self.draining = false;
        self.swap.seal(&mut self.clusters);
        if !self.protects {
            // The executor has copied all pages for the child: none is shared.
            return;
        }
        if self.shadow {
            // Writing a page that is now shared would copy it. Proposed again, it first takes a frame of its own.
            while let Some(page) = self.condemned.pop(&self.table) {
                self.set_state(page, PageState::Shadowed);
                self.policy.inserted(page, None);
            }
        }
        let pages = self.table.pages();
        let mut at = 0;
        while let Some(page) = self.table.next_present(at, pages) {
            at = page.0 + 1;
            let state = self.table.state(page);
            assert!(!state.is_in_flight(), "{page:?} is {state:?} at a fork");
            if !state.is_resident() {
                continue;
            }
            if !self.table.has(page, Flag::Shared) {
                self.table.set(page, Flag::Shared);
                self.frames -= 1;
                self.shared += 1;
                self.shared_leaving += u32::from(state.is_leaving());
            }
            if state == PageState::Mapped {
                self.table.set(page, Flag::Protected);
            }
        }
        self.resize_policy();
    }

    /// No other process holds these pages' frames any more.
    pub(super) fn owned(&mut self, first: PageId, count: u32) {
        for page in (0..count).map(|i| first.plus(i)) {
            self.clear_shared(page);
            self.frames += 1;
        }
    }

    /// Sets a page's state, and counts leaving shared pages.
    pub(super) fn set_state(&mut self, page: PageId, to: PageState) {
        if self.table.has(page, Flag::Shared) {
            self.shared_leaving -= u32::from(self.table.state(page).is_leaving());
            self.shared_leaving += u32::from(to.is_leaving());
        }
        self.note_state(page, to);
        self.table.set_state(page, to);
    }

    /// Frames in use, plus shared pages beyond their limit.
    pub(super) fn charged(&self) -> u32 {
        self.frames_in_use() + self.shared.saturating_sub(self.shared_limit)
    }

    /// Takes a frame for a shared page that has to leave, if moving or writing it copies it.
    /// `false`: none is left. Shared pages beyond their limit do not count here, since they are the
    /// ones that leave.
    pub(super) fn own_to_leave(&mut self, page: PageId, actions: &mut Vec<Action>) -> bool {
        let mapped = self.table.state(page) == PageState::Mapped;
        let copied = self.shadow && (mapped || self.table.has(page, Flag::Dirty));
        if !copied || !self.table.has(page, Flag::Shared) {
            return true;
        }
        if self.frames_in_use() >= self.limit {
            self.drop_standby(1, 0, actions);
        }
        let transit = (self.limit / TRANSIT_SHARE).clamp(1, TRANSIT_PAGES_MAX);
        if self.frames_in_use() >= self.limit + transit {
            return false;
        }
        self.frames += 1;
        self.unshare(page);
        true
    }

    /// A page has left its shared frame.
    pub(super) fn unshare(&mut self, page: PageId) {
        self.clear_shared(page);
        self.unshared.push(page);
    }

    fn clear_shared(&mut self, page: PageId) {
        let was = self.table.take(page, Flag::Shared);
        assert!(was, "{page:?} is not shared");
        self.shared -= 1;
        self.shared_leaving -= u32::from(self.table.state(page).is_leaving());
    }

    /// Frees the frame of a page, or its share of one.
    pub(super) fn free_frame(&mut self, page: PageId) {
        if self.table.has(page, Flag::Shared) {
            self.unshare(page);
        } else {
            self.frames -= 1;
        }
    }

    pub(super) fn emit_unshared(&mut self, actions: &mut Vec<Action>) {
        self.unshared.sort_unstable();
        for_runs(&self.unshared, u32::MAX, |first, count| {
            actions.push(Action::Unshare { first, count });
        });
        self.unshared.clear();
    }

    pub(super) fn resize_policy(&mut self) {
        let shared = self.shared.min(self.shared_limit);
        self.policy
            .resized((self.plain_frames() + shared).max(FRAMES_MIN));
    }
}
