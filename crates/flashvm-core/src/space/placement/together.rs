//! Actions that are carried out together, with fewer calls: drops, and decompressions of pages that adjoin.

use super::parked::Parked;
use super::{ActionContext, Pages, Placement};
use crate::event::Action;
use crate::ids::Run;
use crate::space::{Contents, Executor};

/// Most runs dropped with one call.
const DROP_RUNS_MAX: usize = 64;
/// Most pages decompressed, and copied with one call.
pub const INFLATE_PAGES_MAX: u32 = 16;

impl<K> Placement<K> {
    /// Carries out the first actions of a list together: drops, or decompressions of pages that adjoin. Returns their
    /// number: 0 if the first action is neither, or actions are parked.
    pub fn carry_out_first<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        actions: &[Action],
    ) -> usize
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        if self.is_parked() {
            return 0;
        }
        match actions.first() {
            Some(Action::Drop { .. }) => self.drop_first(context, actions),
            _ => self.inflate_first(context, actions),
        }
    }

    fn drop_first<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        actions: &[Action],
    ) -> usize
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let mut runs = [Run::default(); DROP_RUNS_MAX];
        let mut taken = 0;
        for (run, action) in runs.iter_mut().zip(actions) {
            let Action::Drop { first, count } = *action else {
                break;
            };
            *run = Run::new(first, count);
            taken += 1;
        }
        self.drop_runs(context, &runs[..taken]);
        taken
    }

    fn inflate_first<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        actions: &[Action],
    ) -> usize
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let Some(&Action::Inflate {
            page: first,
            from,
            place,
            protect,
        }) = actions.first()
        else {
            return 0;
        };
        let mut packed = [from; INFLATE_PAGES_MAX as usize];
        let mut run = Run::new(first, 0);
        let same = (place, protect);
        for (to, action) in packed.iter_mut().zip(actions) {
            match *action {
                Action::Inflate {
                    page,
                    from,
                    place,
                    protect,
                } if page == run.end() && (place, protect) == same => *to = from,
                _ => break,
            }
            run.count += 1;
        }
        let packed = &packed[..run.count as usize];
        self.progress += u64::from(run.count);
        let from = |done| Contents::Packed(&packed[done as usize..]);
        let done = self.place(context, place, first, run.count, protect, from) as usize;
        for (action, from) in actions.iter().zip(packed).skip(done) {
            self.parked.push_back(Parked {
                action: *action,
                kept: Some(context.executor.inflate(from)),
            });
        }
        packed.len()
    }
}
