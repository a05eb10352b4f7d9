//! Makes the pager of a process that starts, and the parts of it that a forked child needs as well.

use super::actions::LivePlacement;
use super::inline::ResolvedCount;
use super::pool::{Compressor, Inflater, PoolMemory};
use super::synchronous::copied_together;
use super::workers::{Crew, Workers};
use super::{Freeze, LiveEngine, Locked, PAGER, Pager, SPAN_PAGES, buffers, decisions, share};
use crate::Error;
use crate::chameleon::Chameleon;
use crate::control::{Control, HugePages, LIMIT_FRAMES_MIN, Process, RunSettings};
use crate::flash::demand::DemandQueues;
use crate::flash::{FlashStore, Layer, Place, Setup, Store, file_limit};
use crate::mappings::Mappings;
use crate::record::{Recorder, Tracer};
use crate::space::{Older, Space};
use crate::sys::descriptors::{self, PagerFd};
use crate::sys::mapping_budget::{mappings_allowed, mappings_most};
use crate::sys::spare_descriptors;
use crate::sys::thread;
use flashvm_core::grant::{Grant, Reserve};
use flashvm_core::record::RecordingClusters;
use flashvm_core::{Engine, EngineConfig, PAGE_SIZE, PageId};
use rustix_futex_sync::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tracing::info;

/// Why there is no heap of small pages in handler mode.
const HANDLER_MODE: &str = "--granularity 512 needs inline mode: leave --fault handler out";

/// What this process has inherited from `flashvm run`.
#[derive(Debug)]
pub struct Inheritance {
    /// The shared control region.
    pub control: Control,
    /// The settings of the run, from the region.
    pub settings: RunSettings,
    /// The files or devices of the flash store, open for direct I/O, as many as the settings name.
    pub stores: Vec<OwnedFd>,
    /// The supervisor, as a pidfd: when it dies, so does this process.
    pub supervisor: OwnedFd,
    /// The program, for the summary.
    pub command: String,
}

/// Starts the pager of this process.
///
/// # Errors
/// The kernel lacks or refuses something, or the settings are wrong.
pub fn start(inheritance: Inheritance) -> Result<&'static Pager, Error> {
    let Inheritance {
        control,
        mut settings,
        stores,
        supervisor,
        command,
    } = inheritance;
    let stores = stores
        .into_iter()
        .map(descriptors::keep)
        .collect::<Result<Vec<_>, _>>();
    let stores = stores.map_err(Error::memory("descriptor"))?;
    let supervisor = PagerFd::keep(supervisor).map_err(Error::memory("descriptor"))?;
    let proc_folder = crate::control::proc_folder()?;
    let proc_folder = PagerFd::keep(proc_folder).map_err(Error::memory("descriptor"))?;
    let pid = crate::control::own_pid_in(&proc_folder)?;
    let delivery = settings.delivery;
    let older = Older {
        no_move: settings.no_move,
        no_markers: settings.no_markers,
    };
    let mut mappings = mappings_most(mappings_allowed());
    if settings.chameleon.is_some() {
        mappings /= 2;
    }
    let space = Space::open(SPAN_PAGES, delivery, older, mappings)?;
    if let Some(small) = &mut settings.chameleon
        && space.takes_mappings()
    {
        small.overlays = Some(small.overlays.map_or(mappings, |asked| asked.min(mappings)));
    }
    let process = control.register(pid, &command)?;
    let config = EngineConfig {
        pages: SPAN_PAGES,
        slots: control.store_slots(),
        frames: LIMIT_FRAMES_MIN,
        shadow: space.has_shadow(),
        protects: space.protects(),
        copies_back: space.moves_pages(),
        settings: settings.engine.clone(),
    };
    let record = settings.record.as_deref();
    let recorder = record
        .map(|path| Recorder::create(path, pid, &config))
        .transpose()?;
    let trace = settings.trace.as_deref();
    let tracer = trace.map(|path| Tracer::open(path, pid)).transpose()?;
    let clusters = RecordingClusters::new(process.clusters());
    let mut engine =
        Engine::new(config, clusters).map_err(|error| Error::Settings(error.to_string()))?;
    if settings
        .device_model
        .is_some_and(|model| model.hears_of_frees)
    {
        engine.log_freed();
    }
    if let Some(followed) = &settings.follow
        && followed.program == command
        && process.is_first_to_follow()
    {
        engine.follow(order_in(&followed.path).map_err(|source| Error::Order {
            path: followed.path.clone(),
            source,
        })?);
    }
    let small_frames = settings.chameleon.map_or(0, |_| control.budget_frames());
    let place = Place::of(&settings.store, stores, process);
    let store = FlashStore::open(Setup {
        place,
        slots: control.store_slots(),
        modelled: settings.device_model.map(|_| process),
        without_ring: settings.no_uring,
        inject: settings.inject,
        encrypt: settings.encrypt,
    })?;
    let frames_bytes = u64::from(small_frames) * PAGE_SIZE as u64;
    let file_bytes = file_limit::needed(store.geometry(), frames_bytes).map_err(Error::Settings)?;
    let file_bytes = file_bytes.max(space.file_bytes());
    process.take_space_from(store.space());
    let chameleon = settings
        .chameleon
        .map(|_| start_heap(&settings, &control, &process, &store, pid))
        .transpose()?;
    let pool = settings
        .engine
        .compress
        .is_on()
        .then(|| PoolMemory::reserve(control.store_slots(), control.budget_frames()))
        .transpose()
        .map_err(Error::memory("address space of compressed pages"))?;
    let grant = Grant::new(Reserve {
        least: LIMIT_FRAMES_MIN,
        read_buffers: buffers::pages_of_run(control.budget_frames()),
    });
    // Before any other thread can take frames for this process.
    process.await_first_frames(&supervisor);
    let codec = settings.engine.compress.codec();
    let pager = Pager {
        demand: DemandQueues::new(control.budget_frames()),
        resolved_count: ResolvedCount::default(),
        changed: Condvar::new(),
        workers: Workers::new().map_err(Error::memory("eventfd"))?,
        pressure_at_start: control.pressure(),
        compressor: Mutex::new(codec.map(|codec| Compressor::new(codec, copied_together(&space)))),
        inflater: codec.map(|codec| Mutex::new(Inflater::new(codec))),
        locked: Mutex::new(Locked::new(engine, grant, recorder, tracer)),
        mappings: Mappings::new(SPAN_PAGES, settings.huge_pages == HugePages::Always),
        space,
        delivery,
        store,
        file_bytes,
        settings,
        control,
        process,
        supervisor,
        proc_folder,
        chameleon,
        pool,
    };
    let pager = pager.install();
    decisions::begin(pager.settings.decisions);
    info!(mode = ?delivery, slots = pager.control.store_slots(), "the pager starts");
    #[cfg(target_arch = "x86_64")]
    if delivery.is_in_thread() {
        crate::sys::unseen::begin().map_err(Error::Threads)?;
    }
    pager.start_threads().map_err(Error::Threads)?;
    thread::await_begun();
    pager.look_at_limit(&mut pager.lock());
    Ok(pager)
}

/// The pages of an order.
fn order_in(path: &Path) -> std::io::Result<Vec<PageId>> {
    let bytes = std::fs::read(path)?;
    let pages = bytes.as_chunks().0.iter();
    Ok(pages
        .map(|&page| PageId(u32::from_ne_bytes(page)))
        .collect())
}

fn start_heap(
    settings: &RunSettings,
    control: &Control,
    process: &Process,
    store: &FlashStore,
    pid: u32,
) -> Result<Chameleon, Error> {
    let chameleon = settings.chameleon.expect("asked for");
    if !settings.delivery.is_in_thread() {
        return Err(Error::Settings(HANDLER_MODE.to_owned()));
    }
    let config = Chameleon::config(chameleon, control.budget_frames(), control.clusters().0);
    let record = settings.record.as_deref().map(|path| {
        let path = PathBuf::from(format!("{}.small", path.display()));
        Recorder::create(&path, pid, &config)
    });
    Chameleon::new(
        chameleon,
        config,
        process,
        store.below().geometry().unit,
        record.transpose()?,
    )
    .map_err(Error::memory("the heap of small pages"))
}

impl Pager {
    /// Makes this the pager of this process, before its threads start.
    pub(super) fn install(self) -> &'static Self {
        self.process.stats().set_delivery(self.delivery);
        spare_descriptors::stock();
        let pager: &'static Self = Box::leak(Box::new(self));
        PAGER.store(std::ptr::from_ref(pager).cast_mut(), Ordering::Release);
        pager
    }
}

impl Locked {
    fn new(
        engine: LiveEngine,
        grant: Grant,
        recorder: Option<Recorder>,
        tracer: Option<Tracer>,
    ) -> Self {
        Self {
            engine,
            events: VecDeque::with_capacity(64),
            actions: Vec::with_capacity(1024),
            placement: LivePlacement::default(),
            to_read: VecDeque::with_capacity(256),
            to_clean: VecDeque::with_capacity(64),
            reads: HashMap::with_capacity(256),
            scanned: None,
            buffers: None,
            freeze: Freeze::No,
            crew: Crew::Starting,
            fork: None,
            recorder,
            tracer,
            grant,
            shares: share::Shares::default(),
            checks: 0,
            slots_bad: 0,
            open: 0,
            scans: 0,
        }
    }

    /// In a forked child, whose process slot is `process`: resets the state that belongs to the parent alone.
    pub(super) fn become_child(&mut self, process: Process, pid: u32) -> Result<(), Error> {
        *self.engine.clusters_mut().inner_mut() = process.clusters();
        self.engine.reset_counters();
        let recorder = self.recorder.take().map(|recorder| recorder.for_child(pid));
        self.recorder = recorder.transpose()?;
        if let Some(tracer) = &mut self.tracer {
            tracer.forked(pid)?;
        }
        self.placement.forked();
        self.crew = Crew::Starting;
        self.grant.become_child();
        self.buffers = None;
        Ok(())
    }
}
