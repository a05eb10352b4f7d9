//! memcached with a million random pairs of 1 KB: items go into slabs one after the other, four to a
//! page. Each also touches a random bucket of the table and, if that is not empty, its first item.
//! Lookups touch a random bucket and a random item.

use super::Layout;
use crate::replay::{Program, Step, Touch};
use crate::rng::Rng;
use flashvm_core::{Nanos, PageId};

/// Pages of the table = all pages / TABLE_SHARE.
const TABLE_SHARE: u32 = 64;
const ITEMS_A_PAGE: u32 = 4;
const WORK: Nanos = Nanos(15_000);
/// Stores, in percent of the pairs: clients overwrite some.
const STORES_PERCENT: u32 = 130;
const LOOKUPS_PERCENT: u32 = 80;

fn parts(layout: Layout) -> (u32, u32, u32) {
    let table = (layout.pages / TABLE_SHARE).max(1);
    (layout.base, table, layout.pages - table)
}

fn stores(layout: Layout, percent: u32) -> impl Iterator<Item = Step> {
    let (base, table, slabs) = parts(layout);
    let items = u64::from(slabs) * u64::from(ITEMS_A_PAGE);
    let mut rng = Rng::new(layout.seed);
    (0..items * u64::from(percent) / 100).flat_map(move |i| {
        let item = if i < items { i } else { rng.below(items) };
        let bucket = base + rng.below_u32(table);
        let neighbour = rng.below(i.min(items) + 1);
        let slab = |item: u64| base + table + (item / u64::from(ITEMS_A_PAGE)) as u32;
        // The bucket is not empty: its first item is compared.
        let chained = rng.below(100) < 8;
        let mut steps = vec![Step {
            page: PageId(bucket),
            touch: Touch::Write,
            work: WORK,
        }];
        if chained {
            steps.push(Step {
                page: PageId(slab(neighbour.min(items - 1))),
                touch: Touch::Read,
                work: Nanos(500),
            });
        }
        steps.push(Step {
            page: PageId(slab(item)),
            touch: Touch::Write,
            work: WORK,
        });
        steps
    })
}

pub(super) fn store(layout: Layout) -> Program<'static> {
    Box::new(stores(layout, STORES_PERCENT))
}

pub(super) fn lookup(layout: Layout) -> Program<'static> {
    let (base, table, slabs) = parts(layout);
    let mut rng = Rng::new(layout.seed + 1);
    let lookups = u64::from(slabs) * u64::from(ITEMS_A_PAGE) * u64::from(LOOKUPS_PERCENT) / 100;
    let find = (0..lookups).flat_map(move |_| {
        let bucket = base + rng.below_u32(table);
        let item = base + table + rng.below_u32(slabs);
        [bucket, item].map(|page| Step {
            page: PageId(page),
            touch: Touch::Read,
            work: WORK,
        })
    });
    Box::new(stores(layout, 100).chain(find))
}
