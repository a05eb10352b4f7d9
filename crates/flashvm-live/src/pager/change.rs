//! Changes of mappings under way: see [`flashvm_core::space::Changes`]. A fork waits for all changes, and no change
//! begins during a fork: the child could not know how much of it was done.

use super::{Freeze, Pager};
use crate::sys::signals::Uninterrupted;
use flashvm_core::space::Range;

/// A change of mappings, until it is dropped.
pub(super) struct Change<'a> {
    pager: &'a Pager,
    ranges: [Option<Range>; 2],
    _uninterrupted: Uninterrupted,
}

impl Pager {
    /// Begins a change of the mappings in up to two ranges; waits while a fork is under way. One change may contain
    /// others.
    pub(super) fn begin_change(&self, ranges: [Option<Range>; 2]) -> Change<'_> {
        let uninterrupted = Uninterrupted::begin();
        let mut locked = self.locked.lock();
        // A change within another never waits here: a fork begins only while there is no change.
        while locked.freeze != Freeze::No {
            locked = self.changed.wait(locked);
        }
        locked.placement.changes.begin(&ranges);
        drop(locked);
        Change {
            pager: self,
            ranges,
            _uninterrupted: uninterrupted,
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut locked = self.pager.locked.lock();
        locked.placement.changes.end(&self.ranges);
        let over = locked.placement.changes.none();
        drop(locked);
        if over {
            self.pager.changed.notify_all();
        }
    }
}
