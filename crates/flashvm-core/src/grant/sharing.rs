//! What each process of a run accounts for of the frames that several of them share.

/// How the frames that the processes of a run share are accounted for: each of the holdings, of a page by a process, as
/// `frames / holdings` frames. So all processes together account for these frames, or for a little more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    frames: u64,
    holdings: u64,
}

impl Sharing {
    /// Of `frames` shared frames, and of all processes' pages in them. Without any, a frame to come has two holders.
    #[must_use]
    pub fn new(frames: u64, holdings: u64) -> Self {
        match frames.min(holdings) {
            0 => Self {
                frames: 1,
                holdings: 2,
            },
            frames => Self { frames, holdings },
        }
    }

    /// The frames that `pages` pages in shared frames account for, rounded up.
    #[must_use]
    pub fn frames_of(self, pages: u32) -> u32 {
        to_u32((u64::from(pages) * self.frames).div_ceil(self.holdings))
    }

    /// The most pages in shared frames that account for at most `frames` frames.
    #[must_use]
    pub fn pages_in(self, frames: u32) -> u32 {
        to_u32(u64::from(frames) * self.holdings / self.frames)
    }
}

fn to_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The accounts of all processes add up to the frames, or to at most one more for each process.
        #[test]
        fn all_is_accounted_for(shares in prop::collection::vec(0..50_000_u32, 1..40), part in 0.0..=1.0) {
            let holdings = shares.iter().map(|&pages| u64::from(pages)).sum::<u64>();
            let most = *shares.iter().max().unwrap();
            // Between what the largest holder has and what all have.
            let frames = u64::from(most) + ((holdings - u64::from(most)) as f64 * part) as u64;
            let sharing = Sharing::new(frames, holdings);
            let accounted: u64 = shares.iter().map(|&pages| u64::from(sharing.frames_of(pages))).sum();
            prop_assert!(accounted >= frames && accounted <= frames + shares.len() as u64);
        }

        #[test]
        fn pages_and_frames_are_inverse(frames in 1..100_000_u64, more in 0..100_000_u64, count in 0..100_000_u32) {
            let sharing = Sharing::new(frames, frames + more);
            let pages = sharing.pages_in(count);
            prop_assert!(sharing.frames_of(pages) <= count);
            prop_assert!(sharing.frames_of(pages + 1) > count);
        }
    }

    #[test]
    fn without_shared_frames_two_will_hold_one() {
        let sharing = Sharing::new(0, 0);
        assert_eq!((sharing.frames_of(9), sharing.pages_in(5)), (5, 10));
    }
}
