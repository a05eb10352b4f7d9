//! Discards: the strategy decides on free clusters; due ones are sent to the device, one command
//! after the other (FlashVM, 4.3).

use super::Engine;
use crate::clusters::ClusterSource;
use crate::discard::{DiscardStrategy, Fate};
use crate::event::Action;
use crate::ids::{Nanos, SlotId};
use std::collections::VecDeque;

/// The state of discards.
pub(super) struct Discards {
    /// `None`: discards are off.
    strategy: Option<Box<dyn DiscardStrategy>>,
    /// Ranges of the clusters being discarded that are not sent yet.
    waiting: VecDeque<(SlotId, u32)>,
    /// Most slots in one command.
    slots_per_command: u32,
    /// The command in flight; empty if there is none.
    in_flight: Vec<(SlotId, u32)>,
    sent: Nanos,
}

impl Discards {
    pub(super) fn new(strategy: Option<Box<dyn DiscardStrategy>>) -> Self {
        Self {
            strategy,
            waiting: VecDeque::new(),
            slots_per_command: 1,
            in_flight: Vec::new(),
            sent: Nanos(0),
        }
    }

    pub(super) fn are_sent(&self) -> bool {
        self.strategy.is_some()
    }

    /// Assembles the next command; returns whether there is one.
    fn next_command(&mut self) -> bool {
        let mut left = self.slots_per_command;
        while left > 0
            && let Some((first, count)) = self.waiting.pop_front()
        {
            let taken = count.min(left);
            self.in_flight.push((first, taken));
            if taken < count {
                self.waiting.push_front((first.plus(taken), count - taken));
            }
            left -= taken;
        }
        !self.in_flight.is_empty()
    }
}

impl<C: ClusterSource> Engine<C> {
    /// The ranges of the discard in flight: first slot and number of slots.
    #[must_use]
    pub fn discard_ranges(&self) -> &[(SlotId, u32)] {
        &self.discards.in_flight
    }

    /// Records every freed slot from now on, for [`Self::pop_freed`]: unmanaged flash needs to know
    /// (FlashVM, 4.4).
    pub fn log_freed(&mut self) {
        self.swap.log_freed();
    }

    /// A freed slot that was not reported yet.
    pub fn pop_freed(&mut self) -> Option<SlotId> {
        self.swap.pop_freed()
    }

    /// Decides on clusters that this event freed, and sends due discards.
    pub(super) fn collect_garbage(&mut self, actions: &mut Vec<Action>) {
        let Some(strategy) = &mut self.discards.strategy else {
            return;
        };
        for _ in 0..self.swap.take_scans() {
            strategy.scanned(self.now);
        }
        while let Some(cluster) = self.swap.pop_emptied() {
            match strategy.freed(self.now) {
                Fate::Held => self.swap.hold(cluster),
                Fate::Overwritten => {
                    self.counters.discards_elided += 1;
                    self.swap.let_go(cluster, &mut self.clusters);
                }
            }
        }
        if self.discards.in_flight.is_empty()
            && let Some(due) = strategy.due(self.swap.held_slots())
        {
            self.discards.slots_per_command = due.slots_per_command;
            self.swap
                .begin_discard(due.slots, &mut self.discards.waiting);
            self.send_discard(actions);
        }
    }

    fn send_discard(&mut self, actions: &mut Vec<Action>) {
        if self.discards.next_command() {
            let ranges = &self.discards.in_flight;
            self.discards.sent = self.now;
            actions.push(Action::Discard {
                ranges: u32::try_from(ranges.len()).expect("fewer ranges than slots"),
                slots: ranges.iter().map(|range| range.1).sum(),
            });
        } else {
            self.swap.end_discard(&mut self.clusters);
        }
    }

    pub(super) fn discarded(&mut self, refused: bool, actions: &mut Vec<Action>) {
        let slots: u32 = self.discards.in_flight.iter().map(|range| range.1).sum();
        assert!(slots > 0, "no discard is in flight");
        self.discards.in_flight.clear();
        if refused {
            self.counters.discards_refused += 1;
            self.discards.strategy = None;
            self.discards.waiting.clear();
            self.swap.keep_emptied(false);
        } else {
            let took = self.now.since(self.discards.sent);
            self.counters.discard_commands += 1;
            self.counters.discard_pages += u64::from(slots);
            self.counters.discard_ns += took.0;
            if let Some(strategy) = &mut self.discards.strategy {
                strategy.ended(took);
            }
        }
        self.send_discard(actions);
        if refused {
            self.swap.let_go_all(&mut self.clusters);
        }
        // Faults that wait for room may find some now.
        self.serve_or_relieve(actions);
    }
}
