//! The journal of a run with a report: what the pagers see of pages, and samples of the stacks behind major faults.
//!
//! A ring in the control region: processes write, the supervisor reads. A writer waits for nobody: it takes the next
//! number, and stores one word there. A reader that falls behind by more than the ring loses the oldest sightings, and
//! counts them. A process that is killed between the two steps leaves a gap, which the reader skips.
//!
//! A sample is the interrupted thread's registers and the used end of its stack, copied by the kernel: absent pages
//! end the copy, and never fault. The supervisor unwinds it. At most one sample of faults is taken in [`SAMPLE_EVERY`]; it
//! stands for all major faults since the one before. Code that asks for much memory is sampled each time.

use super::layout::StackSlot;
use super::{Control, PROCESS_SLOTS, Process};
use crate::sys::own::copy_present;
use flashvm_core::{Nanos, PageId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Sightings that the ring holds.
pub(super) const SIGHTINGS: usize = 1 << 16;
/// Samples that wait for the supervisor.
pub(super) const SAMPLES: usize = 32;
/// Words of a sampled stack.
pub(super) const STACK_WORDS: usize = 2048;

/// Shortest time between two samples of a run.
const SAMPLE_EVERY: Nanos = Nanos(5_000_000);
/// Most pages of one sighting.
const PAGES_MAX: u32 = 256;
/// Bits of a sighting: the page, the pages behind it, the process slot, the kind, a store, and the mark of all words.
const COUNT_AT: u32 = 32;
const SLOT_AT: u32 = 40;
const KIND_AT: u32 = 50;
const STORE_AT: u32 = 62;
const MARK: u64 = 1 << 63;

const _: () = assert!(PROCESS_SLOTS <= 1 << (KIND_AT - SLOT_AT));

/// The journal's head: numbers that writers take.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Head {
    /// Sightings so far.
    written: AtomicU64,
    /// Major faults since the last sample.
    majors: AtomicU64,
    /// No sample is taken before this time, in nanoseconds.
    sample_at: AtomicU64,
    /// The sample slot to be tried next.
    next: AtomicU32,
}

/// What happened to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Sight {
    /// A fault that needed a read from flash.
    FromFlash = 1,
    /// A fault on a page that was compressed in RAM.
    FromPool = 2,
    /// A fault on a page that was still in the shadow.
    Soft = 3,
    /// A fault served with zeros.
    Zero = 4,
    /// A fault on a page that was already on its way.
    Waited = 5,
    /// The first store to a write-protected page.
    FirstStore = 6,
    /// The page's frame was freed: it left, to the pool or to flash.
    Left = 7,
    /// The first fault on a page that was brought in ahead.
    Ahead = 8,
}

impl Sight {
    fn of(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::FromFlash,
            2 => Self::FromPool,
            3 => Self::Soft,
            4 => Self::Zero,
            5 => Self::Waited,
            6 => Self::FirstStore,
            7 => Self::Left,
            8 => Self::Ahead,
            _ => return None,
        })
    }
}

/// One entry of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The process id, as the supervisor sees it; 0 if the process ended before it could be read.
    pub pid: u32,
    /// What happened.
    pub sight: Sight,
    /// The program stored to the page.
    pub store: bool,
    /// The first page.
    pub first: PageId,
    /// Pages, at least one.
    pub count: u32,
}

/// Where a fault interrupted a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Address of the instruction.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, if the code keeps one.
    pub fp: u64,
}

/// What a stack was sampled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Major faults, so many.
    Faults(u64),
    /// Memory that the program asked for: its first page, and its pages.
    Memory {
        /// The first page.
        first: PageId,
        /// Pages, at least one.
        pages: u32,
    },
}

/// A sampled stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSample {
    /// The process id, as the supervisor sees it.
    pub pid: u32,
    /// What it was taken for.
    pub sampled: Sampled,
    /// Where the thread was.
    pub at: Interrupted,
    /// The stack from `at.sp` on.
    pub stack: Vec<u64>,
}

/// The states of a sample slot.
const FREE: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const FULL: u32 = 2;

impl Process {
    /// Notes what happened to `count` pages.
    pub(crate) fn see(&self, sight: Sight, store: bool, first: PageId, count: u32) {
        let (head, ring) = (self.region().journal(), self.region().sightings());
        let mut done = 0;
        while done < count {
            let part = (count - done).min(PAGES_MAX);
            let word = MARK
                | u64::from(store) << STORE_AT
                | (sight as u64) << KIND_AT
                | u64::from(self.index()) << SLOT_AT
                | u64::from(part - 1) << COUNT_AT
                | u64::from(first.0 + done);
            let number = head.written.fetch_add(1, Ordering::Relaxed);
            ring[number as usize % SIGHTINGS].store(word, Ordering::Release);
            done += part;
        }
    }

    /// Counts a major fault of a thread that was interrupted `at`, and samples its stack if it is time for that.
    pub(crate) fn sample_stack(&self, now: Nanos, at: Interrupted) {
        let head = self.region().journal();
        head.majors.fetch_add(1, Ordering::Relaxed);
        let due = head.sample_at.load(Ordering::Relaxed);
        let next = now.0 + SAMPLE_EVERY.0;
        let taken = |word: &AtomicU64| {
            word.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        if now.0 < due || !taken(&head.sample_at) {
            return;
        }
        // Without a free place a later sample stands for this fault.
        if let Some(slot) = self.free_sample() {
            let faults = head.majors.swap(0, Ordering::Relaxed);
            self.fill(slot, at, Sampled::Faults(faults));
        }
    }

    /// Notes which code asked for memory. If the supervisor has not come to read the samples before, this one is left out.
    pub(crate) fn sample_memory(&self, at: Interrupted, first: PageId, pages: u32) {
        if let Some(slot) = self.free_sample() {
            self.fill(slot, at, Sampled::Memory { first, pages });
        }
    }

    /// A sample slot for this thread to fill.
    fn free_sample(&self) -> Option<&'static StackSlot> {
        let number = self.region().journal().next.fetch_add(1, Ordering::Relaxed);
        let slot = &self.region().samples()[number as usize % SAMPLES];
        let claimed =
            slot.state
                .compare_exchange(FREE, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then_some(slot)
    }

    fn fill(&self, slot: &StackSlot, at: Interrupted, sampled: Sampled) {
        let pid = self.slot().pid.load(Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Relaxed);
        let (faults, first, pages) = match sampled {
            Sampled::Faults(faults) => (faults, 0, 0),
            Sampled::Memory { first, pages } => (0, first.0, pages),
        };
        slot.faults.store(faults, Ordering::Relaxed);
        slot.first.store(first, Ordering::Relaxed);
        slot.pages.store(pages, Ordering::Relaxed);
        slot.ip.store(at.ip, Ordering::Relaxed);
        slot.sp.store(at.sp, Ordering::Relaxed);
        slot.fp.store(at.fp, Ordering::Relaxed);
        let words = copy_present(&slot.stack, at.sp as usize);
        slot.words.store(words as u32, Ordering::Relaxed);
        slot.state.store(FULL, Ordering::Release);
    }
}

/// The supervisor's place in the journal; there must be only one reader.
#[derive(Debug)]
pub struct JournalReader {
    control: Control,
    read: u64,
    /// The sighting at `read` was missing at the last look: its writer had not stored it, or was killed.
    gap: bool,
    lost: u64,
    /// The last known process of each process slot.
    pids: Vec<u32>,
}

impl Control {
    /// Reads the run's journal from its start. Allocates.
    #[must_use]
    pub fn journal(&self) -> JournalReader {
        JournalReader {
            control: *self,
            read: 0,
            gap: false,
            lost: 0,
            pids: vec![0; PROCESS_SLOTS as usize],
        }
    }
}

impl JournalReader {
    /// Sightings that were overwritten before they were read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Reads all new sightings, in order.
    pub fn sightings(&mut self, mut each: impl FnMut(Sighting)) {
        let region = *self.control.region();
        let (ring, slots) = (region.sightings(), region.process_slots());
        let written = region.journal().written.load(Ordering::Relaxed);
        let oldest = written.saturating_sub(SIGHTINGS as u64);
        if self.read < oldest {
            self.lost += oldest - self.read;
            (self.read, self.gap) = (oldest, false);
        }
        while self.read < written {
            let word = ring[self.read as usize % SIGHTINGS].swap(0, Ordering::Acquire);
            if word == 0 && !self.gap {
                self.gap = true;
                return;
            }
            (self.read, self.gap) = (self.read + 1, false);
            let Some(sight) = Sight::of(word >> KIND_AT & 0xf).filter(|_| word & MARK != 0) else {
                self.lost += 1;
                continue;
            };
            let slot = (word >> SLOT_AT) as usize % PROCESS_SLOTS as usize;
            let pid = slots[slot].pid.load(Ordering::Relaxed);
            // 0: the next process of this slot is being prepared, and has seen nothing yet.
            if pid != 0 {
                self.pids[slot] = pid;
            }
            each(Sighting {
                pid: self.pids[slot],
                sight,
                store: word >> STORE_AT & 1 == 1,
                first: PageId(word as u32),
                count: (word >> COUNT_AT & 0xff) as u32 + 1,
            });
        }
    }

    /// Takes the waiting samples. Allocates.
    pub fn samples(&mut self) -> Vec<StackSample> {
        let full = |slot: &&StackSlot| slot.state.load(Ordering::Acquire) == FULL;
        let slots = self.control.region().samples().iter().filter(full);
        let take = |slot: &StackSlot| {
            let words = (slot.words.load(Ordering::Relaxed) as usize).min(STACK_WORDS);
            let stack = slot.stack[..words].iter();
            let sample = StackSample {
                pid: slot.pid.load(Ordering::Relaxed),
                sampled: match slot.pages.load(Ordering::Relaxed) {
                    0 => Sampled::Faults(slot.faults.load(Ordering::Relaxed)),
                    pages => Sampled::Memory {
                        first: PageId(slot.first.load(Ordering::Relaxed)),
                        pages,
                    },
                },
                at: Interrupted {
                    ip: slot.ip.load(Ordering::Relaxed),
                    sp: slot.sp.load(Ordering::Relaxed),
                    fp: slot.fp.load(Ordering::Relaxed),
                },
                stack: stack.map(|word| word.load(Ordering::Relaxed)).collect(),
            };
            slot.state.store(FREE, Ordering::Release);
            sample
        };
        slots.map(take).collect()
    }

    /// Major faults since the last sample: no sample stands for them.
    #[must_use]
    pub fn faults_after_the_last_sample(&self) -> u64 {
        let head = self.control.region().journal();
        head.majors.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::RunSettings;
    use crate::space::Delivery;
    use flashvm_core::Preset;

    fn process() -> Process {
        let engine = Preset::Flashvm.settings();
        let settings = RunSettings::new(64 << 20, 1 << 30, engine, Delivery::Inline);
        let (control, _fd) = Control::create(&settings).expect("a region");
        control.register(7, "test").expect("a process slot")
    }

    fn read(reader: &mut JournalReader) -> Vec<Sighting> {
        let mut seen = Vec::new();
        reader.sightings(|sighting| seen.push(sighting));
        seen
    }

    #[test]
    fn what_is_seen_is_read_in_order() {
        let process = process();
        let mut reader = process.control.journal();
        process.see(Sight::Zero, true, PageId(u32::MAX), 1);
        process.see(Sight::Left, false, PageId(3), 300);
        let sighting = |sight, store, first, count| Sighting {
            pid: 7,
            sight,
            store,
            first: PageId(first),
            count,
        };
        let expected = [
            sighting(Sight::Zero, true, u32::MAX, 1),
            sighting(Sight::Left, false, 3, 256),
            sighting(Sight::Left, false, 259, 44),
        ];
        assert_eq!(read(&mut reader), expected);
        assert_eq!(read(&mut reader), []);
        assert_eq!(reader.lost(), 0);
    }

    #[test]
    fn what_was_overwritten_is_counted() {
        let process = process();
        let mut reader = process.control.journal();
        for page in 0..SIGHTINGS as u32 + 10 {
            process.see(Sight::Soft, false, PageId(page), 1);
        }
        let seen = read(&mut reader);
        assert_eq!((seen.len(), reader.lost()), (SIGHTINGS, 10));
        assert_eq!(seen[0].first, PageId(10));
    }

    #[test]
    fn a_sighting_that_never_comes_is_skipped() {
        let process = process();
        let mut reader = process.control.journal();
        let head = process.region().journal();
        head.written.fetch_add(1, Ordering::Relaxed);
        process.see(Sight::Soft, false, PageId(5), 1);
        assert_eq!(read(&mut reader), [], "it may still come");
        assert_eq!(read(&mut reader).len(), 1);
        assert_eq!(reader.lost(), 1);
    }

    /// A sample holds the stack from the stack pointer on, ends at absent memory, and stands for all major faults.
    #[test]
    fn samples_are_rare_and_stand_for_all_faults() {
        let process = process();
        let mut reader = process.control.journal();
        let page = crate::space::PageBuffer([7; flashvm_core::PAGE_SIZE]);
        let at = Interrupted {
            ip: 1,
            sp: page.0[4096 - 64..].as_ptr() as u64,
            fp: 2,
        };
        process.sample_stack(Nanos(SAMPLE_EVERY.0), at);
        process.sample_stack(Nanos(SAMPLE_EVERY.0 + 1), at);
        let samples = reader.samples();
        assert_eq!(
            (samples.len(), samples[0].sampled, samples[0].pid),
            (1, Sampled::Faults(1), 7)
        );
        assert_eq!(samples[0].stack[..8], [0x0707_0707_0707_0707; 8]);
        assert_eq!(reader.faults_after_the_last_sample(), 1);
        // Page 0 is nobody's.
        process.sample_stack(Nanos(2 * SAMPLE_EVERY.0), Interrupted { sp: 64, ..at });
        let samples = reader.samples();
        assert_eq!(samples[0].sampled, Sampled::Faults(2));
        assert!(samples[0].stack.is_empty());
        assert_eq!(reader.samples(), []);
    }

    #[test]
    fn who_asked_for_memory_is_sampled_each_time_that_there_is_room() {
        let process = process();
        let mut reader = process.control.journal();
        let at = Interrupted {
            ip: 1,
            sp: 64,
            fp: 2,
        };
        for first in 0..SAMPLES as u32 + 5 {
            process.sample_memory(at, PageId(first), 300);
        }
        let samples = reader.samples();
        assert_eq!(samples.len(), SAMPLES);
        let first = samples[3].sampled;
        let (third, pages) = (PageId(3), 300);
        assert_eq!(
            first,
            Sampled::Memory {
                first: third,
                pages
            }
        );
        process.sample_memory(at, PageId(9), 1);
        assert_eq!(reader.samples().len(), 1);
    }
}
