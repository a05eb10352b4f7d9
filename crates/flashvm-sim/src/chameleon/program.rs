//! The operations of the program's threads, and what they check.

use super::memory::Owned;
use super::{Due, Flight, Sabotage, Simulator, is_resolved};
use crate::memory::Version;
use flashvm_core::chameleon::{Outcome, PageList, Request, SIZES, Svmp};

/// Operations of the program for each change of the frames that the page pager leaves.
const PRESSURE: u64 = 40;
/// Most pages of one system call.
const CALL_PAGES: u32 = 3;

/// Most faults of one touch.
const FAULTS_MOST: u32 = 100;

#[derive(Clone, Default)]
pub(super) struct Thread {
    pub(super) flight: Option<Flight>,
    work: Work,
    operations_left: u32,
}

/// The current operation of a thread.
#[derive(Clone, Default)]
enum Work {
    #[default]
    Nothing,
    /// Loads from a page, or stores the version to it; with the number of faults so far.
    Touch(Svmp, Option<Version>, u32),
    /// A system call on `count` pages, the first `there` of which are resident. `requests` is the
    /// simulator's count when it began.
    Call {
        first: Svmp,
        count: u32,
        there: u32,
        requests: u64,
    },
    Fork,
}

impl Simulator {
    pub(super) fn start_threads(&mut self, count: u32) {
        for thread in 0..count as usize {
            self.threads.push(Thread {
                operations_left: self.setup.operations,
                ..Thread::default()
            });
            self.schedule(thread, 0, Due::Operation);
        }
        // The writer.
        self.threads.push(Thread::default());
    }

    /// Starts the writer; if it runs, it starts again when it has finished.
    pub(super) fn call_writer(&mut self) {
        let writer = self.threads.len() - 1;
        if self.threads[writer].flight.is_none() {
            let delay = self.rng.below(100_000);
            self.schedule(writer, delay, Due::Operation);
        } else {
            self.threads[writer].operations_left = 1;
        }
    }

    /// Performs a thread's next operation.
    pub(super) fn operate(&mut self, thread: usize) {
        let is_writer = thread + 1 == self.threads.len();
        if is_writer {
            if self.threads[thread].flight.is_none() {
                self.begin(thread, Request::WriteBehind);
            }
            return;
        }
        match self.threads[thread].work {
            Work::Nothing => {}
            Work::Touch(page, store, faults) => return self.touch(thread, page, store, faults),
            Work::Call { .. } => return self.call(thread),
            Work::Fork => unreachable!("a fork is one request after the other"),
        }
        let Some(left) = self.threads[thread].operations_left.checked_sub(1) else {
            return;
        };
        self.threads[thread].operations_left = left;
        if self.rng.one_in(PRESSURE) {
            self.press();
        }
        let (pages, most) = (self.memory.truth.len(), self.setup.pages_most as usize);
        match self.rng.below(100) {
            _ if pages == 0 => self.take(thread),
            0..4 if pages < most => self.take(thread),
            4..7 => self.give(thread),
            7..10 => {
                let first = self.any_page();
                let count = 1 + self.rng.below_u32(CALL_PAGES);
                self.threads[thread].work = Work::Call {
                    first,
                    count,
                    there: 0,
                    requests: self.requests,
                };
                self.begin(thread, Request::Pin(first, count));
            }
            10 if self.forks < self.setup.forks_most && self.rng.one_in(8) => {
                self.threads[thread].work = Work::Fork;
                self.begin(thread, Request::PrepareFork);
            }
            _ => {
                let page = self.any_page();
                let store = self.rng.one_in(2).then(|| self.new_version());
                self.touch(thread, page, store, 0);
            }
        }
    }

    /// The page pager leaves another number of frames to the engine.
    fn press(&mut self) {
        let (fewest, most) = (self.setup.frames_fewest, self.setup.config.frames_most);
        let before = self.memory.frames_most;
        self.memory.frames_most = fewest + self.rng.below_u32(most - fewest + 1);
        if self.memory.frames_most < before {
            self.memory.writer_called = true;
        }
    }

    fn new_version(&mut self) -> Version {
        self.versions += 1;
        // Sometimes zeros, which are not written.
        if self.rng.one_in(5) { 0 } else { self.versions }
    }

    fn take(&mut self, thread: usize) {
        let size = SIZES[self.rng.below(SIZES.len() as u64) as usize];
        self.begin(thread, Request::Take(size));
    }

    /// Frees a few pages that no system call works on and no other thread is freeing.
    fn give(&mut self, thread: usize) {
        let from = self.any_page();
        let count = 1 + self.rng.below(40) as usize;
        let is_free = |page: &u32| {
            !self.threads.iter().any(|thread| match thread.work {
                Work::Call { first, count, .. } => (first.0..first.0 + count).contains(page),
                _ => false,
            }) && !self.threads.iter().any(|thread| match &thread.flight {
                Some(flight) => {
                    matches!(&flight.request, Request::Give(list) if list.pages().contains(page))
                }
                None => false,
            })
        };
        let pages = self.memory.truth.range(from.0..).map(|(&page, _)| page);
        let pages: Vec<u32> = pages.filter(is_free).take(count).collect();
        if pages.is_empty() {
            return self.schedule(thread, 1_000, Due::Operation);
        }
        let mut list = PageList::default();
        list.set(&pages);
        self.begin(thread, Request::Give(list));
    }

    fn any_page(&mut self) -> Svmp {
        let pages = &self.memory.truth;
        let (&last, _) = pages.last_key_value().expect("pages are handed out");
        // Walks begin anywhere, more than half of them in the first eighth.
        let mut at = self.rng.below_u32(last + 1);
        if self.rng.one_in(2) {
            at /= 8;
        }
        if !self.rng.one_in(8) && self.walk < last {
            at = self.walk + 1;
        }
        let (&page, _) = pages.range(at..).next().expect("the last one at least");
        self.walk = page;
        Svmp(page)
    }

    /// Loads or stores if the page is mapped, else faults.
    pub(super) fn touch(&mut self, thread: usize, page: Svmp, store: Option<Version>, faults: u32) {
        if self.memory.is_mapped(page) {
            self.memory.access(page, store);
            self.threads[thread].work = Work::Nothing;
            let delay = self.rng.below(3_000);
            self.schedule(thread, delay, Due::Operation);
        } else {
            assert!(
                faults < FAULTS_MOST,
                "{page:?} is taken away again and again before it is touched"
            );
            self.threads[thread].work = Work::Touch(page, store, faults + 1);
            self.begin(thread, Request::Fault(page));
        }
    }

    /// Makes the pages of a system call resident, then has the kernel work on them.
    fn call(&mut self, thread: usize) {
        let Work::Call {
            first,
            count,
            there,
            requests,
        } = &mut self.threads[thread].work
        else {
            unreachable!("it is in a system call")
        };
        let (first, count, requests) = (*first, *count, *requests);
        let page = Svmp(first.0 + *there);
        if *there < count {
            let is_there = !self.memory.truth.contains_key(&page.0) || self.memory.is_mapped(page);
            if is_there {
                *there += 1;
                return self.schedule(thread, 500, Due::Operation);
            }
            return self.begin(thread, Request::Fault(page));
        }
        // Refusals by the kernel remove pages: the call gets EFAULT and is repeated.
        let is_kept = self.setup.faults.mappings == 0 && self.setup.mappings_most == u32::MAX;
        for page in (first.0..first.0 + count).map(Svmp) {
            let owned = self.memory.truth.get(&page.0);
            // A page that was freed and allocated again during the call is another page.
            let is_same = |owned: &&Owned| !owned.is_lost && owned.since < requests;
            let Some(owned) = owned.filter(is_same) else {
                continue;
            };
            let version = owned.version;
            let is_mapped = self.memory.is_mapped(page);
            assert!(
                is_mapped || !is_kept || self.setup.sabotage.is_some(),
                "{page:?} is pinned, and was taken away"
            );
            if is_mapped {
                self.memory.access(page, Some(version));
            }
        }
        self.threads[thread].work = Work::Nothing;
        self.begin(thread, Request::Unpin(first, count));
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, thread: usize, flight: &Flight, outcome: Outcome) {
        match &flight.request {
            Request::Fault(page) => self.fault_ended(thread, *page, flight, outcome),
            Request::Take(_) => {
                if let Some(list) = flight.task.taken() {
                    self.memory.own(list, self.requests);
                } else {
                    assert_eq!(outcome, Outcome::NoRoom);
                }
            }
            Request::Give(list) => {
                for page in list.pages() {
                    self.memory.truth.remove(page);
                }
            }
            Request::PrepareFork => {
                assert_eq!(outcome, Outcome::Quiet);
                assert!(!self.engine.writes(), "a fork during a round");
                let forked = self.setup.sabotage != Some(Sabotage::ForkInRound)
                    && !self.rng.one_in(4)
                    && self.memory.share_room();
                if forked {
                    self.fork_child();
                }
                self.forks += 1;
                return self.begin(thread, Request::Resume { forked });
            }
            Request::Resume { .. } => self.threads[thread].work = Work::Nothing,
            Request::BecomeChild => unreachable!("done as the child was made"),
            Request::Pin(..) | Request::Unpin(..) => {}
            Request::WriteBehind => {
                // It was called again while it ran.
                if std::mem::take(&mut self.threads[thread].operations_left) > 0 {
                    self.schedule(thread, 1_000, Due::Operation);
                }
                return;
            }
        }
        let delay = self.rng.below(5_000);
        self.schedule(thread, delay, Due::Operation);
    }

    fn fault_ended(&mut self, thread: usize, page: Svmp, flight: &Flight, outcome: Outcome) {
        let owned = self.memory.truth.get(&page.0);
        match outcome {
            Outcome::NotOurs => {
                // Another thread has freed it: the program's mistake.
                assert!(owned.is_none(), "{page:?} was handed out");
            }
            Outcome::Lost => {
                let owned = owned.expect("only pages that are handed out are lost");
                assert!(owned.is_lost, "{page:?} is lost, and nobody was told");
                assert!(
                    flight.reads == 0 || flight.failed_reads >= 3,
                    "{page:?} is lost after {} reads that failed",
                    flight.failed_reads
                );
            }
            outcome => {
                assert!(is_resolved(outcome), "a fault ended as {outcome:?}");
                assert!(owned.is_some(), "{page:?} is nobody's");
                return;
            }
        }
        if let Work::Touch(..) = self.threads[thread].work {
            self.threads[thread].work = Work::Nothing;
        } else if let Work::Call { there, .. } = &mut self.threads[thread].work {
            *there += 1;
        }
    }
}
