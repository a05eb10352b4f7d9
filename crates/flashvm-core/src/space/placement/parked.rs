//! Parked actions: those that the kernel has postponed (`EAGAIN`).
//!
//! They wait in order, ahead of later actions on the same pages, with the contents that they need: the
//! read buffer of a `Map` is reused meanwhile. When the program zaps a range, the actions parked for it are forgotten,
//! except drops.

use super::{ActionContext, Pages, Placement};
use crate::event::Action;
use crate::ids::{PageId, Run};
use crate::space::{AddressSpace, Executor};

/// An action that the kernel has postponed.
#[derive(Debug)]
pub(super) struct Parked<K> {
    pub(super) action: Action,
    /// The contents of a `Map` or `Inflate`: their source may be reused before the retry.
    pub(super) kept: Option<K>,
}

/// The pages of a memory action.
pub(super) fn pages(action: &Action) -> (PageId, u32) {
    match *action {
        Action::Zero { first, count, .. }
        | Action::Map { first, count, .. }
        | Action::Shadow { first, count }
        | Action::Unshare { first, count }
        | Action::Drop { first, count } => (first, count),
        Action::Restore { page }
        | Action::RestoreCopy { page, .. }
        | Action::Inflate { page, .. }
        | Action::Unprotect { page }
        | Action::Poison { page }
        | Action::Wake { page } => (page, 1),
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

/// A run action from its page `done` on; `None`: nothing is left.
pub(super) fn rest_of(action: Action, done: u32) -> Option<Action> {
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

    /// Retries parked actions; returns whether none is left.
    pub fn retry<X, E>(&mut self, context: &mut ActionContext<'_, X, E>) -> bool
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        while let Some(parked) = self.parked.pop_front() {
            let Some(rest) = self.attempt(context, &parked.action, parked.kept.as_ref()) else {
                continue;
            };
            let kept = parked.kept.as_ref().map(|kept| {
                let (was, left) = (pages(&parked.action).1, pages(&rest).1);
                X::part(kept, was - left, left)
            });
            self.parked.push_front(Parked { action: rest, kept });
            return false;
        }
        true
    }

    /// The program zapped a range: forgets its parked actions.
    pub fn forget_parked<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        first: PageId,
        count: u32,
    ) where
        X: Executor<Kept = K>,
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
                self.drop_shadow(context, page);
            }
            context.space().wake(Run::new(PageId(start), end - start));
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
                let kept = kept.map(|kept| X::part(kept, skipped, left));
                self.parked.push_back(Parked { action, kept });
            }
        }
    }
}
