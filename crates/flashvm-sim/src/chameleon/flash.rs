//! Flash that several processes share: the contents of each sector, and the headers of blocks.

use crate::memory::Version;
use flashvm_core::chameleon::{BLOCK_SECTORS, BackPointer};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Undefined contents: those of a write in flight, or of one that failed.
const TORN: Version = Version::MAX;

/// A block in RAM.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) sectors: Vec<Version>,
    /// Its header; `None`: these bytes are no block of the log.
    pub(super) pointers: Option<Vec<BackPointer>>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            sectors: vec![TORN; BLOCK_SECTORS as usize],
            pointers: None,
        }
    }
}

/// The flash store; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flash(Rc<RefCell<HashMap<u32, Buffer>>>);

impl Flash {
    /// The contents of `count` sectors.
    pub(super) fn read(&self, first: u64, count: u32) -> Vec<Version> {
        let blocks = self.0.borrow();
        let read = |sector| {
            let (block, at) = place(sector);
            blocks.get(&block).map_or(TORN, |block| block.sectors[at])
        };
        (first..first + u64::from(count)).map(read).collect()
    }

    pub(super) fn read_block(&self, block: u32) -> Buffer {
        self.0.borrow().get(&block).cloned().unwrap_or_default()
    }

    /// A write begins: until it ends the contents are undefined.
    pub(super) fn tear(&self, first: u64, count: u32) {
        self.write(first, &vec![TORN; count as usize], None);
    }

    /// A write has ended. If it includes a block's first sector, it sets the block's header.
    pub(super) fn write(
        &self,
        first: u64,
        sectors: &[Version],
        pointers: Option<&Vec<BackPointer>>,
    ) {
        let mut blocks = self.0.borrow_mut();
        for (sector, contents) in (first..).zip(sectors) {
            let (block, at) = place(sector);
            let block = blocks.entry(block).or_default();
            block.sectors[at] = *contents;
            if at == 0 {
                block.pointers = pointers.cloned();
            }
        }
    }
}

fn place(sector: u64) -> (u32, usize) {
    let per_block = u64::from(BLOCK_SECTORS);
    ((sector / per_block) as u32, (sector % per_block) as usize)
}
