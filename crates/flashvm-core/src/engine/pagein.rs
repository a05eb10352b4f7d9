//! Page-in: selects the pages to read at a fault, groups them into requests and chooses where to map them.

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::{Access, Action, Place};
use crate::ids::{IoId, PageId, RUN_PAGES_MAX, SlotId};
use crate::io::IoKind;
use crate::page::{Flag, PageState, PageTable};
use crate::pool::Pool;
use crate::prefetch::{Candidate, Demand, Kind, Recorded, SlotView, View, Whereabouts};
use crate::swap::SwapMap;

/// Maximum pages in the request that a thread waits for: more would delay the thread.
const DEMAND_RUN_MAX: usize = 8;

/// The prefetcher's view of the engine.
struct EngineView<'a> {
    table: &'a PageTable,
    swap: &'a SwapMap,
    pool: &'a Pool,
    /// Pages may stay that are about to leave.
    keeps: bool,
    room: u32,
    at_ease: bool,
}

impl View for EngineView<'_> {
    fn page(&self, page: PageId) -> Whereabouts {
        if page.0 >= self.table.pages() {
            return Whereabouts::Outside;
        }
        match self.table.state(page) {
            PageState::Absent => Whereabouts::Absent,
            PageState::Stored => match (self.table.handle(page), self.table.slot(page)) {
                (Some(handle), _) if self.pool.in_ram(handle) => Whereabouts::Pool,
                (Some(handle), _) => {
                    Whereabouts::Flash(self.pool.slot(handle).expect("it is on flash"))
                }
                (None, Some(slot)) if self.swap.is_zero(slot) => Whereabouts::Zero,
                (None, slot) => Whereabouts::Flash(slot.expect("stored pages have a place")),
            },
            state if self.keeps && may_stay(self.table, page, state) => Whereabouts::Leaving,
            _ => Whereabouts::Resident,
        }
    }

    fn slot(&self, slot: SlotId) -> SlotView {
        self.swap.view(slot)
    }

    fn room(&self) -> u32 {
        self.room
    }

    fn at_ease(&self) -> bool {
        self.at_ease
    }
}

/// Whether a page in the shadow is about to leave, with no request on it in flight, and may stay.
fn may_stay(table: &PageTable, page: PageId, state: PageState) -> bool {
    let leaves = match state {
        PageState::Condemned | PageState::Standby => true,
        PageState::Shadowed => !table.has(page, Flag::Probation) && !table.has(page, Flag::Locked),
        _ => false,
    };
    leaves && !table.has(page, Flag::Shared)
}

/// Where a page that was read goes, and whether it is write-protected there (in the region only).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Placing {
    pub(super) place: Place,
    pub(super) protect: bool,
}

impl<C: ClusterSource> Engine<C> {
    /// From now on pages are brought in ahead in the order in which an earlier run waited for them, besides what the
    /// prefetcher proposes. The position in the order follows from the faults.
    pub fn follow(&mut self, order: Vec<PageId>) {
        let beside = self.prefetcher.take();
        self.prefetcher = Some(Box::new(Recorded::new(order, beside)));
    }

    /// Asks the prefetcher which pages to bring in with this page.
    pub(super) fn propose_ahead(
        &mut self,
        page: PageId,
        access: Access,
        from: Whereabouts,
        hit: bool,
    ) {
        let (room, at_ease) = (self.prefetch_room(), self.at_ease());
        let Some(prefetcher) = &mut self.prefetcher else {
            return;
        };
        let view = EngineView {
            table: &self.table,
            swap: &self.swap,
            pool: &self.pool,
            keeps: self.shadow,
            room,
            at_ease,
        };
        let demand = Demand {
            page,
            access,
            from,
            hit,
        };
        prefetcher.demand(&demand, &view, &mut self.candidates);
        let passed = prefetcher.passed();
        self.candidates.truncate(view.room as usize);
        if let Some(passed) = passed {
            let mut at = i64::from(passed.first.0);
            for _ in 0..passed.count {
                if let Ok(page) = u32::try_from(at)
                    && page < self.table.pages()
                    && self.table.state(PageId(page)) == PageState::Mapped
                {
                    self.use_prefetched(PageId(page));
                }
                at += i64::from(passed.stride);
            }
        }
    }

    /// Brings in the candidates for which there are frames, with the demanded page if it has to
    /// be read, and maps the zero pages collected so far.
    pub(super) fn bring_in_candidates(
        &mut self,
        demanded: Option<PageId>,
        actions: &mut Vec<Action>,
    ) {
        let mut candidates = std::mem::take(&mut self.candidates);
        // First of all, so that no other candidate takes their frames.
        for candidate in &candidates {
            self.keep(candidate);
        }
        for Candidate {
            page,
            place,
            store,
            kind,
        } in candidates.drain(..)
        {
            if page.0 >= self.table.pages() || self.table.has(page, Flag::Pending) {
                continue;
            }
            let handle = self.table.handle(page);
            let slot = match (self.table.state(page), self.table.slot(page)) {
                (PageState::Absent, _) => None,
                (PageState::Stored, Some(slot)) if self.swap.is_zero(slot) => None,
                (PageState::Stored, slot) => slot,
                _ => continue,
            };
            if !self.take_frame(actions) {
                break;
            }
            match (handle, slot) {
                (Some(handle), _) if self.pool.in_ram(handle) => {
                    self.inflate_ahead(page, handle, kind, actions);
                }
                (Some(handle), _) => {
                    self.counters.prefetch_issued += 1;
                    self.begin_packed_read(page, handle);
                    self.expect_read(page, place, store, kind);
                }
                (None, None) => {
                    let stored = self.table.state(page) == PageState::Stored;
                    self.counters.zero_pages_not_read += u64::from(stored);
                    let access = if store { Access::Write } else { Access::Read };
                    self.map_zero(page, access, None);
                    self.zeros.push(page);
                }
                (None, Some(slot)) => {
                    self.counters.prefetch_issued += 1;
                    self.begin_read(page, slot);
                    self.expect_read(page, place, store, kind);
                }
            }
        }
        candidates.clear();
        self.candidates = candidates;
        self.emit_zeros(actions);
        self.emit_reads(demanded, actions);
        self.emit_packed_reads(demanded, actions);
    }

    /// Keeps a page of a stream that is about to leave: its next use is near.
    pub(super) fn keep(&mut self, &Candidate { page, kind, .. }: &Candidate) {
        if kind != Kind::Stream || page.0 >= self.table.pages() || !self.shadow {
            return;
        }
        let state = self.table.state(page);
        if !may_stay(&self.table, page, state) {
            return;
        }
        if state == PageState::Shadowed {
            self.policy.removed(page);
        } else {
            self.stop_leaving(page);
            self.set_state(page, PageState::Shadowed);
        }
        self.counters.prefetch_issued += u64::from(!self.table.has(page, Flag::Prefetched));
        self.mark_prefetched(page, kind);
    }

    /// Marks a page that a prefetcher proposed.
    pub(super) fn mark_prefetched(&mut self, page: PageId, kind: Kind) {
        self.table.set(page, Flag::Prefetched);
        if kind.on_probation() {
            self.put_on_probation(page);
        }
    }

    /// Marks a page that is being read ahead, with its destination and whether a store is expected.
    fn expect_read(&mut self, page: PageId, place: Place, store: bool, kind: Kind) {
        self.mark_prefetched(page, kind);
        let to_shadow = place == Place::Shadow && self.shadow;
        self.table.put(page, Flag::ToShadow, to_shadow);
        if store && !to_shadow {
            self.table.set(page, self.flag_of_expected_store());
        }
    }

    /// Marks a page with a frame as being read.
    pub(super) fn begin_read(&mut self, page: PageId, slot: SlotId) {
        self.table.reset_flags(page);
        self.set_state(page, PageState::Reading);
        self.reads.push((slot, page));
    }

    /// Marks a page with a frame as mapped and zeroed.
    pub(super) fn map_zero(&mut self, page: PageId, access: Access, by: Option<Access>) {
        self.table.reset_flags(page);
        self.set_state(page, PageState::Mapped);
        self.policy.inserted(page, by);
        if self.may_store(page, access) {
            self.make_dirty(page);
        } else {
            self.table.set(page, Flag::Protected);
        }
    }

    fn emit_zeros(&mut self, actions: &mut Vec<Action>) {
        self.zeros.sort_unstable();
        let protected = |page: PageId| self.table.has(page, Flag::Protected);
        let together = |a: &PageId, b: &PageId| a.0 + 1 == b.0 && protected(*a) == protected(*b);
        for run in self.zeros.chunk_by(together) {
            actions.push(Action::Zero {
                first: run[0],
                count: u32::try_from(run.len()).expect("a count of pages"),
                protect: protected(run[0]),
            });
        }
        self.zeros.clear();
    }

    /// Issues the collected reads: one request for contiguous slots, the demanded page first.
    fn emit_reads(&mut self, demanded: Option<PageId>, actions: &mut Vec<Action>) {
        if self.reads.is_empty() {
            return;
        }
        let mut reads = std::mem::take(&mut self.reads);
        reads.sort_unstable();
        // A compressed demanded page is not in this list: `emit_packed_reads` reads it.
        let at = demanded.and_then(|page| reads.iter().position(|&(_, p)| p == page));
        let mut demand_range = 0..0;
        if let Some(at) = at {
            let adjoins = |i: usize| reads[i].0.0 + 1 == reads[i + 1].0.0;
            let (mut start, mut end) = (at, at + 1);
            while end < reads.len() && end - start < DEMAND_RUN_MAX && adjoins(end - 1) {
                end += 1;
            }
            while start > 0 && end - start < DEMAND_RUN_MAX && adjoins(start - 1) {
                start -= 1;
            }
            self.emit_read(&reads[start..end], true, actions);
            demand_range = start..end;
        }
        for part in [&reads[..demand_range.start], &reads[demand_range.end..]] {
            for run in part.chunk_by(|a, b| a.0.0 + 1 == b.0.0) {
                for piece in run.chunks(RUN_PAGES_MAX as usize) {
                    self.emit_read(piece, false, actions);
                }
            }
        }
        reads.clear();
        self.reads = reads;
    }

    fn emit_read(&mut self, run: &[(SlotId, PageId)], demand: bool, actions: &mut Vec<Action>) {
        let slot = run[0].0;
        self.batch.extend(run.iter().map(|&(_, page)| page));
        let io = self.ios.begin(IoKind::Read, slot, &self.batch);
        self.ios.started(io, self.now);
        self.batch.clear();
        self.counters.reads += 1;
        actions.push(Action::Read {
            io,
            slot,
            count: u32::try_from(run.len()).expect("at most RUN_PAGES_MAX"),
            demand,
        });
    }

    pub(super) fn read_done(&mut self, id: IoId, failed: u64, actions: &mut Vec<Action>) {
        if self.ios.kind(id) == Some(IoKind::ReadBlock) {
            let io = self.ios.end(id, IoKind::ReadBlock);
            self.block_returned(&io, failed, actions);
            return;
        }
        if self.ios.kind(id) == Some(IoKind::ReadPacked) {
            let io = self.ios.end(id, IoKind::ReadPacked);
            self.packed_read_done(id, &io, failed, actions);
            return;
        }
        let io = self.ios.end(id, IoKind::Read);
        self.note_read_time(&io);
        self.counters.pages_in += u64::from(io.pages().len() as u32 - failed.count_ones());
        let mut run: Option<(u32, PageId, u32, Placing)> = None;
        for (index, &page) in (0..).zip(io.pages()) {
            let placing = self.read_page_done(page, failed >> index & 1 != 0, actions);
            run = match (run, placing) {
                (Some((start, first, count, p)), Some(placing))
                    if p == placing && first.0 + count == page.0 && start + count == index =>
                {
                    Some((start, first, count + 1, p))
                }
                (run, placing) => {
                    push_map(id, run, actions);
                    placing.map(|p| (index, page, 1, p))
                }
            };
        }
        push_map(id, run, actions);
        self.serve_or_relieve(actions);
    }

    /// Completes the read of one page. Returns how to map it, if at all.
    pub(super) fn read_page_done(
        &mut self,
        page: PageId,
        failed: bool,
        actions: &mut Vec<Action>,
    ) -> Option<Placing> {
        if self.table.state(page) == PageState::Doomed {
            self.set_state(page, PageState::Absent);
            self.frames -= 1;
            return None;
        }
        let demanded = self.table.take(page, Flag::Demanded);
        let write = self.table.take(page, Flag::ToStore);
        let store_expected = self.table.take(page, Flag::StoreExpected);
        let to_shadow = self.table.take(page, Flag::ToShadow);
        if failed {
            self.counters.read_errors += 1;
            self.frames -= 1;
            self.end_probation(page);
            if self.table.take(page, Flag::Prefetched) {
                self.counters.prefetch_wasted += 1;
            }
            if demanded {
                self.lose(page, actions);
            } else {
                self.set_state(page, PageState::Stored);
            }
            return None;
        }
        let access = if write { Access::Write } else { Access::Read };
        if to_shadow {
            self.set_state(page, PageState::Shadowed);
            if !self.table.has(page, Flag::Probation) {
                self.policy.inserted(page, None);
            }
            return Some(Placing {
                place: Place::Shadow,
                protect: false,
            });
        }
        self.set_state(page, PageState::Mapped);
        if demanded {
            self.end_probation(page);
        }
        if !self.table.has(page, Flag::Probation) {
            self.policy.inserted(page, demanded.then_some(access));
        }
        let protect = !store_expected && !self.may_store(page, access);
        if protect {
            self.table.set(page, Flag::Protected);
        } else {
            self.count_as_stored(page, access);
        }
        Some(Placing {
            place: Place::Region,
            protect,
        })
    }

    /// Handles the loss of a page that a thread waits for: its contents are unreadable.
    fn lose(&mut self, page: PageId, actions: &mut Vec<Action>) {
        if let Some(slot) = self.table.slot(page) {
            self.table.set_slot(page, None);
            self.swap.mark_bad(slot, &mut self.clusters);
        } else {
            self.free_slot(page);
        }
        self.counters.slots_bad = u64::from(self.swap.slots_bad());
        self.set_state(page, PageState::Poisoned);
        actions.push(Action::Poison { page });
    }
}

fn push_map(io: IoId, run: Option<(u32, PageId, u32, Placing)>, actions: &mut Vec<Action>) {
    if let Some((index, first, count, Placing { place, protect })) = run {
        actions.push(Action::Map {
            io,
            index,
            first,
            count,
            place,
            protect,
        });
    }
}

/// Calls `f` with each run of adjacent pages in a sorted list, none longer than `most`.
pub(super) fn for_runs(pages: &[PageId], most: u32, mut f: impl FnMut(PageId, u32)) {
    for run in pages.chunk_by(|a, b| a.0 + 1 == b.0) {
        for piece in run.chunks(most as usize) {
            f(
                piece[0],
                u32::try_from(piece.len()).expect("a count of pages"),
            );
        }
    }
}
