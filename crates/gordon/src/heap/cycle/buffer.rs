//! Copies on their way to flash: they wait in DRAM until their pointers are final (section 6.3).
//! Words in chunks, so that the front can be written without moving the rest.

use std::collections::VecDeque;

/// The end of to-space that is not yet on flash. Positions count words from its start.
#[derive(Debug)]
pub(super) struct Buffer {
    chunks: VecDeque<Vec<u64>>,
    /// Words of a chunk.
    chunk: usize,
    /// Words written.
    written: u64,
    /// Words copied.
    end: u64,
}

impl Buffer {
    pub(super) fn new(chunk: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            chunk,
            written: 0,
            end: 0,
        }
    }

    /// The position of the next word.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn push(&mut self, mut words: &[u64]) {
        while !words.is_empty() {
            let chunk = self.chunk;
            let last = match self.chunks.back_mut() {
                Some(last) if last.len() < chunk => last,
                _ => {
                    self.chunks.push_back(Vec::with_capacity(chunk));
                    self.chunks.back_mut().expect("just pushed")
                }
            };
            let (now, later) = words.split_at(words.len().min(chunk - last.len()));
            last.extend_from_slice(now);
            self.end += now.len() as u64;
            words = later;
        }
    }

    fn place(&self, at: u64) -> (usize, usize) {
        let at = (at - self.written) as usize;
        (at / self.chunk, at % self.chunk)
    }

    pub(super) fn get(&self, at: u64) -> u64 {
        let (chunk, word) = self.place(at);
        self.chunks[chunk][word]
    }

    pub(super) fn set(&mut self, at: u64, value: u64) {
        let (chunk, word) = self.place(at);
        self.chunks[chunk][word] = value;
    }

    /// Removes the first chunk if all of it is final (before `settled`); with `all` also a partial
    /// last chunk. Returns its position and its words.
    pub(super) fn take(&mut self, settled: u64, all: bool) -> Option<(u64, Vec<u64>)> {
        let first = self.chunks.front()?;
        let is_final = settled - self.written >= first.len() as u64;
        if !is_final || (first.len() < self.chunk && !all) {
            return None;
        }
        let at = self.written;
        self.written += first.len() as u64;
        self.chunks.pop_front().map(|chunk| (at, chunk))
    }
}
