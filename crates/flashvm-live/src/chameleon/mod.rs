//! Chameleon in a live process: a heap of virtual pages of 512 bytes to 4 KiB, packed into frames, on a log.
//!
//! The heap's address range is a *hole* without mappings. A virtual page that is mapped in RAM is an *overlay*:
//! its frame, a page of a memfd, is mapped at its address. One `munmap` unmaps it. After that no thread can
//! store to it, and an access raises SIGSEGV, which the accessing thread resolves here.
//!
//! `flashvm_core::chameleon::Engine` makes all decisions, including who waits. This module locks the engine,
//! gives it memory to work on (`host`), and makes threads read, write and sleep (`carry_out`).
//!
//! - `hole`: the address range, and the kernel's limit on mappings; `places`: numbers of pages and frames as addresses;
//! - `host`: mapping, copying, checksums; `flash`: reads and writes;
//! - `fork`: the child's copy.
//!
//! Safety argument: this module accesses frames through one mapping of the memfd (`Places::frames`), which exists as long
//! as the process. It accesses a page's range of a frame only while the page is unmapped, and only with the
//! engine locked or the page marked as being read, so neither the program nor another thread of the pager
//! accesses the range at that time. It never touches ranges of other pages in the same frame.
//!
//! Inline mode only: handler mode has no handler for SIGSEGV.

mod flash;
mod fork;
mod hole;
mod host;
mod owner;
mod places;

pub use flashvm_core::chameleon::{PageList, RUN_PAGES};
pub(crate) use fork::ForkedFrames;

use crate::control::{ChameleonSettings, Process, SharedClusters};
use crate::record::Recorder;
use crate::space::Resolution;
use crate::sys::descriptors::PagerFd;
use crate::sys::map;
use crate::sys::mapping_budget::{mappings_allowed, mappings_most};
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::engine::PINNED_PAGES_MAX;
use flashvm_core::chameleon::record::{RecordingHost, Step};
use flashvm_core::chameleon::{Action, Config, Engine, Event, Outcome, Request, SIZES, Svmp, Task};
use flashvm_core::record::RecordingClusters;
use host::LiveHost;
pub(crate) use owner::Owner;
use places::{BUFFERS_BYTES, Places};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix_futex_sync::{Condvar, Mutex, MutexGuard};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Length of a pause that the engine orders.
const PAUSE: Duration = Duration::from_millis(1);

type LiveEngine = Engine<RecordingClusters<SharedClusters>>;

/// State behind the engine's lock.
struct Core {
    engine: LiveEngine,
    recorder: Option<Recorder>,
}

impl Core {
    /// Reports an event of a task to the engine; the first event carries the request.
    fn handle(
        &mut self,
        host: &mut LiveHost<'_>,
        request: Option<&Request>,
        task: &mut Task,
        event: Event,
    ) -> Action {
        let Some(recorder) = &mut self.recorder else {
            let action = self.engine.handle(host, task, event);
            self.engine.clusters_mut().take_log();
            return action;
        };
        let owner = host.owner();
        let mut host = RecordingHost {
            inner: host,
            calls: Vec::new(),
        };
        let action = self.engine.handle(&mut host, task, event);
        let step = Step {
            // A thread has one request at a time.
            task: rustix::thread::gettid().as_raw_nonzero().get() as u64,
            request: request.cloned(),
            event,
            calls: host.calls,
            clusters: self.engine.clusters_mut().take_log(),
            action,
        };
        recorder
            .append(&step)
            .unwrap_or_else(|error| owner.die(&error.to_string()));
        action
    }
}

/// The heap of small pages of this process.
pub(crate) struct Chameleon {
    places: Places,
    frames_file: PagerFd,
    settings: ChameleonSettings,
    /// Smallest transfer of the store, in bytes.
    sector_bytes: usize,
    core: Mutex<Core>,
    /// Signalled when the engine announces a change.
    changed: Condvar,
    /// Number of calls for the writer.
    writer_called: AtomicU32,
    /// Frames that the heap may keep; the page pager needs the others. Written with the pager locked.
    pub(crate) target: AtomicU32,
}

impl Chameleon {
    /// Configuration of the engine for a run with `frames` frames and `blocks` blocks.
    pub(crate) fn config(settings: ChameleonSettings, frames: u32, blocks: u32) -> Config {
        // Frames of SSDAlloc's page buffer, one for each of its pages.
        let buffered = settings
            .page_buffer
            .map(|percent| (u64::from(frames) * u64::from(percent) / 100) as u32);
        let allowed = mappings_most(mappings_allowed());
        let asked = buffered.or(settings.overlays);
        Config {
            frames_most: frames - buffered.unwrap_or(0),
            mappings_most: asked.map_or(allowed, |asked| asked.min(allowed)),
            by_page: buffered.is_some(),
            spill: settings.spill,
            log_structuring: settings.log_structuring,
            blocks,
            budget_bytes: u64::from(frames) * PAGE_SIZE as u64,
        }
    }

    /// Creates an empty heap on a store whose smallest transfer is `sector_bytes`.
    ///
    /// # Errors
    /// The kernel's error if it refuses address space, memory or a memfd.
    pub(crate) fn new(
        settings: ChameleonSettings,
        config: Config,
        process: &Process,
        sector_bytes: usize,
        recorder: Option<Recorder>,
    ) -> Result<Self, Errno> {
        let frames_file = new_frames(config.frames_most)?;
        let bytes = config.frames_most as usize * PAGE_SIZE;
        let places = Places {
            frames: map::map_shared(&frames_file, bytes)?,
            frames_most: config.frames_most,
            buffers: map::own(BUFFERS_BYTES)?,
            hole: hole::reserve()?,
        };
        Ok(Self {
            places,
            frames_file,
            sector_bytes,
            settings,
            core: Mutex::new(Core {
                engine: Engine::new(config, RecordingClusters::new(process.clusters())),
                recorder,
            }),
            changed: Condvar::new(),
            writer_called: AtomicU32::new(0),
            target: AtomicU32::new(u32::MAX),
        })
    }

    /// Start address and length in bytes of the heap's address range.
    pub(crate) fn addresses(&self) -> (usize, usize) {
        (self.places.hole, hole::BYTES)
    }

    /// Whether this range overlaps the heap's address range.
    #[inline]
    pub(crate) fn holds(&self, address: usize, len: usize) -> bool {
        let hole = self.places.hole;
        address < hole + hole::BYTES && address.saturating_add(len) > hole
    }

    /// The descriptor of the heap's recording, if there is one.
    pub(crate) fn recording(&mut self) -> Option<RawFd> {
        self.core.get_mut().recorder.as_ref().map(Recorder::file)
    }

    /// The settings of the run.
    pub(crate) fn settings(&self) -> ChameleonSettings {
        self.settings
    }

    /// Carries a request out. Returns with the engine locked.
    fn carry_out(&self, owner: &dyn Owner, request: &Request) -> (MutexGuard<'_, Core>, Outcome) {
        self.run(owner, request, &mut Task::new(request))
    }

    fn run<'a>(
        &'a self,
        owner: &dyn Owner,
        request: &Request,
        task: &mut Task,
    ) -> (MutexGuard<'a, Core>, Outcome) {
        // SAFETY: only `core.handle` has the host, with this heap's engine locked.
        let mut host = unsafe { LiveHost::new(self, owner) };
        let mut core = self.core.lock();
        let (mut event, mut begins) = (Event::Go, Some(request));
        loop {
            let action = core.handle(&mut host, begins.take(), task, event);
            if core.engine.take_announcement() {
                self.changed.notify_all();
            }
            if matches!(event, Event::Written(_)) {
                self.publish(&core.engine, owner);
                self.publish_frames(&core.engine, owner);
            }
            event = Event::Go;
            match action {
                Action::Done(outcome) => return (core, outcome),
                Action::Await => {
                    core = self.changed.wait(core);
                    continue;
                }
                _ => drop(core),
            }
            match action {
                Action::Pause => crate::sys::sleep(PAUSE),
                Action::Read { at, shape, .. } => {
                    // SAFETY: the engine has just returned this action, and hears of the outcome next.
                    event = Event::Read(unsafe { self.read_pages(owner, task, at, shape) });
                }
                Action::ReadBlock(block) => {
                    // SAFETY: the engine has just returned this action, and hears of the outcome next.
                    event = Event::BlockRead(unsafe { self.read_block(owner, block) });
                }
                Action::Write { at, from, bytes } => {
                    // SAFETY: the engine has just returned this action, and hears of the outcome next.
                    event = Event::Written(unsafe { self.write(owner, at, from, bytes) });
                }
                Action::Done(_) | Action::Await | Action::More(_) => unreachable!("seen above"),
            }
            core = self.core.lock();
        }
    }

    /// Reclaims in advance for a few steps while the page of a fault is read. Returns whether more steps are left.
    fn meanwhile(&self, owner: &dyn Owner, task: &mut Task) -> bool {
        // SAFETY: only `core.handle` has the host, with this heap's engine locked.
        let mut host = unsafe { LiveHost::new(self, owner) };
        let mut core = self.core.lock();
        core.handle(&mut host, None, task, Event::Meanwhile) == Action::More(true)
    }

    /// Resolves a fault of the calling thread. The thread runs on a stack outside managed memory, with all
    /// signals blocked except the synchronous ones.
    pub(crate) fn fault(&self, owner: &dyn Owner, address: usize) -> Resolution {
        let Some(page) = self.places.page_at(address) else {
            return Resolution::NotOurs;
        };
        let since = crate::sys::now();
        let (core, outcome) = self.carry_out(owner, &Request::Fault(page));
        self.publish(&core.engine, owner);
        drop(core);
        match outcome {
            Outcome::NotOurs => Resolution::NotOurs,
            Outcome::Lost => Resolution::Lost,
            _ => {
                let taken = crate::sys::now().since(since);
                owner.stats().latency.record(taken.0);
                Resolution::Resolved
            }
        }
    }

    /// Allocates zeroed pages of one shape of `size` bytes.
    ///
    /// # Errors
    /// `ENOMEM` if budget and store have no room, or if the addresses or the budget of mappings are used up.
    /// The caller uses the page pager then.
    pub(crate) fn take_pages(
        &self,
        owner: &dyn Owner,
        size: usize,
        list: &mut PageList,
    ) -> Result<(), Errno> {
        if !SIZES.contains(&size) {
            return Err(Errno::INVAL);
        }
        let request = Request::Take(size);
        let mut task = Task::new(&request);
        let (core, _) = self.run(owner, &request, &mut task);
        self.publish_frames(&core.engine, owner);
        drop(core);
        *list = *task.taken().ok_or(Errno::NOMEM)?;
        Ok(())
    }

    /// Frees pages and drops their contents, without reading them in.
    pub(crate) fn give_pages(&self, owner: &dyn Owner, list: &mut PageList) {
        list.sort();
        let (core, _) = self.carry_out(owner, &Request::Give(*list));
        self.publish(&core.engine, owner);
    }

    /// Pins the pages of a range that belong to the heap, for work of the kernel on them; reads them in first.
    /// Returns the argument of [`Chameleon::unpin`].
    pub(crate) fn pin(&self, owner: &dyn Owner, address: usize, len: usize) -> Option<(Svmp, u32)> {
        if len == 0 || !self.holds(address, len) {
            return None;
        }
        let (places, hole) = (&self.places, self.places.hole);
        let first = places.page_at(address.max(hole))?;
        let last = address.saturating_add(len - 1);
        let last = places.page_at(last.min(hole + hole::BYTES - 1))?;
        let count = (last.0 - first.0 + 1).min(PINNED_PAGES_MAX);
        drop(self.carry_out(owner, &Request::Pin(first, count)));
        Some((first, count))
    }

    /// Unpins pages.
    pub(crate) fn unpin(&self, owner: &dyn Owner, (first, count): (Svmp, u32)) {
        drop(self.carry_out(owner, &Request::Unpin(first, count)));
    }

    /// The largest number of bytes that one call pins.
    pub(crate) const PINNED_BYTES_MAX: usize = PINNED_PAGES_MAX as usize * PAGE_SIZE;

    pub(crate) fn call_writer(&self) {
        self.writer_called.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.writer_called, futex::Flags::PRIVATE, 1);
    }

    /// Body of the writer's thread.
    pub(crate) fn write_behind(&self, owner: &dyn Owner) {
        loop {
            let seen = self.writer_called.load(Ordering::Acquire);
            drop(self.carry_out(owner, &Request::WriteBehind));
            let _ = futex::wait(&self.writer_called, futex::Flags::PRIVATE, seen, None);
        }
    }

    /// Publishes the counters.
    fn publish(&self, engine: &LiveEngine, owner: &dyn Owner) {
        let (stats, counters, flash) = (owner.stats(), engine.counters(), engine.flash_counters());
        let set = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
        set(&stats.svmp_faults, counters.faults);
        set(&stats.svmp_major, counters.major);
        set(&stats.svmp_soft, counters.soft);
        set(&stats.svmp_fresh, counters.fresh);
        set(&stats.svmp_pages_in, counters.read_pages);
        set(&stats.svmp_bytes_in, counters.read_bytes);
        set(&stats.svmp_read_errors, counters.read_errors);
        set(&stats.svmp_evicted_clean, counters.evicted_clean);
        set(&stats.svmp_evicted_dirty, counters.evicted_dirty);
        set(&stats.svmp_zero_pages, counters.zero_pages);
        set(&stats.log_pages, flash.pages_changed);
        set(&stats.log_bytes_changed, flash.bytes_changed);
        set(&stats.log_bytes_written, flash.bytes_written);
        set(&stats.log_bytes_cleaned, flash.bytes_read);
        set(&stats.log_write_errors, flash.write_errors);
        set(&stats.overlays_max, engine.mappings_max().into());
        set(&stats.svmp_table_bytes, engine.table_bytes() as u64);
    }

    /// Publishes what is kept of the frames. It changes while pages are allocated and evicted; the sum is left out at the end
    /// of each fault.
    fn publish_frames(&self, engine: &LiveEngine, owner: &dyn Owner) {
        let (frames, bytes) = engine.frame_bytes();
        let stats = owner.stats();
        stats.svmp_frames.store(frames.into(), Ordering::Relaxed);
        stats
            .svmp_frame_bytes
            .store(bytes as u64, Ordering::Relaxed);
    }
}

/// Creates a memfd for `frames` frames, which takes memory as they are used.
fn new_frames(frames: u32) -> Result<PagerFd, Errno> {
    let bytes = u64::from(frames) * PAGE_SIZE as u64;
    PagerFd::open(|| map::memory_file("flashvm-frames", bytes))
}
