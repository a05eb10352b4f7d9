//! The last decisions of each process (`--decisions`): a ring of short lines for each process slot, which the supervisor shows when
//! the pager ends the process.
//!
//! Threads of one process write; the supervisor reads after the process has ended, however it ended. A writer waits for
//! nobody: it takes the next number, and marks its line as complete when it is. A line that was not completed is left
//! out.

use super::Process;
use crate::sys::now;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Lines that a process slot keeps.
const LINES: usize = 64;
/// Bytes of a line's text: what is longer is cut off.
const TEXT_BYTES: usize = 112;

/// How much of what the pager decides is kept (`--decisions`), from nothing to every fault. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionLevel {
    /// Nothing.
    Off,
    /// What makes a program fail: pages lost, the pager's end.
    Error,
    /// Requests that failed, writes held back.
    Warn,
    /// Start, forks.
    #[default]
    Info,
    /// Requests to flash, and what changes budget and pool.
    Debug,
    /// Every fault, and every page that is moved.
    Trace,
}

/// A line, for the summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionLine {
    /// When, in nanoseconds since the run began.
    pub at_ns: u64,
    /// Level and text.
    pub text: String,
}

/// The ring of one process slot.
#[repr(C, align(64))]
pub(super) struct Ring {
    /// Lines so far.
    written: AtomicU32,
    lines: [Slot; LINES],
}

/// One line of the ring.
#[repr(C, align(64))]
struct Slot {
    /// The line's number + 1; 0 while it is being written.
    number: AtomicU32,
    len: AtomicU32,
    at: AtomicU64,
    text: [AtomicU8; TEXT_BYTES],
}

/// A text that is cut off at its end, and allocates nothing.
#[derive(Debug)]
pub(crate) struct LineText {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl LineText {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; TEXT_BYTES],
            len: 0,
        }
    }
}

impl Write for LineText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = text.len().min(TEXT_BYTES - self.len);
        self.bytes[self.len..][..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}

impl Ring {
    /// Forgets the lines of the process before.
    pub(super) fn clear(&self) {
        self.written.store(0, Ordering::Relaxed);
    }

    fn push(&self, at: u64, text: &LineText) {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let slot = &self.lines[number as usize % LINES];
        slot.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        slot.at.store(at, Ordering::Relaxed);
        slot.len.store(text.len as u32, Ordering::Relaxed);
        for (to, from) in slot.text.iter().zip(&text.bytes[..text.len]) {
            to.store(*from, Ordering::Relaxed);
        }
        slot.number.store(number + 1, Ordering::Release);
    }

    /// The lines that are complete, oldest first. Allocates.
    pub(super) fn read(&self, began: u64) -> Vec<DecisionLine> {
        let written = self.written.load(Ordering::Acquire);
        let numbers = written.saturating_sub(LINES as u32)..written;
        let lines = numbers.filter_map(|number| {
            let slot = &self.lines[number as usize % LINES];
            if slot.number.load(Ordering::Acquire) != number + 1 {
                return None;
            }
            let line = DecisionLine {
                at_ns: slot.at.load(Ordering::Relaxed).saturating_sub(began),
                text: super::record::text_of(&slot.text, slot.len.load(Ordering::Relaxed)),
            };
            fence(Ordering::Acquire);
            (slot.number.load(Ordering::Relaxed) == number + 1).then_some(line)
        });
        lines.collect()
    }
}

impl Process {
    /// Keeps a line.
    pub(crate) fn note_decision(&self, text: &LineText) {
        self.region().decisions(self.index()).push(now().0, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rings live in zeroed shared memory.
    fn ring() -> Ring {
        Ring {
            written: AtomicU32::new(0),
            lines: std::array::from_fn(|_| Slot {
                number: AtomicU32::new(0),
                len: AtomicU32::new(0),
                at: AtomicU64::new(0),
                text: std::array::from_fn(|_| AtomicU8::new(0)),
            }),
        }
    }

    fn push(ring: &Ring, at: u64, words: &str) {
        let mut text = LineText::new();
        text.write_str(words).unwrap();
        ring.push(at, &text);
    }

    #[test]
    fn the_latest_lines_are_kept_in_order() {
        let ring = ring();
        for number in 0..100 {
            push(&ring, 1000 + number, &format!("line {number}"));
        }
        let lines = ring.read(1000);
        assert_eq!(lines.len(), LINES);
        for (line, number) in lines.iter().zip(36..) {
            assert_eq!(
                (line.at_ns, &*line.text),
                (number, &*format!("line {number}"))
            );
        }
        ring.clear();
        assert_eq!(ring.read(0), []);
        push(&ring, 5, "the next process");
        assert_eq!(ring.read(0).len(), 1, "and nothing of the one before");
    }

    #[test]
    fn a_long_line_is_cut_off_and_an_unfinished_one_left_out() {
        let ring = ring();
        push(&ring, 0, &"x".repeat(500));
        push(&ring, 0, "killed in the middle");
        ring.lines[1].number.store(0, Ordering::Relaxed);
        let lines = ring.read(0);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].text, "x".repeat(TEXT_BYTES));
    }

    #[test]
    fn a_line_that_is_being_replaced_is_never_mixed() {
        let ring = ring();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0_u32..20_000 {
                    push(&ring, 0, &format!("{:>3}", number % 26).repeat(20));
                }
            });
            while ring.written.load(Ordering::Relaxed) < 20_000 {
                for line in ring.read(0) {
                    let word = &line.text[..3];
                    assert_eq!(line.text, word.repeat(20));
                }
            }
        });
    }
}
