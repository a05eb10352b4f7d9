//! What the engine holds now. Unlike counters, gauges go up and down.

use serde::Serialize;

/// Amounts at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauges {
    /// Slots in use, including the slots of pages of zeros and of the pool's blocks.
    pub slots_used: u64,
    /// Frames that the pool takes.
    pub pool_frames: u64,
    /// Compressed pages in these frames.
    pub pool_pages_held: u64,
    /// Frames that the pool may take; 0 while pages are not compressed.
    pub pool_share_frames: u64,
    /// Mean time of a read from flash in nanoseconds, recent reads weighing most; 0 before the first one.
    pub read_time_ns: u64,
    /// Pages that the program has locked (`mlock`).
    #[serde(default)]
    pub locked_pages: u64,
}
