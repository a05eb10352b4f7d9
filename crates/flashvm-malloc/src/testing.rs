//! What tests and the fuzz target share: pages in ordinary memory, and a naive model that is told the same steps as
//! the allocator.
//!
//! The model knows which blocks there are and what they were filled with. A block must have the size and alignment
//! that was asked for, lie in a page that is handed out, and overlap no other; its contents must be there when it is
//! given back; and what is no block must be refused.

use crate::{Allocator, Heap, Misuse, PageSource, RUN_PAGES, Run};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: usize = 4096;

/// Pages in ordinary memory. Clones share them.
#[derive(Clone, Debug)]
pub struct Pages {
    base: usize,
    count: u32,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Handed out: where in its addresses a page begins, and its size.
    out: BTreeMap<u32, (usize, usize)>,
    /// Given back, by the same.
    free: BTreeMap<(usize, usize), Vec<u32>>,
    /// Pages from here on were never handed out.
    next: u32,
    /// Runs that were handed out.
    turn: usize,
    refusing: bool,
}

impl Pages {
    /// So many pages, in memory that is never freed: allocators stay as well.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let memory = vec![0_u8; (count as usize + 1) * PAGE].leak();
        Self {
            base: (memory.as_ptr() as usize).next_multiple_of(PAGE),
            count,
            state: Arc::default(),
        }
    }

    /// Where they lie, and their bytes.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        (self.base, self.count as usize * PAGE)
    }

    /// Whether there is no room for pages that were never handed out.
    pub fn refuse(&self, refusing: bool) {
        self.state().refusing = refusing;
    }

    /// Pages that are handed out.
    #[must_use]
    pub fn out(&self) -> usize {
        self.state().out.len()
    }

    /// Whether a range lies in one page that is handed out.
    #[must_use]
    pub fn has(&self, address: usize, bytes: usize) -> bool {
        let (page, within) = ((address - self.base) / PAGE, (address - self.base) % PAGE);
        let range = self.state().out.get(&(page as u32)).copied();
        range.is_some_and(|(start, size)| within >= start && within + bytes <= start + size)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it locked")
    }
}

// SAFETY: a page is in `out` from the time it is handed out until it is given back, and is not handed out twice; all
// lie in memory of these pages alone. Nothing here calls an allocator of small pages.
unsafe impl PageSource for Pages {
    fn take(&self, bytes: usize) -> Option<Run> {
        let mut state = self.state();
        let State {
            out,
            free,
            next,
            turn,
            refusing,
        } = &mut *state;
        *turn += 1;
        let start = *turn * bytes % PAGE;
        let free = free.entry((start, bytes)).or_default();
        let run = RUN_PAGES as u32;
        if free.is_empty() && *next + run <= self.count && !*refusing {
            free.extend(*next..*next + run);
            *next += run;
        }
        let pages = free.split_off(free.len().saturating_sub(RUN_PAGES));
        for &page in &pages {
            assert_eq!(out.insert(page, (start, bytes)), None, "page {page}");
        }
        (!pages.is_empty()).then_some(Run {
            first_sector: (start / 512) as u32,
            pages,
        })
    }

    unsafe fn give(&self, pages: &[u32]) {
        assert!(pages.len() <= RUN_PAGES, "{} pages", pages.len());
        let mut state = self.state();
        for page in pages {
            let range = state.out.remove(page).expect("a page that is handed out");
            state.free.entry(range).or_default().push(*page);
        }
    }
}

/// A block as a program uses it: filled, and looked at when it is given back.
#[derive(Debug)]
pub struct Block {
    /// Where it begins.
    pub address: usize,
    /// Bytes that were asked for.
    pub size: usize,
    fill: u8,
}

impl Block {
    /// Asks for a block and fills it. `None`: such blocks are not given, or there is no room.
    ///
    /// # Panics
    /// If it is not what was asked for, or lies outside of the pages that are handed out.
    pub fn new(
        allocator: &'static Allocator,
        pages: &Pages,
        size: usize,
        align: usize,
        fill: u8,
    ) -> Option<Self> {
        let block = allocator.allocate(size, align)?;
        let address = block.as_ptr() as usize;
        let room = allocator.room(block.as_ptr()).expect("a new block");
        assert!(
            allocator.owns(address) && address.is_multiple_of(align.max(16)),
            "{address:#x} of {size}, aligned to {align}"
        );
        assert!(room >= size, "{room} bytes for {size}");
        assert!(
            pages.has(address, room),
            "{address:#x} of {size} lies outside of what is handed out"
        );
        // SAFETY: the program's own block, as was just seen.
        unsafe { block.write_bytes(fill, size) };
        Some(Self {
            address,
            size,
            fill,
        })
    }

    /// # Panics
    /// If somebody else has stored to the block, or has its page.
    pub fn check(&self, pages: &Pages) {
        let Self {
            address,
            size,
            fill,
        } = *self;
        assert!(pages.has(address, size), "its page was given back");
        // SAFETY: the program's own block.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
        let intact = bytes.iter().all(|&byte| byte == fill);
        assert!(intact, "{address:#x} of {size} was stored to");
    }

    /// Gives the block back, unharmed.
    ///
    /// # Panics
    /// As [`Block::check`], and if it is refused.
    pub fn free(self, allocator: &'static Allocator, pages: &Pages) {
        self.check(pages);
        // SAFETY: the program's own block, which ends here.
        let freed = unsafe { allocator.release(self.address as *mut u8) };
        freed.expect("a block of the program's");
    }
}

/// What a program does next. Numbers of blocks are 256ths of those that there are.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Asks for a block.
    Allocate {
        /// Its bytes.
        size: usize,
        /// Its alignment.
        align: usize,
    },
    /// Asks for blocks of one size.
    AllocateMany {
        /// Bytes of each.
        size: usize,
        /// How many.
        count: u8,
    },
    /// Gives a block back.
    Free(u8),
    /// Gives blocks back, neighbours mostly.
    FreeMany {
        /// Where they begin.
        from: u8,
        /// How many.
        count: u8,
    },
    /// Gives a block back in another thread.
    FreeElsewhere(u8),
    /// Gives a block back, and then once more.
    FreeTwice(u8),
    /// Gives an address inside a block back.
    FreeInside(u8),
    /// Asks for another size of a block, as `realloc` does it.
    Resize {
        /// The block.
        block: u8,
        /// Its bytes from now on.
        size: usize,
    },
    /// Locks for a fork, and goes on as its child.
    Fork,
    /// There is no room for new pages; or there is again.
    Refuse(bool),
}

impl From<[u8; 4]> for Step {
    fn from([what, which, low, high]: [u8; 4]) -> Self {
        let any = usize::from(u16::from_le_bytes([low, high]));
        let size = 1 + any % 600;
        match what % 20 {
            0..4 => Self::Allocate {
                size: any % 4200,
                align: 1,
            },
            4..6 => Self::Allocate {
                size,
                align: 1 << (which % 12),
            },
            6 => Self::AllocateMany { size, count: which },
            7..11 => Self::Free(which),
            11 => Self::FreeMany {
                from: which,
                count: high,
            },
            12 => Self::FreeElsewhere(which),
            13 => Self::FreeTwice(which),
            14 => Self::FreeInside(which),
            15..18 => Self::Resize { block: which, size },
            18 => Self::Fork,
            _ => Self::Refuse(low % 4 == 0),
        }
    }
}

/// An allocator, its pages, and the blocks that a program of one thread has.
#[derive(Debug)]
pub struct Model {
    allocator: &'static Allocator,
    pages: Pages,
    blocks: BTreeMap<usize, Block>,
    fill: u8,
}

impl Model {
    /// An allocator over so many pages, which adds `padding` to every request.
    ///
    /// # Panics
    /// If the process has no room for it.
    #[must_use]
    pub fn new(pages: u32, smallest_page: usize, padding: usize) -> Self {
        let pages = Pages::new(pages);
        let (base, bytes) = pages.range();
        let heap = Heap {
            base,
            bytes,
            smallest_page,
            padding,
            budget: bytes / 4,
        };
        let allocator = Allocator::start(heap, Box::new(pages.clone())).expect("addresses");
        Self {
            allocator,
            pages,
            blocks: BTreeMap::new(),
            fill: 0,
        }
    }

    /// The allocator.
    #[must_use]
    pub fn allocator(&self) -> &'static Allocator {
        self.allocator
    }

    /// Its pages.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Takes a step.
    ///
    /// # Panics
    /// If the allocator does what it must not.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Allocate { size, align } => self.allocate(size, align),
            Step::AllocateMany { size, count } => {
                (0..count).for_each(|_| self.allocate(size, 1));
            }
            Step::Free(which) => self.free(which),
            Step::FreeMany { from, count } => (0..count).for_each(|_| self.free(from)),
            Step::FreeElsewhere(which) => {
                if let Some(block) = self.remove(which) {
                    let free = || block.free(self.allocator, &self.pages);
                    std::thread::scope(|scope| scope.spawn(free).join().expect("freed"));
                }
            }
            Step::FreeTwice(which) => {
                if let Some(block) = self.remove(which) {
                    let address = block.address;
                    block.free(self.allocator, &self.pages);
                    // Its page may have been given back with it.
                    let misuse = self.refused(address);
                    let expected = [Misuse::FreeAlready, Misuse::NotAllocated];
                    assert!(expected.contains(&misuse), "{misuse:?}");
                }
            }
            Step::FreeInside(which) => {
                if let Some(address) = self.address(which) {
                    let room = self.allocator.room(address as *mut u8);
                    for inside in [1, 8, room.expect("a block") - 1] {
                        assert_eq!(self.refused(address + inside), Misuse::NotAStart);
                    }
                }
            }
            Step::Resize { block, size } => self.resize(block, size),
            Step::Fork => {
                self.allocator.lock_for_fork();
                // SAFETY: locked above; the threads of `FreeElsewhere` have ended.
                unsafe {
                    self.allocator.unlock_after_fork();
                    self.allocator.only_this_thread();
                }
            }
            Step::Refuse(refusing) => self.pages.refuse(refusing),
        }
    }

    /// Blocks that the program has.
    #[allow(clippy::len_without_is_empty, reason = "a model, no collection")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Gives all blocks back, with room for pages again.
    ///
    /// # Panics
    /// As [`Model::step`].
    pub fn clear(&mut self) {
        self.pages.refuse(false);
        while !self.blocks.is_empty() {
            self.free(0);
        }
    }

    fn address(&self, which: u8) -> Option<usize> {
        let at = usize::from(which) * self.blocks.len() / 256;
        self.blocks.keys().nth(at).copied()
    }

    fn remove(&mut self, which: u8) -> Option<Block> {
        self.address(which).and_then(|at| self.blocks.remove(&at))
    }

    fn allocate(&mut self, size: usize, align: usize) {
        self.fill = self.fill.wrapping_add(1);
        let (allocator, pages) = (self.allocator, &self.pages);
        if let Some(block) = Block::new(allocator, pages, size, align, self.fill) {
            self.add(block);
        }
    }

    fn add(&mut self, block: Block) {
        let (address, end) = (block.address, block.address + block.size.max(1));
        let mut around = self.blocks.range(..end);
        let before = around.next_back();
        let clear = before.is_none_or(|(&at, other)| at + other.size.max(1) <= address);
        assert!(clear, "{block:?} overlaps {before:?}");
        self.blocks.insert(address, block);
    }

    fn free(&mut self, which: u8) {
        if let Some(block) = self.remove(which) {
            block.free(self.allocator, &self.pages);
        }
    }

    fn resize(&mut self, which: u8, size: usize) {
        let Some(block) = self.remove(which) else {
            return;
        };
        block.check(&self.pages);
        let fits = self.allocator.fits(block.address as *mut u8, size);
        if fits.expect("a block of the program's") {
            let room = self.allocator.room(block.address as *mut u8);
            assert!(room.expect("a block of the program's") >= size);
            // SAFETY: the program's own block, which has room for so much.
            unsafe { (block.address as *mut u8).write_bytes(block.fill, size) };
            self.add(Block { size, ..block });
        } else {
            self.allocate(size, 1);
            block.free(self.allocator, &self.pages);
        }
    }

    /// Gives an address back that is no block: what the allocator says of it.
    fn refused(&self, address: usize) -> Misuse {
        // SAFETY: no block of the program's begins there, so none ends.
        let result = unsafe { self.allocator.release(address as *mut u8) };
        let wrong = result.expect_err("it is no block");
        assert_eq!(wrong.address, address);
        wrong.misuse
    }
}
