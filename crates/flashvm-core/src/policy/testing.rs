//! For tests: drives a policy and a naive model of it, without links, packed bits or shared
//! columns, over the same trace.

use super::{Costs, Policy, PolicyContext, PolicySpec, Proposal};
use crate::event::Access;
use crate::ids::PageId;
use proptest::prelude::*;

/// Pages of the traces.
pub(super) const PAGES: u32 = 24;

/// A reference: the page, and whether it is a write.
pub(super) type Reference = (u32, bool);

/// A policy as its paper states it, over plain containers.
pub(super) trait Naive {
    /// Takes a reference; for a fault that needs a frame, returns the victim.
    fn reference(&mut self, page: u32, write: bool) -> Option<u32>;
}

/// References with loops, hot pages and random ones.
pub(super) fn trace() -> impl Strategy<Value = Vec<Reference>> {
    let chance = (0..PAGES, any::<bool>()).prop_map(|reference| vec![reference]);
    let hot = (0..4_u32, any::<bool>()).prop_map(|reference| vec![reference; 2]);
    let looped = (0..PAGES, 1..PAGES, any::<bool>()).prop_map(|(first, count, write)| {
        let pages = first..first + count;
        pages.map(|page| (page % PAGES, write)).collect()
    });
    let part = prop_oneof![4 => chance, 2 => hot, 1 => looped];
    prop::collection::vec(part, 1..120).prop_map(|parts| parts.concat())
}

/// Drives a policy and its model over a trace; panics at the first victim in which they differ.
pub(super) fn agree(policy: &str, naive: &mut dyn Naive, frames: u32, trace: &[Reference]) {
    let spec: PolicySpec = policy.parse().expect("a policy");
    let mut policy = spec.build(&PolicyContext::of_pages(PAGES), frames);
    let (mut in_ram, mut dirty) = ([false; PAGES as usize], [false; PAGES as usize]);
    let mut used = 0;
    for (at, &(number, write)) in trace.iter().enumerate() {
        let page = PageId(number);
        let access = if write { Access::Write } else { Access::Read };
        let mut found = None;
        if in_ram[number as usize] {
            policy.touched(page, access);
        } else {
            policy.wanted(page, access, Costs::NAND.read);
            if used == frames {
                let victim = victim(&mut *policy);
                in_ram[victim as usize] = false;
                if std::mem::take(&mut dirty[victim as usize]) {
                    policy.cleaned(PageId(victim));
                }
                found = Some(victim);
                used -= 1;
            }
            policy.inserted(page, Some(access));
            in_ram[number as usize] = true;
            used += 1;
        }
        if write && !std::mem::replace(&mut dirty[number as usize], true) {
            policy.dirtied(page);
        }
        let expected = naive.reference(number, write);
        assert_eq!(
            found, expected,
            "reference {at} ({number}, {write}) of {trace:?}"
        );
    }
}

fn victim(policy: &mut dyn Policy) -> u32 {
    loop {
        match policy.propose().expect("there are pages in RAM") {
            Proposal::Unreference(_) => {}
            Proposal::Evict(page) => return page.0,
        }
    }
}
