//! CAR against its pseudocode (FAST 2004, Figure 2), line by line over queues.

use super::super::testing::{Naive, agree, trace};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Fronts are the oldest, as in the figure.
struct Figure2 {
    c: usize,
    p: f64,
    t1: VecDeque<(u32, bool)>,
    t2: VecDeque<(u32, bool)>,
    b1: VecDeque<u32>,
    b2: VecDeque<u32>,
}

impl Figure2 {
    fn replace(&mut self) -> u32 {
        loop {
            if self.t1.len() as f64 >= self.p.max(1.0) {
                let (page, bit) = self.t1.pop_front().expect("at least one");
                if !bit {
                    self.b1.push_back(page);
                    return page;
                }
                self.t2.push_back((page, false));
            } else {
                let (page, bit) = self.t2.pop_front().expect("T1 is not full");
                if !bit {
                    self.b2.push_back(page);
                    return page;
                }
                self.t2.push_back((page, false));
            }
        }
    }
}

impl Naive for Figure2 {
    fn reference(&mut self, x: u32, _write: bool) -> Option<u32> {
        let mut cached = self.t1.iter_mut().chain(&mut self.t2);
        if let Some((_, bit)) = cached.find(|(page, _)| *page == x) {
            *bit = true;
            return None;
        }
        let (in_b1, in_b2) = (self.b1.contains(&x), self.b2.contains(&x));
        let mut victim = None;
        if self.t1.len() + self.t2.len() == self.c {
            victim = Some(self.replace());
            let all = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
            if !in_b1 && !in_b2 && self.t1.len() + self.b1.len() == self.c {
                self.b1.pop_front();
            } else if !in_b1 && !in_b2 && all == 2 * self.c {
                self.b2.pop_front();
            }
        }
        let (one, two) = (self.b1.len() as f64, self.b2.len() as f64);
        if in_b1 {
            self.p = (self.p + (two / one).max(1.0)).min(self.c as f64);
            self.b1.retain(|&page| page != x);
            self.t2.push_back((x, false));
        } else if in_b2 {
            self.p = (self.p - (one / two).max(1.0)).max(0.0);
            self.b2.retain(|&page| page != x);
            self.t2.push_back((x, false));
        } else {
            self.t1.push_back((x, false));
        }
        victim
    }
}

proptest! {
    #[test]
    fn matches_figure_2(trace in trace(), frames in 1..12_u32) {
        let mut figure = Figure2 {
            c: frames as usize,
            p: 0.0,
            t1: VecDeque::new(),
            t2: VecDeque::new(),
            b1: VecDeque::new(),
            b2: VecDeque::new(),
        };
        agree("car", &mut figure, frames, &trace);
    }
}
