//! Carries out memory actions: puts pages into the region and the shadow, and removes them.
//!
//! All of this happens before the engine handles its next event, so that its page states are the
//! truth about the address space whenever another thread looks. An action that the kernel postpones
//! (`EAGAIN`) is parked, in order and ahead of later actions on the same pages, and retried.

mod check;
mod enter;
mod leave;
mod parked;
#[cfg(test)]
mod tests;
mod together;

use self::parked::{Parked, pages, rest_of};
pub use self::together::INFLATE_PAGES_MAX;
use super::{AddressSpace, Changes, Contents, Done, Executor, PinnedRanges, Stop, Trace};
use crate::clusters::ClusterSource;
use crate::engine::Engine;
use crate::event::{Action, Event, Place};
use crate::ids::{Nanos, PageId, Run};
use crate::page::PageState;
use std::collections::{HashSet, VecDeque};
use std::slice;

/// Tries of a move that the kernel postpones, before it is parked or refused.
const MOVE_TRIES: u32 = 8;

/// The engine's knowledge of pages.
pub trait Pages {
    /// Where a page is.
    fn state(&self, page: PageId) -> PageState;
    /// Whether the next store to this mapped page will be reported.
    fn is_protected(&self, page: PageId) -> bool;
    /// Whether this mapped page has a stale copy in the shadow.
    fn is_stale(&self, page: PageId) -> bool;
}

impl<C: ClusterSource> Pages for Engine<C> {
    fn state(&self, page: PageId) -> PageState {
        self.page_state(page)
    }

    fn is_protected(&self, page: PageId) -> bool {
        Self::is_protected(self, page)
    }

    fn is_stale(&self, page: PageId) -> bool {
        Self::is_stale(self, page)
    }
}

/// The context of an action: where it is carried out, what the engine knows, and where resulting
/// events go.
#[derive(Debug)]
pub struct ActionContext<'a, X, E> {
    /// The address space, and the contents that come into it.
    pub executor: &'a mut X,
    /// The engine.
    pub engine: &'a E,
    /// Events that the engine has to handle next, in this order.
    pub events: &'a mut VecDeque<Event>,
}

impl<X: Executor, E> ActionContext<'_, X, E> {
    fn space(&mut self) -> &mut X::Space {
        self.executor.space()
    }
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

impl<K> Placement<K> {
    /// Grows whenever an action achieves something; a refused move does not count.
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

    /// Calls `f` with page and start of each wait that an action ends. Returns false if no thread waits, or
    /// if actions of its kind never end a wait.
    pub fn end_waits(&mut self, action: &Action, mut f: impl FnMut(PageId, Nanos)) -> bool {
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
                f(page, since);
            }
            !ended
        });
        true
    }

    /// These pages were put into the region while the engine was frozen.
    pub fn resolved_already(&mut self, pages: impl Iterator<Item = PageId>) {
        self.resolved_already.extend(pages);
    }

    /// In a forked child, which has no thread that waits or is in a system call.
    pub fn forked(&mut self) {
        self.waiting.clear();
        self.pins.clear();
    }

    /// Carries out a memory action, or parks what is left of it.
    pub fn carry_out<X, E>(&mut self, context: &mut ActionContext<'_, X, E>, action: &Action)
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let (first, count) = pages(action);
        if let Action::Unshare { .. } = action {
            // Accounting, not a system call: it never waits.
            context.executor.leave_frames(Run::new(first, count));
            return;
        }
        self.trace.asked(action, (first, count));
        self.progress += u64::from(!matches!(action, Action::Shadow { .. }));
        let rest = if !self.is_parked_on(first, count) {
            self.attempt(context, action, None)
        } else if let Action::Shadow { .. } = action {
            // The pages are not there yet, so they cannot be moved away.
            refuse(context, first, count);
            None
        } else {
            Some(*action)
        };
        if let Some(action) = rest {
            let kept = match action {
                Action::Map {
                    io, index, count, ..
                } => Some(context.executor.keep(io, index, count)),
                Action::Inflate { from, .. } => Some(context.executor.inflate(&from)),
                _ => None,
            };
            self.parked.push_back(Parked { action, kept });
        }
    }

    fn drop_runs<X, E>(&mut self, context: &mut ActionContext<'_, X, E>, runs: &[Run])
    where
        X: Executor<Kept = K>,
    {
        let place = if context.space().has_shadow() {
            Place::Shadow
        } else {
            Place::Region
        };
        self.zap_runs(context, place, runs);
        self.progress += 1;
    }

    fn zap_runs<X, E>(&mut self, context: &mut ActionContext<'_, X, E>, place: Place, runs: &[Run])
    where
        X: Executor<Kept = K>,
    {
        for run in runs {
            self.trace.dropped(run.first, run.count);
        }
        if let Err(stop) = context.space().zap(place, runs) {
            context
                .executor
                .fail(&format!("dropping pages failed: {stop:?}"));
        }
    }

    /// A thread touched a missing page that the engine has as mapped: another thread zapped it at
    /// the same time, so it reads as zeros. Returns whether the engine has it as mapped.
    pub fn resolve_spurious<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        page: PageId,
    ) -> bool
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        if context.engine.state(page) != PageState::Mapped {
            return false;
        }
        let elsewhere = !self.is_parked_on(page, 1)
            && context.space().has_shadow()
            && !context.engine.is_stale(page)
            && context.space().holds(Place::Shadow, page);
        if elsewhere && !context.space().holds(Place::Region, page) {
            // Zeros instead of its copy in the shadow would lose data.
            self.contradiction(context, page, "was touched, and is in the shadow alone");
        }
        let protect = context.engine.is_protected(page);
        let zero = Action::Zero {
            first: page,
            count: 1,
            protect,
        };
        self.carry_out(context, &zero);
        true
    }

    /// A store was stopped by write-protection. If the engine has the page as writable, the protection
    /// only guarded a move, or another thread was faster: removes it. Returns whether that is so.
    pub fn unprotect<X, E>(&mut self, context: &mut ActionContext<'_, X, E>, page: PageId) -> bool
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let stale = context.engine.state(page).is_mapped() && !context.engine.is_protected(page);
        if stale {
            self.carry_out(context, &Action::Unprotect { page });
        }
        stale
    }

    /// Tries a memory action; returns the rest, to be retried.
    fn attempt<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        action: &Action,
        kept: Option<&K>,
    ) -> Option<Action>
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        match *action {
            Action::Zero {
                first,
                count,
                protect,
            } => {
                let done = if self.changes.touch(first, count) {
                    self.zero_what_is_awaited(context, first, count, protect)
                } else {
                    self.zero(context, first, count, protect)
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
                let done = self.place(context, place, first, count, protect, from);
                rest_of(*action, done)
            }
            Action::Inflate {
                page,
                from,
                place,
                protect,
            } => {
                let from = |_| match kept {
                    Some(kept) => Contents::Kept(kept, 0),
                    None => Contents::Packed(slice::from_ref(&from)),
                };
                (self.place(context, place, page, 1, protect, from) == 0).then_some(*action)
            }
            Action::Shadow { first, count } => {
                self.shadow(context, first, count);
                None
            }
            Action::Restore { page } => (!self.restore(context, page)).then_some(*action),
            Action::RestoreCopy { page, protect } => {
                (!self.copy_back(context, page, protect)).then_some(*action)
            }
            Action::Drop { first, count } => {
                self.drop_runs(context, &[Run::new(first, count)]);
                None
            }
            Action::Unprotect { page } => match context.space().protect(Run::one(page), false) {
                Err(Stop::Again) => Some(*action),
                Ok(()) => None,
                // No mapping, so there is no protection to remove.
                Err(_) => {
                    context.space().wake(Run::one(page));
                    None
                }
            },
            Action::Poison { page } => {
                context.executor.tell_lost(page);
                match context.space().poison(page) {
                    Err(Stop::Again) => Some(*action),
                    Ok(()) | Err(Stop::Exists | Stop::Missing) => None,
                    Err(stop) => context.executor.fail(&format!(
                        "a page is lost, and the kernel cannot deliver that as SIGBUS: {stop:?}"
                    )),
                }
            }
            Action::Wake { page } => {
                context.space().wake(Run::one(page));
                None
            }
            Action::Unshare { .. } => unreachable!("never parked"),
            Action::Read { .. }
            | Action::Scan { .. }
            | Action::Write { .. }
            | Action::WriteBlock { .. }
            | Action::ReadBlock { .. }
            | Action::Discard { .. } => unreachable!("a flash action"),
            Action::Keep { .. } | Action::Repack { .. } | Action::Vacate { .. } => {
                unreachable!("an action of the pool")
            }
        }
    }

    fn shift<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        to: Place,
        first: PageId,
        count: u32,
    ) -> Done
    where
        X: Executor<Kept = K>,
    {
        let done = context.space().shift(to, Run::new(first, count));
        self.trace.shifted(to, first, count, done);
        done
    }

    /// Whether a move that found a page at its destination had moved that page itself. No other
    /// thread moves pages at the same time, and the page was at the source before.
    fn has_arrived<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        to: Place,
        page: PageId,
    ) -> bool
    where
        X: Executor<Kept = K>,
    {
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        let arrived = !context.space().holds(from, page) && context.space().holds(to, page);
        self.moves_misreported += u64::from(arrived);
        arrived
    }

    fn drop_shadow<X, E>(&mut self, context: &mut ActionContext<'_, X, E>, page: PageId)
    where
        X: Executor<Kept = K>,
    {
        self.zap_runs(context, Place::Shadow, &[Run::one(page)]);
    }
}

/// Reports that pages stay, before any other event.
fn refuse<X, E>(context: &mut ActionContext<'_, X, E>, first: PageId, count: u32) {
    for page in (0..count).map(|i| first.plus(i)) {
        context.events.push_front(Event::Refused { page });
    }
}

/// Reports a page that cannot be filled in as zapped; the threads that wait for it retry.
fn zap<X: Executor, E>(context: &mut ActionContext<'_, X, E>, page: PageId) {
    context.events.push_back(Event::Zap {
        first: page,
        count: 1,
    });
    context.space().wake(Run::one(page));
}
