//! Requests to the allocator of small pages, in an order of the fuzzer's, against a model: a block has the size and
//! alignment that was asked for, lies in pages that were handed out, and nobody else stores to it. Pages
//! come from ordinary memory here and not from the pager; now and then there are none.
#![no_main]

use flashvm::control::ChameleonSettings;
use flashvm::guard::Own;
use flashvm::{PageList, RUN_PAGES};
use flashvm_core::chameleon::Shape;
use libfuzzer_sys::fuzz_target;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

#[path = "../../crates/flashvm-preload/src/small.rs"]
mod small;

const PADDING: u32 = 3;

/// What the allocator asks of the pager.
fn guard_call(what: Own, list: usize, size: usize) -> Result<(), Errno> {
    // SAFETY: the allocator's own list.
    let list = unsafe { &mut *(list as *mut PageList) };
    match what {
        Own::TakePages => pager().take(list, size),
        Own::GivePages => pager().give(list),
        _ => return Err(Errno::INVAL),
    }
}

fn start(base: usize, bytes: usize) {
    let settings = ChameleonSettings {
        smallest: 512,
        padding: PADDING,
        overlays: None,
        page_buffer: None,
        log_structuring: true,
        spill: true,
    };
    small::start(base, bytes, bytes / 4, settings).expect("address space");
}

fn allocate(size: usize, align: usize) -> Option<usize> {
    let block = small::allocate(size, align)? as usize;
    assert!(small::owns(block) && block.is_multiple_of(align.max(16)), "{block:#x} of {size}");
    assert!(room(block) >= size, "{} of {size}", room(block));
    Some(block)
}

fn room(block: usize) -> usize {
    small::room(block as *mut _)
}

fn release(block: usize) {
    small::release(block as *mut _);
}

fn fits(block: usize, size: usize) -> bool {
    small::fits(block as *mut _, size)
}

fn fork() {
    small::lock_for_fork();
    small::unlock_after_fork();
    small::only_this_thread();
}

/// The shape after this one of those with its size.
fn shape_of(size: usize, turn: usize) -> Shape {
    Shape::new(size, turn * size % 4096).expect("a size of Table 2")
}

const PAGES: u32 = 1 << 13;

/// Hands pages out as the pager does.
struct Pager {
    base: usize,
    /// Handed out, with where the range begins and its size.
    out: BTreeMap<u32, (usize, usize)>,
    free: BTreeMap<(usize, usize), Vec<u32>>,
    next: u32,
    turn: usize,
    empty: bool,
}

fn pager() -> MutexGuard<'static, Pager> {
    static PAGER: OnceLock<Mutex<Pager>> = OnceLock::new();
    let new = || {
        let memory = vec![0_u8; (PAGES as usize + 1) * 4096].leak();
        let base = (memory.as_ptr() as usize).next_multiple_of(4096);
        start(base, PAGES as usize * 4096);
        let (out, free) = Default::default();
        Mutex::new(Pager { base, out, free, next: 0, turn: 0, empty: false })
    };
    PAGER.get_or_init(new).lock().expect("no panic is survived")
}

impl Pager {
    fn take(&mut self, list: &mut PageList, size: usize) -> Result<(), Errno> {
        self.turn += 1;
        let shape = shape_of(size, self.turn);
        let free = self.free.entry((shape.offset(), size)).or_default();
        if free.is_empty() && self.next + RUN_PAGES <= PAGES && !self.empty {
            free.extend(self.next..self.next + RUN_PAGES);
            self.next += RUN_PAGES;
        }
        if free.is_empty() {
            return Err(Errno::NOMEM);
        }
        let from = free.len().saturating_sub(RUN_PAGES as usize);
        list.hand_out(shape, free.drain(from..));
        for &page in list.pages() {
            assert_eq!(self.out.insert(page, (shape.offset(), size)), None);
        }
        Ok(())
    }

    fn give(&mut self, list: &PageList) -> Result<(), Errno> {
        for &page in list.pages() {
            let range = self.out.remove(&page).expect("a page that was handed out");
            self.free.entry(range).or_default().push(page);
        }
        Ok(())
    }

    fn is_out(&self, block: usize, size: usize) -> bool {
        let page = (block - self.base) / 4096;
        let within = (block - self.base) % 4096;
        let range = self.out.get(&(page as u32));
        range.is_some_and(|&(start, bytes)| within >= start && within + size <= start + bytes)
    }
}

/// Blocks that the program has: size and what fills them.
struct Model {
    blocks: BTreeMap<usize, (usize, u8)>,
    fill: u8,
}

impl Model {
    fn add(&mut self, block: usize, size: usize) {
        let before = self.blocks.range(..=block).next_back();
        assert!(before.is_none_or(|(&at, &(len, _))| at + len <= block && at != block), "{block:#x} is taken");
        let after = self.blocks.range(block..).next();
        assert!(after.is_none_or(|(&at, _)| block + size <= at), "{block:#x} reaches into another");
        assert!(pager().is_out(block, size), "{block:#x} of {size} lies outside of what was handed out");
        self.fill = self.fill.wrapping_add(1);
        // SAFETY: memory of the pager's above, and nobody else's as has just been seen.
        unsafe { std::ptr::write_bytes(block as *mut u8, self.fill, size) };
        self.blocks.insert(block, (size, self.fill));
    }

    fn remove(&mut self, block: usize) {
        let (size, fill) = self.blocks.remove(&block).expect("a block of the model");
        assert!(pager().is_out(block, size), "its page was given back");
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(block as *const u8, size) };
        assert!(bytes.iter().all(|&byte| byte == fill), "{block:#x} was stored to");
    }

    fn some(&self, at: u8) -> Option<usize> {
        let count = self.blocks.len();
        (count > 0).then(|| *self.blocks.keys().nth(usize::from(at) * count / 256).expect("less than there are"))
    }
}

fn malloc(model: &mut Model, size: usize, align: usize) {
    if let Some(block) = allocate(size, align) {
        model.add(block, size);
    }
}

fn free(model: &mut Model, block: usize) {
    model.remove(block);
    release(block);
}

// Four bytes a step: what, which, and a size.
fuzz_target!(|steps: &[u8]| {
    pager().empty = false;
    let mut model = Model { blocks: BTreeMap::new(), fill: 0 };
    for step in steps.chunks_exact(4) {
        let size = usize::from(u16::from_le_bytes([step[2], step[3]]));
        let small = 1 + size % 600;
        match step[0] % 16 {
            0..4 => malloc(&mut model, size % 4200, 1),
            4..6 => malloc(&mut model, small, 1 << (step[1] % 12)),
            6 => (0..step[1]).for_each(|_| malloc(&mut model, small, 1)),
            7..11 => model.some(step[1]).into_iter().for_each(|block| free(&mut model, block)),
            11 => {
                for _ in 0..step[3] {
                    model.some(step[1]).into_iter().for_each(|block| free(&mut model, block));
                }
            }
            12..15 => {
                // realloc, as the preloaded one does it.
                let Some(block) = model.some(step[1]) else { continue };
                model.remove(block);
                if fits(block, small) {
                    model.add(block, small);
                } else if let Some(moved) = allocate(small, 1) {
                    release(block);
                    model.add(moved, small);
                } else {
                    release(block);
                }
            }
            _ if step[1] % 2 == 0 => fork(),
            _ => pager().empty = step[2] % 4 == 0,
        }
    }
    while let Some(block) = model.some(0) {
        free(&mut model, block);
    }
});
