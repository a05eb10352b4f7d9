//! Metadata of pages and objects: columns of words by page, outside of the memory handed out.
//!
//! Freeing a cold object therefore reads nothing from flash. A page costs two bytes, a divided one
//! 14 more. The words say which objects are allocated: a double free, or a free of an address that
//! was never allocated, is detected. The thread that owns a page changes its bits without an atomic
//! instruction.

use crate::classes::{Class, Classes, PAGE, SECTOR};
use crate::{Misuse, Run};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Arenas that a page can belong to.
pub(crate) const ARENAS: usize = 8;

/// The word of a page: its class + 1 (0: not handed out), the first sector of its range, its arena,
/// and for a page that is a single object whether it is allocated.
#[derive(Clone, Copy)]
struct PageWord(u16);

impl PageWord {
    const CLASS: u16 = 0xf;
    const SECTOR_SHIFT: u32 = 4;
    const ARENA_SHIFT: u32 = 8;
    const GIVEN: u16 = 1 << 15;

    fn new(class: Class, first_sector: u32, arena: usize) -> Self {
        debug_assert!(first_sector < (PAGE / SECTOR) as u32 && arena < ARENAS);
        let class = class.number() as u16 + 1;
        let sector = (first_sector as u16) << Self::SECTOR_SHIFT;
        Self(class | sector | (arena as u16) << Self::ARENA_SHIFT)
    }

    #[inline]
    fn class(self) -> Option<Class> {
        let class = usize::from(self.0 & Self::CLASS).checked_sub(1)?;
        Class::ALL.get(class).copied()
    }

    /// Start of the range in the page.
    #[inline]
    fn offset(self) -> usize {
        usize::from(self.0 >> Self::SECTOR_SHIFT & 7) * SECTOR
    }

    fn arena(self) -> usize {
        usize::from(self.0 >> Self::ARENA_SHIFT) % ARENAS
    }

    #[inline]
    fn is_given(self) -> bool {
        self.0 & Self::GIVEN != 0
    }
}

/// The number of a thread's cache. Unique, except that all caches beyond the last number are
/// [`CacheId::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheId(u16);

impl CacheId {
    /// The owner of a page without an owner.
    pub(crate) const NOBODY: Self = Self(0x7ff);
    /// A thread without a cache, or a cache without a number: it owns no page.
    pub(crate) const NONE: Self = Self(Self::NOBODY.0 - 1);

    /// The id of the cache with this number.
    pub(crate) fn of(number: u32) -> Self {
        Self(number.min(Self::NONE.0.into()) as u16)
    }

    /// The arena from which the cache takes its objects.
    pub(crate) fn arena(self) -> usize {
        usize::from(self.0) % ARENAS
    }

    /// The owner of the pages from which it takes objects.
    pub(crate) fn as_owner(self) -> Self {
        match self {
            Self::NONE => Self::NOBODY,
            cache => cache,
        }
    }
}

/// Flag in the word of a divided page, beside its owner: listed as having free objects.
const LISTED: u16 = 1 << 15;

/// The words of all pages.
#[derive(Debug)]
pub(crate) struct Columns {
    base: usize,
    classes: Classes,
    /// By page: its [`PageWord`], changed when the page is taken and returned. The bit for a page
    /// that is one object is updated non-atomically: concurrent double frees go undetected.
    pages: &'static [AtomicU16],
    /// By divided page: the owner and [`LISTED`], changed with the class locked. The owner changes
    /// only while all objects are free and in no cache: then no thread can allocate or free one of
    /// them.
    owners: &'static [AtomicU16],
    /// By divided page: allocated = owner_bits XOR remote_bits. Only the owner changes owner_bits,
    /// non-atomically; all others change remote_bits.
    owner_bits: &'static [AtomicU32],
    remote_bits: &'static [AtomicU32],
    /// By divided page: objects that are allocated or in a cache, changed with the class locked.
    out: &'static [AtomicU32],
}

impl Columns {
    /// Words for the pages of `bytes` of addresses from `base` on.
    pub(crate) fn new(base: usize, bytes: usize, classes: Classes) -> Result<Self, Errno> {
        let count = bytes / PAGE;
        Ok(Self {
            base,
            classes,
            pages: column(count)?,
            owners: column(count)?,
            owner_bits: column(count)?,
            remote_bits: column(count)?,
            out: column(count)?,
        })
    }

    pub(crate) fn classes(&self) -> Classes {
        self.classes
    }

    #[inline]
    fn index_of(&self, address: usize) -> usize {
        address.wrapping_sub(self.base) / PAGE
    }

    /// The page of an object.
    #[inline]
    pub(crate) fn page_of(&self, object: usize) -> u32 {
        self.index_of(object) as u32
    }

    #[inline]
    fn word(&self, page: u32) -> PageWord {
        PageWord(self.pages[page as usize].load(Ordering::Relaxed))
    }

    #[inline]
    fn start(&self, page: u32, word: PageWord) -> usize {
        self.base + page as usize * PAGE + word.offset()
    }

    /// The first byte of a page.
    pub(crate) fn start_of(&self, page: u32) -> usize {
        self.start(page, self.word(page))
    }

    /// The arena of an object's page.
    pub(crate) fn arena_of(&self, object: usize) -> usize {
        self.word(self.page_of(object)).arena()
    }

    /// The word of an object's page; accepts any address.
    #[inline]
    fn look_up(&self, object: usize) -> Result<(PageWord, Class), Misuse> {
        let word = self.pages.get(self.index_of(object));
        let word = word.map(|word| PageWord(word.load(Ordering::Relaxed)));
        word.and_then(|word| Some((word, word.class()?)))
            .ok_or(Misuse::NotAllocated)
    }

    /// The class of an object; accepts any address.
    pub(crate) fn class_of(&self, object: usize) -> Result<Class, Misuse> {
        self.look_up(object).map(|(_, class)| class)
    }

    /// Notes that an object of a divided page is allocated, or free. `false`: it was already.
    #[inline]
    fn set_given(&self, page: u32, index: usize, cache: CacheId, given: bool) -> bool {
        let page = page as usize;
        let bit = 1 << index;
        let (own, remote) = (&self.owner_bits[page], &self.remote_bits[page]);
        let own_now = own.load(Ordering::Relaxed);
        if ((own_now ^ remote.load(Ordering::Relaxed)) & bit != 0) == given {
            return false;
        }
        if self.owners[page].load(Ordering::Relaxed) & CacheId::NOBODY.0 == cache.0 {
            own.store(own_now ^ bit, Ordering::Relaxed);
        } else {
            remote.fetch_xor(bit, Ordering::Relaxed);
        }
        true
    }

    /// Notes that the thread of a cache allocates a free object. `false`: it is allocated already.
    #[inline]
    pub(crate) fn give(&self, object: usize, class: Class, cache: CacheId) -> bool {
        let page = self.page_of(object);
        let word = self.word(page);
        if self.classes.is_divided(class) {
            let index = (object - self.start(page, word)) >> self.classes.object_shift(class);
            return self.set_given(page, index, cache, true);
        }
        self.pages[page as usize].store(word.0 | PageWord::GIVEN, Ordering::Relaxed);
        !word.is_given()
    }

    /// Notes that the thread of a cache frees an object; returns the object's class.
    #[inline]
    pub(crate) fn take_back(&self, object: usize, cache: CacheId) -> Result<Class, Misuse> {
        let (word, class) = self.look_up(object)?;
        let page = self.page_of(object);
        let inside = object.wrapping_sub(self.start(page, word));
        let classes = self.classes;
        if inside & (classes.object_bytes(class) - 1) != 0 || inside >= classes.page_bytes(class) {
            return Err(Misuse::NotAStart);
        }
        let was_given = if classes.is_divided(class) {
            self.set_given(page, inside >> classes.object_shift(class), cache, false)
        } else {
            self.pages[page as usize].store(word.0 & !PageWord::GIVEN, Ordering::Relaxed);
            word.is_given()
        };
        if was_given {
            Ok(class)
        } else {
            Err(Misuse::FreeAlready)
        }
    }

    /// Notes a run of pages handed out for a class of an arena. A divided page starts listed and
    /// without an owner.
    pub(crate) fn enter(&self, run: &Run, class: Class, arena: usize) {
        let word = PageWord::new(class, run.first_sector, arena);
        for &page in &run.pages {
            self.pages[page as usize].store(word.0, Ordering::Relaxed);
            if self.classes.is_divided(class) {
                let owner = CacheId::NOBODY.0 | LISTED;
                self.owners[page as usize].store(owner, Ordering::Relaxed);
            }
        }
    }

    /// Notes that a page is returned.
    pub(crate) fn leave(&self, page: u32) {
        self.pages[page as usize].store(0, Ordering::Relaxed);
    }

    /// The objects of a divided page that are allocated or in a cache.
    pub(crate) fn out(&self, page: u32) -> u32 {
        self.out[page as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_out(&self, page: u32, out: u32) {
        self.out[page as usize].store(out, Ordering::Relaxed);
    }

    /// Makes a cache the owner of a divided page. All its objects must be free and in no cache.
    pub(crate) fn set_owner(&self, page: u32, owner: CacheId) {
        let word = &self.owners[page as usize];
        let listed = word.load(Ordering::Relaxed) & LISTED;
        word.store(owner.0 | listed, Ordering::Relaxed);
    }

    /// Sets whether a divided page is listed as having free objects; returns whether it was.
    pub(crate) fn set_listed(&self, page: u32, listed: bool) -> bool {
        let word = &self.owners[page as usize];
        let before = word.load(Ordering::Relaxed);
        let bit = if listed { LISTED } else { 0 };
        word.store(before & !LISTED | bit, Ordering::Relaxed);
        before & LISTED != 0
    }
}

/// An element of a column.
///
/// # Safety
/// Zeros are a value of the type, it needs no drop, and its alignment is at most a page.
unsafe trait Word {}
// SAFETY: an integer of two bytes.
unsafe impl Word for AtomicU16 {}
// SAFETY: an integer of four bytes.
unsafe impl Word for AtomicU32 {}

/// A zeroed column. It takes RAM only where it is used, and stays mapped for the life of the
/// process.
fn column<T: Word>(count: usize) -> Result<&'static [T], Errno> {
    let bytes = count * size_of::<T>();
    let (prot, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE,
    );
    // SAFETY: The kernel chooses a free place, so no existing mapping changes; `madvise` only keeps
    // the new one out of core dumps. The mapping has room for `count` words, nobody unmaps it,
    // zeros are a valid `Word`, and pages are aligned to any `Word`.
    unsafe {
        let start = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags)?;
        let _ = rustix::mm::madvise(start, bytes, Advice::LinuxDontDump);
        Ok(std::slice::from_raw_parts(start.cast(), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 1 << 30;
    const OWNER: CacheId = CacheId(5);
    const OTHER: CacheId = CacheId(6);

    /// One page of a class, from its third sector on.
    fn columns(class: Class) -> Columns {
        let columns = Columns::new(BASE, 8 * PAGE, Classes::new(512)).unwrap();
        let run = Run {
            first_sector: 2,
            pages: vec![3],
        };
        columns.enter(&run, class, 7);
        columns
    }

    #[test]
    fn a_page_keeps_its_class_sector_and_arena() {
        for class in Class::ALL {
            let columns = columns(class);
            let start = BASE + 3 * PAGE + 2 * SECTOR;
            assert_eq!(columns.start_of(3), start);
            assert_eq!(columns.page_of(start), 3);
            assert_eq!(columns.arena_of(start), 7);
            assert_eq!(columns.class_of(start), Ok(class));
            columns.leave(3);
            assert_eq!(columns.class_of(start), Err(Misuse::NotAllocated));
        }
    }

    #[test]
    fn one_thread_may_free_what_another_allocated() {
        let class = Class::of(32);
        for (giver, taker) in [
            (OWNER, OWNER),
            (OWNER, OTHER),
            (OTHER, OWNER),
            (OTHER, CacheId::NONE),
        ] {
            let columns = columns(class);
            columns.set_owner(3, OWNER);
            let objects = (0..16).map(|index| columns.start_of(3) + index * 32);
            for object in objects {
                for _ in 0..3 {
                    assert!(columns.give(object, class, giver));
                    assert!(!columns.give(object, class, taker), "it is given");
                    assert_eq!(columns.take_back(object, taker), Ok(class));
                    assert_eq!(columns.take_back(object, giver), Err(Misuse::FreeAlready));
                }
            }
        }
    }

    #[test]
    fn a_refused_free_changes_nothing() {
        for class in [Class::of(100), Class::of(1000)] {
            let columns = columns(class);
            let object = columns.start_of(3);
            assert!(columns.give(object, class, OTHER));
            // Inside an object, and whole objects beside the page's range.
            let beside = columns.classes.object_bytes(class);
            let beyond = columns.classes.page_bytes(class);
            for wrong in [object + 16, object - 16, object - beside, object + beyond] {
                assert_eq!(columns.take_back(wrong, OTHER), Err(Misuse::NotAStart));
            }
            for outside in [
                BASE,
                BASE - 1,
                BASE + 8 * PAGE,
                object + (1 << 44),
                0,
                usize::MAX,
            ] {
                assert_eq!(
                    columns.take_back(outside, OTHER),
                    Err(Misuse::NotAllocated),
                    "{outside:#x}"
                );
            }
            assert_eq!(columns.take_back(object, OTHER), Ok(class));
            for _ in 0..2 {
                assert_eq!(columns.take_back(object, OTHER), Err(Misuse::FreeAlready));
            }
            assert!(columns.give(object, class, OTHER), "it is still free");
        }
    }

    #[test]
    fn owner_and_list_are_independent() {
        let columns = columns(Class::of(16));
        let object = columns.start_of(3);
        columns.set_owner(3, OWNER);
        assert!(columns.set_listed(3, false), "a new page is listed");
        assert!(!columns.set_listed(3, true));
        assert!(columns.give(object, Class::of(16), OWNER));
        assert_eq!(columns.owner_bits[3].load(Ordering::Relaxed), 1);
        assert_eq!(columns.remote_bits[3].load(Ordering::Relaxed), 0);
        columns.set_owner(3, OTHER);
        assert!(columns.set_listed(3, true));
    }

    #[test]
    fn threads_flip_bits_of_one_page_at_once() {
        let class = Class::of(16);
        let columns = columns(class);
        columns.set_owner(3, CacheId(0));
        // They start together, and run for longer than a time slice.
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (columns, start) = (&columns, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..1_000_000 {
                        let object = columns.start_of(3) + (thread + 4 * (round % 8)) * 16;
                        let cache = CacheId(thread as u16);
                        assert!(columns.give(object, class, cache));
                        assert_eq!(columns.take_back(object, cache), Ok(class));
                    }
                });
            }
        });
    }
}
