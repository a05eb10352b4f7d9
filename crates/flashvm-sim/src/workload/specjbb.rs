//! The paper's pseudo-SpecJBB: 16 warehouses in a Java heap. Each transaction touches some objects
//! of one warehouse, most of them hot, and creates new ones in a nursery. When the nursery is full, a
//! collection visits some of the live objects.

use super::Layout;
use crate::replay::{Program, Step, Touch};
use crate::rng::Rng;
use flashvm_core::{Nanos, PageId};

const WAREHOUSES: u32 = 16;
/// Pages of the nursery = all pages / NURSERY_SHARE.
const NURSERY_SHARE: u32 = 16;
/// Transactions for each page of the heap.
const TRANSACTIONS_A_PAGE: u32 = 3;
const OBJECTS: u64 = 8;
/// Hot pages of a warehouse, and references that go to them, in percent.
const HOT_PAGES_PERCENT: u64 = 20;
const HOT_PERCENT: u64 = 92;
const WRITE_PERCENT: u64 = 35;
const WORK: Nanos = Nanos(9_000);
/// Pages that a collection of the nursery visits (remembered sets), in percent.
const TRACED_PERCENT: u32 = 10;

pub(super) fn steps(layout: Layout) -> Program<'static> {
    let Layout { base, pages, seed } = layout;
    let nursery = (pages / NURSERY_SHARE).max(1);
    let heap = base + nursery;
    let home = u64::from((pages - nursery) / WAREHOUSES).max(1);
    let mut rng = Rng::new(seed);
    let step = |page: u32, touch, work| Step {
        page: PageId(page),
        touch,
        work,
    };
    let fill = (0..pages).map(move |i| step(base + i, Touch::Write, Nanos(3_000)));
    let live = WAREHOUSES * home as u32;
    let transactions = (0..pages * TRANSACTIONS_A_PAGE).flat_map(move |i| {
        let warehouse = rng.below(WAREHOUSES.into());
        let mut steps = Vec::with_capacity(OBJECTS as usize + 2);
        for _ in 0..OBJECTS {
            let hot = (home * HOT_PAGES_PERCENT / 100).max(1);
            let page = match rng.below(100) < HOT_PERCENT {
                true => rng.below(hot),
                false => rng.below(home),
            };
            let touch = match rng.below(100) < WRITE_PERCENT {
                true => Touch::Write,
                false => Touch::Read,
            };
            steps.push(step(heap + (warehouse * home + page) as u32, touch, WORK));
        }
        let at = (i / 4) % nursery;
        steps.push(step(base + at, Touch::Write, WORK));
        if i % (4 * nursery) == 4 * nursery - 1 {
            let stride = 100 / TRACED_PERCENT;
            let offset = (i / (4 * nursery)) % stride;
            let traced = (0..live / stride).map(|k| heap + k * stride + offset);
            steps.extend(traced.map(|page| step(page, Touch::Read, Nanos(2_000))));
        }
        steps
    });
    Box::new(fill.chain(transactions))
}
