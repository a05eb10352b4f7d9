//! The invariants, for tests and `--check`.

use super::super::{Organization, SECTORS, Shape, Svmp, SvmpState};
use super::{Engine, Round};
use crate::ClusterSource;
use std::collections::HashMap;

impl<C: ClusterSource> Engine<C> {
    /// Checks all derived state: counts, mappings, places on flash.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        self.check_frames();
        self.check_table();
        assert_eq!(self.frames.len(), self.held, "frames held");
        if self.reads == 0 && self.round.is_none() {
            self.check_flash();
        }
    }

    /// Every page in a frame is in that frame according to the table, and pages do not overlap.
    fn check_frames(&self) {
        let mut used = 0;
        for frame in self.frames.all() {
            let mut taken = 0_u16;
            for shape in self.frames.pages_in(frame, Shape::WHOLE) {
                let page = Svmp(self.frames.owner(frame, shape));
                let (of_page, place) = self.table.get(page);
                assert_eq!(place.frame(), Some(frame), "{page:?} is {place:?}");
                assert_eq!(of_page, shape, "{page:?} in {frame:?}");
                assert_eq!(taken & shape.bit(), 0, "{page:?} overlaps in {frame:?}");
                taken |= shape.overlapping();
                used += shape.sectors();
            }
        }
        assert_eq!(used, self.frames.used_sectors(), "sectors in use");
        assert!(
            used <= self.held * SECTORS,
            "more sectors than the frames have"
        );
    }

    /// Every page that the table has in a frame lies there; mappings, reads and condemned pages are
    /// counted.
    fn check_table(&self) {
        let (mut reads, mut mappings, mut bytes) = (0, 0, 0);
        let mut before: Option<(u32, u32)> = None;
        for (page, shape, place) in self.table.pages() {
            bytes += shape.size() as u64;
            if let Some(frame) = place.frame() {
                assert!(
                    self.frames.has(frame, shape) && self.frames.owner(frame, shape) == page.0,
                    "{page:?} is not in {frame:?}"
                );
            }
            match place {
                SvmpState::Reading(..) => reads += 1,
                SvmpState::Mapped(frame, _) => {
                    let joins = before == Some((page.0.wrapping_sub(1), frame.0.wrapping_sub(1)));
                    mappings += u32::from(!joins || self.mappings.by_page);
                    before = Some((page.0, frame.0));
                }
                // During a round, condemned pages may be in the round instead of the list.
                SvmpState::Condemned(..) if self.round.is_none() => {
                    assert!(self.condemned.contains(&page), "{page:?} is forgotten");
                }
                _ => {}
            }
        }
        assert_eq!(reads, self.reads, "reads under way");
        assert_eq!(mappings, self.mappings.count, "mappings");
        assert_eq!(bytes, self.pages.bytes(), "bytes handed out");
    }

    /// No two pages share a place on flash, and the log counts the same live sectors as the table.
    fn check_flash(&self) {
        let mut owners = HashMap::new();
        for (page, shape, place) in self.table.pages() {
            let Some(at) = place.location() else {
                continue;
            };
            for sector in 0..shape.sectors() {
                let at = at.offset() / super::super::SECTOR_BYTES as u64 + u64::from(sector);
                if let Some(other) = owners.insert(at, page) {
                    panic!("{page:?} and {other:?} are both at sector {at}");
                }
            }
        }
        if let Organization::Log(log) = &self.flash {
            assert_eq!(owners.len() as u64, log.live_sectors(), "live sectors");
        }
    }

    /// Whether no read, round or waiting task exists.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.reads == 0 && self.round.is_none() && self.waiters == 0
    }

    /// Whether a round has begun to write.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.round, Some(Round::Writing(_) | Round::Slots { .. }))
    }
}
