//! Mirrors whose sides fail in all ways: in memory (`faults`), at servers (`servers`), and while they are brought up to
//! date (`copies`).

mod copies;
mod faults;
mod servers;

use super::super::side::Half;
use super::super::store::Store;
use super::super::testing::Pages;
use super::{Mirror, pages_of};
use crate::control::MirrorState;
use flashvm_core::PAGE_SIZE;
use proptest::prelude::*;

const PAGE: u64 = PAGE_SIZE as u64;
const PAGES: u32 = 128;
const BYTES: u64 = PAGES as u64 * PAGE;

/// A mirror that prints nothing.
fn silent<H: Half>(sides: [H; 2], state: MirrorState) -> Mirror<H> {
    let names = ["A".to_owned(), "B".to_owned()];
    Mirror {
        says: |_| {},
        ..Mirror::new(sides, names, BYTES, state)
    }
}

fn read(store: &impl Store, at: u64, to: &Pages) -> u64 {
    // SAFETY: the pages live over the call, and this thread alone uses them.
    unsafe { store.read(at, to.all()) }.bits()
}

fn write(store: &impl Store, at: u64, from: &Pages) -> bool {
    // SAFETY: `from` lives over the call, and nobody stores to it meanwhile.
    unsafe { store.write(at, &[from.all()]) }.is_none()
}

proptest! {
    #[test]
    fn requests_touch_their_pages(at in 0_u64..1 << 40, len in 1_usize..1 << 18) {
        let pages = pages_of(at, len);
        prop_assert!(u64::from(pages.start) * PAGE <= at && at < u64::from(pages.start + 1) * PAGE);
        let last = at + len as u64 - 1;
        prop_assert_eq!(u64::from(pages.end - 1), last / PAGE);
    }
}
