//! io_uring, as `flash/ring.rs` has it.

use crate::disk::Disk;
use crate::way::{Operation, Way, expect_whole, sleep_on};
use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;

pub(crate) fn ring(disk: &Disk, depth: usize) -> Option<Box<dyn Way>> {
    Some(Box::new(Ring {
        ring: IoUring::new(depth as u32).ok()?,
        file: types::Fd(disk.descriptor()),
        bytes: vec![0; depth],
    }))
}

struct Ring {
    ring: IoUring,
    file: types::Fd,
    /// Of each buffer's operation.
    bytes: Vec<usize>,
}

impl Way for Ring {
    fn push(&mut self, operation: Operation) {
        let (address, bytes) = (operation.address as *mut u8, operation.bytes as u32);
        let entry = match operation.write {
            true => opcode::Write::new(self.file, address, bytes)
                .offset(operation.at)
                .build(),
            false => opcode::Read::new(self.file, address, bytes)
                .offset(operation.at)
                .build(),
        };
        self.bytes[operation.buffer] = operation.bytes;
        let entry = entry.user_data(operation.buffer as u64);
        // SAFETY: the buffer is the operation's until it ends.
        unsafe { self.ring.submission().push(&entry) }.expect("an entry for each buffer");
    }

    fn submit(&mut self) {
        self.ring.submit().expect("io_uring_enter");
    }

    fn reap(&mut self, ended: &mut Vec<usize>) {
        for entry in self.ring.completion() {
            let buffer = entry.user_data() as usize;
            expect_whole(entry.result().into(), self.bytes[buffer]);
            ended.push(buffer);
        }
    }

    fn sleep(&mut self) {
        sleep_on(self.ring.as_raw_fd());
    }
}
