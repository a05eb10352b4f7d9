//! The client of a device model, for runs on a device that is not here: data lies in the real store, and each request ends when a
//! device model says that it would have, or when the real one is done if that takes longer.
//!
//! The supervisor has the model, so that all processes of a run share one device; here is what
//! asks it. Each request takes a thread that waits for it, so the store is used without io_uring.

use crate::control::{Process, Work};
use crate::sys::now;
use flashvm_core::{Nanos, PAGE_SIZE, SlotId};
use rustix::thread::{Timespec, nanosleep};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A sleeping thread wakes up this much late; the rest is waited for awake.
const OVERSLEEP_NS: u64 = 80_000;

/// What asks the device model for this process.
#[derive(Debug)]
pub(crate) struct ModelClient {
    process: Process,
}

static CLIENT: AtomicPtr<ModelClient> = AtomicPtr::new(std::ptr::null_mut());

/// The client, if the run has a device model.
pub(crate) fn client() -> Option<&'static ModelClient> {
    // SAFETY: what is set there is never freed and never changed.
    unsafe { CLIENT.load(Ordering::Acquire).as_ref() }
}

/// From now on requests of this process take the model's time.
pub(crate) fn begin(process: Process) {
    let client = Box::leak(Box::new(ModelClient { process }));
    CLIENT.store(client, Ordering::Release);
}

/// Reads in the model's time, if there is one. `read` says whether all bytes came.
pub(crate) fn read(offset: u64, len: u32, read: impl FnOnce() -> bool) -> bool {
    match client() {
        None => read(),
        Some(client) => client.take(Work::Read, offset, len.into(), read),
    }
}

/// Writes in the model's time, if there is one. `write` says whether all bytes went.
pub(crate) fn write(offset: u64, len: u32, write: impl FnOnce() -> bool) -> bool {
    match client() {
        None => write(),
        Some(client) => client.take(Work::Write, offset, len.into(), write),
    }
}

impl ModelClient {
    /// Slots were freed. Those that another process still refers to after a fork count as free, too:
    /// that changes the figures of the model, and no data.
    pub(crate) fn freed(&self, slots: impl Iterator<Item = SlotId>) {
        let mut run: Option<(u32, u32)> = None;
        let tell = |(first, count)| {
            let _ = self
                .process
                .order(Work::Freed, first, count, now())
                .answer();
        };
        for SlotId(slot) in slots {
            match &mut run {
                Some((first, count)) if *first + *count == slot => *count += 1,
                _ => run.replace((slot, 1)).into_iter().for_each(tell),
            }
        }
        run.into_iter().for_each(tell);
    }

    /// Discards ranges by one command. False: the device could not.
    pub(crate) fn discard(&self, ranges: &[(SlotId, u32)]) -> bool {
        let Some((last, parts)) = ranges.split_last() else {
            return true;
        };
        let since = now();
        let order = |work, (first, count): (SlotId, u32)| {
            self.process.order(work, first.0, count, since).answer()
        };
        for &part in parts {
            let _ = order(Work::DiscardPart, part);
        }
        let (end, done) = order(Work::Discard, *last);
        wait_until(end);
        done
    }

    fn take(&self, work: Work, offset: u64, len: u64, carry_out: impl FnOnce() -> bool) -> bool {
        let first = (offset / PAGE_SIZE as u64) as u32;
        let count = len.div_ceil(PAGE_SIZE as u64) as u32;
        let ticket = self.process.order(work, first, count, now());
        // The answer comes meanwhile.
        let carried_out = carry_out();
        let (end, done) = ticket.answer();
        wait_until(end);
        carried_out && done
    }
}

/// Sleeps until then, and wakes up on time.
pub(crate) fn wait_until(end: Nanos) {
    loop {
        let left = end.since(now()).0;
        if left == 0 {
            return;
        }
        match left.checked_sub(OVERSLEEP_NS) {
            Some(asleep) if asleep > 0 => {
                // Woken early, it looks at the clock again.
                let _ = nanosleep(&Timespec {
                    tv_sec: (asleep / 1_000_000_000) as i64,
                    tv_nsec: (asleep % 1_000_000_000) as i64,
                });
            }
            _ => std::hint::spin_loop(),
        }
    }
}
