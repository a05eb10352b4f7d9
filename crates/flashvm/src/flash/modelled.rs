//! A device model's time, for runs on a device that is not here: data lies in the store below, and each request
//! ends when the model says that it would have, or when the store below is done if that takes longer.
//!
//! The supervisor has the model, so that all processes of a run share one device; here is its client. It acts
//! before a request as well as after it, and stands in for discards, which a [`super::Layer`] does not; and as
//! each request takes a thread that waits for it, there is no queue but threads.

use super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use crate::control::{Process, Work};
use crate::sys::now;
use flashvm_core::{Nanos, PAGE_SIZE, SlotId};
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

/// A sleeping thread wakes up this much late; the rest is waited for awake.
const OVERSLEEP_NS: u64 = 80_000;
/// Threads of a queue, as each request sleeps until the model lets it end.
const THREADS: usize = 16;

/// A store in the time of a device model, if the run has one.
#[derive(Debug)]
pub(crate) struct Modelled<B> {
    pub(super) below: B,
    pub(super) model: Option<ModelClient>,
}

/// What asks the device model for this process.
#[derive(Debug)]
pub(crate) struct ModelClient {
    process: Process,
}

impl<B: Store> Modelled<B> {
    /// In the time of the model of the run that `process` belongs to, if there is one.
    pub(crate) fn new(below: B, process: Option<Process>) -> Self {
        let model = process.map(ModelClient::of);
        Self { below, model }
    }

    /// Carries a transfer out in the model's time.
    fn timed(&self, work: Work, at: u64, len: usize, transfer: impl FnOnce() -> Failed) -> Failed {
        let Some(model) = &self.model else {
            return transfer();
        };
        let first = (at / PAGE_SIZE as u64) as u32;
        let count = len.div_ceil(PAGE_SIZE) as u32;
        let ticket = model.process.order(work, first, count, now());
        // The answer comes meanwhile.
        let failed = transfer();
        let (end, done) = ticket.answer();
        wait_until(end);
        if done { failed } else { Failed::all(len) }
    }
}

impl<B: Store> Store for Modelled<B> {
    type Queue = B::Queue;

    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        let threads = match &self.model {
            Some(_) => THREADS,
            None => below.threads,
        };
        Geometry { threads, ..below }
    }

    unsafe fn read(&self, at: u64, to: Part) -> Failed {
        // SAFETY: `to` is writable, and nobody else uses it until `timed` has returned, as our caller guarantees.
        let read = || unsafe { self.below.read(at, to) };
        self.timed(Work::Read, at, to.len, read)
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the parts are readable, and nobody changes them until `timed` has returned, as our caller guarantees.
        let write = || unsafe { self.below.write(at, parts) };
        self.timed(Work::Write, at, bytes_of(parts), write)
    }

    fn discard(&self, spans: &[Span]) -> Result<(), Errno> {
        if self
            .model
            .as_ref()
            .is_some_and(|model| !model.discard(spans))
        {
            return Err(Errno::OPNOTSUPP);
        }
        self.below.discard(spans)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.below.sync()
    }

    fn queue(&'static self, depth: u32, buffers: Option<Part>) -> Result<Self::Queue, Errno> {
        match &self.model {
            Some(_) => Err(Errno::NOSYS),
            None => self.below.queue(depth, buffers),
        }
    }
}

impl ModelClient {
    /// The client of a process.
    pub(super) fn of(process: Process) -> Self {
        Self { process }
    }

    /// Slots were freed. Those that another process still refers to after a fork count as free, too:
    /// that changes the figures of the model, and no data.
    pub(crate) fn freed(&self, slots: impl Iterator<Item = SlotId>) {
        let mut run: Option<(u32, u32)> = None;
        let tell = |(first, count)| {
            let ticket = self.process.order(Work::Freed, first, count, now());
            let _ = ticket.answer();
        };
        for SlotId(slot) in slots {
            match &mut run {
                Some((first, count)) if *first + *count == slot => *count += 1,
                _ => run.replace((slot, 1)).into_iter().for_each(tell),
            }
        }
        run.into_iter().for_each(tell);
    }

    /// Discards spans by one command. False: the device could not.
    fn discard(&self, spans: &[Span]) -> bool {
        let Some((last, parts)) = spans.split_last() else {
            return true;
        };
        let since = now();
        let order = |work, span: &Span| {
            let pages = |bytes: u64| (bytes / PAGE_SIZE as u64) as u32;
            let ticket = self
                .process
                .order(work, pages(span.at), pages(span.len), since);
            ticket.answer()
        };
        for part in parts {
            let _ = order(Work::DiscardPart, part);
        }
        let (end, done) = order(Work::Discard, last);
        wait_until(end);
        done
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

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStore;
    use super::super::testing::{Pages, settings};
    use super::*;
    use crate::control::Control;
    use std::time::Duration;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BYTES: u64 = 4 << 20;
    /// What the model takes for each command.
    const TIME: Nanos = Nanos(1_000_000);

    /// Runs `request` on a store whose model answers `orders` orders with `done`. Returns the orders, and the time from the
    /// request's return to the end that the model names for the last of them.
    fn ask<T>(
        orders: usize,
        done: bool,
        request: impl FnOnce(&Modelled<MemoryStore>) -> T,
    ) -> (T, Vec<(Work, u32, u32)>, u64) {
        let control = Control::create(&settings(BYTES)).unwrap().0;
        let process = control.register(1, "modelled").unwrap();
        let store = Modelled::new(MemoryStore::new(BYTES), Some(process));
        std::thread::scope(|scope| {
            let model = scope.spawn(|| {
                let (mut seen, mut asked, mut end) = (Vec::new(), Vec::new(), Nanos(0));
                while seen.len() < orders {
                    control.take_orders(Duration::from_secs(1), &mut asked);
                    for order in &asked {
                        seen.push((order.work, order.first, order.count));
                        end = Nanos(order.since.0 + TIME.0);
                        control.answer(order, end, done);
                    }
                }
                (seen, end)
            });
            let result = request(&store);
            let back = now();
            let (seen, end) = model.join().unwrap();
            (result, seen, end.since(back).0)
        })
    }

    #[test]
    fn transfers_take_the_models_time_and_its_answer() {
        let pages = Pages::new(2, 1);
        // SAFETY: the pages live over the call, and this thread alone uses them.
        let read = |store: &Modelled<MemoryStore>| unsafe { store.read(3 * PAGE, pages.all()) };
        // SAFETY: as above.
        let write = |store: &Modelled<MemoryStore>| unsafe { store.write(PAGE, &[pages.all()]) };
        assert_eq!(
            ask(1, true, read),
            (Failed::NONE, vec![(Work::Read, 3, 2)], 0)
        );
        assert_eq!(
            ask(1, true, write),
            (Failed::NONE, vec![(Work::Write, 1, 2)], 0)
        );
        assert_eq!(ask(1, false, read).0.bits(), 0b11);
        assert_eq!(ask(1, false, write).0.bits(), 0b11);
    }

    #[test]
    fn spans_are_one_command_and_may_be_refused() {
        let span = |page, pages| Span {
            at: page * PAGE,
            len: pages * PAGE,
        };
        let spans = [span(8, 4), span(20, 1)];
        let orders = vec![(Work::DiscardPart, 8, 4), (Work::Discard, 20, 1)];
        let discard = |store: &Modelled<MemoryStore>| store.discard(&spans);
        assert_eq!(ask(2, true, discard), (Ok(()), orders.clone(), 0));
        assert_eq!(ask(2, false, discard).0, Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn freed_slots_are_told_by_runs() {
        let slots = [7, 8, 9, 12, 13, 20].map(SlotId);
        let tell = |store: &Modelled<MemoryStore>| {
            store.model.as_ref().unwrap().freed(slots.into_iter());
        };
        let runs = [(7, 3), (12, 2), (20, 1)].map(|(first, count)| (Work::Freed, first, count));
        assert_eq!(ask(3, true, tell).1, runs);
    }
}
