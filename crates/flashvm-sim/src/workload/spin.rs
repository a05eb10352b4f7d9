//! Spin: allocates memory in advance and clears it (5.3.2). Then it explores states: it looks each up
//! at a random place of a table and inserts it if it is new; the search's stack grows and shrinks.
//! Only a part of the cleared memory is ever used: 93 % of the pages that the paper swaps out are zero.

use super::Layout;
use crate::replay::{Program, Step, Touch};
use crate::rng::Rng;
use flashvm_core::{Nanos, PageId};

/// Pages of the table = cleared pages / TABLE_SHARE, of the stack = cleared pages / STACK_SHARE.
const TABLE_SHARE: u32 = 5;
const STACK_SHARE: u32 = 50;
/// Lookups for each page of the table.
const LOOKUPS_A_PAGE: u32 = 24;
/// New states, in percent of the lookups.
const NEW_PERCENT: u64 = 30;
const CLEAR_WORK: Nanos = Nanos(1_000);
const LOOKUP_WORK: Nanos = Nanos(20_000);
/// Lookups near the last one, in percent.
const NEAR_PERCENT: u64 = 60;
const NEAR_PAGES: u64 = 32;

pub(super) fn steps(layout: Layout) -> Program<'static> {
    let Layout { base, pages, seed } = layout;
    let table = (pages / TABLE_SHARE).max(1);
    let stack = (pages / STACK_SHARE).max(1);
    let clear = (0..pages).map(move |i| Step {
        page: PageId(base + i),
        touch: Touch::Clear,
        work: CLEAR_WORK,
    });
    let mut rng = Rng::new(seed);
    let mut last = 0;
    let search = (0..table * LOOKUPS_A_PAGE).flat_map(move |i| {
        let page = match rng.below(100) < NEAR_PERCENT {
            true => (last + rng.below(NEAR_PAGES)) % u64::from(table),
            false => rng.below(table.into()),
        };
        last = page;
        let touch = match rng.below(100) < NEW_PERCENT {
            true => Touch::Write,
            false => Touch::Read,
        };
        let depth = (i / 8) % (2 * stack);
        let depth = depth.min(2 * stack - 1 - depth);
        [
            Step {
                page: PageId(base + stack + page as u32),
                touch,
                work: LOOKUP_WORK,
            },
            Step {
                page: PageId(base + depth),
                touch: Touch::Write,
                work: Nanos(500),
            },
        ]
    });
    Box::new(clear.chain(search))
}
