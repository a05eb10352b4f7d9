//! How pages leave the region: moved into the shadow, or write-protected where there is none.
//!
//! A page that cannot leave is refused to the engine. Nothing is parked: the policy will propose it again.

use super::{ActionContext, MOVE_TRIES, Pages, Placement, refuse};
use crate::event::{Action, Place};
use crate::ids::{PageId, Run};
use crate::space::{AddressSpace, Contents, Executor, Mapping, Stop};

impl<K> Placement<K> {
    /// Moves the movable pages of a run into the shadow; refusals become events.
    pub(super) fn shadow<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        first: PageId,
        count: u32,
    ) where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let mut done = 0;
        while done < count {
            let free = self.pins.free_before(first.plus(done), count - done);
            if free > 0 {
                self.shadow_free(context, first.plus(done), free);
            }
            done += free;
            if done < count {
                refuse(context, first.plus(done), 1);
                done += 1;
            }
        }
    }

    /// Like `shadow`, for pages that the pager has not pinned.
    fn shadow_free<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        first: PageId,
        count: u32,
    ) where
        X: Executor<Kept = K>,
        E: Pages,
    {
        if !context.space().has_shadow() {
            let mut again = 0..MOVE_TRIES;
            let done = loop {
                match context.space().protect(Run::new(first, count), true) {
                    Err(Stop::Again) if again.next().is_some() => {}
                    done => break done,
                }
            };
            match done {
                Ok(()) => self.progress += 1,
                Err(_) => refuse(context, first, count),
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
            let moved = self.shift(
                context,
                Place::Shadow,
                first.plus(done),
                run.min(count - done),
            );
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
                // While the kernel copies a page, the page is absent for a moment.
                Some(Stop::Missing) if context.space().holds(Place::Region, page) => {
                    refuse(context, page, 1);
                    done += 1;
                }
                Some(Stop::Missing) => {
                    if !self.zero_shadow(context, page) {
                        refuse(context, page, 1);
                    }
                    done += 1;
                }
                Some(Stop::Exiting) => return,
                Some(Stop::Invalid) if run > 1 => run = 1,
                Some(Stop::Invalid) => {
                    let moved = self.shadow_unlike(context, page, count - done);
                    if moved == 0 {
                        refuse(context, page, 1);
                    }
                    done += moved.max(1);
                    self.progress += u64::from(moved);
                }
                Some(Stop::Exists) if self.has_arrived(context, Place::Shadow, page) => {
                    done += 1;
                    self.progress += 1;
                }
                // The page was mapped until now, so the region holds the truth.
                Some(Stop::Exists) if tries.1 < MOVE_TRIES => {
                    self.drop_shadow(context, page);
                    tries.1 += 1;
                }
                Some(Stop::Exists) => {
                    self.contradiction(
                        context,
                        page,
                        "was to leave the region, and is in the shadow",
                    );
                }
                // Shared with another process after a fork, or pinned. The page is there, and
                // nobody is removing it, so reading it cannot fault.
                Some(Stop::Busy)
                    if unshared != Some(page)
                        && !self.changes.touch(page, 1)
                        && context.space().unshare(page) =>
                {
                    unshared = Some(page);
                }
                Some(_) => {
                    refuse(context, page, 1);
                    done += 1;
                }
            }
        }
    }

    /// Moves up to `most` pages of a mapping whose access rights are not those of the shadow. Returns the number of moved
    /// pages.
    ///
    /// The kernel moves only writable pages, between mappings with the same rights. So read-only pages become
    /// writable for the duration of the move. Userfaultfd's write-protection stops stores in that time; a stopped thread
    /// meets the program's own protection when it retries.
    fn shadow_unlike<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        first: PageId,
        most: u32,
    ) -> u32
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let Some(Mapping {
            pages,
            protection,
            writable,
        }) = context.space().mapping(first)
        else {
            return 0;
        };
        let count = pages.min(most);
        let run = Run::new(first, count);
        // Another thread may be about to change the protection that would be restored.
        if !self.changes.none() || (!writable && context.space().protect(run, true).is_err()) {
            return 0;
        }
        let mut moved = 0;
        // The kernel refuses if that would take too many mappings.
        if context.space().open_to_moves(run, protection).is_ok() {
            let (mut tries, mut unshared) = (0, false);
            while moved < count {
                let page = first.plus(moved);
                let shifted = self.shift(context, Place::Shadow, page, count - moved);
                moved += shifted.pages;
                if shifted.pages > 0 {
                    (tries, unshared) = (0, false);
                    continue;
                }
                match shifted.stop {
                    Some(Stop::Again) if tries < MOVE_TRIES => tries += 1,
                    Some(Stop::Busy) if !unshared && context.space().unshare(page) => {
                        unshared = true
                    }
                    Some(Stop::Exists) if self.has_arrived(context, Place::Shadow, page) => {
                        moved += 1
                    }
                    Some(Stop::Missing)
                        if !context.space().holds(Place::Region, page)
                            && self.zero_shadow(context, page) =>
                    {
                        moved += 1;
                    }
                    _ => break,
                }
            }
            if !writable && let Err(stop) = context.space().close_to_moves(run, protection) {
                context
                    .executor
                    .fail(&format!("a range lost its protection: {stop:?}"));
            }
        }
        for page in (moved..count).map(|i| first.plus(i)) {
            // These pages stay: removes the write-protection that guarded the move.
            if !writable && !context.engine.is_protected(page) {
                self.carry_out(context, &Action::Unprotect { page });
            }
        }
        moved
    }

    /// A page that was to leave the region is gone: one thread zapped it while another touched it.
    /// Puts zeros into the shadow in its stead; returns whether they are there.
    fn zero_shadow<X, E>(&mut self, context: &mut ActionContext<'_, X, E>, page: PageId) -> bool
    where
        X: Executor<Kept = K>,
    {
        let copied = context
            .executor
            .copy(Place::Shadow, Run::one(page), &Contents::Zeros, false);
        self.trace.copied(Place::Shadow, page, 1, copied);
        copied.stop.is_none()
    }
}
