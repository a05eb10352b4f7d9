//! Parts of the frames as shares: the clean-first window of CFLRU and CFCLOCK (the next pages in eviction order), and the
//! inactive list of two lists.

/// The whole, in parts per million.
pub(super) const MILLION: u32 = 1_000_000;

/// `frames * share / 10^6` pages, at least one.
pub(super) fn pages(frames: u32, share: u32) -> u32 {
    let pages = u64::from(frames) * u64::from(share) / u64::from(MILLION);
    u32::try_from(pages).expect("a share of a u32").max(1)
}
