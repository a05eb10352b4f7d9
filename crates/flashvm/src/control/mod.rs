//! What the processes of one run share: settings, budget, commit accounting, clusters, counters.
//!
//! `flashvm run` creates one *control region*, a sealed memfd without a name, and every process
//! of the run maps it. It exists because the budget, the store and the summary belong to the
//! process *tree*, while each process pages on its own. Everything in it is atomics: a process
//! may be killed at any instruction, so there is no lock that it could take with it. Where a
//! count and its owner's mark cannot change in one step, the order is such that a kill in
//! between leaks one cluster or one page of the account until the run ends, and never gives
//! anything to two owners.
//!
//! Nothing here allocates after [`Control::attach`] and [`Control::register`], so that a
//! forked child may use it before it may call `malloc`.
//!
//! - `layout`: what lies where in the region;
//! - `settings`: what was asked for on the command line;
//! - `process`: a process's slot: limit, commit, fork, retirement;
//! - `clusters`: which process holds which clusters of the store; `frames`: the frames shared since a fork;
//!   `holders`: the counts and bitmaps of both;
//! - `reference_trace`: the records of `--trace`;
//! - `orders`: requests to a device model, which the supervisor has;
//! - `stats`: counters and the latency histogram;
//! - `reaper`: the supervisor's look at the process slots, which gives back what the dead held.

mod clusters;
mod frames;
mod holders;
mod layout;
mod orders;
mod process;
mod reaper;
pub mod reference_trace;
mod settings;
mod stats;

#[cfg(test)]
mod tests;

use flashvm_core::{Nanos, PAGE_SIZE, WriteLimit};
use layout::Region;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::{Timespec, futex};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use clusters::SharedClusters;
pub use frames::SharedFrame;
pub use orders::{Asked, Ticket, Work};
pub use process::{Process, own_pid};
pub use reaper::{ProcessRecord, Reaper};
pub use settings::{ChameleonSettings, Inject, ModelSettings, RunSettings};
pub use stats::{Histogram, LatencyHistogram, ProcessStats, StatsSnapshot};

/// The environment variable through which a process finds its run: the supervisor's process id,
/// and there the descriptors of control region and store, as `PID:FD:FD`.
pub const VARIABLE: &str = "FLASHVM_CONTROL";

/// Processes of one run that can be alive, or dead and not yet counted, at the same time.
pub const PROCESS_SLOTS: u32 = 1024;

/// Fewest frames that [`Process::limit`] grants, however many processes there are.
pub const LIMIT_FRAMES_MIN: u32 = 64;

/// Why the control region could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// The call and what it was for.
        what: &'static str,
        /// What the kernel answered.
        source: rustix::io::Errno,
    },
    /// The descriptor is not a control region, or one of another version.
    #[error("not a control region of this version of flashvm")]
    Foreign,
    /// The settings cannot be used, or do not fit into their area.
    #[error("{0}")]
    Settings(String),
    /// All process slots are taken.
    #[error("more than {PROCESS_SLOTS} processes in one run")]
    Full,
    /// The copy of a process's memory fits into neither RAM budget nor flash store.
    #[error("the flash store is too small for another copy of this process")]
    Commit,
    /// The process slot was given to somebody else in the meantime.
    #[error("this process was taken for dead and its memory given back")]
    Stale,
}

/// Sleeps while `word` is `seen`, at most `timeout`; may return early.
fn wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // Shared, because the waker may be another process. Every result (woken, EAGAIN, EINTR,
    // ETIMEDOUT) means the same to the caller: look at the word again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

/// Wakes all who sleep on `word`.
fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Turns an error number into an [`Error`] that says what failed.
fn os(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |source| Error::Os { what, source }
}

/// A handle to the mapped control region. The mapping lives as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    region: Region,
}

impl Control {
    /// Creates the region of a new run, sized for `settings`, and maps it. The descriptor is
    /// close-on-exec: other processes open it through `/proc`.
    ///
    /// # Errors
    /// Settings that cannot be used; memory that the kernel does not give.
    pub fn create(settings: &RunSettings) -> Result<(Self, OwnedFd), Error> {
        let geometry = settings.geometry()?;
        let json = serde_json::to_vec(settings).map_err(|e| Error::Settings(e.to_string()))?;
        let fd = rustix::fs::memfd_create(
            "flashvm-control",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, geometry.size as u64).map_err(os("ftruncate of a memfd"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(os("sealing a memfd"))?;
        let region = Region::map(fd.as_fd(), geometry)?;
        region.initialise(&json)?;
        Ok((Self { region }, fd))
    }

    /// Maps the region behind `fd`; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`Error::Foreign`] if this is no control region; memory that the kernel does not give.
    pub fn attach(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        Ok(Self {
            region: Region::attach(fd)?,
        })
    }

    /// The settings of the run. Allocates.
    ///
    /// # Errors
    /// [`Error::Settings`] if they were written by another version.
    pub fn settings(&self) -> Result<RunSettings, Error> {
        serde_json::from_slice(&self.region.settings_json())
            .map_err(|e| Error::Settings(format!("settings of the run: {e}")))
    }

    /// Frames that all processes of the run may use together.
    #[must_use]
    pub fn budget_frames(&self) -> u32 {
        self.region.geometry().budget_frames
    }

    /// Slots of the store, whole clusters only.
    #[must_use]
    pub fn store_slots(&self) -> u32 {
        self.region.geometry().slots()
    }

    /// Clusters of the store, and those that nobody has.
    #[must_use]
    pub fn clusters(&self) -> (u32, u32) {
        let free = self.region.header().clusters_free.load(Ordering::Relaxed);
        (self.region.geometry().clusters, free)
    }

    /// Slots of a cluster.
    #[must_use]
    pub fn cluster_pages(&self) -> u32 {
        self.region.geometry().cluster_pages
    }

    /// Pages committed by all processes together, and the most there may be.
    #[must_use]
    pub fn committed_pages(&self) -> (u64, u64) {
        let header = self.region.header();
        (
            header.committed.load(Ordering::Relaxed),
            self.region.geometry().commit_pages_max(),
        )
    }

    /// Says that the disk has space for the first `bytes` of the store only; processes take more as
    /// they need it. Before any of them starts.
    pub fn set_backed(&self, bytes: u64) {
        let slots = (bytes / PAGE_SIZE as u64).min(u64::from(self.store_slots()));
        let backed = &self.region.header().backed;
        backed.store(slots as u32, Ordering::Release);
    }

    /// Whether the disk had no space for more of the store when it was needed.
    #[must_use]
    pub fn disk_was_full(&self) -> bool {
        self.region.header().disk_refusals.load(Ordering::Relaxed) > 0
    }

    /// Frames that all processes of the run use now, each shared frame once.
    #[must_use]
    pub fn used_frames(&self) -> u32 {
        self.region.header().used.load(Ordering::Relaxed)
    }

    /// The most frames that all processes ever used at one time.
    #[must_use]
    pub fn used_frames_max(&self) -> u32 {
        self.region.header().used_max.load(Ordering::Relaxed)
    }

    /// Takes a write of so many bytes at `now` into account: when it may begin.
    pub fn take_write(&self, limit: WriteLimit, now: Nanos, bytes: u64) -> Nanos {
        let writes = &self.region.header().writes;
        let mut state = writes.load(Ordering::Relaxed);
        loop {
            let (next, begin) = limit.take(Nanos(state), now, bytes);
            match writes.compare_exchange_weak(state, next.0, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return begin,
                Err(other) => state = other,
            }
        }
    }

    /// What the run has used of what may be written at once, in percent: writes wait at 100.
    #[must_use]
    pub fn writes_used(&self, limit: WriteLimit, now: Nanos) -> u8 {
        limit.used(
            Nanos(self.region.header().writes.load(Ordering::Relaxed)),
            now,
        )
    }

    /// The pressure word: it changes whenever limits may have changed.
    #[must_use]
    pub fn pressure(&self) -> u32 {
        self.region.header().pressure.load(Ordering::Acquire)
    }

    /// Waits until the pressure word differs from `seen`, at most `timeout`, and returns it.
    /// May return early.
    pub fn wait_pressure(&self, seen: u32, timeout: Duration) -> u32 {
        wait(&self.region.header().pressure, seen, timeout);
        self.pressure()
    }

    /// Frames of the budget that process slots hold or share, and those among them that are shared.
    #[must_use]
    pub fn frames_granted(&self) -> (u32, u32) {
        let header = self.region.header();
        (
            header.granted.load(Ordering::Relaxed),
            header.shared.load(Ordering::Relaxed),
        )
    }

    /// Tells every process of the run to look at its limit again.
    pub fn raise_pressure(&self) {
        let pressure = &self.region.header().pressure;
        pressure.fetch_add(1, Ordering::Release);
        wake(pressure);
    }
}
