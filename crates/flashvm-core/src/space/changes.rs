//! Ranges whose mappings the program is changing.
//!
//! The kernel lets a thread that drops pages continue as soon as its message is read; it drops the
//! pages after that (`MADV_DONTNEED`) or has dropped them before (`munmap`). So for a while the
//! engine has a range as absent that is not, or vice versa. Touches of the range are served as usual,
//! but no page of it is filled ahead of need: it could be taken for an older page of the range.

use crate::ids::PageId;

/// First page and pages of a range.
pub type Range = (PageId, u32);

/// The changes in progress.
#[derive(Debug, Default)]
pub struct Changes {
    /// Number of changes, including those without a range.
    count: u32,
    ranges: Vec<Range>,
}

impl Changes {
    /// A change begins.
    pub fn begin(&mut self, ranges: &[Option<Range>]) {
        self.count += 1;
        self.ranges.extend(ranges.iter().flatten());
    }

    /// Ends a change that began with these ranges.
    ///
    /// # Panics
    /// If there is no such change.
    pub fn end(&mut self, ranges: &[Option<Range>]) {
        self.count -= 1;
        for range in ranges.iter().flatten() {
            // Equal ranges are interchangeable.
            let at = self.ranges.iter().position(|other| other == range);
            self.ranges.swap_remove(at.expect("noted when it began"));
        }
    }

    /// Whether no mapping is changing, so that a fork may happen.
    #[must_use]
    pub fn none(&self) -> bool {
        self.count == 0
    }

    /// Whether any of these pages is being zapped or moved.
    #[must_use]
    pub fn touch(&self, first: PageId, count: u32) -> bool {
        let overlaps = |&(at, pages): &Range| first.0 < at.0 + pages && at.0 < first.0 + count;
        self.ranges.iter().any(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_changes_end_one_by_one() {
        let range = [Some((PageId(4), 2)), None];
        let mut changes = Changes::default();
        changes.begin(&range);
        changes.begin(&range);
        changes.end(&range);
        assert!(!changes.none() && changes.touch(PageId(5), 1));
        assert!(!changes.touch(PageId(6), 9) && !changes.touch(PageId(0), 4));
        changes.end(&range);
        assert!(changes.none() && !changes.touch(PageId(0), 100));
    }
}
