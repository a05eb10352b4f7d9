//! Requests to a device model, which runs in the supervisor: all processes of a run share one
//! device.
//!
//! An order is free, being filled, asked (the supervisor's turn) or answered (its owner's turn).
//! The state word names the owner's process slot and generation, so that the supervisor finds and
//! frees the orders of dead processes. Owner and supervisor change an order in turns, so no lock is
//! needed.

use super::layout::Order;
use super::process::State;
use super::{Control, PROCESS_SLOTS, Process, wait, wake};
use flashvm_core::Nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PHASE_BITS: u32 = 2;
/// Interval at which a waiting owner checks its order, even if not woken.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between two searches for a free order.
const FULL_WAIT: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Free = 0,
    Filling = 1,
    Asked = 2,
    Answered = 3,
}

impl Phase {
    fn of(word: u32) -> Self {
        match word & ((1 << PHASE_BITS) - 1) {
            1 => Self::Filling,
            2 => Self::Asked,
            3 => Self::Answered,
            _ => Self::Free,
        }
    }

    /// The state word of this phase, with the owner of `word`.
    fn within(self, word: u32) -> u32 {
        word & !((1 << PHASE_BITS) - 1) | self as u32
    }
}

/// A request to the device; ranges are slots of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Work {
    /// Read a range.
    Read = 0,
    /// Write a range.
    Write = 1,
    /// One range of the next discard, not the last.
    DiscardPart = 2,
    /// Discard this range and the preceding parts, with one command.
    Discard = 3,
    /// No request: a range of slots was freed.
    Freed = 4,
}

impl Work {
    fn of(word: u32) -> Option<Self> {
        [
            Self::Read,
            Self::Write,
            Self::DiscardPart,
            Self::Discard,
            Self::Freed,
        ]
        .get(word as usize)
        .copied()
    }
}

/// An order as the supervisor sees it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    index: usize,
    word: u32,
    /// The request.
    pub work: Work,
    /// First slot of the range.
    pub first: u32,
    /// Number of slots.
    pub count: u32,
    /// Time of the request.
    pub since: Nanos,
    /// Identifies the process that asks.
    pub owner: u32,
}

/// An order that was issued.
#[derive(Debug)]
pub struct Ticket {
    order: &'static Order,
    word: u32,
}

impl Ticket {
    /// Waits for the answer: when the request ends, and whether the device succeeded. Needs no
    /// timeout: a process dies with its supervisor.
    #[must_use]
    pub fn answer(self) -> (Nanos, bool) {
        let asked = Phase::Asked.within(self.word);
        while self.order.state.load(Ordering::Acquire) == asked {
            wait(&self.order.state, asked, LOOK);
        }
        let end = Nanos(self.order.end.load(Ordering::Relaxed));
        let done = self.order.done.load(Ordering::Relaxed) != 0;
        self.order
            .state
            .store(Phase::Free as u32, Ordering::Release);
        (end, done)
    }
}

impl Process {
    /// Issues a request to the device model at `since`. If no order is free, waits for one; does not
    /// allocate.
    #[must_use]
    pub fn order(&self, work: Work, first: u32, count: u32, since: Nanos) -> Ticket {
        let owner = self.owner() << PHASE_BITS;
        let order = self.free_order(Phase::Filling.within(owner));
        order.kind.store(work as u32, Ordering::Relaxed);
        order.first.store(first, Ordering::Relaxed);
        order.count.store(count, Ordering::Relaxed);
        order.since.store(since.0, Ordering::Relaxed);
        order
            .state
            .store(Phase::Asked.within(owner), Ordering::Release);
        let ordered = &self.region().header().ordered;
        ordered.fetch_add(1, Ordering::Release);
        wake(ordered);
        Ticket { order, word: owner }
    }

    fn free_order(&self, filling: u32) -> &'static Order {
        loop {
            let taken = self.region().orders().iter().find(|order| {
                Phase::of(order.state.load(Ordering::Relaxed)) == Phase::Free
                    && order
                        .state
                        .compare_exchange(
                            Phase::Free as u32,
                            filling,
                            Ordering::Acquire,
                            Ordering::Relaxed,
                        )
                        .is_ok()
            });
            match taken {
                Some(order) => return order,
                None => crate::sys::sleep(FULL_WAIT),
            }
        }
    }
}

impl Control {
    /// Fills `asked` with the orders that wait for an answer, the oldest first; its former contents
    /// go. If there are none, sleeps up to `timeout`. For the supervisor.
    pub fn take_orders(&self, timeout: Duration, asked: &mut Vec<Asked>) {
        asked.clear();
        let ordered = &self.region().header().ordered;
        let seen = ordered.load(Ordering::Acquire);
        self.look_at_orders(asked);
        if asked.is_empty() {
            wait(ordered, seen, timeout);
            self.look_at_orders(asked);
        }
        asked.sort_by_key(|order| (order.since, order.index));
    }

    fn look_at_orders(&self, asked: &mut Vec<Asked>) {
        for (index, order) in self.region().orders().iter().enumerate() {
            let word = order.state.load(Ordering::Acquire);
            let Some(work) = Work::of(order.kind.load(Ordering::Relaxed)) else {
                continue;
            };
            if Phase::of(word) == Phase::Asked {
                asked.push(Asked {
                    index,
                    word,
                    work,
                    first: order.first.load(Ordering::Relaxed),
                    count: order.count.load(Ordering::Relaxed),
                    since: Nanos(order.since.load(Ordering::Relaxed)),
                    owner: word >> PHASE_BITS,
                });
            }
        }
    }

    /// Answers an order.
    pub fn answer(&self, asked: &Asked, end: Nanos, done: bool) {
        let order = &self.region().orders()[asked.index];
        order.end.store(end.0, Ordering::Relaxed);
        order.done.store(done.into(), Ordering::Relaxed);
        order
            .state
            .store(Phase::Answered.within(asked.word), Ordering::Release);
        wake(&order.state);
    }

    /// Frees the orders of dead processes. For the supervisor, now and then.
    pub fn free_orders_of_the_dead(&self) {
        for order in self.region().orders() {
            let word = order.state.load(Ordering::Acquire);
            if matches!(Phase::of(word), Phase::Filling | Phase::Answered)
                && !self.is_live(word >> PHASE_BITS)
            {
                // Only its owner, which is dead, and this thread change it in these phases.
                order.state.store(Phase::Free as u32, Ordering::Release);
            }
        }
    }

    /// Whether the process that issued an order still has its process slot and was not found dead.
    fn is_live(&self, owner: u32) -> bool {
        let index = owner & (PROCESS_SLOTS - 1);
        let word = self.region().process_slots()[index as usize]
            .state
            .load(Ordering::Acquire);
        matches!(State::of(word), State::Preparing | State::Live)
            && self.process_at(index, word).owner() == owner
    }
}
