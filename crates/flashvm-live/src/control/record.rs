//! What a process slot keeps for the supervisor besides frames and clusters: counters, the command, and two reasons.

use super::stats::ProcessStats;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Longest command line that is kept for the summary.
pub(super) const COMMAND_BYTES: usize = 256;
/// Longest reason that is kept for the summary.
const REASON_BYTES: usize = 252;

/// The part of a process slot that the run's other processes do not read, except a parent that forks.
#[repr(C, align(64))]
pub(super) struct SlotRecord {
    pub(super) stats: ProcessStats,
    command_len: AtomicU32,
    command: [AtomicU8; COMMAND_BYTES],
    /// Why the pager has ended the process.
    pub(super) ended: Reason,
    /// The first system call that the pager refused, and why.
    pub(super) refused: Reason,
}

/// A line that a process leaves for the summary. The first one wins.
#[repr(C)]
pub(super) struct Reason {
    /// Bytes of the text. 0: there is none; [`Reason::BEING_WRITTEN`]: it is incomplete.
    len: AtomicU32,
    text: [AtomicU8; REASON_BYTES],
}

impl Reason {
    const BEING_WRITTEN: u32 = u32::MAX;

    /// Notes a reason, truncated to [`REASON_BYTES`], unless one was noted before. Does not allocate.
    pub(super) fn note(&self, reason: &str) {
        let taken =
            self.len
                .compare_exchange(0, Self::BEING_WRITTEN, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        let bytes = reason.as_bytes();
        let bytes = &bytes[..bytes.len().min(REASON_BYTES)];
        for (to, from) in self.text.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        self.len.store(bytes.len() as u32, Ordering::Release);
    }

    /// The reason, if there is one. Allocates.
    pub(super) fn read(&self) -> Option<String> {
        match self.len.load(Ordering::Acquire) {
            0 => None,
            Self::BEING_WRITTEN => Some("it was killed while it reported why".to_owned()),
            len => Some(text_of(&self.text, len)),
        }
    }

    pub(super) fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
    }
}

/// The first `len` bytes as text. Allocates.
pub(super) fn text_of(bytes: &[AtomicU8], len: u32) -> String {
    let len = (len as usize).min(bytes.len());
    let bytes: Vec<u8> = bytes[..len]
        .iter()
        .map(|b| b.load(Ordering::Relaxed))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl SlotRecord {
    /// Clears what the previous process recorded; its command stays until the next one is stored.
    pub(super) fn clear(&self) {
        self.stats.clear();
        self.ended.clear();
        self.refused.clear();
    }

    /// Stores the command, truncated to [`COMMAND_BYTES`].
    pub(super) fn set_command(&self, command: &[u8]) {
        let command = &command[..command.len().min(COMMAND_BYTES)];
        for (to, from) in self.command.iter().zip(command) {
            to.store(*from, Ordering::Relaxed);
        }
        self.command_len
            .store(command.len() as u32, Ordering::Release);
    }

    /// Stores the command of `other`.
    pub(super) fn copy_command(&self, other: &Self) {
        for (to, from) in self.command.iter().zip(&other.command) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.command_len
            .store(other.command_len.load(Ordering::Acquire), Ordering::Release);
    }

    /// The command. Allocates.
    pub(super) fn command(&self) -> String {
        text_of(&self.command, self.command_len.load(Ordering::Acquire))
    }
}
