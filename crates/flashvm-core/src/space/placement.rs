//! Carries out memory actions: puts pages into the region and the shadow, and removes them.
//!
//! All of this happens before the engine handles its next event, so that its page states are the
//! truth about the address space whenever another thread looks. An action that the kernel postpones
//! (`EAGAIN`) is parked, in order and ahead of later actions on the same pages, and retried.

use super::{AddressSpace, Changes, Contents, Done, Mapping, PinnedRanges, Stop, Trace};
use crate::clusters::ClusterSource;
use crate::engine::Engine;
use crate::event::{Action, Event, Place};
use crate::ids::{Nanos, PageId, RUN_PAGES_MAX};
use crate::page::PageState;
use std::collections::{HashSet, VecDeque};

/// Tries of a move that the kernel postpones, before it is parked or refused.
const MOVE_TRIES: u32 = 8;
/// Most runs dropped with one call.
const DROP_RUNS_MAX: usize = 64;
/// Lines of a page's history in the message of a pager that cannot continue.
const LINES: usize = 24;

/// The engine's knowledge of pages.
pub trait Pages {
    /// Where a page is.
    fn state(&self, page: PageId) -> PageState;
    /// Whether the next store to this mapped page will be reported.
    fn is_protected(&self, page: PageId) -> bool;
}

impl<C: ClusterSource> Pages for Engine<C> {
    fn state(&self, page: PageId) -> PageState {
        self.page_state(page)
    }

    fn is_protected(&self, page: PageId) -> bool {
        Self::is_protected(self, page)
    }
}

/// An action that the kernel has postponed.
#[derive(Debug)]
struct Parked<K> {
    action: Action,
    /// The contents of a `Map`, since its read buffer is reused meanwhile.
    kept: Option<K>,
}

/// The context of an action: where it is carried out, what the engine knows, and where resulting
/// events go.
#[derive(Debug)]
pub struct Host<'a, S, E> {
    /// The address space.
    pub space: &'a mut S,
    /// The engine.
    pub engine: &'a E,
    /// Events that the engine has to handle next, in this order.
    pub events: &'a mut VecDeque<Event>,
}

/// Carries out memory actions on an [`AddressSpace`].
#[derive(Debug)]
pub struct Placement<K> {
    /// Ranges whose mappings the program is changing.
    pub changes: Changes,
    /// Pinned pages, which must not be moved.
    pub pins: PinnedRanges,
    /// The latest events, actions and answers.
    pub trace: Trace,
    parked: VecDeque<Parked<K>>,
    /// Pages that were put into the region while a fork froze the engine, and that the engine does
    /// not know to be there yet.
    resolved_already: HashSet<PageId>,
    /// Faults that are not resolved yet, with the time of each.
    waiting: Vec<(PageId, Nanos)>,
    progress: u64,
    moves_misreported: u64,
}

impl<K> Default for Placement<K> {
    fn default() -> Self {
        Self {
            changes: Changes::default(),
            pins: PinnedRanges::default(),
            trace: Trace::default(),
            parked: VecDeque::with_capacity(64),
            resolved_already: HashSet::new(),
            waiting: Vec::with_capacity(64),
            progress: 0,
            moves_misreported: 0,
        }
    }
}

/// The pages of a memory action.
fn pages(action: &Action) -> (PageId, u32) {
    match *action {
        Action::Zero { first, count, .. }
        | Action::Map { first, count, .. }
        | Action::Shadow { first, count }
        | Action::Unshare { first, count }
        | Action::Drop { first, count } => (first, count),
        Action::Restore { page }
        | Action::RestoreCopy { page, .. }
        | Action::Unprotect { page }
        | Action::Poison { page }
        | Action::Wake { page } => (page, 1),
        Action::Read { .. }
        | Action::Scan { .. }
        | Action::Write { .. }
        | Action::Discard { .. } => unreachable!("a flash action"),
    }
}

/// A run action from its page `done` on; `None`: nothing is left.
fn rest_of(action: Action, done: u32) -> Option<Action> {
    let mut rest = action;
    let (first, count) = match &mut rest {
        Action::Zero { first, count, .. } => (first, count),
        Action::Map {
            first,
            count,
            index,
            ..
        } => {
            *index += done;
            (first, count)
        }
        _ => unreachable!("not done in parts"),
    };
    *first = first.plus(done);
    *count -= done;
    (*count > 0).then_some(rest)
}

impl<K> Placement<K> {
    /// Whether actions wait to be retried.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether an action on any of these pages is parked.
    #[must_use]
    pub fn is_parked_on(&self, first: PageId, count: u32) -> bool {
        self.parked.iter().any(|parked| {
            let (other, others) = pages(&parked.action);
            first.0 < other.0 + others && other.0 < first.0 + count
        })
    }

    /// Changes whenever an action achieved something; a refused move does not count.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.progress
    }

    /// A flash action is about to begin. That counts as progress, except for a scan: with a full
    /// store scans may repeat without result.
    pub fn begun(&mut self, action: &Action) {
        self.progress += u64::from(!matches!(action, Action::Scan { .. }));
    }

    /// Moves that the kernel carried out and reported as failed ([`Stop::Exists`]).
    #[must_use]
    pub fn moves_misreported(&self) -> u64 {
        self.moves_misreported
    }

    /// A thread waits for a page since `now`.
    pub fn await_page(&mut self, page: PageId, now: Nanos) {
        self.waiting.push((page, now));
    }

    /// Whether a thread waits for this page, or for any page.
    #[must_use]
    pub fn is_awaited(&self, page: Option<PageId>) -> bool {
        match page {
            Some(page) => self.waiting.iter().any(|&(waiting, _)| waiting == page),
            None => !self.waiting.is_empty(),
        }
    }

    /// Calls `f` with the start of each wait that an action ends; returns whether it is an action
    /// that ends waits.
    pub fn end_waits(&mut self, action: &Action, mut f: impl FnMut(Nanos)) -> bool {
        let ends_none = matches!(
            action,
            Action::Shadow { .. } | Action::Drop { .. } | Action::Unshare { .. }
        );
        if self.waiting.is_empty() || ends_none {
            return false;
        }
        let (first, count) = pages(action);
        self.waiting.retain(|&(page, since)| {
            let ended = page.0.wrapping_sub(first.0) < count;
            if ended {
                f(since);
            }
            !ended
        });
        true
    }

    /// These pages were put into the region while the engine was frozen.
    pub fn resolved_already(&mut self, pages: impl Iterator<Item = PageId>) {
        self.resolved_already.extend(pages);
    }

    /// In a forked child: no thread of the parent's is here.
    pub fn forked(&mut self) {
        self.waiting.clear();
        self.pins.clear();
    }

    /// Carries out a memory action, or parks what is left of it.
    pub fn carry_out<S, E>(&mut self, host: &mut Host<'_, S, E>, action: &Action)
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        let (first, count) = pages(action);
        if let Action::Unshare { .. } = action {
            // Accounting, not a system call: it never waits.
            host.space.leave_frames(first, count);
            return;
        }
        self.trace.asked(action, (first, count));
        self.progress += u64::from(!matches!(action, Action::Shadow { .. }));
        let rest = if !self.is_parked_on(first, count) {
            self.attempt(host, action, None)
        } else if let Action::Shadow { .. } = action {
            // The pages are not there yet, so they cannot be moved away.
            refuse(host, first, count);
            None
        } else {
            Some(*action)
        };
        if let Some(action) = rest {
            let kept = match action {
                Action::Map {
                    io, index, count, ..
                } => Some(host.space.keep(io, index, count)),
                _ => None,
            };
            self.parked.push_back(Parked { action, kept });
        }
    }

    /// Carries out the drops at the start of a list of actions, together. Returns their number: 0
    /// if the first action is no drop, or has to wait for a parked one.
    pub fn drop_first<S, E>(&mut self, host: &mut Host<'_, S, E>, actions: &[Action]) -> usize
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        if self.is_parked() {
            return 0;
        }
        let mut runs = [(PageId(0), 0); DROP_RUNS_MAX];
        let mut taken = 0;
        for (run, action) in runs.iter_mut().zip(actions) {
            let Action::Drop { first, count } = *action else {
                break;
            };
            *run = (first, count);
            taken += 1;
        }
        if taken > 0 {
            self.drop_runs(host, &runs[..taken]);
        }
        taken
    }

    fn drop_runs<S, E>(&mut self, host: &mut Host<'_, S, E>, runs: &[(PageId, u32)])
    where
        S: AddressSpace<Kept = K>,
    {
        let place = if host.space.has_shadow() {
            Place::Shadow
        } else {
            Place::Region
        };
        for &(first, count) in runs {
            self.trace.dropped(first, count);
        }
        host.space.drop_runs(place, runs);
        self.progress += 1;
    }

    /// Retries parked actions; returns whether none is left.
    pub fn retry<S, E>(&mut self, host: &mut Host<'_, S, E>) -> bool
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        while let Some(parked) = self.parked.pop_front() {
            let Some(rest) = self.attempt(host, &parked.action, parked.kept.as_ref()) else {
                continue;
            };
            let kept = parked.kept.as_ref().map(|kept| {
                let (was, left) = (pages(&parked.action).1, pages(&rest).1);
                S::part(kept, was - left, left)
            });
            self.parked.push_front(Parked { action: rest, kept });
            return false;
        }
        true
    }

    /// The program zapped a range: forgets its parked actions.
    pub fn forget_parked<S, E>(&mut self, host: &mut Host<'_, S, E>, first: PageId, count: u32)
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        for parked in std::mem::take(&mut self.parked) {
            let (at, of) = pages(&parked.action);
            let start = at.0.max(first.0);
            let end = (at.0 + of).min(first.0 + count);
            if start >= end || matches!(parked.action, Action::Drop { .. }) {
                self.parked.push_back(parked);
                continue;
            }
            if let Action::Restore { page } = parked.action {
                self.drop_shadow(host, page);
            }
            host.space.wake(PageId(start), end - start);
            for part in [at.0..start, end..at.0 + of] {
                if part.is_empty() {
                    continue;
                }
                let (skipped, left) = (part.start - at.0, part.end - part.start);
                let mut action = rest_of(parked.action, skipped).expect("a part that is left");
                if let Action::Zero { count, .. } | Action::Map { count, .. } = &mut action {
                    *count = left;
                }
                let kept = parked.kept.as_ref();
                let kept = kept.map(|kept| S::part(kept, skipped, left));
                self.parked.push_back(Parked { action, kept });
            }
        }
    }

    /// A thread touched a missing page that the engine has as mapped: another thread zapped it at
    /// the same time, so it reads as zeros. Returns whether the engine has it as mapped.
    pub fn resolve_spurious<S, E>(&mut self, host: &mut Host<'_, S, E>, page: PageId) -> bool
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        if host.engine.state(page) != PageState::Mapped {
            return false;
        }
        let elsewhere = !self.is_parked_on(page, 1)
            && host.space.has_shadow()
            && host.space.holds(Place::Shadow, page);
        if elsewhere && !host.space.holds(Place::Region, page) {
            // Zeros in its stead would be lost data.
            self.contradiction(host, page, "was touched, and is in the shadow alone");
        }
        let protect = host.engine.is_protected(page);
        let zero = Action::Zero {
            first: page,
            count: 1,
            protect,
        };
        self.carry_out(host, &zero);
        true
    }

    /// A page is write-protected that the engine has as mapped for stores: the protection only
    /// guarded a move, or another thread was faster. Removes the protection; returns whether that
    /// is so.
    pub fn lift_protection<S, E>(&mut self, host: &mut Host<'_, S, E>, page: PageId) -> bool
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        let stale = host.engine.state(page).is_mapped() && !host.engine.is_protected(page);
        if stale {
            self.carry_out(host, &Action::Unprotect { page });
        }
        stale
    }

    /// Moves a page to another address, or copies it where it cannot be moved. `false`: the kernel
    /// postpones it.
    pub fn relocate<S, E>(
        &mut self,
        host: &mut Host<'_, S, E>,
        place: Place,
        from: PageId,
        to: PageId,
        protect: bool,
    ) -> bool
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        // A move makes a page writable, so a protected one is copied.
        if !protect {
            match host.space.relocate(place, from, to).stop {
                None => return true,
                Some(Stop::Again) => return false,
                Some(Stop::Exists)
                    if !host.space.holds(place, from) && host.space.holds(place, to) =>
                {
                    self.moves_misreported += 1;
                    return true;
                }
                Some(_) => {}
            }
        }
        // Reading an absent page would be a fault, which cannot be resolved with the engine locked.
        let zeros = !host.space.holds(place, from);
        match host
            .space
            .relocate_copy(place, from, to, protect, zeros)
            .stop
        {
            None => {
                if place == Place::Shadow && !zeros {
                    // The original of the copy is in the way.
                    self.drop_shadow(host, from);
                }
                true
            }
            Some(Stop::Again) => false,
            Some(stop) => {
                let why = format!("could not be relocated to page {}: {stop:?}", to.0);
                self.contradiction(host, from, &why)
            }
        }
    }

    /// Compares the engine's page states with the address space. Does nothing while actions are
    /// parked or the program changes its mappings.
    pub fn check<S, E>(&self, host: &Host<'_, S, E>, pages: impl Iterator<Item = PageId>)
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        if self.is_parked() || !self.changes.none() {
            return;
        }
        let has_shadow = host.space.has_shadow();
        for page in pages.filter(|page| !self.resolved_already.contains(page)) {
            let state = host.engine.state(page);
            let region = host.space.holds(Place::Region, page);
            let shadow = has_shadow && host.space.holds(Place::Shadow, page);
            let right = match state {
                // The page may have been dropped in a way that is not reported.
                PageState::Mapped => !shadow,
                PageState::Overtaken => region && shadow == has_shadow,
                state if state.is_in_shadow() => shadow == has_shadow && region != has_shadow,
                PageState::Stored | PageState::Reading | PageState::Poisoned => !region && !shadow,
                _ => true,
            };
            if !right {
                self.contradiction(host, page, "is not where the engine has it");
            }
        }
    }

    /// Tries a memory action; returns the rest, to be retried.
    fn attempt<S, E>(
        &mut self,
        host: &mut Host<'_, S, E>,
        action: &Action,
        kept: Option<&K>,
    ) -> Option<Action>
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        match *action {
            Action::Zero {
                first,
                count,
                protect,
            } => {
                let done = if self.changes.touch(first, count) {
                    self.zero_what_is_awaited(host, first, count, protect)
                } else {
                    self.place(host, Place::Region, first, count, protect, |_| {
                        Contents::Zeros
                    })
                };
                rest_of(*action, done)
            }
            Action::Map {
                io,
                index,
                first,
                count,
                place,
                protect,
            } => {
                let from = |done| match kept {
                    Some(kept) => Contents::Kept(kept, done),
                    None => Contents::Read(io, index + done),
                };
                let done = self.place(host, place, first, count, protect, from);
                rest_of(*action, done)
            }
            Action::Shadow { first, count } => {
                self.shadow(host, first, count);
                None
            }
            Action::Restore { page } => (!self.restore(host, page)).then_some(*action),
            Action::RestoreCopy { page, protect } => {
                (!self.copy_back(host, page, protect)).then_some(*action)
            }
            Action::Drop { first, count } => {
                self.drop_runs(host, &[(first, count)]);
                None
            }
            Action::Unprotect { page } => match host.space.protect(page, 1, false) {
                Err(Stop::Again) => Some(*action),
                Ok(()) => None,
                // No mapping, so there is no protection to remove.
                Err(_) => {
                    host.space.wake(page, 1);
                    None
                }
            },
            Action::Poison { page } => {
                host.space.tell_lost(page);
                match host.space.poison(page) {
                    Err(Stop::Again) => Some(*action),
                    Ok(()) | Err(Stop::Exists | Stop::Missing) => None,
                    Err(stop) => host.space.fail(&format!(
                        "a page is lost, and the kernel cannot deliver that as SIGBUS: {stop:?}"
                    )),
                }
            }
            Action::Wake { page } => {
                host.space.wake(page, 1);
                None
            }
            Action::Unshare { .. } => unreachable!("never parked"),
            Action::Read { .. }
            | Action::Scan { .. }
            | Action::Write { .. }
            | Action::Discard { .. } => unreachable!("a flash action"),
        }
    }

    /// Fills pages with zeros in a range that the program is changing: pages filled only ahead of
    /// need are zapped. Returns the number of pages processed.
    fn zero_what_is_awaited<S, E>(
        &mut self,
        host: &mut Host<'_, S, E>,
        first: PageId,
        count: u32,
        protect: bool,
    ) -> u32
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        for done in 0..count {
            let page = first.plus(done);
            if self.changes.touch(page, 1) && !self.is_awaited(Some(page)) {
                zap(host, page);
            } else if self.place(host, Place::Region, page, 1, protect, |_| Contents::Zeros) == 0 {
                return done;
            }
        }
        count
    }

    /// Copies pages to where they are absent. Returns the number of pages processed.
    fn place<'k, S, E>(
        &mut self,
        host: &mut Host<'_, S, E>,
        place: Place,
        first: PageId,
        count: u32,
        protect: bool,
        from: impl Fn(u32) -> Contents<'k, K>,
    ) -> u32
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
        K: 'k,
    {
        let protect = protect && place == Place::Region;
        let mut done = 0;
        // The kernel refuses a run that extends beyond a mapping as a whole.
        let mut run = count.min(RUN_PAGES_MAX);
        while done < count {
            let (at, len) = (first.plus(done), run.min(count - done));
            let contents = from(done);
            let copied = host.space.copy(place, at, len, &contents, protect);
            self.trace.copied(place, at, len, copied);
            done += copied.pages;
            let page = first.plus(done);
            match copied.stop {
                None => {}
                Some(Stop::Again) if copied.pages > 0 => {}
                Some(Stop::Again) => break,
                Some(Stop::Exists) => {
                    // The region holds the truth about a page that was resolved while a fork froze
                    // the engine, and about one without earlier contents.
                    let known = place == Place::Region
                        && (self.resolved_already.remove(&page)
                            || matches!(contents, Contents::Zeros));
                    if !known {
                        self.contradiction(host, page, "was to be filled in, and is there already");
                    }
                    if protect {
                        host.events.push_back(Event::WriteProtectFault { page });
                    }
                    host.space.wake(page, 1);
                    done += 1;
                }
                Some(Stop::Missing | Stop::Invalid) if run > 1 => run = 1,
                // No mapping: the page was brought in ahead beyond its end, or the mapping is gone.
                Some(Stop::Missing | Stop::Invalid) => {
                    zap(host, page);
                    done += 1;
                }
                Some(Stop::Exiting) => return count,
                Some(stop) => host.space.fail(&format!("placing a page failed: {stop:?}")),
            }
        }
        done
    }

    /// Moves the movable pages of a run into the shadow; refusals become events.
    fn shadow<S, E>(&mut self, host: &mut Host<'_, S, E>, first: PageId, count: u32)
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        let mut done = 0;
        while done < count {
            let free = self.pins.free_before(first.plus(done), count - done);
            if free > 0 {
                self.shadow_free(host, first.plus(done), free);
            }
            done += free;
            if done < count {
                refuse(host, first.plus(done), 1);
                done += 1;
            }
        }
    }

    /// The same for pages that the pager has not pinned.
    fn shadow_free<S, E>(&mut self, host: &mut Host<'_, S, E>, first: PageId, count: u32)
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        if !host.space.has_shadow() {
            match host.space.protect(first, count, true) {
                Ok(()) => self.progress += 1,
                Err(_) => refuse(host, first, count),
            }
            return;
        }
        let mut done = 0;
        // Tries, with the page that they are for.
        let mut tries = (first, 0);
        let mut unshared = None;
        // The kernel refuses a run that extends beyond a mapping as a whole.
        let mut run = count;
        while done < count {
            let moved = self.shift(host, Place::Shadow, first.plus(done), run.min(count - done));
            done += moved.pages;
            self.progress += u64::from(moved.pages);
            let page = first.plus(done);
            if page != tries.0 {
                tries = (page, 0);
            }
            match moved.stop {
                None => {}
                Some(_) if moved.pages > 0 => {}
                Some(Stop::Again) if tries.1 < MOVE_TRIES => tries.1 += 1,
                // A page that the kernel is just copying is absent for an instant.
                Some(Stop::Missing) if host.space.holds(Place::Region, page) => {
                    refuse(host, page, 1);
                    done += 1;
                }
                Some(Stop::Missing) => {
                    if !self.zero_shadow(host, page) {
                        refuse(host, page, 1);
                    }
                    done += 1;
                }
                Some(Stop::Exiting) => return,
                Some(Stop::Invalid) if run > 1 => run = 1,
                Some(Stop::Invalid) => {
                    let moved = self.shadow_protected(host, page, count - done);
                    if moved == 0 {
                        refuse(host, page, 1);
                    }
                    done += moved.max(1);
                    self.progress += u64::from(moved);
                }
                Some(Stop::Exists) if self.has_arrived(host, Place::Shadow, page) => {
                    done += 1;
                    self.progress += 1;
                }
                // The page was mapped until now, so the region holds the truth.
                Some(Stop::Exists) if tries.1 < MOVE_TRIES => {
                    self.drop_shadow(host, page);
                    tries.1 += 1;
                }
                Some(Stop::Exists) => {
                    self.contradiction(host, page, "was to leave the region, and is in the shadow");
                }
                // Shared with another process after a fork, or pinned. The page is there, and
                // nobody is removing it, so reading it cannot fault.
                Some(Stop::Busy)
                    if unshared != Some(page)
                        && !self.changes.touch(page, 1)
                        && host.space.unshare(page) =>
                {
                    unshared = Some(page);
                }
                Some(_) => {
                    refuse(host, page, 1);
                    done += 1;
                }
            }
        }
    }

    /// Moves up to `most` pages into the shadow that the program may not store to, or not access at
    /// all: the kernel moves only writable pages. Returns the number of moved pages.
    ///
    /// They become writable for the duration of the move. Userfaultfd's write-protection stops
    /// stores meanwhile; a stopped thread meets the program's own protection when it retries.
    fn shadow_protected<S, E>(&mut self, host: &mut Host<'_, S, E>, first: PageId, most: u32) -> u32
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        let Some(Mapping {
            pages,
            protection,
            writable: false,
        }) = host.space.mapping(first)
        else {
            return 0;
        };
        let count = pages.min(most);
        // Another thread may be about to change the protection that would be restored.
        if !self.changes.none() || host.space.protect(first, count, true).is_err() {
            return 0;
        }
        let mut moved = 0;
        // The kernel refuses if that would take too many mappings.
        if host.space.set_protection(first, count, None).is_ok() {
            let (mut tries, mut unshared) = (0, false);
            while moved < count {
                let page = first.plus(moved);
                let shifted = self.shift(host, Place::Shadow, page, count - moved);
                moved += shifted.pages;
                if shifted.pages > 0 {
                    (tries, unshared) = (0, false);
                    continue;
                }
                match shifted.stop {
                    Some(Stop::Again) if tries < MOVE_TRIES => tries += 1,
                    Some(Stop::Busy) if !unshared && host.space.unshare(page) => unshared = true,
                    Some(Stop::Exists) if self.has_arrived(host, Place::Shadow, page) => moved += 1,
                    Some(Stop::Missing)
                        if !host.space.holds(Place::Region, page)
                            && self.zero_shadow(host, page) =>
                    {
                        moved += 1;
                    }
                    _ => break,
                }
            }
            if let Err(stop) = host.space.set_protection(first, count, Some(protection)) {
                host.space
                    .fail(&format!("a range lost its protection: {stop:?}"));
            }
        }
        for page in (moved..count).map(|i| first.plus(i)) {
            // They stay, with their protection unchanged.
            if !host.engine.is_protected(page) {
                self.carry_out(host, &Action::Unprotect { page });
            }
        }
        moved
    }

    /// A page that was to leave the region is gone: one thread zapped it while another touched it.
    /// Puts zeros into the shadow in its stead; returns whether they are there.
    fn zero_shadow<S, E>(&mut self, host: &mut Host<'_, S, E>, page: PageId) -> bool
    where
        S: AddressSpace<Kept = K>,
    {
        let copied = host
            .space
            .copy(Place::Shadow, page, 1, &Contents::Zeros, false);
        self.trace.copied(Place::Shadow, page, 1, copied);
        copied.stop.is_none()
    }

    /// Moves a page back from the shadow, and wakes. `false`: the kernel postpones it.
    fn restore<S, E>(&mut self, host: &mut Host<'_, S, E>, page: PageId) -> bool
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        for _ in 0..MOVE_TRIES {
            match self.shift(host, Place::Region, page, 1).stop {
                None => {
                    host.space.wake(page, 1);
                    return true;
                }
                Some(Stop::Again) => {}
                Some(Stop::Exiting) => return true,
                Some(Stop::Exists) if self.resolved_already.remove(&page) => {
                    self.drop_shadow(host, page);
                    return true;
                }
                Some(Stop::Exists) if self.has_arrived(host, Place::Region, page) => {
                    host.space.wake(page, 1);
                    return true;
                }
                Some(Stop::Exists) => {
                    self.contradiction(host, page, "was to leave the shadow, and is in the region");
                }
                // Shared after a fork, pinned, or the program made its range read-only: a copy
                // serves as well.
                Some(_) => {
                    let copied = self.copy_back(host, page, false);
                    if copied {
                        self.drop_shadow(host, page);
                    }
                    return copied;
                }
            }
        }
        false
    }

    /// Copies a page from the shadow into the region, and wakes. `false`: the kernel postpones it.
    fn copy_back<S, E>(&mut self, host: &mut Host<'_, S, E>, page: PageId, protect: bool) -> bool
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        let from = |_| Contents::Shadow;
        self.place(host, Place::Region, page, 1, protect, from) == 1
    }

    fn shift<S, E>(
        &mut self,
        host: &mut Host<'_, S, E>,
        to: Place,
        first: PageId,
        count: u32,
    ) -> Done
    where
        S: AddressSpace<Kept = K>,
    {
        let done = host.space.shift(to, first, count);
        self.trace.shifted(to, first, count, done);
        done
    }

    /// Whether the move that found a page at its destination has moved that page itself. No other
    /// thread moves pages meanwhile, and the page was at the source before.
    fn has_arrived<S, E>(&mut self, host: &Host<'_, S, E>, to: Place, page: PageId) -> bool
    where
        S: AddressSpace<Kept = K>,
    {
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        let arrived = !host.space.holds(from, page) && host.space.holds(to, page);
        self.moves_misreported += u64::from(arrived);
        arrived
    }

    fn drop_shadow<S, E>(&mut self, host: &mut Host<'_, S, E>, page: PageId)
    where
        S: AddressSpace<Kept = K>,
    {
        self.trace.dropped(page, 1);
        host.space.drop_runs(Place::Shadow, &[(page, 1)]);
    }

    /// A page is where the engine does not have it: nothing tells which copy holds the program's
    /// data, so the process ends.
    fn contradiction<S, E>(&self, host: &Host<'_, S, E>, page: PageId, what: &str) -> !
    where
        S: AddressSpace<Kept = K>,
        E: Pages,
    {
        let there = |place| {
            if host.space.holds(place, page) {
                "present"
            } else {
                "absent"
            }
        };
        let mut why = format!(
            "the page at {:#x} {what} ({:?}; region: {}, shadow: {}; {} actions are parked). Its past, newest first:",
            host.space.address(page),
            host.engine.state(page),
            there(Place::Region),
            there(Place::Shadow),
            self.parked.len()
        );
        for (ago, entry) in self.trace.of(page).take(LINES) {
            why.push_str(&format!("\n  {ago} us ago: {entry}"));
        }
        host.space.fail(&why)
    }
}

/// Reports that pages stay, before any other event.
fn refuse<S, E>(host: &mut Host<'_, S, E>, first: PageId, count: u32) {
    for page in (0..count).map(|i| first.plus(i)) {
        host.events.push_front(Event::Refused { page });
    }
}

/// Reports a page that cannot be filled in as zapped; the threads that wait for it retry.
fn zap<S: AddressSpace, E>(host: &mut Host<'_, S, E>, page: PageId) {
    host.events.push_back(Event::Zap {
        first: page,
        count: 1,
    });
    host.space.wake(page, 1);
}
