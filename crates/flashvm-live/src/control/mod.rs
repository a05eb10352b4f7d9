//! Shared by the processes of one run: settings, budget, commit accounting, clusters, counters.
//!
//! `flashvm run` creates one *control region*, a sealed memfd, and every process of the run maps it.
//! It exists because the budget, the store and the summary belong to the process *tree*, while each
//! process pages on its own. Everything in it is atomic, without locks: a process may be killed at
//! any instruction. The run's count and the owner's mark cannot always change in one step. A kill between the two steps
//! leaks what they were moving (a cluster, frames, commitments) until the run ends, and never gives anything two
//! owners.
//!
//! After [`Control::attach`] and [`Control::register`], functions allocate only if their documentation says so: a
//! forked child calls them before it may call `malloc`.
//!
//! - `layout`: the layout of the region;
//! - `address`: how a program finds it; `settings`: the settings of the run; `place`: where the store
//!   is; `nbd`: a server that has it; `mirror`: what the processes know together of a mirror's sides;
//!   `sides`: of those of a stripe or a tier; `tier`: where the chunks of a tier are;
//! - `process`: a process's slot through fork, exec and death;
//! - `budget`: the frames that a process uses and holds; `shared_frames`: frames that processes share since a fork;
//! - `commitments`: room for every page, promised before a program gets the page;
//! - `clusters`: which process holds which clusters of the store; `holders`: the counts and bitmaps
//!   of shared frames and clusters;
//! - `record`: counters, command and reasons of a process; `stats`: the counters; `histogram`: latencies;
//! - `orders`: requests to a device model, which runs in the supervisor;
//! - `decisions`: the last decisions of a process's pager;
//! - `journal`: what a report shows of pages and stacks;
//! - `reference_trace`: the records of `--trace`;
//! - `reaper`: notices dead processes, and returns what they held;
//! - `observer`: a view of the region from outside the run.

mod address;
mod budget;
mod clusters;
mod commitments;
mod decisions;
mod histogram;
mod holders;
mod journal;
mod layout;
mod mirror;
mod nbd;
mod observer;
mod orders;
mod place;
mod process;
mod reaper;
mod record;
pub mod reference_trace;
mod settings;
mod shared_frames;
mod sides;
mod stats;
mod tier;

#[cfg(test)]
mod tests;

use flashvm_core::{Nanos, PAGE_SIZE, WriteLimit};
use layout::Region;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::ProtFlags;
use rustix::thread::{Timespec, futex};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use address::{Descriptors, NotAnAddress, RunAddress, STORES_MAX, Stores};
pub use clusters::SharedClusters;
pub(crate) use decisions::LineText;
pub use decisions::{DecisionLevel, DecisionLine};
pub use histogram::{Histogram, LatencyHistogram};
pub use journal::{Interrupted, JournalReader, Sampled, Sight, Sighting, StackSample};
pub use mirror::{MirrorCounter, MirrorCounters, MirrorState, UNIT_PAGES};
pub use nbd::{NbdAddress, NbdServer};
pub use observer::{Observer, ProcessReading, RunReading};
pub use orders::{Asked, Ticket, Work};
pub use place::{ServedSide, SidePlace, StorePlace};
pub use process::{Process, own_pid, own_pid_in, proc_folder};
pub use reaper::{ProcessRecord, Reaper};
pub use settings::{
    ChameleonSettings, FOLLOWED_MAX, Followed, HugePages, Inject, Malloc, ModelSettings,
    RunSettings, Select,
};
pub use shared_frames::SharedFrame;
pub use sides::{SideCounters, SidesState};
pub use stats::{Deliveries, ProcessStats, StatsSnapshot};
pub use tier::{
    CHUNK_PAGES, ChunkWord, SPARE_CHUNKS, TierCounter, TierCounters, TierState, WritingChunk,
};

/// The environment variable through which a program finds its run: a [`RunAddress`].
pub const VARIABLE: &str = "FLASHVM_CONTROL";

/// The name of the region's memfd, by which [`Observer`]s find runs in `/proc`.
pub const MEMFD_NAME: &str = "flashvm-control";

/// Most processes that a run can have at a time, the dead ones included until the reaper has their counters.
pub const PROCESS_SLOTS: u32 = 1024;

/// Lower bound of [`Process::limit`], however many processes there are.
pub const LIMIT_FRAMES_MIN: u32 = 64;

/// How the processes of a run map the region.
const SHARED: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Why the control region could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// The call and its purpose.
        what: &'static str,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
    /// The descriptor is not a control region, or one of another version.
    #[error("not a control region of this version of flashvm")]
    Foreign,
    /// The settings are invalid, or do not fit into their area.
    #[error("{0}")]
    Settings(String),
    /// All process slots are taken.
    #[error("more than {PROCESS_SLOTS} processes in one run")]
    Full,
    /// All numbers of frames that processes share are taken.
    #[error(
        "no more frames can be shared in this run: give it a smaller --ram, or fork with less in RAM"
    )]
    SharedFrames,
    /// Budget and store together have no room for a copy of a process's memory.
    #[error("budget and flash store have no room for another copy of this process")]
    Commit,
    /// This process cannot name the supervisor, nor the supervisor this process.
    #[error(
        "a program in a pid namespace of its own cannot join the run: start flashvm run inside of it"
    )]
    PidNamespace,
    /// The supervisor has taken the process slot back; another process may have it by now.
    #[error("the supervisor took this process for dead and returned its memory to the run")]
    Stale,
}

/// Sleeps while `word` is `seen`, at most `timeout`; may return early.
fn wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // Shared, because the waker may be another process. Every result (woken, EAGAIN, EINTR,
    // ETIMEDOUT) means the same to the caller: check the word again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

/// Wakes all that sleep on `word`.
fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Converts an error number to an [`Error`] that says what failed.
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
    /// Invalid settings; memory that the kernel refuses.
    pub fn create(settings: &RunSettings) -> Result<(Self, OwnedFd), Error> {
        let sizes = settings.sizes()?;
        let json = serde_json::to_vec(settings).map_err(|e| Error::Settings(e.to_string()))?;
        let fd =
            rustix::fs::memfd_create(MEMFD_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, sizes.size as u64).map_err(os("ftruncate of a memfd"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(os("sealing a memfd"))?;
        let region = Region::map(fd.as_fd(), sizes, SHARED)?;
        region.initialise(&json)?;
        Ok((Self { region }, fd))
    }

    /// Maps the region behind `fd`; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`Error::Foreign`] if this is no control region of this version; memory that the kernel refuses.
    pub fn attach(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        Ok(Self {
            region: Region::attach(fd, SHARED)?,
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
        self.region.sizes().budget_frames
    }

    /// Slots of the store, whole clusters only.
    #[must_use]
    pub fn store_slots(&self) -> u32 {
        self.region.sizes().slots()
    }

    /// All clusters of the store, and the free ones among them.
    #[must_use]
    pub fn clusters(&self) -> (u32, u32) {
        let free = self.region.header().clusters_free.load(Ordering::Relaxed);
        (self.region.sizes().clusters, free)
    }

    /// Slots of a cluster.
    #[must_use]
    pub fn cluster_pages(&self) -> u32 {
        self.region.sizes().cluster_pages
    }

    /// Refuses a process whose pid namespace differs from the supervisor's: there the process ids of the run name other
    /// processes, or none.
    ///
    /// # Errors
    /// [`Error::PidNamespace`]; or `/proc` is not mounted.
    pub fn check_pid_namespace(&self) -> Result<(), Error> {
        let ours = self.region.header().pid_namespace.load(Ordering::Relaxed);
        if process::pid_namespace()? == ours {
            Ok(())
        } else {
            Err(Error::PidNamespace)
        }
    }

    /// Pages committed by all processes together, and their bound.
    #[must_use]
    pub fn committed_pages(&self) -> (u64, u64) {
        let header = self.region.header();
        (
            header.committed.load(Ordering::Relaxed),
            self.region.sizes().commit_pages_max(),
        )
    }

    /// Sets the number of bytes at the start of the store that have space on the disk; processes
    /// allocate more as they need it. Called before the first process starts.
    pub fn set_backed(&self, bytes: u64) {
        let slots = (bytes / PAGE_SIZE as u64).min(u64::from(self.store_slots()));
        let backed = &self.region.header().backed;
        backed.store(slots as u32, Ordering::Release);
    }

    /// Whether the disk ever had no space when the store needed more.
    #[must_use]
    pub fn disk_was_full(&self) -> bool {
        self.region.header().disk_refusals.load(Ordering::Relaxed) > 0
    }

    /// Frames that all processes of the run use, each shared frame once.
    #[must_use]
    pub fn used_frames(&self) -> u32 {
        self.region.header().used.load(Ordering::Relaxed)
    }

    /// Maximum of [`Self::used_frames`].
    #[must_use]
    pub fn used_frames_max(&self) -> u32 {
        self.region.header().used_max.load(Ordering::Relaxed)
    }

    /// Accounts for a write of this many bytes at `now`; returns when it may begin.
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

    /// Use of the write limit's burst by the run, in percent: writes wait at 100.
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

    /// Makes every process of the run check its limit.
    pub fn raise_pressure(&self) {
        let pressure = &self.region.header().pressure;
        pressure.fetch_add(1, Ordering::Release);
        wake(pressure);
    }
}
