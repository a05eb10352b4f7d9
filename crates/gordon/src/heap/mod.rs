//! The heap: [`Heap`] and the rules of sharing it.
//!
//! One lock holds the state. Updates take it exclusively, views share it. Collections run with it
//! held exclusively, between updates, so no program ever observes a move. Waiting for the bank
//! happens outside of it, so commits of several threads share a sync.

mod alloc;
mod backup;
mod collector;
mod commit;
mod cycle;
mod data_segment;
mod durable;
mod export;
mod grow;
mod handles;
mod layout;
mod log;
mod migrate;
mod options;
mod recover;
mod root;
mod shared;
pub mod sidney;
mod state;
mod store_list;
mod transitory;
mod tx;
mod verify;
mod walk;
mod write;

pub use handles::Handle;
pub use layout::{Bandwidths, bandwidths};
pub use options::{Collector, Limits, Options, Report};
pub use state::Counters;
pub use tx::{Tx, View};
pub use verify::Census;
pub use walk::{Statistics, TypeStatistics};

use crate::error::{Error, Result};
use crate::flash::{Bank, BankCounters, FileMedium, Holds, Identity, Medium, MemoryMedium, Model};
use crate::object::Header;
use layout::{identity_for, segment_bytes};
use recover::Check;
use shared::{AbortOnPanic, Doing, Inside, Shared, Wake};
use state::State;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The root object: one pointer, and the schema of its target.
const ROOT: Header = Header::record(true, 1, 1, crate::persist::schema_of("root"));
/// Words from the root's header to its pointer.
const ROOT_POINTER: u64 = 1;
/// A persistent heap. Everything reachable from its root after a commit exists again after a crash.
///
/// ```
/// use gordon::{Heap, Options, Persist, Ref, Text};
///
/// #[derive(Clone, Copy, Persist)]
/// struct Note<'t> {
///     text: Text<'t>,
///     older: Option<Ref<'t, Note<'t>>>,
/// }
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("notes");
/// let heap = Heap::create(&path, 1 << 20, Options::default())?;
/// for text in ["first", "second"] {
///     heap.update(|tx| {
///         let older = tx.root()?;
///         tx.set_root(tx.alloc(Note { text: tx.text(text), older }));
///         Ok(())
///     })?;
/// }
/// drop(heap);
///
/// let heap = Heap::open(&path, Options::default())?;
/// heap.view(|view| {
///     let newest = view.root::<Ref<Note>>()?.unwrap().read();
///     assert_eq!(&*newest.text, "second");
///     assert_eq!(&*newest.older.unwrap().read().text, "first");
///     Ok(())
/// })?;
/// # Ok::<(), gordon::Error>(())
/// ```
#[derive(Debug)]
pub struct Heap {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

impl Heap {
    /// Creates a heap in a new file of about `size` bytes, or on a block device.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the size is out of range.
    pub fn create(path: &Path, size: u64, options: Options) -> Result<Self> {
        Self::create_with_progress(path, size, options, &mut |_, _| {})
    }

    /// As [`Heap::create`]; `progress` gets the bytes written, and the total.
    ///
    /// # Errors
    /// As for [`Heap::create`].
    pub fn create_with_progress(
        path: &Path,
        size: u64,
        options: Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let identity = identity_for(Holds::Heap, size, 0, segment_bytes(size))?;
        let length = identity.length();
        let medium = FileMedium::create(path, length, &mut |done| progress(done, length))?;
        Self::create_on(Arc::new(medium), identity, options)
    }

    /// Opens the heap in a file or on a block device, as of its last commit.
    ///
    /// # Errors
    /// There is none, it is of another version or machine, damaged, or in use; or its addresses are
    /// in use.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        Self::open_on(Arc::new(FileMedium::open(path)?), options)
    }

    /// Makes a heap on an emulated bank of `segments` segments, in memory.
    ///
    /// # Errors
    /// There is not enough memory, or too few segments.
    pub fn emulated(model: Model, segments: u64, options: Options) -> Result<Self> {
        let options = Options {
            model: Some(model),
            ..options
        };
        let segment = model.segment_bytes();
        let identity = identity_for(Holds::Heap, segments * segment, model.ways, segment)?;
        let medium = MemoryMedium::new(identity.length())?;
        Self::create_on(Arc::new(medium), identity, options)
    }

    /// Makes a heap of about `size` bytes on any medium, with segments of `segment_bytes`.
    ///
    /// # Errors
    /// As for [`Heap::create`].
    pub fn create_in(
        make: impl FnOnce(u64) -> Result<Arc<dyn Medium>>,
        size: u64,
        segment_bytes: u64,
        options: Options,
    ) -> Result<Self> {
        let ways = options.model.map_or(0, |model| model.ways);
        let identity = identity_for(Holds::Heap, size, ways, segment_bytes)?;
        Self::create_on(make(identity.length())?, identity, options)
    }

    fn create_on(medium: Arc<dyn Medium>, identity: Identity, options: Options) -> Result<Self> {
        let bank = Bank::create(medium, identity, options.model)?;
        Self::start(State::create(bank, None, options.limits)?, options)
    }

    /// Opens the heap on a medium.
    ///
    /// # Errors
    /// As for [`Heap::open`].
    pub fn open_on(medium: Arc<dyn Medium>, options: Options) -> Result<Self> {
        Self::recover(medium, options, Check::Everything)
    }

    /// Opens the heap in a file or on a block device, as of its last commit, and trusts the bank with data that was stable. So the time
    /// follows the changes since the log was last compacted, and mutable data, not the size of the heap. Data that a crash may have
    /// left incomplete is checked as in [`Heap::open`]. [`Heap::inspect`] checks the rest later.
    ///
    /// # Safety
    /// Since this library wrote the heap nothing has changed it: no other program, and no fault of the device. Otherwise a reference may
    /// point anywhere.
    ///
    /// # Errors
    /// As for [`Heap::open`], except for damage of data that was stable.
    ///
    /// ```
    /// use gordon::{Heap, Options};
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("heap");
    /// Heap::create(&path, 1 << 20, Options::default())?;
    /// // SAFETY: this program alone has just written the heap.
    /// let heap = unsafe { Heap::open_trusted(&path, Options::default())? };
    /// # Ok::<(), gordon::Error>(())
    /// ```
    #[allow(
        unsafe_code,
        reason = "without the checks, soundness rests on the bank"
    )]
    pub unsafe fn open_trusted(path: &Path, options: Options) -> Result<Self> {
        let medium = Arc::new(FileMedium::open(path)?);
        // SAFETY: the caller vouches for the file.
        unsafe { Self::open_trusted_on(medium, options) }
    }

    /// As [`Heap::open_trusted`], on a medium.
    ///
    /// # Safety
    /// As for [`Heap::open_trusted`].
    ///
    /// # Errors
    /// As for [`Heap::open_trusted`].
    #[allow(
        unsafe_code,
        reason = "without the checks, soundness rests on the bank"
    )]
    pub unsafe fn open_trusted_on(medium: Arc<dyn Medium>, options: Options) -> Result<Self> {
        Self::recover(medium, options, Check::Unstable)
    }

    fn recover(medium: Arc<dyn Medium>, options: Options, check: Check) -> Result<Self> {
        let bank = Bank::open(medium, Holds::Heap, options.model)?;
        let mut state = State::recover(bank, None, options.key, options.limits, check)?;
        state.resume()?;
        Self::start(state, options)
    }

    /// Checks every object, pointer and checksum of the heap on a medium: [`Heap::inspect_with`] with [`View::report`].
    ///
    /// # Errors
    /// As for [`Heap::open`].
    pub fn inspect(medium: Arc<dyn Medium>, key: Option<u64>) -> Result<Report> {
        Self::inspect_with(medium, key, |view| view.report())
    }

    fn start(state: State, options: Options) -> Result<Self> {
        let shared = Arc::new(Shared::new(state, options.collector));
        let thread = if options.collector == Collector::Beside {
            let shared = Arc::clone(&shared);
            let spawned = std::thread::Builder::new()
                .name("gordon-collect".to_owned())
                .spawn(move || collector::collect_beside(&shared))
                .map_err(|error| Error::io("starting the collector", error))?;
            Some(spawned)
        } else {
            None
        };
        Ok(Self {
            shared,
            thread,
            closed: false,
        })
    }

    /// Changes the heap and commits: the changes are stable when this returns. If `change` returns
    /// an error or panics, all changes since the last commit are undone.
    ///
    /// Updates of several threads run one after the other, and wait for the bank together.
    ///
    /// # Errors
    /// That of `change`; or there is no room, and nothing has changed; or the bank failed, and the
    /// heap must be opened again.
    pub fn update<R>(&self, change: impl FnOnce(&Tx<'_>) -> Result<R>) -> Result<R> {
        let _inside = Inside::enter(self.shared.id, "an update")?;
        let mut state = AbortOnPanic(self.shared.write(), Doing::Change);
        state.0.check_failed()?;
        let changed = change(&Tx::new(&mut state.0));
        state.1 = Doing::Work;
        let committed = changed.and_then(|result| Ok((result, state.0.commit()?)));
        match committed {
            Ok((result, sequence)) => {
                let durable = Arc::clone(&state.0.durable);
                self.shared.after_commit(&mut state.0)?;
                drop(state);
                if let Some(sequence) = sequence {
                    durable.wait(sequence)?;
                }
                Ok(result)
            }
            Err(error) => {
                state.0.abort();
                Err(error)
            }
        }
    }

    /// Changes the heap without a commit. Later updates and views see the changes, until
    /// [`Heap::commit`] makes them stable or [`Heap::abort`] undoes them.
    ///
    /// # Errors
    /// That of `change`, and then everything since the last commit is undone; or the heap has failed.
    pub fn run<R>(&self, change: impl FnOnce(&Tx<'_>) -> Result<R>) -> Result<R> {
        let _inside = Inside::enter(self.shared.id, "a change")?;
        let mut state = AbortOnPanic(self.shared.write(), Doing::Change);
        state.0.check_failed()?;
        let changed = change(&Tx::new(&mut state.0));
        state.1 = Doing::Work;
        match changed.and_then(|result| state.0.collect_transitory().map(|()| result)) {
            Ok(result) => Ok(result),
            Err(error) => {
                state.0.abort();
                Err(error)
            }
        }
    }

    /// Makes all changes stable.
    ///
    /// # Errors
    /// There is no room, and the changes are undone; or the bank failed; or this is inside an update.
    pub fn commit(&self) -> Result<()> {
        if Inside::is_entered(self.shared.id) {
            return Err(Error::Nested("a commit"));
        }
        self.update(|_| Ok(()))
    }

    /// Undoes all changes since the last commit.
    ///
    /// # Errors
    /// This is inside an update.
    pub fn abort(&self) -> Result<()> {
        let _inside = Inside::enter(self.shared.id, "an abort")?;
        self.shared.write().abort();
        Ok(())
    }

    /// Reads the heap, including uncommitted changes. Views of several threads run concurrently.
    ///
    /// # Errors
    /// That of `read`; or the heap has failed.
    pub fn view<R>(&self, read: impl FnOnce(&View<'_>) -> Result<R>) -> Result<R> {
        let _inside = Inside::enter(self.shared.id, "a view")?;
        let state = self.shared.read();
        state.check_failed()?;
        read(&View::new(&state))
    }

    /// Collects persistent space now, regardless of limits.
    ///
    /// # Errors
    /// There is no room for the copies, the bank failed, or this is inside an update.
    pub fn collect(&self) -> Result<()> {
        let _inside = Inside::enter(self.shared.id, "a collection")?;
        let mut state = AbortOnPanic(self.shared.write(), Doing::Work);
        state.0.check_failed()?;
        state.0.collect_now()
    }

    /// Starts a persistent collection, regardless of limits, and returns: the heap's collector runs
    /// it. A running one continues.
    ///
    /// # Errors
    /// The heap has failed, or this is inside an update.
    pub fn start_collection(&self) -> Result<()> {
        let _inside = Inside::enter(self.shared.id, "a collection")?;
        let mut state = AbortOnPanic(self.shared.write(), Doing::Work);
        state.0.check_failed()?;
        if state.0.cycle.is_none() {
            let given_back = state.0.give_back(true);
            given_back.map_err(|error| state.0.fail(error))?;
            state.0.start_cycle(cycle::CycleKind::Collect);
        }
        self.shared.signal(Wake::Work);
        Ok(())
    }

    /// Lets `ns` of modelled time pass on an emulated bank, as if the program were idle.
    ///
    /// # Errors
    /// The bank failed.
    pub fn pass(&self, ns: u64) -> Result<()> {
        self.shared.write().bank.pass(ns)
    }

    /// Whether a persistent collection is under way.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        let state = self.shared.read();
        state.cycle.is_some() || state.leftover.is_some()
    }

    /// Counters of the heap since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.read().counters
    }

    /// Counters of the bank since it was opened.
    #[must_use]
    pub fn bank_counters(&self) -> BankCounters {
        let state = self.shared.read();
        let mut counters = state.bank.counters();
        counters.syncs += state.durable.syncs();
        counters
    }

    /// Checks every object and pointer, and returns the figures.
    ///
    /// # Errors
    /// Something is damaged, or there are changes that are not committed.
    pub fn report(&self) -> Result<Report> {
        let _inside = Inside::enter(self.shared.id, "a report")?;
        self.shared.read().report()
    }

    /// The persistent key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.shared.read().bank.identity().key
    }

    /// Waits until everything is stable, and closes the heap. Uncommitted changes are lost.
    ///
    /// # Errors
    /// The bank failed.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        self.closed = true;
        self.shared.signal(Wake::Close);
        if let Some(thread) = self.thread.take() {
            // A collector that panicked has reported that.
            let _ = thread.join();
        }
        let mut state = self.shared.write();
        state.abort();
        state.close()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if !self.closed {
            // Commits are stable without this; `close` returns the error.
            let _ = self.shut();
        }
    }
}

impl State {
    fn report(&self) -> Result<Report> {
        if !self.store_list.is_empty() {
            return Err(Error::Nested(
                "a report with changes that are not committed",
            ));
        }
        Ok(Report {
            identity: *self.bank.identity(),
            segments: self.bank.segments().to_vec(),
            sequence: self.sequence,
            immutable_bytes: self.immutable.used(&self.region),
            mutable_bytes: self.mutable.used(&self.region),
            log_bytes: self.log.used(&self.region),
            has_root: self
                .region
                .load(self.root() + ROOT_POINTER * crate::region::WORD)
                != 0,
            census: verify::verify(self)?,
        })
    }
}
