//! Copies that are on their way to flash: they wait in DRAM until their pointers are final (section
//! 6.3). Words in blocks, so that the front can be written without moving what follows.

use std::collections::VecDeque;

/// The end of to-space, as far as it is not on flash. Positions count words from its start.
#[derive(Debug)]
pub(super) struct Buffer {
    blocks: VecDeque<Vec<u64>>,
    /// Words of a block.
    block: usize,
    /// Words that have been written.
    written: u64,
    /// Words that have been copied.
    end: u64,
}

impl Buffer {
    pub(super) fn new(block: usize) -> Self {
        Self {
            blocks: VecDeque::new(),
            block,
            written: 0,
            end: 0,
        }
    }

    /// Where the next word will be.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn push(&mut self, mut words: &[u64]) {
        while !words.is_empty() {
            let block = self.block;
            let last = match self.blocks.back_mut() {
                Some(last) if last.len() < block => last,
                _ => {
                    self.blocks.push_back(Vec::with_capacity(block));
                    self.blocks.back_mut().expect("just pushed")
                }
            };
            let (now, later) = words.split_at(words.len().min(block - last.len()));
            last.extend_from_slice(now);
            self.end += now.len() as u64;
            words = later;
        }
    }

    fn place(&self, at: u64) -> (usize, usize) {
        let at = (at - self.written) as usize;
        (at / self.block, at % self.block)
    }

    pub(super) fn get(&self, at: u64) -> u64 {
        let (block, word) = self.place(at);
        self.blocks[block][word]
    }

    pub(super) fn set(&mut self, at: u64, value: u64) {
        let (block, word) = self.place(at);
        self.blocks[block][word] = value;
    }

    /// Takes the first block off if all of it is final, which everything before `settled` is; the
    /// last block also when it is not full, if `all`. Returns where it begins, too.
    pub(super) fn take(&mut self, settled: u64, all: bool) -> Option<(u64, Vec<u64>)> {
        let first = self.blocks.front()?;
        let is_final = settled - self.written >= first.len() as u64;
        if !is_final || (first.len() < self.block && !all) {
            return None;
        }
        let at = self.written;
        self.written += first.len() as u64;
        self.blocks.pop_front().map(|block| (at, block))
    }
}
