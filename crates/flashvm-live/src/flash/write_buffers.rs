//! Buffers for encrypted pages on their way to flash.

use super::store::REQUEST_PAGES_MAX;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a buffer: a request fits.
const BUFFER_BYTES: usize = REQUEST_PAGES_MAX * PAGE_SIZE;

/// Buffers of one range, which takes no RAM before first use. The first free one is taken, so that few take RAM.
#[derive(Debug)]
pub(super) struct WriteBuffers {
    base: usize,
    count: u32,
    /// A set bit is a free buffer.
    free: AtomicU32,
}

impl WriteBuffers {
    /// So many buffers, in 1..=32.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub(super) fn new(count: u32) -> Result<Self, Errno> {
        let base = map::own(count as usize * BUFFER_BYTES)?;
        map::keep_from_children(base, count as usize * BUFFER_BYTES);
        let free = AtomicU32::new(u32::MAX >> (u32::BITS - count));
        Ok(Self { base, count, free })
    }

    /// Takes a buffer, and returns its address.
    pub(super) fn take(&self) -> Option<usize> {
        loop {
            let free = self.free.load(Ordering::Relaxed);
            if free == 0 {
                return None;
            }
            let index = free.trailing_zeros();
            if self.free.fetch_and(!(1 << index), Ordering::Acquire) & 1 << index != 0 {
                return Some(self.base + index as usize * BUFFER_BYTES);
            }
        }
    }

    /// Takes a buffer as soon as one is free. Only for holders that never wait for another's buffer.
    pub(super) fn await_one(&self) -> usize {
        loop {
            match self.take() {
                Some(buffer) => return buffer,
                None => rustix::thread::sched_yield(),
            }
        }
    }

    /// Gives a buffer back.
    ///
    /// # Panics
    /// If it is free.
    pub(super) fn give(&self, address: usize) {
        let bit = 1 << self.index(address);
        assert_eq!(
            self.free.fetch_or(bit, Ordering::Release) & bit,
            0,
            "a write buffer given back twice"
        );
    }

    /// The number of a buffer, from 0.
    pub(super) fn index(&self, address: usize) -> usize {
        let index = (address - self.base) / BUFFER_BYTES;
        assert!(
            index < self.count as usize,
            "not a write buffer: {address:#x}"
        );
        index
    }

    /// The number of all buffers.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_holders_have_one_buffer() {
        for count in [1, 3, 32] {
            let buffers = WriteBuffers::new(count).unwrap();
            let taken: Vec<usize> = (0..count).map(|_| buffers.take().unwrap()).collect();
            assert_eq!(buffers.take(), None);
            let indices: Vec<usize> = taken.iter().map(|&at| buffers.index(at)).collect();
            assert_eq!(indices, Vec::from_iter(0..count as usize));
            buffers.give(taken[0]);
            assert_eq!(buffers.await_one(), taken[0], "the first that is free");
        }
    }

    #[test]
    fn threads_take_turns() {
        let buffers = WriteBuffers::new(2).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4_u8 {
                let buffers = &buffers;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let address = buffers.await_one();
                        // SAFETY: `await_one` has given the buffer to this thread alone, until `give`.
                        let bytes = unsafe { map::bytes_mut(address, 64) };
                        bytes.fill(thread);
                        assert!(
                            std::hint::black_box(&*bytes)
                                .iter()
                                .all(|&byte| byte == thread)
                        );
                        buffers.give(address);
                    }
                });
            }
        });
    }
}
