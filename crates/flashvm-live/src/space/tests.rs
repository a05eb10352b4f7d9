//! The contract of an address space, for each kind of backend: by userfaultfd with a shadow and without, and by hidden
//! pages. What is true of one backend alone is tested beside it.

use super::*;
use flashvm_core::Place;
use flashvm_core::space::{AddressSpace, Done, Stop};
use proptest::prelude::*;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::collections::BTreeSet;

mod contents;
mod moves;
pub(super) mod program;

use program::{ALL, MAPPED, Program, WITH_SHADOW, each_kind, page, run};

proptest! {
    #[test]
    fn runs_cover_the_pages_and_do_not_touch(pages in prop::collection::btree_set(0u32..60, 0..40)) {
        let grouped: Vec<Run> = runs(pages.iter().copied().map(PageId)).collect();
        let covered: BTreeSet<u32> = grouped.iter().flat_map(|run| run.pages()).map(|page| page.0).collect();
        prop_assert_eq!(covered, pages);
        for pair in grouped.windows(2) {
            prop_assert!(pair[0].end() < pair[1].first);
        }
    }
}
