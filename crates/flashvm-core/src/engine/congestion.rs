//! Waiting for a congested device: how long a fault without a frame and the cleaner wait before they go on (FlashVM,
//! 4.1.2).

use super::Engine;
use crate::clusters::ClusterSource;
use crate::event::Action;
use crate::settings::CongestionWait;

impl<C: ClusterSource> Engine<C> {
    /// Reclaims for a starved fault, and sets the time at which it looks again unless a request
    /// ends first.
    pub(super) fn relieve(&mut self, actions: &mut Vec<Action>) {
        self.start_cleaning(actions);
        self.reclaim_batch(self.settings.preclean, actions);
        self.allocator_retry = Some(self.now.plus(self.settings.congestion_allocator));
    }

    /// A wait has lasted long enough, or the last batch made progress.
    pub(super) fn tick(&mut self, actions: &mut Vec<Action>) {
        let cleaner_due = self.cleaner_retry.is_some_and(|at| at <= self.now);
        if cleaner_due {
            self.cleaner_retry = None;
            self.clean_once_more(actions);
        }
        if self.starved {
            let due = self.allocator_retry.is_none_or(|at| at <= self.now);
            if due {
                self.swap.retry();
            }
            let progress = self.batch_progressed();
            if cleaner_due && !due && self.allocator_naps() {
                return;
            }
            self.serve_pending(actions);
            if self.starved && (due || progress) {
                self.relieve(actions);
            }
        }
    }

    /// Whether the starved fault sleeps until its timeout, whatever happens.
    pub(super) fn allocator_naps(&self) -> bool {
        self.settings.congestion_wait == CongestionWait::Whole
            && self.starved
            && self.allocator_retry.is_some_and(|at| at > self.now)
            && !self.batch_progressed()
    }

    /// The same of the cleaner.
    pub(super) fn cleaner_naps(&self) -> bool {
        self.settings.congestion_wait == CongestionWait::Whole
            && self.cleaner_retry.is_some_and(|at| at > self.now)
    }
}
