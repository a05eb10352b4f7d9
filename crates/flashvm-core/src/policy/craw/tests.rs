//! CRAW and CRAW-A against a naive model: areas are queues of page numbers, bits are sets, and
//! every rule is restated from the paper's sections IV.A, IV.B and VI.A.

use super::super::parameters::Parameter;
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
    /// R's ratio counts this often: 1, or for CRAW-C the root of what an eviction of a dirty page costs in reads.
    read_weight: f64,
    /// A parameter with a word other than the default: `bits=set`.
    reading: &'static str,
    areas: [NaiveArea; 3],
    read_bits: BTreeSet<u32>,
    write_bits: BTreeSet<u32>,
    resident: BTreeSet<u32>,
}

impl Model {
    fn new(frames: u32, approximate: bool, reading: &'static str) -> Self {
        let mut areas: [NaiveArea; 3] = Default::default();
        let parts = match reading {
            "start=halves" => [2.0, 4.0, 4.0],
            _ => [3.0, 3.0, 3.0],
        };
        for (area, parts) in areas.iter_mut().zip(parts) {
            area.desired = (f64::from(frames) / parts).max(1.0);
        }
        Self {
            frames: frames as usize,
            approximate,
            read_weight: 1.0,
            reading,
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
        let mut others: Vec<usize> = (0..3).filter(|&other| other != area).collect();
        if self.reading == "shrink=larger" {
            let larger = if room[others[0]] > room[others[1]] {
                0
            } else {
                1
            };
            others = vec![others[larger]];
        }
        let all: f64 = others.iter().map(|&other| room[other]).sum();
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
        if self.reading == "ghosts=each" {
            for area in [1, 2] {
                let most = (frames - self.areas[area].desired).max(0.0);
                while self.areas[area].ghosts.len() as f64 > most {
                    self.areas[area].ghosts.pop_front();
                }
            }
            return;
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

    fn growth(&self) -> [f64; 2] {
        match self.reading {
            "growth=whole" => [1.0, 1.0 / READ_COST],
            "growth=both" => [1.0, 1.0 + 1.0 / READ_COST],
            "growth=equal" => [1.0, 1.0],
            _ => [READ_COST, 1.0],
        }
    }

    /// A fault of one kind that a history of the other kind may remember.
    fn other_history(&mut self, page: u32, write: bool) {
        let hit = match write {
            true => self.remembers(0, page),
            false => self.remembers(1, page) || self.remembers(2, page),
        };
        match self.reading {
            "other-history=forgotten" if write => self.forget(0, page),
            "other-history=forgotten" => (1..3).for_each(|area| self.forget(area, page)),
            "other-history=hit" if hit && write => self.insert_read(page),
            "other-history=hit" if hit => self.insert_written(page),
            _ => {}
        }
    }

    fn insert_read(&mut self, page: u32) {
        if self.remembers(0, page) {
            self.forget(0, page);
            self.extend(0, self.growth()[0]);
        }
        self.areas[0].pages.retain(|&other| other != page);
        self.areas[0].pages.push_back(page);
    }

    fn insert_written(&mut self, page: u32) {
        let mut into = 1;
        for area in [1, 2] {
            if self.remembers(area, page) {
                self.forget(area, page);
                self.extend(area, self.growth()[1]);
                into = 2;
            }
        }
        self.areas[into].pages.push_back(page);
    }

    fn reclaim(&mut self) -> u32 {
        loop {
            // The largest ratio of current to desired size.
            let ratio = |area: usize| {
                let weight = if area == 0 { self.read_weight } else { 1.0 };
                weight * self.areas[area].pages.len() as f64 / self.areas[area].desired
            };
            let mut area = None;
            for candidate in 0..3 {
                let fuller = area.is_none_or(|best: usize| ratio(candidate) >= ratio(best));
                if !self.areas[candidate].pages.is_empty() && fuller {
                    area = Some(candidate);
                }
            }
            let area = area.expect("pages");
            let page = self.areas[area].pages.pop_front().expect("not empty");
            let in_write_area = self.has(1, page) || self.has(2, page);
            let cleared = self.reading == "other-bit=cleared";
            if cleared && area == 0 && in_write_area {
                self.write_bits.remove(&page);
            }
            if cleared && area != 0 && self.has(0, page) {
                self.read_bits.remove(&page);
            }
            if area == 0 && !in_write_area && self.write_bits.remove(&page) {
                let known = self.remembers(1, page) || self.remembers(2, page);
                let known = known && self.reading != "found=w1";
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
                let stays = self.reading == "promote=stay";
                let to = if area == 1 && !stays { 2 } else { area };
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
        self.other_history(page, write);
        if self.reading == "bits=set" {
            let (read, written) = (!write || self.approximate, write);
            self.read_bits.extend(read.then_some(page));
            self.write_bits.extend(written.then_some(page));
        }
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
        agree("craw", &mut Model::new(frames, false, ""), frames, &trace);
    }

    #[test]
    fn craw_a_matches_the_model(trace in trace(), frames in 1..16_u32) {
        agree("craw-a", &mut Model::new(frames, true, ""), frames, &trace);
    }

    #[test]
    fn craw_c_matches_the_model(trace in trace(), frames in 1..16_u32) {
        let mut model = Model::new(frames, false, "");
        model.read_weight = (1.0 + 1.0 / READ_COST).sqrt();
        agree("craw-c", &mut model, frames, &trace);
    }

    #[test]
    fn every_reading_matches_the_model(trace in trace(), frames in 1..16_u32) {
        for parameter in readings::PARAMETERS {
            let Parameter::Word { name, words } = parameter else {
                unreachable!("readings are words");
            };
            for word in &words[1..] {
                let reading: &str = format!("{name}={word}").leak();
                for (policy, approximate) in [("craw", false), ("craw-a", true)] {
                    let mut model = Model::new(frames, approximate, reading);
                    agree(&format!("{policy}({reading})"), &mut model, frames, &trace);
                }
            }
        }
    }

    #[test]
    fn there_are_s_ghosts_at_most_and_the_sizes_add_up(trace in trace(), frames in 4..16_u32) {
        let mut craw = Craw::new(&PolicyContext::of_pages(64), Bits::ReadWrite, Victim::Fullest, Readings::new([0; 9]));
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
    let mut craw = Craw::new(
        &PolicyContext::of_pages(64),
        Bits::ReadWrite,
        Victim::Fullest,
        Readings::new([0; 9]),
    );
    craw.resized(12);
    for &(page, write) in references {
        craw.inserted(
            PageId(page),
            Some(if write { Access::Write } else { Access::Read }),
        );
    }
    craw
}

#[test]
fn areas_tell_their_sizes_and_evictions() {
    let mut craw = driven(&[(0, false), (1, true), (2, true)]);
    let told = |craw: &Craw| {
        craw.areas()
            .into_iter()
            .map(|area| (area.name, area.pages, area.evicted))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&craw), [("R", 1, 0), ("W1", 2, 0), ("W2", 0, 0)]);
    // W1 has the largest ratio: its older page leaves.
    assert_eq!(craw.propose(), Some(Proposal::Evict(PageId(1))));
    assert_eq!(told(&craw), [("R", 1, 0), ("W1", 1, 1), ("W2", 0, 0)]);
    assert!(craw.areas().iter().all(|area| area.desired == 4.0));
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
    // Before, 4 of 12.
    assert_eq!(craw.desired[1], 5.0);
}
