//! A segmented FIFO whose pages earn tenure: FlashVM's own.
//!
//! A live pager looks whether a page is in use by making it inactive, and pays a soft fault if it is. So a page that
//! was touched while it was inactive earns tenure: at the end of the active list it is passed over, once the first
//! time, then 3, 7, 15, 31 and 63 times in a row, before it becomes inactive again. The longer a page has been in use,
//! the more rarely it costs a fault, and the more rarely it is evicted by chance between two touches.
//!
//! A tenured page that is evicted has failed. If more than three in four of those that were looked at last failed, the
//! program has turned to other pages: then no page is passed over.
//!
//! How many pages are inactive follows from what looks cost and what they save: see `observed`.
//!
//! The generalised CLOCK (Smith 1978) counts references in the same way; here a count is earned by a look.

use super::lists::NOWHERE;
use super::observed::{Departure, Observed};
use super::two_list::{ACTIVE, TwoList};
use super::{Policy, Proposal};
use crate::event::Access;
use crate::ids::{Nanos, PageId};

/// Most times that a page is passed over in a row.
const TENURE_MOST: u8 = 63;
/// Most pages that a proposal passes over.
const PASSED_MOST: u32 = 512;
/// The looks at tenured pages whose results count, at most.
const LOOKS: u32 = 64;

/// What a page has earned.
#[derive(Clone, Copy, Default)]
struct Tenure {
    /// How often it is passed over, from one look to the next.
    earned: u8,
    /// How often it is still passed over.
    remaining: u8,
}

/// The last looks at tenured pages.
#[derive(Default)]
struct Looks {
    touched: u32,
    evicted: u32,
}

impl Looks {
    fn age(&mut self) {
        if self.touched + self.evicted >= LOOKS {
            self.touched /= 2;
            self.evicted /= 2;
        }
    }

    /// Whether at least one in four was touched.
    fn speak_for_tenure(&self) -> bool {
        self.evicted <= 3 * self.touched
    }
}

/// Two bytes a page: its tenure while it is in the lists; when it left, once it is not. An integer, so that a vector of
/// zeros takes no RAM where no page was.
type Past = u16;

impl Tenure {
    fn from_past(past: Past) -> Self {
        let [earned, remaining] = past.to_ne_bytes();
        Self { earned, remaining }
    }

    fn into_past(self) -> Past {
        Past::from_ne_bytes([self.earned, self.remaining])
    }
}

/// Two lists, and what their pages have earned.
pub(super) struct Tenured {
    fifo: TwoList,
    pasts: Vec<Past>,
    looks: Looks,
    observed: Observed,
}

impl Tenured {
    pub(super) fn new(pages: u32) -> Self {
        let observed = Observed::new();
        Self {
            fifo: TwoList::new(pages, observed.share()),
            pasts: vec![0; pages as usize],
            looks: Looks::default(),
            observed,
        }
    }

    fn past(&mut self, page: PageId) -> &mut Past {
        &mut self.pasts[page.0 as usize]
    }

    /// Ends the absence of a page that is not in the lists. `cost`: of the miss, if it was one.
    fn end_absence(&mut self, page: PageId, cost: Option<Nanos>) {
        if let Some(departure) = Departure::new(std::mem::take(self.past(page))) {
            self.observed.returned(departure, cost);
        }
    }

    /// Passes over the oldest active pages that have tenure left.
    fn pass_over(&mut self) {
        if !self.looks.speak_for_tenure() {
            return;
        }
        for _ in 0..PASSED_MOST {
            let Some(page) = self.fifo.lists.tail(ACTIVE) else {
                return;
            };
            let mut tenure = Tenure::from_past(*self.past(page));
            if tenure.remaining == 0 {
                return;
            }
            tenure.remaining -= 1;
            *self.past(page) = tenure.into_past();
            self.fifo.lists.enter(page, ACTIVE);
        }
    }
}

impl Policy for Tenured {
    fn wanted(&mut self, page: PageId, _access: Access, cost: Nanos) {
        self.end_absence(page, Some(cost));
    }

    fn inserted(&mut self, page: PageId, by: Option<Access>) {
        if self.fifo.lists.place(page) == NOWHERE {
            self.end_absence(page, None);
        }
        self.fifo.inserted(page, by);
    }

    fn touched(&mut self, page: PageId, access: Access) {
        let place = self.fifo.lists.place(page);
        if place == ACTIVE {
            return;
        }
        if place == NOWHERE {
            self.end_absence(page, None);
        }
        self.observed.touched(self.fifo.pages());
        let Tenure { earned, .. } = Tenure::from_past(*self.past(page));
        let had = earned > 0;
        let earned = (2 * earned + 1).min(TENURE_MOST);
        *self.past(page) = Tenure {
            earned,
            remaining: earned,
        }
        .into_past();
        if had {
            self.looks.touched += 1;
            self.looks.age();
        }
        self.fifo.touched(page, access);
    }

    fn removed(&mut self, page: PageId) {
        self.fifo.removed(page);
        *self.past(page) = 0;
    }

    fn cooled(&mut self, page: PageId) {
        if self.fifo.lists.place(page) != NOWHERE {
            self.fifo.cooled(page);
            *self.past(page) = 0;
        }
    }

    fn ignores_stores(&self) -> bool {
        self.fifo.ignores_stores()
    }

    fn propose(&mut self) -> Option<Proposal> {
        self.fifo.share = self.observed.share();
        if self.fifo.inactive_is_short() {
            self.pass_over();
        }
        let proposal = self.fifo.propose();
        if let Some(Proposal::Evict(page)) = proposal {
            let departure = self.observed.evicted(self.fifo.pages());
            let past = std::mem::replace(self.past(page), departure.get());
            if Tenure::from_past(past).earned > 0 {
                self.looks.evicted += 1;
                self.looks.age();
            }
        }
        proposal
    }

    fn relocated(&mut self, from: PageId, to: PageId) {
        self.fifo.relocated(from, to);
        *self.past(to) = std::mem::take(self.past(from));
    }
}

#[cfg(test)]
mod tests {
    use super::Proposal::{Evict, Unreference};
    use super::*;

    /// Looks at the oldest pages until `page` is inactive; evicts all others.
    fn evicted_until_looked_at(policy: &mut Tenured, page: PageId) -> usize {
        let mut evicted = 0;
        loop {
            match policy.propose().expect("the page is in RAM") {
                Unreference(at) if at == page => return evicted,
                Unreference(_) => {}
                Evict(_) => {
                    evicted += 1;
                    policy.inserted(PageId(100 + evicted as u32), Some(Access::Read));
                }
            }
        }
    }

    #[test]
    fn a_page_in_use_is_looked_at_ever_more_rarely() {
        let mut policy = Tenured::new(4096);
        let hot = PageId(0);
        for page in 0..8 {
            policy.inserted(PageId(page), Some(Access::Read));
        }
        let waits: Vec<_> = (0..7)
            .map(|_| {
                let evicted = evicted_until_looked_at(&mut policy, hot);
                policy.touched(hot, Access::Read);
                evicted
            })
            .collect();
        // In each turn of the active list the seven others are evicted.
        assert_eq!(waits, [0, 2, 4, 8, 16, 32, 64].map(|turns| 7 * turns));
    }

    #[test]
    fn tenure_counts_for_nothing_while_tenured_pages_fail() {
        let mut policy = Tenured::new(256);
        for page in 0..128 {
            policy.inserted(PageId(page), Some(Access::Read));
        }
        // Every page earns its tenure.
        for _ in 0..2 {
            for _ in 0..128 {
                let Some(Unreference(page)) = policy.propose() else {
                    panic!("no page is inactive");
                };
                policy.touched(page, Access::Read);
            }
        }
        // Then none is touched again: each is looked at once, and evicted.
        let mut proposals = 0;
        while policy.propose().is_some() {
            proposals += 1;
        }
        assert_eq!(proposals, 2 * 128);
        assert!(!policy.looks.speak_for_tenure());
    }

    #[test]
    fn a_page_that_is_evicted_removed_or_cooled_loses_its_tenure() {
        let mut policy = Tenured::new(8);
        let page = PageId(1);
        let lose: [fn(&mut Tenured, PageId); 3] = [
            |policy, page| {
                assert_eq!(policy.propose(), Some(Unreference(page)));
                assert_eq!(policy.propose(), Some(Evict(page)));
            },
            Policy::removed,
            |policy, page| policy.cooled(page),
        ];
        for lose in lose {
            policy.inserted(page, None);
            policy.touched(page, Access::Write);
            assert_eq!(Tenure::from_past(*policy.past(page)).earned, 1);
            policy.relocated(page, PageId(2));
            policy.relocated(PageId(2), page);
            *policy.past(page) = Tenure {
                earned: 1,
                remaining: 0,
            }
            .into_past();
            lose(&mut policy, page);
            policy.inserted(page, None);
            assert_eq!(Tenure::from_past(*policy.past(page)).earned, 0);
            policy.removed(page);
        }
    }
}
