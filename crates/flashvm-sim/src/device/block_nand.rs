//! `block-nand`: SLC flash behind a translation layer that maps whole blocks, for which FAB, BPLRU and CLC were
//! made. The flash is the CRAW paper's (V, Table 1): 25 us to read and 200 us to program 2 KiB, 64 of these a
//! block, so 32 pages of memory. The paper gives no time to erase a block: 2 ms, as FlashVM's paper has it.
//!
//! A logical block lies in one physical block, each page at its own offset. Flash is written once and in
//! order, so a page is rewritten into a *replacement block*: first the pages before it are copied there, then
//! it is programmed. A later write further on continues there, again after copies of the pages between. When
//! the last page is in, the old block is erased (NFTL, and the switch merge of log blocks: Kim and others,
//! *A space-efficient flash translation layer for CompactFlash systems*, 2002). A write at or before the last
//! one, or to another block while no replacement block is free, first completes the merge: it copies the
//! rest and erases the old block. A block that is written in order costs 32 programs and one erase;
//! any other page costs 31 copies besides.
//!
//! `open-blocks` replacement blocks may be open at once (1 by default); the one written the longest ago is merged
//! first. All pages count as valid. One operation at a time; merges of open blocks at the end are not counted.

use super::{Completion, DeviceModel, Discards, ERASE_BLOCK_PAGES, Request, Wear};
use flashvm_core::Nanos;
use flashvm_core::policy::Costs;

const ERASE: Nanos = Nanos(2_000_000);

/// A logical block with a replacement block.
struct Open {
    block: u32,
    /// Pages in the replacement block.
    filled: u32,
}

pub(super) struct BlockNand {
    pages: u32,
    busy_until: Nanos,
    open_max: usize,
    /// The one written the longest ago is first.
    open: Vec<Open>,
    host_writes: u64,
    copies: u64,
    /// By logical block.
    erases: Vec<u32>,
}

impl BlockNand {
    pub(super) fn new(pages: u32, open_blocks: u32) -> Self {
        Self {
            pages,
            busy_until: Nanos(0),
            open_max: open_blocks.max(1) as usize,
            open: Vec::new(),
            host_writes: 0,
            copies: 0,
            erases: vec![0; pages.div_ceil(ERASE_BLOCK_PAGES) as usize],
        }
    }

    /// Pages of a block: the last one may be short.
    fn len(&self, block: u32) -> u32 {
        ERASE_BLOCK_PAGES.min(self.pages - block * ERASE_BLOCK_PAGES)
    }

    /// Writes a page; returns the time.
    fn write(&mut self, page: u32) -> Nanos {
        let (block, offset) = (page / ERASE_BLOCK_PAGES, page % ERASE_BLOCK_PAGES);
        let mut time = Nanos(0);
        let known = self.open.iter().position(|open| open.block == block);
        let mut open = match known.map(|at| self.open.remove(at)) {
            Some(open) if open.filled <= offset => open,
            Some(open) => {
                time = time.plus(self.merge(open));
                Open { block, filled: 0 }
            }
            None => {
                if self.open.len() == self.open_max {
                    let oldest = self.open.remove(0);
                    time = time.plus(self.merge(oldest));
                }
                Open { block, filled: 0 }
            }
        };
        time = time
            .plus(self.copy(offset - open.filled))
            .plus(Costs::NAND.write);
        self.host_writes += 1;
        open.filled = offset + 1;
        if open.filled == self.len(block) {
            time = time.plus(self.merge(open));
        } else {
            self.open.push(open);
        }
        time
    }

    /// Completes a replacement block and erases the old block.
    fn merge(&mut self, open: Open) -> Nanos {
        self.erases[open.block as usize] += 1;
        self.copy(self.len(open.block) - open.filled).plus(ERASE)
    }

    fn copy(&mut self, pages: u32) -> Nanos {
        self.copies += u64::from(pages);
        let Costs { read, write } = Costs::NAND;
        Nanos((read.0 + write.0) * u64::from(pages))
    }
}

impl DeviceModel for BlockNand {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn depth(&self) -> usize {
        1
    }

    fn discards(&self) -> Discards {
        Discards::Refused
    }

    fn issue(&mut self, now: Nanos, request: &Request) -> Completion {
        let time = match request {
            Request::Read(range) => Nanos(Costs::NAND.read.0 * u64::from(range.count)),
            Request::Write(range) => {
                let pages = range.first..range.end();
                pages.fold(Nanos(0), |time, page| time.plus(self.write(page)))
            }
            Request::Discard(_) => return Completion::refused(now),
        };
        self.busy_until = Nanos(now.0.max(self.busy_until.0)).plus(time);
        Completion {
            end: self.busy_until,
            done: true,
        }
    }

    fn wear(&self) -> Option<Wear> {
        let erases = || self.erases.iter().copied();
        let sum: u64 = erases().map(u64::from).sum();
        Some(Wear {
            host_writes: self.host_writes,
            copies: self.copies,
            map_writes: 0,
            erase_min: erases().min().unwrap_or(0),
            erase_mean: sum as f64 / self.erases.len().max(1) as f64,
            erase_max: erases().max().unwrap_or(0),
            free_blocks: u32::try_from(self.open_max - self.open.len()).unwrap_or(0),
            bad_blocks: 0,
        })
    }
}
