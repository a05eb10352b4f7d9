//! What is known of pages and blocks: words by page, outside of the memory that is handed out.
//!
//! Freeing a cold block so brings nothing in. A page costs two bytes, a divided one 14 more. They tell which blocks the
//! program has, so a block that is freed twice, or was never given out, is found; and the thread that owns a page
//! changes its bits without an atomic instruction.

use crate::classes::{Class, Classes, PAGE, SECTOR};
use crate::{Misuse, Run};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Arenas that a page can belong to.
pub(crate) const ARENAS: usize = 8;

/// What is known of a page: its class and one (0: not handed out), the sector that its range begins with, its
/// arena; and of one that is a single block, whether the program has it.
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

    /// Where in its addresses the page begins.
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

/// The number of a thread's cache: no two caches have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheId(u16);

impl CacheId {
    /// No thread: the owner of a page that belongs to none.
    pub(crate) const NOBODY: Self = Self(0x7ff);
    /// A thread without a cache: it owns no page.
    pub(crate) const NONE: Self = Self(Self::NOBODY.0 - 1);

    /// The cache before which `number` others were made.
    pub(crate) fn of(number: u32) -> Self {
        Self(number.min(Self::NONE.0.into()) as u16)
    }

    /// The arena that the cache takes its blocks from.
    pub(crate) fn arena(self) -> usize {
        usize::from(self.0) % ARENAS
    }

    /// Who owns the pages that it takes blocks from.
    pub(crate) fn as_owner(self) -> Self {
        match self {
            Self::NONE => Self::NOBODY,
            cache => cache,
        }
    }
}

/// In the word of a divided page, beside its owner: whether it is listed as having free blocks.
const LISTED: u16 = 1 << 15;

/// The words of all pages.
#[derive(Debug)]
pub(crate) struct Columns {
    base: usize,
    classes: Classes,
    /// A [`PageWord`] each, changed when a page is taken and given back. A page that is one block has a bit in it
    /// that whoever has the block changes, non-atomically: concurrent double frees go undetected.
    pages: &'static [AtomicU16],
    /// By divided page: the owner and [`LISTED`], changed with the class locked. The owner changes only while
    /// all blocks are free and in no cache: nobody has one of them to give out or back then.
    owners: &'static [AtomicU16],
    /// By divided page: the program has a block if its bit is in one of the two and not in both. Only the owner
    /// changes the first; all others change the second.
    owner_bits: &'static [AtomicU32],
    remote_bits: &'static [AtomicU32],
    /// By divided page: blocks that the program or a cache has, changed with the class locked.
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

    /// The page that a block lies in.
    #[inline]
    pub(crate) fn page_of(&self, block: usize) -> u32 {
        self.index_of(block) as u32
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

    /// The arena of a block's page.
    pub(crate) fn arena_of(&self, block: usize) -> usize {
        self.word(self.page_of(block)).arena()
    }

    /// What is known of the page of a block, at an address that may be anything.
    #[inline]
    fn look_up(&self, block: usize) -> Result<(PageWord, Class), Misuse> {
        let word = self.pages.get(self.index_of(block));
        let word = word.map(|word| PageWord(word.load(Ordering::Relaxed)));
        word.and_then(|word| Some((word, word.class()?)))
            .ok_or(Misuse::NotAllocated)
    }

    /// The class of a block, at an address that may be anything.
    pub(crate) fn class_of(&self, block: usize) -> Result<Class, Misuse> {
        self.look_up(block).map(|(_, class)| class)
    }

    /// Notes of a block of a divided page whether the program has it. False: it was so already.
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

    /// Notes that the program gets a free block from the thread of a cache. False: it has it already.
    #[inline]
    pub(crate) fn give(&self, block: usize, class: Class, cache: CacheId) -> bool {
        let page = self.page_of(block);
        let word = self.word(page);
        if self.classes.is_divided(class) {
            let index = (block - self.start(page, word)) >> self.classes.block_shift(class);
            return self.set_given(page, index, cache, true);
        }
        self.pages[page as usize].store(word.0 | PageWord::GIVEN, Ordering::Relaxed);
        !word.is_given()
    }

    /// Notes that the program gives a block back, by the thread of a cache. The block's class.
    #[inline]
    pub(crate) fn take_back(&self, block: usize, cache: CacheId) -> Result<Class, Misuse> {
        let (word, class) = self.look_up(block)?;
        let page = self.page_of(block);
        let inside = block.wrapping_sub(self.start(page, word));
        let classes = self.classes;
        if inside & (classes.block_bytes(class) - 1) != 0 || inside >= classes.page_bytes(class) {
            return Err(Misuse::NotAStart);
        }
        let was_given = if classes.is_divided(class) {
            self.set_given(page, inside >> classes.block_shift(class), cache, false)
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

    /// A run of pages was handed out for a class of an arena. A divided one has free blocks, and no owner.
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

    /// A page is given back.
    pub(crate) fn leave(&self, page: u32) {
        self.pages[page as usize].store(0, Ordering::Relaxed);
    }

    /// The blocks of a divided page that the program or a cache has.
    pub(crate) fn out(&self, page: u32) -> u32 {
        self.out[page as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_out(&self, page: u32, out: u32) {
        self.out[page as usize].store(out, Ordering::Relaxed);
    }

    /// Makes a cache the owner of a divided page, all of whose blocks are free and in no cache.
    pub(crate) fn set_owner(&self, page: u32, owner: CacheId) {
        let word = &self.owners[page as usize];
        let listed = word.load(Ordering::Relaxed) & LISTED;
        word.store(owner.0 | listed, Ordering::Relaxed);
    }

    /// Notes whether a divided page is listed as having free blocks. Whether it was.
    pub(crate) fn set_listed(&self, page: u32, listed: bool) -> bool {
        let word = &self.owners[page as usize];
        let before = word.load(Ordering::Relaxed);
        let bit = if listed { LISTED } else { 0 };
        word.store(before & !LISTED | bit, Ordering::Relaxed);
        before & LISTED != 0
    }
}

/// What a column is made of: an integer that starts as 0 and needs no drop.
trait Word {}
impl Word for AtomicU16 {}
impl Word for AtomicU32 {}

/// A column of zeros, which takes RAM where it is used. It stays mapped for as long as the process lives.
fn column<T: Word>(count: usize) -> Result<&'static [T], Errno> {
    let bytes = count * size_of::<T>();
    let (prot, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE,
    );
    // SAFETY: the kernel chooses a free place, so no existing mapping changes; then only a flag of the new one
    // does, which keeps dumps as small as what is used. Nobody unmaps it, zeros are a `Word`, and pages are
    // aligned to any.
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
    fn a_page_is_what_it_was_taken_as() {
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
    fn who_gives_a_block_and_who_takes_it_back_may_differ() {
        let class = Class::of(32);
        for (giver, taker) in [
            (OWNER, OWNER),
            (OWNER, OTHER),
            (OTHER, OWNER),
            (OTHER, CacheId::NONE),
        ] {
            let columns = columns(class);
            columns.set_owner(3, OWNER);
            let blocks = (0..16).map(|index| columns.start_of(3) + index * 32);
            for block in blocks {
                for _ in 0..3 {
                    assert!(columns.give(block, class, giver));
                    assert!(!columns.give(block, class, taker), "it is given");
                    assert_eq!(columns.take_back(block, taker), Ok(class));
                    assert_eq!(columns.take_back(block, giver), Err(Misuse::FreeAlready));
                }
            }
        }
    }

    #[test]
    fn a_refused_free_changes_nothing() {
        for class in [Class::of(100), Class::of(1000)] {
            let columns = columns(class);
            let block = columns.start_of(3);
            assert!(columns.give(block, class, OTHER));
            // Within a block, and beside the page's range by whole blocks.
            let beside = columns.classes.block_bytes(class);
            let beyond = columns.classes.page_bytes(class);
            for wrong in [block + 16, block - 16, block - beside, block + beyond] {
                assert_eq!(columns.take_back(wrong, OTHER), Err(Misuse::NotAStart));
            }
            for outside in [
                BASE,
                BASE - 1,
                BASE + 8 * PAGE,
                block + (1 << 44),
                0,
                usize::MAX,
            ] {
                assert_eq!(
                    columns.take_back(outside, OTHER),
                    Err(Misuse::NotAllocated),
                    "{outside:#x}"
                );
            }
            assert_eq!(columns.take_back(block, OTHER), Ok(class));
            for _ in 0..2 {
                assert_eq!(columns.take_back(block, OTHER), Err(Misuse::FreeAlready));
            }
            assert!(columns.give(block, class, OTHER), "it is free still");
        }
    }

    #[test]
    fn owner_and_list_do_not_disturb_each_other() {
        let columns = columns(Class::of(16));
        let block = columns.start_of(3);
        columns.set_owner(3, OWNER);
        assert!(columns.set_listed(3, false), "a new page is listed");
        assert!(!columns.set_listed(3, true));
        assert!(columns.give(block, Class::of(16), OWNER));
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
        // Together, and for longer than a thread runs undisturbed.
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (columns, start) = (&columns, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..1_000_000 {
                        let block = columns.start_of(3) + (thread + 4 * (round % 8)) * 16;
                        let cache = CacheId(thread as u16);
                        assert!(columns.give(block, class, cache));
                        assert_eq!(columns.take_back(block, cache), Ok(class));
                    }
                });
            }
        });
    }
}
