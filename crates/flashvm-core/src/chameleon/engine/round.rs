//! Rounds: write changed pages to the end of the log, together with the live pages of a block that
//! is cleaned (read, modify, write, commit; paper, 3.3), or each to its slot.
//!
//! One round runs at a time, in the thread that needs it or in the writer, which runs rounds ahead
//! of need so that a fault seldom waits for a write.

use super::super::{
    BLOCK_BYTES, BackPointer, BlockLayout, Check, DATA_SECTORS, InPlace, Location, Log,
    Organization, SECTOR_BYTES, Shape, Svmp, SvmpState, Table,
};
use super::{Action, Engine, Event, Failure, Host, Outcome};
use crate::ClusterSource;

/// Changed sectors that make a round worth its cost.
pub(super) const BATCH_SECTORS: u32 = DATA_SECTORS;
/// Pauses of a round while the store is full, before the process ends.
const FULL_TRIES: u32 = 10_000;

/// The progress of a round.
#[derive(Clone, Debug)]
pub(super) enum Round {
    /// It needs a block; the number of searches so far.
    Beginning { tries: u32 },
    /// A block is being read for cleaning.
    Reading,
    /// A block is being written.
    Writing(BlockLayout),
    /// Writes pages to their slots, in this order.
    Slots {
        writes: Vec<SlotWrite>,
        /// The first write of the current run, and its start in the buffer.
        at: usize,
        from: u32,
    },
}

/// A page on its way to its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotWrite {
    page: Svmp,
    shape: Shape,
    slot: Location,
    check: u64,
}

impl SlotWrite {
    fn end(&self) -> u64 {
        self.slot.offset() + self.shape.size() as u64
    }
}

/// The leading run of writes that are contiguous on flash: its length, and its bytes.
fn first_run(writes: &[SlotWrite]) -> (usize, u32) {
    let run = writes.chunk_by(|one, next| one.end() == next.slot.offset());
    let run = run.into_iter().next().expect("a write is left");
    let bytes = run[run.len() - 1].end() - run[0].slot.offset();
    (run.len(), bytes as u32)
}

impl<C: ClusterSource> Engine<C> {
    /// Wakes the writer if a round is worth its cost, or the page pager needs frames.
    pub(super) fn call_writer_if_due(&mut self, host: &mut impl Host) {
        let due = self.condemned_sectors >= BATCH_SECTORS && self.round.is_none();
        if due || self.has_too_many(host) {
            host.call_writer();
        }
    }

    fn has_too_many(&self, host: &mut impl Host) -> bool {
        self.held > host.frames_target()
    }

    /// The writer's work after a wake-up.
    pub(super) fn write_behind(&mut self, host: &mut impl Host, runs_round: &mut bool) -> Action {
        loop {
            self.return_frames(host);
            // Excess frames leave as they become free; the next fault wakes the writer again.
            let worth_it = if self.has_too_many(host) {
                1
            } else {
                BATCH_SECTORS
            };
            if self.round.is_some() || self.condemned_sectors < worth_it {
                return Action::Done(Outcome::Over);
            }
            if let Some(action) = self.begin_round(host, runs_round) {
                return action;
            }
        }
    }

    /// Begins a round, which this task runs. `None`: there is nothing to write.
    pub(super) fn begin_round(
        &mut self,
        host: &mut impl Host,
        runs_round: &mut bool,
    ) -> Option<Action> {
        debug_assert!(self.round.is_none(), "one round at a time");
        self.forget_touched();
        if self.condemned.is_empty() {
            return None;
        }
        self.round = Some(Round::Beginning { tries: 0 });
        let action = self.step_round(host, Event::Go);
        *runs_round = action.is_some();
        action
    }

    /// Continues the round. `None`: it is over.
    pub(super) fn step_round(&mut self, host: &mut impl Host, event: Event) -> Option<Action> {
        let round = self.round.take().expect("a round is under way");
        let (round, action) = match (round, event) {
            (Round::Beginning { tries }, Event::Go) => match self.flash {
                Organization::Log(_) => self.begin_block(host, tries),
                Organization::InPlace(_) => self.begin_slots(host, tries),
            },
            (Round::Reading, Event::BlockRead(readable)) => Some(self.fill_block(host, readable)),
            (Round::Writing(layout), Event::Written(whole)) => {
                self.end_block(host, &layout, whole);
                None
            }
            (Round::Slots { writes, at, from }, Event::Written(whole)) => {
                self.end_slots(host, writes, at, from, whole)
            }
            (round, event) => unreachable!("{event:?} in {round:?}"),
        }
        .unzip();
        self.round = round;
        if self.round.is_none() {
            self.announce();
        }
        action
    }

    /// The store has no room: pauses.
    fn await_block(host: &impl Host, tries: u32) -> (Round, Action) {
        if tries == FULL_TRIES {
            host.fail(Failure::FlashFull);
        }
        (Round::Beginning { tries: tries + 1 }, Action::Pause)
    }

    fn begin_block(&mut self, host: &mut impl Host, tries: u32) -> Option<(Round, Action)> {
        let (log, _, clusters) = self.log();
        let most = log_most(log, host);
        let Ok(round) = log.begin(clusters, most) else {
            return Some(Self::await_block(host, tries));
        };
        Some(match round.source {
            Some(source) => (Round::Reading, Action::ReadBlock(source)),
            None => self.write_block(host, BlockLayout::default()),
        })
    }

    /// The modify phase: first the live pages of the block that was read, then condemned pages.
    fn fill_block(&mut self, host: &mut impl Host, readable: bool) -> (Round, Action) {
        let mut layout = BlockLayout::default();
        let pointers = readable.then(|| host.block_pointers()).flatten();
        let Self {
            flash: Organization::Log(log),
            table,
            frames,
            ..
        } = self
        else {
            unreachable!("log structuring is switched off")
        };
        let matches = |page: &BackPointer, place: SvmpState| {
            let found = Check::of(host.block_checksum(page));
            match place {
                SvmpState::OnFlash(_, check) => found == check,
                place => place
                    .frame()
                    .is_some_and(|frame| Check::of(frames.check(frame, page.shape)) == found),
            }
        };
        let live = log.keep_live(table, pointers, matches, &mut layout);
        for (from, to) in live.iter().flatten().zip(layout.pointers()) {
            host.keep(from, to.sector);
        }
        self.write_block(host, layout)
    }

    /// Adds condemned pages until the block is full.
    fn write_block(&mut self, host: &mut impl Host, mut layout: BlockLayout) -> (Round, Action) {
        self.checks.fill(None);
        self.forget_touched();
        let mut put = 0;
        for &page in &self.condemned {
            let (shape, place) = self.table.get(page);
            let frame = place.frame().expect("a condemned page lies in a frame");
            let Some(sector) = layout.push(page, shape) else {
                break;
            };
            let to = sector * SECTOR_BYTES as u32;
            self.checks[sector as usize] = Some(host.gather(frame, shape, to));
            put += 1;
        }
        self.condemned.drain(..put);
        self.forget_touched();
        host.write_header(layout.pointers());
        let (log, _, _) = self.log();
        let action = Action::Write {
            at: Location::new(log.target(), 0),
            from: 0,
            bytes: layout.bytes() as u32,
        };
        (Round::Writing(layout), action)
    }

    /// The commit phase.
    fn end_block(&mut self, host: &mut impl Host, layout: &BlockLayout, whole: bool) {
        let (log, table, clusters) = self.log();
        if !whole {
            log.abandon(clusters);
            for pointer in layout.pointers() {
                if self.checks[pointer.sector as usize].is_some() {
                    self.condemn_again(pointer.page);
                }
            }
            return;
        }
        let mut changed = Vec::with_capacity(layout.pointers().len());
        let note = |pointer: &BackPointer, _| changed.push(*pointer);
        log.commit(table, clusters, layout.bytes(), layout.pointers(), note);
        for BackPointer {
            page,
            sector,
            shape,
        } in changed
        {
            let check = self.checks[sector as usize].expect("changed pages have a checksum");
            self.written(host, page, shape, check);
        }
    }

    /// Takes condemned pages, as many as fit into a block and get a slot, in the order of their slots.
    ///
    /// Copies the contents first: one write covers neighbours, and the program may use the pages
    /// during the write.
    fn begin_slots(&mut self, host: &mut impl Host, tries: u32) -> Option<(Round, Action)> {
        let mut writes = self.begin_writes();
        if writes.is_empty() {
            let waits = !self.condemned.is_empty();
            return waits.then(|| Self::await_block(host, tries));
        }
        writes.sort_unstable_by_key(|write| write.slot);
        let mut to = 0;
        for write in &mut writes {
            let frame = self.table.get(write.page).1.frame();
            let frame = frame.expect("a condemned page lies in a frame");
            write.check = host.gather(frame, write.shape, to);
            to += write.shape.size() as u32;
        }
        Some(Self::write_slots(writes, 0, 0))
    }

    fn begin_writes(&mut self) -> Vec<SlotWrite> {
        self.forget_touched();
        let condemned = std::mem::take(&mut self.condemned);
        let (mut writes, mut bytes) = (Vec::with_capacity(condemned.len()), 0);
        for page in condemned {
            let shape = self.table.get(page).0;
            let (in_place, table, clusters) = self.in_place();
            let fits = bytes + shape.size() <= BLOCK_BYTES;
            match fits.then(|| in_place.begin(table, clusters, page)) {
                Some(Ok(slot)) => {
                    bytes += shape.size();
                    writes.push(SlotWrite {
                        page,
                        shape,
                        slot,
                        check: 0,
                    });
                }
                _ => self.condemned.push(page),
            }
        }
        self.forget_touched();
        writes
    }

    /// Writes the run of neighbours that begins with this write.
    fn write_slots(writes: Vec<SlotWrite>, at: usize, from: u32) -> (Round, Action) {
        let action = Action::Write {
            at: writes[at].slot,
            from,
            bytes: first_run(&writes[at..]).1,
        };
        (Round::Slots { writes, at, from }, action)
    }

    /// A run has been written; continues with the next one.
    fn end_slots(
        &mut self,
        host: &mut impl Host,
        writes: Vec<SlotWrite>,
        at: usize,
        from: u32,
        whole: bool,
    ) -> Option<(Round, Action)> {
        let (count, bytes) = first_run(&writes[at..]);
        let run = &writes[at..at + count];
        if whole {
            for write in run {
                let (in_place, table, clusters) = self.in_place();
                let SlotWrite {
                    page, shape, slot, ..
                } = *write;
                if in_place
                    .commit(table, clusters, page, shape, slot)
                    .is_some()
                {
                    self.written(host, page, shape, write.check);
                }
            }
        } else {
            self.in_place().0.fail(run.iter().map(|write| write.shape));
            run.iter().for_each(|write| self.condemn_again(write.page));
        }
        let next = at + count;
        (next < writes.len()).then(|| Self::write_slots(writes, next, from + bytes))
    }

    /// A changed page has been written; the table says where.
    fn written(&mut self, host: &mut impl Host, page: Svmp, shape: Shape, check: u64) {
        let (_, place) = self.table.get(page);
        let frame = place.frame().expect("a changed page lies in a frame");
        self.frames.set_check(frame, shape, check);
        match place {
            // The page may have been touched, changed and condemned again meanwhile.
            SvmpState::Condemned(_, Some(location)) if host.checksum(frame, shape) == check => {
                self.counters.evicted_dirty += 1;
                self.frames.release(frame, shape);
                let place = SvmpState::OnFlash(location, Check::of(check));
                self.table.set(page, shape, place);
            }
            SvmpState::Condemned(..) => {}
            // Touched meanwhile: the page stays.
            _ => self.clocks.keep(frame, shape),
        }
    }

    /// The write of a page failed: the page waits for another round.
    fn condemn_again(&mut self, page: Svmp) {
        if let (shape, SvmpState::Condemned(..)) = self.table.get(page) {
            self.condemned.push(page);
            self.condemned_sectors += shape.sectors();
        }
    }

    /// Removes condemned pages that have since been touched or freed, and duplicates; counts the
    /// sectors of the rest.
    fn forget_touched(&mut self) {
        let Self {
            condemned, table, ..
        } = self;
        condemned.sort_unstable();
        condemned.dedup();
        let mut sectors = 0;
        condemned.retain(|&page| {
            let (shape, place) = table.get(page);
            let waits = matches!(place, SvmpState::Condemned(..));
            sectors += if waits { shape.sectors() } else { 0 };
            waits
        });
        self.condemned_sectors = sectors;
    }

    /// The log, with the state that its rounds need.
    fn log(&mut self) -> (&mut Log, &mut Table, &mut C) {
        match &mut self.flash {
            Organization::Log(log) => (log, &mut self.table, &mut self.clusters),
            Organization::InPlace(_) => unreachable!("log structuring is switched off"),
        }
    }

    /// The slots, with the state that their rounds need.
    fn in_place(&mut self) -> (&mut InPlace, &mut Table, &mut C) {
        match &mut self.flash {
            Organization::InPlace(in_place) => (in_place, &mut self.table, &mut self.clusters),
            Organization::Log(_) => unreachable!("log structuring is switched on"),
        }
    }
}

/// Blocks that the log may have: half of the store while that much is free, otherwise the need of
/// its live pages.
fn log_most(log: &Log, host: &mut impl Host) -> u32 {
    let (all, free) = host.store_blocks();
    log.fewest().max((all / 2).min(log.held() + free / 2))
}
