//! The remains of a collection: halves that no state names any more, and its forwarding table. They
//! are freed in parts, since a commit may have to wait for a part. If a crash interrupts this, the
//! next start frees the rest. A half is freed from its end, so that the rest keeps its start.

use super::forwarding::Forwarding;
use crate::error::Result;
use crate::heap::state::State;
use crate::region::Area;

/// Bytes freed at once.
const PIECE: u64 = 8 << 20;

/// Halves and a table to be freed.
#[derive(Debug)]
pub(crate) struct Leftover {
    flash: Vec<Area>,
    /// The old half of mutable space, and the bytes of it that are still to be zapped.
    memory: Option<(Area, u64)>,
    table: Forwarding,
    log: Area,
    immutable: Area,
    mutable: (Area, u64),
}

impl Leftover {
    /// The halves in use before a flip. Only the log is freed, unless [`Leftover::collected`] adds
    /// the spaces.
    pub(super) fn new(heap: &State) -> Self {
        Self {
            flash: vec![heap.log.area],
            memory: None,
            table: Forwarding::none(),
            log: heap.log.area,
            immutable: heap.immutable.area,
            mutable: (heap.mutable.area, heap.mutable.used(&heap.region)),
        }
    }

    pub(super) fn collected(&mut self, table: Forwarding) {
        self.flash = vec![self.log, self.immutable];
        self.memory = Some(self.mutable);
        self.table = table;
    }
}

impl State {
    /// Whether remains may be freed now: a backup may be copying them.
    pub(crate) fn is_freeing(&self) -> bool {
        self.leftover.is_some() && self.backups == 0
    }

    /// Frees a part of the remains of the last collection, unless a backup copies them, or all of them.
    pub(crate) fn give_back(&mut self, all: bool) -> Result<()> {
        if !all && !self.is_freeing() {
            return Ok(());
        }
        while let Some(mut left) = self.leftover.take() {
            if self.give_back_from(&mut left, all)? {
                self.leftover = Some(left);
            }
            if !all {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether something is left.
    fn give_back_from(&mut self, left: &mut Leftover, all: bool) -> Result<bool> {
        if let Some(&area) = left.flash.last() {
            // On an emulated bank the program may wait for each erase.
            let count = match self.bank.model() {
                _ if all => u64::MAX,
                Some(_) => 1,
                None => (PIECE / self.segment()).max(1),
            };
            self.release_last(area, count)?;
            if self.region.end(area) == self.region.start(area) {
                left.flash.pop();
            }
        } else if let Some((area, used)) = &mut left.memory {
            let keep = if all { 0 } else { used.saturating_sub(PIECE) };
            self.region.zap_from(*area, keep, *used);
            *used = keep;
            if keep == 0 {
                left.memory = None;
            }
        } else {
            return Ok(left.table.shrink());
        }
        Ok(true)
    }
}
