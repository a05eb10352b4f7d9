//! Whether compression pays for the pages of this program.
//!
//! Of every `LOOK` pages that were compressed, one in `SHRINK_SHARE` has to shrink. If not, the next `PAUSE_MIN` pages
//! are written as they are, and the pause doubles each time up to `PAUSE_MAX`. So a program whose pages do not shrink
//! compresses at most one page in `PAUSE_MAX / LOOK`.

const LOOK: u32 = 128;
const SHRINK_SHARE: u32 = 8;
/// Weight of a look in the mean: `1 / LOOK_WEIGHT`.
const LOOK_WEIGHT: u32 = 4;
const PAUSE_MIN: u32 = 1024;
const PAUSE_MAX: u32 = 64 * 1024;

/// The trial that goes on for as long as the program runs.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    looked: u32,
    shrunk: u32,
    /// Pages still to be written uncompressed in this pause.
    left: u32,
    pause: u32,
    /// The share of pages that shrink, of [`Trial::SHRINK_ALL`]: the mean of the last looks.
    shrinks: u32,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            looked: 0,
            shrunk: 0,
            left: 0,
            pause: PAUSE_MIN,
            shrinks: Self::SHRINK_ALL / 2,
        }
    }
}

impl Trial {
    /// The unit of [`Self::shrinks`].
    pub(crate) const SHRINK_ALL: u32 = 256;

    /// The share of pages that shrink, of [`Self::SHRINK_ALL`].
    pub(crate) fn shrinks(&self) -> u32 {
        self.shrinks
    }

    /// Whether the next pages should be compressed.
    pub(crate) fn is_on(&self) -> bool {
        self.left == 0
    }

    /// `pages` were compressed, of which `shrunk` shrank.
    pub(crate) fn looked(&mut self, pages: u32, shrunk: u32) {
        self.looked += pages;
        self.shrunk += shrunk;
        if self.looked < LOOK {
            return;
        }
        let shrinks = self.shrunk * Self::SHRINK_ALL / self.looked;
        self.shrinks = (self.shrinks * (LOOK_WEIGHT - 1) + shrinks) / LOOK_WEIGHT;
        if self.shrunk < self.looked / SHRINK_SHARE {
            self.left = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else {
            self.pause = PAUSE_MIN;
        }
        (self.looked, self.shrunk) = (0, 0);
    }

    /// `pages` were written uncompressed.
    pub(crate) fn left_out(&mut self, pages: u32) {
        self.left = self.left.saturating_sub(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are compressed of the `pages` that a program evicts.
    fn compressed(trial: &mut Trial, pages: u32, shrinks: bool) -> u32 {
        let mut compressed = 0;
        for _ in 0..pages / 32 {
            if trial.is_on() {
                compressed += 32;
                trial.looked(32, if shrinks { 32 } else { 0 });
            } else {
                trial.left_out(32);
            }
        }
        compressed
    }

    #[test]
    fn pages_that_do_not_shrink_are_seldom_compressed() {
        let mut trial = Trial::default();
        assert!(compressed(&mut trial, 1 << 20, false) < (1 << 20) / 200);
        let soon = compressed(&mut trial, 2 * PAUSE_MAX, true);
        assert!(soon >= PAUSE_MAX, "{soon} of {}", 2 * PAUSE_MAX);
        assert_eq!(compressed(&mut trial, 1 << 16, true), 1 << 16);
    }

    #[test]
    fn one_page_in_eight_is_enough() {
        let mut trial = Trial::default();
        for _ in 0..100 {
            trial.looked(64, 8);
            assert!(trial.is_on());
        }
    }
}
