//! The organization of pages on flash (paper, 3.3, "Flash Organization"): a log, or log structuring
//! switched off.

use super::in_place::InPlace;
use super::log::Log;
use super::shape::Shape;
use super::table::Location;
use crate::ClusterSource;

/// Counters of writes to flash. Write amplification is `bytes_written / bytes_changed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounters {
    /// Committed rounds of the log.
    pub rounds: u64,
    /// Rounds that cleaned a block.
    pub cleaned: u64,
    /// Changed pages that were written.
    pub pages_changed: u64,
    /// Their bytes.
    pub bytes_changed: u64,
    /// Live pages that cleaning wrote again.
    pub pages_moved: u64,
    /// Bytes read for cleaning.
    pub bytes_read: u64,
    /// Bytes written, headers among them.
    pub bytes_written: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks taken out of use after a failed write, or because a live page could not be read.
    pub blocks_bad: u64,
}

/// The organization of one process's pages on flash.
#[derive(Clone, Debug)]
pub enum Organization {
    /// Changed pages go to the end of a log, whose head is cleaned.
    Log(Log),
    /// Changed pages are written in place.
    InPlace(InPlace),
}

impl Organization {
    /// Counters.
    #[must_use]
    pub fn counters(&self) -> &FlashCounters {
        match self {
            Self::Log(log) => log.counters(),
            Self::InPlace(in_place) => &in_place.counters,
        }
    }

    /// In a forked child: resets the counters.
    pub fn reset_counters(&mut self) {
        match self {
            Self::Log(log) => log.reset_counters(),
            Self::InPlace(in_place) => in_place.counters = FlashCounters::default(),
        }
    }

    /// A page no longer needs its copy on flash.
    pub fn release(&mut self, clusters: &mut impl ClusterSource, at: Location, shape: Shape) {
        match self {
            Self::Log(log) => log.release(clusters, at, shape),
            Self::InPlace(in_place) => in_place.release(clusters, at, shape),
        }
    }

    /// After a fork, in both processes: neither overwrites pages of the other.
    pub fn forked(&mut self, clusters: &mut impl ClusterSource) {
        match self {
            Self::Log(log) => log.forked(clusters),
            Self::InPlace(in_place) => in_place.forked(clusters),
        }
    }
}
