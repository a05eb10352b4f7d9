//! Gives requests the time of a modelled device. Data lies in the store below. A request ends at the time that the
//! model gives, or later if the store below takes longer.
//!
//! The supervisor has the model, so that all processes of a run share one device; this is its client. A request is
//! ordered before the transfer and waited for after it, and discards are modelled too. A [`super::Layer`] can do
//! neither, so this is a [`Store`]. With a model a thread sleeps for each request, so the only
//! queue is threads.

use super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use crate::control::{Process, Work};
use crate::sys::now;
use flashvm_core::{Nanos, PAGE_SIZE, SlotId};
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

/// A thread may oversleep by this much: it sleeps this much less, and spins for the rest.
const OVERSLEEP_NS: u64 = 80_000;
/// Threads of a queue: requests in flight, as each thread sleeps until its request's end.
const THREADS: usize = 16;

/// A store whose requests take the time of a device model, if the run has one.
#[derive(Debug)]
pub(crate) struct Modelled<B> {
    pub(super) below: B,
    pub(super) model: Option<ModelClient>,
}

/// Asks the device model on behalf of this process.
#[derive(Debug)]
pub(crate) struct ModelClient {
    process: Process,
}

impl<B: Store> Modelled<B> {
    /// With `process`, requests take the time of its run's device model.
    pub(crate) fn new(below: B, process: Option<Process>) -> Self {
        let model = process.map(ModelClient::of);
        Self { below, model }
    }

    /// Carries out a transfer, which ends at the model's time. If the model refuses it, all its pages fail.
    fn timed(&self, work: Work, at: u64, len: usize, transfer: impl FnOnce() -> Failed) -> Failed {
        let Some(model) = &self.model else {
            return transfer();
        };
        let first = (at / PAGE_SIZE as u64) as u32;
        let count = len.div_ceil(PAGE_SIZE) as u32;
        let ticket = model.process.order(work, first, count, now());
        // The model answers during the transfer.
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
        // SAFETY: the caller guarantees that `to` is writable and that nobody else uses it until this function returns;
        // `timed` calls this before it returns.
        let read = || unsafe { self.below.read(at, to) };
        self.timed(Work::Read, at, to.len, read)
    }

    unsafe fn write(&self, at: u64, parts: &[Part]) -> Failed {
        // SAFETY: the caller guarantees that the parts are readable and that nobody changes them until this function
        // returns; `timed` calls this before it returns.
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

    fn copies(&self) -> usize {
        self.below.copies()
    }

    unsafe fn read_copy(&self, copy: usize, at: u64, to: Part) -> Failed {
        // SAFETY: as in `read`.
        let read = || unsafe { self.below.read_copy(copy, at, to) };
        self.timed(Work::Read, at, to.len, read)
    }

    fn mend(&self, copy: usize, at: u64, len: usize) {
        self.below.mend(copy, at, len);
    }
}

impl ModelClient {
    /// The client of a process.
    pub(super) fn of(process: Process) -> Self {
        Self { process }
    }

    /// Tells the model which slots were freed. A slot that another process shares since a fork counts as free, too:
    /// this changes figures of the model, but no data.
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

    /// Discards spans by one command. Returns false if the model refuses it.
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

/// Waits until `end`: sleeps, then spins for at most [`OVERSLEEP_NS`], to be on time.
pub(crate) fn wait_until(end: Nanos) {
    loop {
        let left = end.since(now()).0;
        if left == 0 {
            return;
        }
        match left.checked_sub(OVERSLEEP_NS) {
            Some(asleep) if asleep > 0 => {
                // A signal may end the sleep early: the loop looks at the clock again.
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
    /// The modelled time of each command.
    const TIME: Nanos = Nanos(1_000_000);

    /// Runs `request` on a store whose model answers `orders` orders with `done`. Returns the request's result, the
    /// orders, and the nanoseconds by which it returned before the end of the last order.
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
        // SAFETY: the pages live over the call, and nobody stores to them meanwhile.
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
