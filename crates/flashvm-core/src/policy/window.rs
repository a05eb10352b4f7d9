//! The clean-first window that CFLRU and CFCLOCK share: the pages that would go next, as a share
//! of all frames.

/// Parts of a whole of a million.
pub(super) const MILLION: u32 = 1_000_000;

/// Pages of a window that is `share` parts in a million of `frames`: at least one.
pub(super) fn pages(frames: u32, share: u32) -> u32 {
    let pages = u64::from(frames) * u64::from(share) / u64::from(MILLION);
    u32::try_from(pages).expect("a share of a u32").max(1)
}
