//! Changes of mappings under way: what must not happen beside them.
//!
//! The kernel lets a thread that drops pages go on as soon as its message is read, and drops them
//! after that (`MADV_DONTNEED`) or has dropped them before (`munmap`). So for a while the engine
//! has a range as absent that is not, or the other way round. Whatever a thread touches there is
//! served as ever; but nothing is filled in ahead of need, because such a page could be taken
//! for what lay there before. A fork waits until no change is under way, and none begins while
//! one happens: the child could not know how far it had come.

use super::{Core, Freeze, Pager};
use crate::sys::signals::Uninterrupted;
use flashvm_core::PageId;

/// First page and pages of a range.
pub(super) type Range = (PageId, u32);

/// A change of mappings, until it is dropped.
pub(super) struct Change<'a> {
    pager: &'a Pager,
    ranges: [Option<Range>; 2],
    _uninterrupted: Uninterrupted,
}

/// The changes that are under way.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// How many, those of no particular range among them.
    count: u32,
    ranges: Vec<Range>,
}

impl Changes {
    /// Whether no mapping is changing: a fork may happen.
    pub(super) fn none(&self) -> bool {
        self.count == 0
    }

    /// Whether any of these pages is being given up or moved.
    pub(super) fn touch(&self, first: PageId, count: u32) -> bool {
        let overlaps = |&(at, pages): &Range| first.0 < at.0 + pages && at.0 < first.0 + count;
        self.ranges.iter().any(overlaps)
    }
}

impl Core {
    /// Whether a page that is to be filled with zeros is only a guess in a range that is
    /// changing.
    pub(super) fn is_rash(&self, page: PageId) -> bool {
        self.changes.touch(page, 1) && !self.waiting.iter().any(|&(waiting, _)| waiting == page)
    }
}

impl Pager {
    /// Begins a change of the mappings in up to two ranges; waits while a fork is under way.
    /// One change may contain others.
    pub(super) fn begin_change(&self, ranges: [Option<Range>; 2]) -> Change<'_> {
        let uninterrupted = Uninterrupted::begin();
        let mut core = self.core.lock();
        // A fork begins only while there is no change, so this one may contain another.
        while core.freeze != Freeze::No {
            core = self.changed.wait(core);
        }
        core.changes.count += 1;
        core.changes.ranges.extend(ranges.into_iter().flatten());
        drop(core);
        Change {
            pager: self,
            ranges,
            _uninterrupted: uninterrupted,
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut core = self.pager.core.lock();
        let changes = &mut core.changes;
        changes.count -= 1;
        for range in self.ranges.iter().flatten() {
            // Equal ranges stand for each other.
            let at = changes.ranges.iter().position(|other| other == range);
            changes.ranges.swap_remove(at.expect("noted when it began"));
        }
        let over = changes.none();
        drop(core);
        if over {
            self.pager.changed.notify_all();
        }
    }
}
