//! CRAW and CRAW-A against a naive model: areas are queues of page numbers, bits are sets, and
//! every rule is restated from the paper's sections IV.A, IV.B and VI.A.

use super::super::testing::{Naive, Reference, agree, trace};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

const READ_COST: f64 = 1.0 / 8.0;

#[derive(Default)]
struct NaiveArea {
    /// Fronts are the oldest.
    pages: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    desired: f64,
}

/// Areas 0, 1, 2 are R, W1, W2.
struct Model {
    frames: usize,
    approximate: bool,
    areas: [NaiveArea; 3],
    read_bits: BTreeSet<u32>,
    write_bits: BTreeSet<u32>,
    resident: BTreeSet<u32>,
}

impl Model {
    fn new(frames: u32, approximate: bool) -> Self {
        let mut areas: [NaiveArea; 3] = Default::default();
        for (area, parts) in areas.iter_mut().zip([2.0, 4.0, 4.0]) {
            area.desired = (f64::from(frames) / parts).max(1.0);
        }
        Self {
            frames: frames as usize,
            approximate,
            areas,
            read_bits: BTreeSet::new(),
            write_bits: BTreeSet::new(),
            resident: BTreeSet::new(),
        }
    }

    fn has(&self, area: usize, page: u32) -> bool {
        self.areas[area].pages.contains(&page)
    }

    fn remembers(&self, area: usize, page: u32) -> bool {
        self.areas[area].ghosts.contains(&page)
    }

    fn forget(&mut self, area: usize, page: u32) {
        self.areas[area].ghosts.retain(|&other| other != page);
    }

    fn extend(&mut self, area: usize, by: f64) {
        let room: Vec<f64> = self
            .areas
            .iter()
            .map(|a| (a.desired - 1.0).max(0.0))
            .collect();
        let others: Vec<usize> = (0..3).filter(|&other| other != area).collect();
        let all = room[others[0]] + room[others[1]];
        let by = by.min(all);
        if by > 0.0 {
            for &other in &others {
                let share = by * room[other] / all;
                self.areas[other].desired -= share;
                self.areas[area].desired += share;
            }
        }
        self.keep_balance();
    }

    fn keep_balance(&mut self) {
        let frames = self.frames as f64;
        while self.areas[0].ghosts.len() as f64 > (frames - self.areas[0].desired).max(0.0) {
            self.areas[0].ghosts.pop_front();
        }
        let write =
            |model: &Self| (frames - model.areas[1].desired - model.areas[2].desired).max(0.0);
        while (self.areas[1].ghosts.len() + self.areas[2].ghosts.len()) as f64 > write(self) {
            let longer = if self.areas[1].ghosts.len() > self.areas[2].ghosts.len() {
                1
            } else {
                2
            };
            self.areas[longer].ghosts.pop_front();
        }
    }

    fn insert_read(&mut self, page: u32) {
        if self.remembers(0, page) {
            self.forget(0, page);
            self.extend(0, READ_COST);
        }
        self.areas[0].pages.push_back(page);
    }

    fn insert_written(&mut self, page: u32) {
        let mut into = 1;
        for area in [1, 2] {
            if self.remembers(area, page) {
                self.forget(area, page);
                self.extend(area, 1.0);
                into = 2;
            }
        }
        self.areas[into].pages.push_back(page);
    }

    fn reclaim(&mut self) -> u32 {
        loop {
            // The largest ratio of current to desired size.
            let ratio = |a: &NaiveArea| a.pages.len() as f64 / a.desired;
            let mut area = None;
            for candidate in 0..3 {
                let fuller = area.is_none_or(|best: usize| {
                    ratio(&self.areas[candidate]) >= ratio(&self.areas[best])
                });
                if !self.areas[candidate].pages.is_empty() && fuller {
                    area = Some(candidate);
                }
            }
            let area = area.expect("pages");
            let page = self.areas[area].pages.pop_front().expect("not empty");
            let in_write_area = self.has(1, page) || self.has(2, page);
            if area == 0 && !in_write_area && self.write_bits.remove(&page) {
                let known = self.remembers(1, page) || self.remembers(2, page);
                self.forget(1, page);
                self.forget(2, page);
                self.areas[if known { 2 } else { 1 }].pages.push_back(page);
            }
            if area != 0 && !self.has(0, page) && self.read_bits.remove(&page) {
                self.forget(0, page);
                self.areas[0].pages.push_back(page);
            }
            let bits = if area == 0 {
                &mut self.read_bits
            } else {
                &mut self.write_bits
            };
            if bits.remove(&page) {
                let to = if area == 1 { 2 } else { area };
                self.areas[to].pages.push_back(page);
                continue;
            }
            self.areas[area].ghosts.push_back(page);
            self.keep_balance();
            if (0..3).all(|area| !self.has(area, page)) {
                self.resident.remove(&page);
                return page;
            }
        }
    }
}

impl Naive for Model {
    fn reference(&mut self, page: u32, write: bool) -> Option<u32> {
        if self.resident.contains(&page) {
            if write {
                self.write_bits.insert(page);
            }
            if !write || self.approximate {
                self.read_bits.insert(page);
            }
            return None;
        }
        let victim = (self.resident.len() == self.frames).then(|| self.reclaim());
        self.read_bits.remove(&page);
        self.write_bits.remove(&page);
        if write {
            self.insert_written(page);
        }
        if !write || self.approximate {
            self.insert_read(page);
        }
        self.resident.insert(page);
        victim
    }
}

proptest! {
    #[test]
    fn craw_matches_the_model(trace in trace(), frames in 1..16_u32) {
        agree("craw", &mut Model::new(frames, false), frames, &trace);
    }

    #[test]
    fn craw_a_matches_the_model(trace in trace(), frames in 1..16_u32) {
        agree("craw-a", &mut Model::new(frames, true), frames, &trace);
    }

    #[test]
    fn there_are_s_ghosts_at_most_and_the_sizes_add_up(trace in trace(), frames in 4..16_u32) {
        let mut craw = Craw::new(&PolicyContext::of_pages(64), Bits::ReadWrite);
        craw.resized(frames);
        let mut resident = BTreeSet::new();
        for (page, write) in trace {
            let access = if write { Access::Write } else { Access::Read };
            if resident.contains(&page) {
                craw.touched(PageId(page), access);
                continue;
            }
            while resident.len() == frames as usize {
                if let Some(Proposal::Evict(page)) = craw.propose() {
                    resident.remove(&page.0);
                }
            }
            craw.inserted(PageId(page), Some(access));
            resident.insert(page);
            let ghosts = craw.read.len(R_GHOST) + craw.write.len(W1_GHOST) + craw.write.len(W2_GHOST);
            prop_assert!(ghosts <= frames);
            let sum: f64 = craw.desired.iter().sum();
            prop_assert!((sum - f64::from(frames)).abs() < 1e-6);
        }
    }
}

fn driven(references: &[Reference]) -> Craw {
    let mut craw = Craw::new(&PolicyContext::of_pages(64), Bits::ReadWrite);
    craw.resized(12);
    for &(page, write) in references {
        craw.inserted(
            PageId(page),
            Some(if write { Access::Write } else { Access::Read }),
        );
    }
    craw
}

/// IV.B: sizes 4, 5, 5 with 3, 4, 5 desired; R has the largest ratio.
#[test]
fn the_victim_area_is_that_with_the_largest_ratio() {
    let mut craw = driven(&[]);
    craw.desired = [3.0, 4.0, 5.0];
    for page in 0..4 {
        craw.read.enter(PageId(page), R);
    }
    for page in 10..15 {
        craw.write.enter(PageId(page), W1);
        craw.write.enter(PageId(page + 10), W2);
    }
    assert_eq!(craw.fullest(), Some(Area::R));
}

#[test]
fn a_page_leaves_ram_when_it_is_in_no_area() {
    let mut craw = driven(&[(0, false)]);
    craw.touched(PageId(0), Access::Read);
    craw.touched(PageId(0), Access::Write);
    // Both bits are cleared; the page joins W1 beside R.
    assert_eq!(craw.propose(), Some(Proposal::Unreference(PageId(0))));
    assert!(craw.is_read(PageId(0)) && craw.is_written(PageId(0)));
    assert_eq!(craw.propose(), Some(Proposal::Evict(PageId(0))));
    assert_eq!(craw.read.place(PageId(0)), R_GHOST);
    assert_eq!(craw.write.place(PageId(0)), W1_GHOST);
}

#[test]
fn a_hit_in_the_ghosts_of_w1_enlarges_it_by_a_page() {
    let mut craw = driven(&[(0, true)]);
    while craw.propose() != Some(Proposal::Evict(PageId(0))) {}
    craw.inserted(PageId(0), Some(Access::Write));
    assert_eq!(craw.write.place(PageId(0)), W2);
    // Before, 3 of 12.
    assert_eq!(craw.desired[1], 4.0);
}
