//! `malloc` of small blocks on small pages: Chameleon's allocator (paper, 3.4).
//!
//! Requests are rounded to powers of two. Of more than half the smallest page they get a page of their own,
//! smaller ones are packed into a smallest page. Pages come in runs of one shape, and the shapes of a size
//! take turns. What is larger than a page, or wants more than half a kilobyte's alignment, is the page
//! pager's.
//!
//! All that is known of blocks lies outside of managed memory, so that freeing a cold block brings
//! nothing in: two bytes a page, and 14 more where it is divided. Each thread has a cache of free
//! blocks. It is found by the thread's pointer and not through thread-local storage, which costs a call
//! in a shared object and may be managed memory. A block that is freed twice, or was never given out,
//! ends the process with a message: two words of a divided page say which blocks the program has. The thread
//! that owns the page changes the one without an atomic instruction, all others change the other.

use super::guard_call;
use flashvm::control::ChameleonSettings;
use flashvm::guard::Own;
use flashvm::{PageList, RUN_PAGES};
use std::cell::UnsafeCell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};

const PAGE: usize = 4096;
/// Bytes of the smallest block.
const SMALLEST: usize = 16;
/// Powers of two from there to a page.
const CLASSES: usize = 9;
/// Blocks of a divided page at most: bits of a word.
const BLOCKS_MAX: usize = 32;
/// Alignment that every shape has.
const ALIGN_MAX: usize = 512;
/// Free blocks of a class in a thread's cache: so many bytes, and so many blocks at least and at most.
const CACHED_BYTES: usize = 128 << 10;
const CACHED_MIN: usize = 64;
const CACHED_MAX: usize = 512;
/// Threads that have a cache at the same time; others go without.
const CACHES: usize = 1024;
/// Free pages of a class that are kept for what comes next: those of so small a part of the budget, and so
/// many at least and at most.
const KEPT_SHARE: usize = 64;
const KEPT_PAGES_MIN: usize = 256;
const KEPT_PAGES_MAX: usize = 16384;

/// Arenas: threads of different ones share no page, and no cache line of what is kept of pages.
const ARENAS: usize = 8;

/// In the word of a page: its class and one, its first sector, its arena, and if it is one block, whether the
/// program has it.
const CLASS: u16 = 0xf;
const SECTOR_SHIFT: u32 = 4;
const ARENA_SHIFT: u32 = 8;
const GIVEN: u16 = 1 << 15;

/// In the word of a divided page: the number of the cache whose thread owns it, and whether it is listed as having
/// free blocks.
const OWNER: u16 = 0x7ff;
const LISTED: u16 = 1 << 15;
/// Instead of the number of a cache: no thread's, and of a thread that has none.
const NOBODY: u16 = OWNER;
const NO_CACHE: u16 = OWNER - 1;

static BASE: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the heap's addresses; 0 without one.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static BUDGET: AtomicUsize = AtomicUsize::new(0);
static PADDING: AtomicUsize = AtomicUsize::new(0);
static SMALLEST_PAGE: AtomicUsize = AtomicUsize::new(512);
/// Bytes of the smallest block, as a power of two: those of the smallest page over the most blocks.
static SMALLEST_SHIFT: AtomicU32 = AtomicU32::new(SMALLEST.ilog2());
/// By page: changed when it is taken and given back, and if it is one block by whoever has that, without an
/// atomic instruction: who frees a block twice at the same time by two threads is not told, as with the C library.
static PAGES: AtomicPtr<AtomicU16> = AtomicPtr::new(std::ptr::null_mut());
/// By divided page, changed with its class locked: the owner changes while all of its blocks are free and in no
/// cache: nobody has one of them to give out or back then.
static DIVIDED: AtomicPtr<AtomicU16> = AtomicPtr::new(std::ptr::null_mut());
/// By divided page: blocks that the program has are those in one of the two, and not in both. The first is its
/// owner's to change, the second everybody else's.
static GIVEN_BY_OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
static GIVEN_BY_OTHERS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// By divided page: blocks that the program or a cache has, changed with the class locked.
static OUT_BLOCKS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// What an arena has free of a class and in no cache.
struct Class {
    /// Pages with free blocks; those of one block are free.
    pages: Vec<u32>,
    /// Of these, divided pages all of whose blocks are free, about.
    whole: usize,
}

/// A class behind a lock that a fork can hold across.
struct Locked {
    locked: AtomicBool,
    class: UnsafeCell<Class>,
}

// SAFETY: the class is only used with the lock held.
unsafe impl Sync for Locked {}

impl Locked {
    fn acquire(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                rustix::thread::sched_yield();
            }
        }
    }

    fn release(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Class) -> T) -> T {
        self.acquire();
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.class.get() });
        self.release();
        result
    }
}

/// By arena and class.
static FREE: [[Locked; CLASSES]; ARENAS] = [const {
    [const {
        Locked {
            locked: AtomicBool::new(false),
            class: UnsafeCell::new(Class {
                pages: Vec::new(),
                whole: 0,
            }),
        }
    }; CLASSES]
}; ARENAS];

/// Free blocks that one thread has at hand.
struct Cache {
    /// The thread's pointer, or 0.
    thread: AtomicUsize,
    /// How many there were before it, or [`NO_CACHE`]: no other has that number.
    number: u16,
    bins: [Bin; CLASSES],
}

#[derive(Clone, Copy)]
struct Bin {
    len: usize,
    blocks: [usize; CACHED_MAX],
}

static THREADS: [AtomicPtr<Cache>; CACHES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; CACHES];
/// Caches that were made.
static MADE: AtomicU32 = AtomicU32::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Puts the allocator over the heap at `base`.
pub(crate) fn start(
    base: usize,
    bytes: usize,
    budget: usize,
    settings: ChameleonSettings,
) -> Result<(), String> {
    let pages = bytes / PAGE;
    let column = |size: usize| {
        // SAFETY: the kernel chooses a free place; no existing mapping changes.
        let column = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                pages * size,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
            )
        };
        if let Ok(column) = column {
            // SAFETY: only a flag of the mapping changes: dumps are no larger than what is used.
            let _ = unsafe {
                rustix::mm::madvise(column, pages * size, rustix::mm::Advice::LinuxDontDump)
            };
        }
        column.map_err(|error| format!("no address space for the heap of small pages: {error}"))
    };
    PAGES.store(column(2)?.cast(), Ordering::Relaxed);
    DIVIDED.store(column(2)?.cast(), Ordering::Relaxed);
    GIVEN_BY_OWNER.store(column(4)?.cast(), Ordering::Relaxed);
    GIVEN_BY_OTHERS.store(column(4)?.cast(), Ordering::Relaxed);
    OUT_BLOCKS.store(column(4)?.cast(), Ordering::Relaxed);
    let mut key: c_uint = 0;
    // SAFETY: the destructor is a function of this object, which is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } != 0 {
        return Err("no thread-specific data for the heap of small pages".to_owned());
    }
    KEY.store(key, Ordering::Relaxed);
    BUDGET.store(budget, Ordering::Relaxed);
    PADDING.store(settings.padding as usize, Ordering::Relaxed);
    SMALLEST_PAGE.store(settings.smallest as usize, Ordering::Relaxed);
    let smallest = (settings.smallest as usize / BLOCKS_MAX).ilog2();
    SMALLEST_SHIFT.store(smallest, Ordering::Relaxed);
    BASE.store(base, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Release);
    Ok(())
}

/// Whether an address is one of the small pages'.
#[inline]
pub(crate) fn owns(address: usize) -> bool {
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < BYTES.load(Ordering::Relaxed)
}

/// Bytes of a block of a class, as a power of two: no division on the way of a block.
#[inline]
fn block_shift(class: usize) -> u32 {
    (class as u32 + SMALLEST.ilog2()).max(SMALLEST_SHIFT.load(Ordering::Relaxed))
}

/// Bytes of a block of a class.
#[inline]
fn block_bytes(class: usize) -> usize {
    1 << block_shift(class)
}

/// Bytes of a page of a class.
#[inline]
fn page_bytes(class: usize) -> usize {
    (SMALLEST << class).max(SMALLEST_PAGE.load(Ordering::Relaxed))
}

/// Blocks of a class that a cache holds at most. Half of them go in or out of it at once.
#[inline]
fn cached(class: usize) -> usize {
    (CACHED_BYTES >> block_shift(class)).clamp(CACHED_MIN, CACHED_MAX)
}

#[inline]
fn class_of(bytes: usize) -> usize {
    (bytes.max(SMALLEST) - 1).ilog2() as usize + 1 - SMALLEST.ilog2() as usize
}

#[inline]
fn column<T>(column: &AtomicPtr<T>, page: u32) -> &'static T {
    // SAFETY: mapped for all pages of the heap, for as long as the process lives; any bits are an atomic
    // integer.
    unsafe { &*column.load(Ordering::Relaxed).add(page as usize) }
}

#[inline]
fn page_of(block: usize) -> u32 {
    ((block - BASE.load(Ordering::Relaxed)) / PAGE) as u32
}

/// The first byte of a page's range.
#[inline]
fn start_of(page: u32, word: u16) -> usize {
    let sector = usize::from(word >> SECTOR_SHIFT & 7);
    BASE.load(Ordering::Relaxed) + page as usize * PAGE + sector * 512
}

/// Whether a page of this class has several blocks.
#[inline]
fn is_divided(class: usize) -> bool {
    block_bytes(class) < page_bytes(class)
}

/// The arena of a block's page.
fn arena_of(block: usize) -> usize {
    let word = column(&PAGES, page_of(block)).load(Ordering::Relaxed);
    usize::from(word >> ARENA_SHIFT) % ARENAS
}

/// Notes of a block of a divided page that the program has it now, or has it no more. Whether it had it.
#[inline]
fn flip(page: u32, index: usize, cache: u16) -> bool {
    let bit = 1 << index;
    let (own, others) = (
        column(&GIVEN_BY_OWNER, page),
        column(&GIVEN_BY_OTHERS, page),
    );
    let before = own.load(Ordering::Relaxed) ^ others.load(Ordering::Relaxed);
    if column(&DIVIDED, page).load(Ordering::Relaxed) & OWNER == cache {
        own.store(own.load(Ordering::Relaxed) ^ bit, Ordering::Relaxed);
    } else {
        others.fetch_xor(bit, Ordering::Relaxed);
    }
    before & bit != 0
}

/// Notes that the program has a block. Whether it had it already.
#[inline]
fn give(block: usize, class: usize, cache: u16) -> bool {
    let page = page_of(block);
    let word = column(&PAGES, page);
    let is = word.load(Ordering::Relaxed);
    if !is_divided(class) {
        word.store(is | GIVEN, Ordering::Relaxed);
        return is & GIVEN != 0;
    }
    let index = (block - start_of(page, is)) >> block_shift(class);
    flip(page, index, cache)
}

/// What the program gives back: its class.
#[inline]
fn take_back(block: usize, cache: u16) -> usize {
    let page = page_of(block);
    let word = column(&PAGES, page);
    let is = word.load(Ordering::Relaxed);
    let Some(class) = usize::from(is & CLASS).checked_sub(1) else {
        wrong(block, "is not an allocated block");
    };
    let (bytes, inside) = (block_bytes(class), block.wrapping_sub(start_of(page, is)));
    if inside & (bytes - 1) != 0 || inside >= page_bytes(class) {
        wrong(block, "is not the start of a block");
    }
    let was_given = if is_divided(class) {
        flip(page, inside >> block_shift(class), cache)
    } else {
        word.store(is & !GIVEN, Ordering::Relaxed);
        is & GIVEN != 0
    };
    if !was_given {
        wrong(block, "is free already");
    }
    class
}

#[cold]
fn wrong(block: usize, what: &str) -> ! {
    flashvm::end(&format!("free(): {block:#x} {what}"))
}

/// The class of a block that the program has.
fn class_in_use(block: usize) -> usize {
    let page = page_of(block);
    let word = column(&PAGES, page).load(Ordering::Relaxed);
    match usize::from(word & CLASS).checked_sub(1) {
        Some(class) => class,
        None => wrong(block, "is not an allocated block"),
    }
}

/// A block, if such are allocated here and there is room; else the page pager's allocator has to do.
#[inline]
pub(crate) fn allocate(size: usize, align: usize) -> Option<*mut c_void> {
    if BYTES.load(Ordering::Relaxed) == 0 || align > ALIGN_MAX {
        return None;
    }
    let bytes = size.checked_add(PADDING.load(Ordering::Relaxed))?;
    if bytes > PAGE {
        return None;
    }
    let class = class_of(bytes.max(align));
    let (block, number) = match cache() {
        Some(cache) => {
            let bin = &mut cache.bins[class];
            if bin.len == 0 {
                bin.len = refill(class, cache.number, &mut bin.blocks[..cached(class) / 2]);
            }
            bin.len = bin.len.checked_sub(1)?;
            (bin.blocks[bin.len], cache.number)
        }
        None => {
            let mut one = [0];
            (refill(class, NO_CACHE, &mut one) > 0).then_some((one[0], NO_CACHE))?
        }
    };
    let had = give(block, class, number);
    debug_assert!(!had, "a free block is given out once");
    Some(block as *mut c_void)
}

/// Takes a block back.
#[inline]
pub(crate) fn release(block: *mut c_void) {
    let block = block as usize;
    let cache = cache();
    let number = cache.as_ref().map_or(NO_CACHE, |cache| cache.number);
    let class = take_back(block, number);
    match cache {
        Some(cache) => {
            let bin = &mut cache.bins[class];
            if bin.len == cached(class) {
                // The older half: what was freed last is warm.
                let half = bin.len / 2;
                put_back(class, &mut bin.blocks[..half]);
                bin.blocks.copy_within(half..bin.len, 0);
                bin.len -= half;
            }
            bin.blocks[bin.len] = block;
            bin.len += 1;
        }
        None => put_back(class, &mut [block]),
    }
}

/// Bytes that a block has room for.
pub(crate) fn room(block: *mut c_void) -> usize {
    block_bytes(class_in_use(block as usize)) - PADDING.load(Ordering::Relaxed)
}

/// Whether a block can stay what it is at another size: it fits, and not much is wasted.
pub(crate) fn fits(block: *mut c_void, size: usize) -> bool {
    let room = room(block);
    size <= room && (size > room / 4 || room < 64)
}

/// Takes free blocks of a class for a cache. How many.
#[cold]
fn refill(class: usize, cache: u16, blocks: &mut [usize]) -> usize {
    let own = usize::from(cache) % ARENAS;
    let owner = if cache == NO_CACHE { NOBODY } else { cache };
    let got = FREE[own][class].with(|free| {
        let got = free.take(class, owner, blocks);
        if got == 0 && take_pages(class, own, free) {
            return free.take(class, owner, blocks);
        }
        got
    });
    if got > 0 {
        return got;
    }
    // There is no room for more pages: what the others have has to do.
    let mut arenas = FREE.iter();
    arenas
        .find_map(|free| {
            let got = free[class].with(|free| free.take(class, NOBODY, blocks));
            (got > 0).then_some(got)
        })
        .unwrap_or(0)
}

impl Class {
    fn take(&mut self, class: usize, owner: u16, blocks: &mut [usize]) -> usize {
        let free = self;
        let mut got = 0;
        while got < blocks.len()
            && let Some(&page) = free.pages.last()
        {
            let start = start_of(page, column(&PAGES, page).load(Ordering::Relaxed));
            let bytes = block_bytes(class);
            let count = page_bytes(class) / bytes;
            if count == 1 {
                blocks[got] = start;
                got += 1;
                free.pages.pop();
                continue;
            }
            let word = column(&DIVIDED, page);
            let out = column(&OUT_BLOCKS, page);
            let mut out_now = out.load(Ordering::Relaxed);
            if out_now == 0 {
                free.whole = free.whole.saturating_sub(1);
                let others = word.load(Ordering::Relaxed) & !OWNER;
                word.store(others | owner, Ordering::Relaxed);
            }
            for index in 0..count {
                if got < blocks.len() && out_now & 1 << index == 0 {
                    out_now |= 1 << index;
                    blocks[got] = start + index * bytes;
                    got += 1;
                }
            }
            out.store(out_now, Ordering::Relaxed);
            if out_now.count_ones() as usize == count {
                free.pages.pop();
                word.store(word.load(Ordering::Relaxed) & !LISTED, Ordering::Relaxed);
            }
        }
        // The next to be taken is the first in memory: neighbours go out in order.
        blocks[..got].reverse();
        got
    }

    fn put(&mut self, class: usize, blocks: &[usize]) {
        let free = self;
        let divided = is_divided(class);
        let arenas = (MADE.load(Ordering::Relaxed) as usize).clamp(1, ARENAS);
        let kept = BUDGET.load(Ordering::Relaxed) / KEPT_SHARE / page_bytes(class);
        let kept = kept.clamp(KEPT_PAGES_MIN, KEPT_PAGES_MAX) / arenas;
        for &block in blocks {
            let page = page_of(block);
            if !divided {
                free.pages.push(page);
                continue;
            }
            let start = start_of(page, column(&PAGES, page).load(Ordering::Relaxed));
            let word = column(&DIVIDED, page);
            let out = column(&OUT_BLOCKS, page);
            let out_now =
                out.load(Ordering::Relaxed) & !(1 << ((block - start) >> block_shift(class)));
            out.store(out_now, Ordering::Relaxed);
            free.whole += usize::from(out_now == 0);
            let before = word.load(Ordering::Relaxed);
            word.store(before | LISTED, Ordering::Relaxed);
            if before & LISTED == 0 {
                free.pages.push(page);
            }
        }
        if !divided && free.pages.len() > kept {
            let old: Vec<u32> = free.pages.drain(..kept / 2).collect();
            give_pages(&old);
        } else if divided && free.whole > kept && free.whole * 2 > free.pages.len() {
            let Self { pages, whole } = free;
            let mut old = Vec::new();
            pages.retain(|&page| {
                let is_whole = column(&OUT_BLOCKS, page).load(Ordering::Relaxed) == 0;
                if is_whole {
                    old.push(page);
                }
                !is_whole
            });
            *whole = 0;
            give_pages(&old);
        }
    }
}

/// Puts free blocks back, and gives pages up of which there are too many.
#[cold]
fn put_back(class: usize, blocks: &mut [usize]) {
    blocks.sort_unstable_by_key(|&block| arena_of(block));
    // Each block is asked for its arena before it is put back: its page may be somebody else's afterwards.
    for blocks in blocks.chunk_by(|&one, &other| arena_of(one) == arena_of(other)) {
        FREE[arena_of(blocks[0])][class].with(|free| free.put(class, blocks));
    }
}

/// Takes pages for a class of an arena.
fn take_pages(class: usize, arena: usize, free: &mut Class) -> bool {
    let mut list = Box::new(PageList::default());
    let address = std::ptr::from_mut(&mut *list) as usize;
    if guard_call(Own::TakePages, address, page_bytes(class)).is_err() {
        return false;
    }
    let word = (class as u16 + 1)
        | (list.first_sector() as u16) << SECTOR_SHIFT
        | (arena as u16) << ARENA_SHIFT;
    let divided = is_divided(class);
    for &page in list.pages() {
        column(&PAGES, page).store(word, Ordering::Relaxed);
        if divided {
            column(&DIVIDED, page).store(LISTED | NOBODY, Ordering::Relaxed);
        }
    }
    free.whole += if divided { list.pages().len() } else { 0 };
    free.pages.extend(list.pages().iter().rev());
    true
}

fn give_pages(pages: &[u32]) {
    let mut list = Box::new(PageList::default());
    for pages in pages.chunks(RUN_PAGES as usize) {
        for &page in pages {
            column(&PAGES, page).store(0, Ordering::Relaxed);
        }
        list.set(pages);
        let address = std::ptr::from_mut(&mut *list) as usize;
        if let Err(error) = guard_call(Own::GivePages, address, 0) {
            flashvm::end(&format!("small pages cannot be given back: {error}"));
        }
    }
}

/// What tells a thread from others: its thread pointer.
#[inline]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of a thread's block on x86-64 is its own address.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, pure, readonly, preserves_flags));
    }
    pointer
}

#[inline]
fn slot(thread: usize) -> usize {
    (thread >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54
}

/// The calling thread's cache.
#[inline]
fn cache() -> Option<&'static mut Cache> {
    let thread = thread_pointer();
    let cache = THREADS[slot(thread)].load(Ordering::Acquire);
    // SAFETY: caches are never freed. Only the thread whose pointer is in one uses its bins.
    unsafe {
        if !cache.is_null() && (*cache).thread.load(Ordering::Relaxed) == thread {
            return Some(&mut *cache);
        }
    }
    find_cache(thread)
}

#[cold]
fn find_cache(thread: usize) -> Option<&'static mut Cache> {
    let slots = || (0..CACHES).map(|step| &THREADS[(slot(thread) + step) % CACHES]);
    // SAFETY: as in `cache`.
    let owner = |cache: *mut Cache| unsafe { &(*cache).thread };
    for entry in slots() {
        let cache = entry.load(Ordering::Acquire);
        if cache.is_null() {
            break;
        }
        if owner(cache).load(Ordering::Relaxed) == thread {
            // SAFETY: as in `cache`.
            return Some(unsafe { &mut *cache });
        }
    }
    let taken = slots().find_map(|entry| {
        let mut cache = entry.load(Ordering::Acquire);
        if cache.is_null() {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let new = Box::into_raw(Box::new(Cache {
                thread: AtomicUsize::new(0),
                number: number.min(NO_CACHE.into()) as u16,
                bins: [Bin {
                    len: 0,
                    blocks: [0; CACHED_MAX],
                }; CLASSES],
            }));
            let (null, order) = (std::ptr::null_mut(), Ordering::AcqRel);
            cache = match entry.compare_exchange(null, new, order, Ordering::Acquire) {
                Ok(_) => new,
                Err(other) => {
                    // SAFETY: made above, and known to nobody else.
                    drop(unsafe { Box::from_raw(new) });
                    other
                }
            };
        }
        let order = Ordering::AcqRel;
        owner(cache)
            .compare_exchange(0, thread, order, Ordering::Relaxed)
            .is_ok()
            .then_some(cache)
    })?;
    // SAFETY: the key was made at the start; the cache is this thread's until its destructor runs.
    unsafe {
        libc::pthread_setspecific(KEY.load(Ordering::Relaxed), taken.cast());
        Some(&mut *taken)
    }
}

/// A thread ends: its free blocks are for all.
unsafe extern "C" fn thread_ends(cache: *mut c_void) {
    // SAFETY: the value that `find_cache` has set, of the thread that ends.
    let cache = unsafe { &mut *cache.cast::<Cache>() };
    empty(cache);
    cache.thread.store(0, Ordering::Release);
}

fn empty(cache: &mut Cache) {
    for (class, bin) in cache.bins.iter_mut().enumerate() {
        put_back(class, &mut bin.blocks[..bin.len]);
        bin.len = 0;
    }
}

/// Before a fork: holds all locks, so that the child's copy is whole.
pub(crate) fn lock_for_fork() {
    FREE.iter().flatten().for_each(Locked::acquire);
}

/// After a fork, in parent and child.
pub(crate) fn unlock_after_fork() {
    FREE.iter().flatten().for_each(Locked::release);
}

/// In a forked child: what the parent's other threads had in their caches is for all.
pub(crate) fn only_this_thread() {
    let own = thread_pointer();
    for entry in &THREADS {
        let cache = entry.load(Ordering::Acquire);
        // SAFETY: the thread whose cache this is does not exist in this process.
        if let Some(cache) = unsafe { cache.as_mut() } {
            let thread = cache.thread.load(Ordering::Relaxed);
            if thread != own && thread != 0 {
                empty(cache);
                cache.thread.store(0, Ordering::Release);
            }
        }
    }
}
