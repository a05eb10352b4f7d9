//! What a program sees of its own paging while it runs: `flashvm_stats` of `flashvm.h`.

use super::Pager;
use flashvm_core::PAGE_SIZE;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of this process since it started, and amounts at this moment. The layout is that of `struct flashvm_stats` in
/// `include/flashvm.h`: fields are only ever added at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Statistics {
    /// Faults, first stores to write-protected pages left out.
    pub faults: u64,
    /// Of these: faults that read from flash.
    pub major: u64,
    /// Of these: faults on pages that were compressed in RAM.
    pub pool: u64,
    /// Of these: faults on pages that were in RAM, and out of the program's reach.
    pub soft: u64,
    /// Of these: first touches.
    pub zero: u64,
    /// Bytes read from flash.
    pub read_bytes: u64,
    /// Bytes written to flash.
    pub written_bytes: u64,
    /// RAM of this process's pages, compressed ones included.
    pub resident_bytes: u64,
    /// The most that `resident_bytes` has been.
    pub resident_bytes_max: u64,
    /// Of `resident_bytes`: RAM of compressed pages.
    pub pool_bytes: u64,
    /// Space of this process on flash.
    pub flash_bytes: u64,
    /// RAM that all processes of the run share: `--ram`.
    pub budget_bytes: u64,
    /// Memory that this process has locked.
    pub locked_bytes: u64,
}

impl Pager {
    /// What this process has done and holds. Takes no lock: the figures are from slightly different moments.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (stats, pages) = (self.process.stats(), PAGE_SIZE as u64);
        let gauges = stats.gauges();
        let sum = |counters: &[&AtomicU64]| {
            let values = counters.iter().map(|one| one.load(Ordering::Relaxed));
            values.sum::<u64>()
        };
        Statistics {
            faults: sum(&[&stats.faults_total, &stats.svmp_faults]),
            major: sum(&[&stats.faults_major, &stats.svmp_major]),
            pool: sum(&[&stats.faults_pool]),
            soft: sum(&[&stats.faults_soft, &stats.svmp_soft]),
            zero: sum(&[&stats.faults_zero, &stats.svmp_fresh]),
            read_bytes: sum(&[
                &stats.bytes_read,
                &stats.svmp_bytes_in,
                &stats.log_bytes_cleaned,
            ]),
            written_bytes: sum(&[&stats.bytes_written, &stats.log_bytes_written]),
            resident_bytes: u64::from(self.process.resident()) * pages,
            resident_bytes_max: sum(&[&stats.resident_pages_max]) * pages,
            pool_bytes: gauges.pool_frames * pages,
            flash_bytes: gauges.slots_used * pages,
            budget_bytes: u64::from(self.control.budget_frames()) * pages,
            locked_bytes: gauges.locked_pages * pages,
        }
    }
}
