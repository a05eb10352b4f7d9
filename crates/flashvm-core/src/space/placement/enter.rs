//! How pages come: copied to where they are absent, moved back from the shadow, moved to another address.

use super::{ActionContext, MOVE_TRIES, Pages, Placement, zap};
use crate::event::{Event, Place};
use crate::ids::{HUGE_PAGES, PageId, RUN_PAGES_MAX, Run};
use crate::space::{AddressSpace, Contents, Executor, Stop};

impl<K> Placement<K> {
    /// Fills pages with zeros in a range that the program is changing: pages filled only ahead of
    /// need are zapped. Returns the number of pages processed.
    pub(super) fn zero_what_is_awaited<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        first: PageId,
        count: u32,
        protect: bool,
    ) -> u32
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        for done in 0..count {
            let page = first.plus(done);
            if self.changes.touch(page, 1) && !self.is_awaited(Some(page)) {
                zap(context, page);
            } else if self.place(context, Place::Region, page, 1, protect, |_| {
                Contents::Zeros
            }) == 0
            {
                return done;
            }
        }
        count
    }

    /// Fills pages with zeros: with a huge page, as far as the kernel has one. Returns the number of pages processed.
    pub(super) fn zero<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        first: PageId,
        count: u32,
        protect: bool,
    ) -> u32
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let mut done = 0;
        if !protect && count == HUGE_PAGES && first == first.huge_start() {
            let huge = context.space().zero_huge(first);
            self.trace.copied(Place::Region, first, count, huge);
            done = huge.pages;
            if done > 0 {
                context.space().wake(Run::new(first, done));
            }
        }
        let (rest, left) = (first.plus(done), count - done);
        done + self.place(context, Place::Region, rest, left, protect, |_| {
            Contents::Zeros
        })
    }

    /// Copies pages to where they are absent. Returns the number of pages processed.
    pub(super) fn place<'k, X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        place: Place,
        first: PageId,
        count: u32,
        protect: bool,
        from: impl Fn(u32) -> Contents<'k, K>,
    ) -> u32
    where
        X: Executor<Kept = K>,
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
            let copied = context
                .executor
                .copy(place, Run::new(at, len), &contents, protect);
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
                        self.contradiction(
                            context,
                            page,
                            "was to be filled in, and is there already",
                        );
                    }
                    if protect {
                        context.events.push_back(Event::WriteProtectFault { page });
                    }
                    context.space().wake(Run::one(page));
                    done += 1;
                }
                Some(Stop::Missing | Stop::Invalid) if run > 1 => run = 1,
                // No mapping: the page was brought in ahead beyond the mapping's end, or the mapping is gone.
                Some(Stop::Missing | Stop::Invalid) => {
                    zap(context, page);
                    done += 1;
                }
                Some(Stop::Exiting) => return count,
                Some(stop) => context
                    .executor
                    .fail(&format!("placing a page failed: {stop:?}")),
            }
        }
        done
    }

    /// Moves a page back from the shadow, and wakes. `false`: the kernel postpones it.
    pub(super) fn restore<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        page: PageId,
    ) -> bool
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        for _ in 0..MOVE_TRIES {
            match self.shift(context, Place::Region, page, 1).stop {
                None => {
                    context.space().wake(Run::one(page));
                    return true;
                }
                Some(Stop::Again) => {}
                Some(Stop::Exiting) => return true,
                Some(Stop::Exists) if self.resolved_already.remove(&page) => {
                    self.drop_shadow(context, page);
                    return true;
                }
                Some(Stop::Exists) if self.has_arrived(context, Place::Region, page) => {
                    context.space().wake(Run::one(page));
                    return true;
                }
                Some(Stop::Exists) => {
                    self.contradiction(
                        context,
                        page,
                        "was to leave the shadow, and is in the region",
                    );
                }
                // Shared after a fork, pinned, or the program made its range read-only: a copy
                // serves as well.
                Some(_) => {
                    let copied = self.copy_back(context, page, false);
                    if copied {
                        self.drop_shadow(context, page);
                    }
                    return copied;
                }
            }
        }
        false
    }

    /// Copies a page from the shadow into the region, and wakes. `false`: the kernel postpones it.
    pub(super) fn copy_back<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        page: PageId,
        protect: bool,
    ) -> bool
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let from = |_| Contents::Page(Place::Shadow, page);
        self.place(context, Place::Region, page, 1, protect, from) == 1
    }

    /// Moves a page to another address, or copies it where it cannot be moved. `false`: the kernel
    /// postpones it.
    pub fn relocate<X, E>(
        &mut self,
        context: &mut ActionContext<'_, X, E>,
        place: Place,
        from: PageId,
        to: PageId,
        protect: bool,
    ) -> bool
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        // A move makes a page writable, so a protected one is copied.
        if !protect {
            match context.space().relocate(place, from, to).stop {
                None => return true,
                Some(Stop::Again) => return false,
                Some(Stop::Exists)
                    if !context.space().holds(place, from) && context.space().holds(place, to) =>
                {
                    self.moves_misreported += 1;
                    return true;
                }
                Some(_) => {}
            }
        }
        // Reading an absent page would be a fault, which cannot be resolved with the engine locked.
        let zeros = !context.space().holds(place, from);
        let contents = match zeros {
            true => Contents::Zeros,
            false => Contents::Page(place, from),
        };
        let copied = context
            .executor
            .copy(place, Run::one(to), &contents, protect);
        match copied.stop {
            None => {
                if place == Place::Shadow && !zeros {
                    // The original of the copy is in the way.
                    self.drop_shadow(context, from);
                }
                true
            }
            Some(Stop::Again) => false,
            Some(stop) => {
                let why = format!("could not be relocated to page {}: {stop:?}", to.0);
                self.contradiction(context, from, &why)
            }
        }
    }
}
