//! Arenas: free objects that are in no thread's cache, by class, and the free pages kept for reuse.
//!
//! Threads in different arenas share neither pages nor metadata cache lines. Free pages beyond the
//! number kept return to the page source, where other sizes can use them.

use crate::classes::{CLASSES, Class};
use crate::columns::{ARENAS, CacheId, Columns};
use crate::lock::ForkLock;
use crate::{PageSource, RUN_PAGES};
use std::sync::atomic::{AtomicU32, Ordering};

/// Free pages kept per class: budget / KEPT_SHARE / bytes of a page, clamped to 256..=16384,
/// divided by the arenas in use.
const KEPT_SHARE: usize = 64;
const KEPT_PAGES_MIN: usize = 256;
const KEPT_PAGES_MAX: usize = 16384;

/// The pages of a class in an arena.
#[derive(Debug, Default)]
struct FreePages {
    /// Pages with free objects; undivided pages are free.
    pages: Vec<u32>,
    /// Divided pages whose objects are all free: an estimate.
    whole: usize,
}

/// The free objects that all threads share.
#[derive(Debug)]
pub(crate) struct Arenas {
    columns: Columns,
    source: Box<dyn PageSource>,
    free: [[ForkLock<FreePages>; CLASSES]; ARENAS],
    /// Bytes of free pages kept per class.
    kept_bytes: usize,
    /// Caches created: min(caches, [`ARENAS`]) arenas are in use.
    caches: AtomicU32,
}

impl Arenas {
    pub(crate) fn new(columns: Columns, source: Box<dyn PageSource>, budget: usize) -> Self {
        Self {
            columns,
            source,
            free: Default::default(),
            kept_bytes: budget / KEPT_SHARE,
            caches: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The id of a new cache.
    pub(crate) fn number_cache(&self) -> CacheId {
        CacheId::of(self.caches.fetch_add(1, Ordering::Relaxed))
    }

    /// Moves free objects of a class to the start of `objects`, for a cache; returns their number,
    /// 0 if there is no room.
    #[cold]
    pub(crate) fn refill(&self, class: Class, cache: CacheId, objects: &mut [usize]) -> usize {
        let owner = cache.as_owner();
        let got = self.free[cache.arena()][class.number()].with(|free| {
            let got = free.take(&self.columns, class, owner, objects);
            if got == 0 && self.take_pages(class, cache.arena(), free) {
                return free.take(&self.columns, class, owner, objects);
            }
            got
        });
        if got > 0 {
            return got;
        }
        // No room for more pages: take objects of other arenas, which keep the pages.
        let mut others = self.free.iter().map(|classes| &classes[class.number()]);
        others
            .find_map(|free| {
                let nobody = CacheId::NOBODY;
                let got = free.with(|free| free.take(&self.columns, class, nobody, objects));
                (got > 0).then_some(got)
            })
            .unwrap_or(0)
    }

    /// Returns objects of a class, each to its page's arena, and releases excess pages.
    #[cold]
    pub(crate) fn put_back(&self, class: Class, objects: &mut [usize]) {
        let arena_of = |object: &usize| self.columns.arena_of(*object);
        objects.sort_unstable_by_key(arena_of);
        // Read the arena before freeing: the page may change owner afterwards.
        for objects in objects.chunk_by(|one, other| arena_of(one) == arena_of(other)) {
            self.free[arena_of(&objects[0])][class.number()].with(|free| {
                free.put(&self.columns, class, objects);
                // Under the lock: a fork in between would lose the pages in the child.
                self.give_pages(&free.beyond(&self.columns, class, self.kept(class)));
            });
        }
    }

    /// Free pages of a class that an arena keeps.
    fn kept(&self, class: Class) -> usize {
        let arenas = (self.caches.load(Ordering::Relaxed) as usize).clamp(1, ARENAS);
        let pages = self.kept_bytes / self.columns.classes().page_bytes(class);
        pages.clamp(KEPT_PAGES_MIN, KEPT_PAGES_MAX) / arenas
    }

    /// Takes pages for a class of an arena. `false`: there is no room.
    fn take_pages(&self, class: Class, arena: usize, free: &mut FreePages) -> bool {
        let classes = self.columns.classes();
        let Some(run) = self.source.take(classes.page_bytes(class)) else {
            return false;
        };
        self.columns.enter(&run, class, arena);
        if classes.is_divided(class) {
            free.whole += run.pages.len();
        }
        // The page with the lowest address goes out first.
        free.pages.extend(run.pages.iter().rev());
        true
    }

    fn give_pages(&self, pages: &[u32]) {
        for pages in pages.chunks(RUN_PAGES) {
            pages.iter().for_each(|&page| self.columns.leave(page));
            // SAFETY: The pages were on a list of free pages and are on none any more: all their
            // objects are free, and no thread can allocate one.
            unsafe { self.source.give(pages) };
        }
    }

    /// Takes all locks.
    pub(crate) fn lock_for_fork(&self) {
        self.free.iter().flatten().for_each(ForkLock::acquire);
    }

    /// Releases all locks.
    ///
    /// # Safety
    /// As [`ForkLock::release`], for every lock.
    pub(crate) unsafe fn unlock_after_fork(&self) {
        for free in self.free.iter().flatten() {
            // SAFETY: the caller guarantees that this thread took every lock in `lock_for_fork`, or
            // is a copy of the thread that did.
            unsafe { free.release() };
        }
    }
}

impl FreePages {
    /// Takes objects from the pages listed last; the class is locked. A divided page becomes the
    /// owner's if all its objects are free and in no cache.
    fn take(
        &mut self,
        columns: &Columns,
        class: Class,
        owner: CacheId,
        objects: &mut [usize],
    ) -> usize {
        let classes = columns.classes();
        let bytes = classes.object_bytes(class);
        let count = classes.page_bytes(class) / bytes;
        let mut got = 0;
        while got < objects.len()
            && let Some(&page) = self.pages.last()
        {
            let start = columns.start_of(page);
            if count == 1 {
                objects[got] = start;
                got += 1;
                self.pages.pop();
                continue;
            }
            let mut out = columns.out(page);
            if out == 0 {
                self.whole = self.whole.saturating_sub(1);
                columns.set_owner(page, owner);
            }
            for index in 0..count {
                if got < objects.len() && out & 1 << index == 0 {
                    out |= 1 << index;
                    objects[got] = start + index * bytes;
                    got += 1;
                }
            }
            columns.set_out(page, out);
            if out.count_ones() as usize == count {
                self.pages.pop();
                columns.set_listed(page, false);
            }
        }
        // A cache hands out its last object first: reversed, neighbours go out in order.
        objects[..got].reverse();
        got
    }

    /// Returns objects; the class is locked.
    fn put(&mut self, columns: &Columns, class: Class, objects: &[usize]) {
        let classes = columns.classes();
        for &object in objects {
            let page = columns.page_of(object);
            if !classes.is_divided(class) {
                self.pages.push(page);
                continue;
            }
            let index = (object - columns.start_of(page)) >> classes.object_shift(class);
            let out = columns.out(page) & !(1 << index);
            columns.set_out(page, out);
            self.whole += usize::from(out == 0);
            if !columns.set_listed(page, true) {
                self.pages.push(page);
            }
        }
    }

    /// Removes free pages from the list if there are more than `kept`. Undivided pages: the oldest
    /// kept / 2. Divided pages: all free ones, but only if they are more than half of the list,
    /// which has to be searched for them.
    fn beyond(&mut self, columns: &Columns, class: Class, kept: usize) -> Vec<u32> {
        if !columns.classes().is_divided(class) {
            let surplus = if self.pages.len() > kept { kept / 2 } else { 0 };
            return self.pages.drain(..surplus).collect();
        }
        if self.whole <= kept || self.whole * 2 <= self.pages.len() {
            return Vec::new();
        }
        self.whole = 0;
        self.pages
            .extract_if(.., |&mut page| columns.out(page) == 0)
            .collect()
    }
}
