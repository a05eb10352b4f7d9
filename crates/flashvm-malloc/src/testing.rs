//! For tests and the fuzz target: pages in ordinary memory, and a naive model that takes the same
//! steps as the allocator.
//!
//! The model knows the allocated objects and their contents. An object must have the requested size
//! and alignment, lie in a page that is handed out, and overlap no other; its contents must be
//! intact when it is freed; and the allocator must refuse an address that is no object.

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
    /// By page handed out: the offset of its range, and the size.
    out: BTreeMap<u32, (usize, usize)>,
    /// Returned pages, by offset and size of their ranges.
    free: BTreeMap<(usize, usize), Vec<u32>>,
    /// Pages from here on were never handed out.
    next: u32,
    /// Number of runs handed out.
    turn: usize,
    refusing: bool,
}

impl Pages {
    /// This many pages, in memory that is never freed, since allocators are not either.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let memory = vec![0_u8; (count as usize + 1) * PAGE].leak();
        Self {
            base: (memory.as_ptr() as usize).next_multiple_of(PAGE),
            count,
            state: Arc::default(),
        }
    }

    /// The address of the first page, and the bytes of all.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        (self.base, self.count as usize * PAGE)
    }

    /// Whether to refuse pages that were never handed out.
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

// SAFETY: a page is in `out` from the time it is handed out until it is returned, and `take` panics
// rather than hand it out twice. The memory belongs to these pages alone. Nothing here calls an
// allocator of small pages.
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

/// An object as a program uses it: filled, and checked when it is freed.
#[derive(Debug)]
pub struct Object {
    /// Its address.
    pub address: usize,
    /// The requested bytes.
    pub size: usize,
    fill: u8,
}

impl Object {
    /// Allocates an object and fills it. `None`: as [`Allocator::allocate`].
    ///
    /// # Panics
    /// If the object is not as requested, or lies outside of the pages that are handed out.
    pub fn new(
        allocator: &'static Allocator,
        pages: &Pages,
        size: usize,
        align: usize,
        fill: u8,
    ) -> Option<Self> {
        let object = allocator.allocate(size, align)?;
        let address = object.as_ptr() as usize;
        let room = allocator.room(object.as_ptr()).expect("a new object");
        assert!(
            allocator.owns(address) && address.is_multiple_of(align.max(16)),
            "{address:#x} of {size}, aligned to {align}"
        );
        assert!(room >= size, "{room} bytes for {size}");
        assert!(
            pages.has(address, room),
            "{address:#x} of {size} lies outside of the pages handed out"
        );
        // SAFETY: an object of at least `size` bytes in a page handed out, as just checked, and
        // new.
        unsafe { object.write_bytes(fill, size) };
        Some(Self {
            address,
            size,
            fill,
        })
    }

    /// # Panics
    /// If the object was overwritten, or its page was returned.
    pub fn check(&self, pages: &Pages) {
        let Self {
            address,
            size,
            fill,
        } = *self;
        assert!(pages.has(address, size), "its page was given back");
        // SAFETY: the page is handed out, as just checked, and `new` filled these bytes.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
        let intact = bytes.iter().all(|&byte| byte == fill);
        assert!(intact, "{address:#x} of {size} was overwritten");
    }

    /// Frees the object, intact.
    ///
    /// # Panics
    /// As [`Object::check`], and if the allocator refuses.
    pub fn free(self, allocator: &'static Allocator, pages: &Pages) {
        self.check(pages);
        // SAFETY: `self` is the only handle of the object, and ends here.
        let freed = unsafe { allocator.release(self.address as *mut u8) };
        freed.expect("an object of the program's");
    }
}

/// A step of a program. An index i names object i * (number of objects) / 256, by address.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Allocates an object.
    Allocate {
        /// Its bytes.
        size: usize,
        /// Its alignment.
        align: usize,
    },
    /// Allocates objects of one size.
    AllocateMany {
        /// Bytes of each.
        size: usize,
        /// Their number.
        count: u8,
    },
    /// Frees an object.
    Free(u8),
    /// Frees objects, mostly neighbours.
    FreeMany {
        /// The first.
        from: u8,
        /// Their number.
        count: u8,
    },
    /// Frees an object in another thread.
    FreeElsewhere(u8),
    /// Frees an object twice.
    FreeTwice(u8),
    /// Frees an address inside an object.
    FreeInside(u8),
    /// Resizes an object, as `realloc` does.
    Resize {
        /// The object.
        object: u8,
        /// Its new size in bytes.
        size: usize,
    },
    /// Locks for a fork, and continues as its child.
    Fork,
    /// Refuses new pages, or stops refusing.
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
            15..18 => Self::Resize {
                object: which,
                size,
            },
            18 => Self::Fork,
            _ => Self::Refuse(low % 4 == 0),
        }
    }
}

/// An allocator, its pages, and the objects of a program with one thread.
#[derive(Debug)]
pub struct Model {
    allocator: &'static Allocator,
    pages: Pages,
    objects: BTreeMap<usize, Object>,
    fill: u8,
}

impl Model {
    /// An allocator over this many pages, which adds `padding` to every request.
    ///
    /// # Panics
    /// If the process is out of addresses or keys.
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
            objects: BTreeMap::new(),
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
    /// If the allocator misbehaves.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Allocate { size, align } => self.allocate(size, align),
            Step::AllocateMany { size, count } => {
                (0..count).for_each(|_| self.allocate(size, 1));
            }
            Step::Free(which) => self.free(which),
            Step::FreeMany { from, count } => (0..count).for_each(|_| self.free(from)),
            Step::FreeElsewhere(which) => {
                if let Some(object) = self.remove(which) {
                    let free = || object.free(self.allocator, &self.pages);
                    std::thread::scope(|scope| scope.spawn(free).join().expect("freed"));
                }
            }
            Step::FreeTwice(which) => {
                if let Some(object) = self.remove(which) {
                    let address = object.address;
                    object.free(self.allocator, &self.pages);
                    // Its page may have been returned with it.
                    let misuse = self.refused(address);
                    let expected = [Misuse::FreeAlready, Misuse::NotAllocated];
                    assert!(expected.contains(&misuse), "{misuse:?}");
                }
            }
            Step::FreeInside(which) => {
                if let Some(address) = self.address(which) {
                    let room = self.allocator.room(address as *mut u8);
                    for inside in [1, 8, room.expect("an object") - 1] {
                        assert_eq!(self.refused(address + inside), Misuse::NotAStart);
                    }
                }
            }
            Step::Resize { object, size } => self.resize(object, size),
            Step::Fork => {
                self.allocator.lock_for_fork();
                // SAFETY: this thread locked above, and no other uses this allocator: the threads
                // of `FreeElsewhere` have ended.
                unsafe {
                    self.allocator.unlock_after_fork();
                    self.allocator.only_this_thread();
                }
            }
            Step::Refuse(refusing) => self.pages.refuse(refusing),
        }
    }

    /// Allocated objects.
    #[allow(clippy::len_without_is_empty, reason = "a model, no collection")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Frees all objects, and stops refusing pages.
    ///
    /// # Panics
    /// As [`Model::step`].
    pub fn clear(&mut self) {
        self.pages.refuse(false);
        while !self.objects.is_empty() {
            self.free(0);
        }
    }

    fn address(&self, which: u8) -> Option<usize> {
        let at = usize::from(which) * self.objects.len() / 256;
        self.objects.keys().nth(at).copied()
    }

    fn remove(&mut self, which: u8) -> Option<Object> {
        self.address(which).and_then(|at| self.objects.remove(&at))
    }

    fn allocate(&mut self, size: usize, align: usize) {
        self.fill = self.fill.wrapping_add(1);
        let (allocator, pages) = (self.allocator, &self.pages);
        if let Some(object) = Object::new(allocator, pages, size, align, self.fill) {
            self.add(object);
        }
    }

    fn add(&mut self, object: Object) {
        let (address, end) = (object.address, object.address + object.size.max(1));
        let mut around = self.objects.range(..end);
        let before = around.next_back();
        let clear = before.is_none_or(|(&at, other)| at + other.size.max(1) <= address);
        assert!(clear, "{object:?} overlaps {before:?}");
        self.objects.insert(address, object);
    }

    fn free(&mut self, which: u8) {
        if let Some(object) = self.remove(which) {
            object.free(self.allocator, &self.pages);
        }
    }

    fn resize(&mut self, which: u8, size: usize) {
        let Some(object) = self.remove(which) else {
            return;
        };
        object.check(&self.pages);
        let fits = self.allocator.fits(object.address as *mut u8, size);
        if fits.expect("an object of the program's") {
            let room = self.allocator.room(object.address as *mut u8);
            assert!(room.expect("an object of the program's") >= size);
            // SAFETY: `remove` took the object from the model, and it has room for `size` bytes.
            unsafe { (object.address as *mut u8).write_bytes(object.fill, size) };
            self.add(Object { size, ..object });
        } else {
            self.allocate(size, 1);
            object.free(self.allocator, &self.pages);
        }
    }

    /// Frees an address that is no object; returns the error.
    fn refused(&self, address: usize) -> Misuse {
        // SAFETY: no object of the model begins there: callers pass an address inside one, or of a
        // freed one.
        let result = unsafe { self.allocator.release(address as *mut u8) };
        let wrong = result.expect_err("it is no object");
        assert_eq!(wrong.address, address);
        wrong.misuse
    }
}
