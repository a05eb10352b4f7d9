//! The engine's counters. They are exact unless their line says otherwise; none is estimated.

use serde::{Deserialize, Serialize};

/// Sums since the engine was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// All faults except write-protect faults. A fault that waits counts once.
    pub faults_total: u64,
    /// Faults that issued a read from flash.
    pub faults_major: u64,
    /// Faults on a page that prefetch was already reading.
    pub faults_waited: u64,
    /// Faults that found the page in the shadow.
    pub faults_soft: u64,
    /// Faults on compressed pages in RAM.
    pub faults_pool: u64,
    /// Faults served with a zero-filled frame.
    pub faults_zero: u64,
    /// Of these, faults that filled a huge page: 2 MiB.
    pub huge_pages: u64,
    /// Stores to write-protected pages.
    pub faults_write_protect: u64,
    /// Faults that had to wait for a frame.
    pub faults_stalled: u64,
    /// Slots read from flash without error. A block of the pool that is read back counts whole.
    pub pages_in: u64,
    /// Pages written to flash without error.
    pub pages_out: u64,
    /// Read requests issued.
    pub reads: u64,
    /// Write requests issued.
    pub writes: u64,
    /// Pages not written because they hold only zeros.
    pub zero_pages_skipped: u64,
    /// Pages that left without a write, since a comparison found them unchanged.
    pub pages_unchanged: u64,
    /// Pages restored without a read because they hold only zeros.
    pub zero_pages_not_read: u64,
    /// Dirty pages skipped in the search for victims.
    pub sampled: u64,
    /// Successful discard commands.
    pub discard_commands: u64,
    /// Slots of those commands.
    pub discard_pages: u64,
    /// Time from a command to its end, summed, in nanoseconds.
    pub discard_ns: u64,
    /// Free clusters that were left to be overwritten.
    pub discards_elided: u64,
    /// Discard commands that the device refused; no command follows the first refusal.
    pub discards_refused: u64,
    /// Frames freed from pages without a store since they came in.
    pub evicted_clean: u64,
    /// Frames freed from pages with a store since they came in.
    pub evicted_dirty: u64,
    /// Pages brought in ahead of a fault, from flash or from the pool, or kept when they were about to leave.
    pub prefetch_issued: u64,
    /// Of these, pages of the pool: no I/O.
    pub prefetch_pool: u64,
    /// Pages read ahead that were used: exact for pages put into the shadow. A page mapped by a
    /// trusted stream counts once the stream is known to have passed it, at its first store, or at
    /// its return from the shadow.
    pub prefetch_used: u64,
    /// Pages read ahead that left RAM without a known use.
    pub prefetch_wasted: u64,
    /// Pages that were compressed into the pool.
    pub pool_pages: u64,
    /// Their compressed bytes.
    pub pool_bytes: u64,
    /// Scanned pages that did not go to the pool: not compressed, too large, or without room there.
    pub pool_refused: u64,
    /// Blocks of the pool that were written to flash; `pages_out` counts their slots.
    pub pool_blocks_out: u64,
    /// Largest number of frames in use, shared ones included.
    pub resident_pages_max: u64,
    /// Pages whose write failed.
    pub write_errors: u64,
    /// Pages whose read failed.
    pub read_errors: u64,
    /// Slots taken out of use.
    pub slots_bad: u64,
    /// Pages whose move into the shadow was refused.
    pub refused: u64,
    /// Reference bits cleared: moves into the shadow other than evictions.
    pub unreferenced: u64,
    /// Pages zapped by the program: `munmap`, `MADV_DONTNEED`.
    pub zapped: u64,
}
