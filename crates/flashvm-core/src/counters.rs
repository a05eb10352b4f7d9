//! What the engine counts. Figures are exact unless their line says otherwise; none is estimated.

use serde::{Deserialize, Serialize};

/// Sums since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Faults on absent, stored, shadow or incoming pages, each counted once.
    pub faults_total: u64,
    /// Those that needed a read from flash, issued for them.
    pub faults_major: u64,
    /// Those that met a read already under way by prefetch.
    pub faults_waited: u64,
    /// Those that found the page in the shadow.
    pub faults_soft: u64,
    /// Those served with a zero-filled frame.
    pub faults_zero: u64,
    /// First stores to write-protected pages.
    pub faults_write_protect: u64,
    /// Faults on pages that were mapped by the time they were handled.
    pub faults_spurious: u64,
    /// Faults that had to wait for a frame.
    pub faults_stalled: u64,
    /// Pages read from flash without error.
    pub pages_in: u64,
    /// Pages written to flash without error.
    pub pages_out: u64,
    /// Read requests issued.
    pub reads: u64,
    /// Write requests issued.
    pub writes: u64,
    /// Pages that were not written because they hold only zeros.
    pub zero_pages_skipped: u64,
    /// Pages that came back without a read because they hold only zeros.
    pub zero_pages_not_read: u64,
    /// Dirty pages that were passed over in the search for victims.
    pub sampled: u64,
    /// Discard commands that ended well.
    pub discard_commands: u64,
    /// Slots in those.
    pub discard_pages: u64,
    /// Time from sending them until they ended, in nanoseconds.
    pub discard_ns: u64,
    /// Free clusters that were left to be overwritten.
    pub discards_elided: u64,
    /// Discard commands that the device refused; none is sent after the first.
    pub discards_refused: u64,
    /// Absent pages mapped ahead of a run of faults that fills memory; not counted as prefetch.
    pub zero_ahead: u64,
    /// Frames taken from pages that were not stored to since they came in.
    pub evicted_clean: u64,
    /// Frames taken from pages that were stored to since they came in.
    pub evicted_dirty: u64,
    /// Pages read ahead of a fault.
    pub prefetch_issued: u64,
    /// Of those, the ones that were used: exact for pages put into the shadow. A page mapped by
    /// a trusted stream counts once the stream is known to have moved past it, or at its first
    /// store or its return from the shadow.
    pub prefetch_used: u64,
    /// Of those, the ones that left RAM without being known to have been used.
    pub prefetch_wasted: u64,
    /// Most frames ever in use.
    pub resident_pages_max: u64,
    /// Pages whose write failed.
    pub write_errors: u64,
    /// Pages whose read failed.
    pub read_errors: u64,
    /// Slots taken out of use.
    pub slots_bad: u64,
    /// Pages whose move into the shadow was refused.
    pub refused: u64,
    /// Reference bits cleared: moves into the shadow that were not evictions.
    pub unreferenced: u64,
    /// Pages given up by the program.
    pub zapped: u64,
}
