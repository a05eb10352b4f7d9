//! Sidney (section 7.1), the system with which the paper compares Gordon: the same heap, but
//! persistent space, including immutable objects, is in DRAM, and recoverable virtual memory makes
//! it stable. A commit appends its changes to a redo log, on flash or on disk, and waits for that.
//! When the log is full it is truncated: its changes are applied to a data segment on disk.
//! Collections stop the program, as in the paper.
//!
//! ```
//! use gordon::{Options, Ref, Text, sidney};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let heap = sidney::create(folder.path(), 1 << 20, Options::default())?;
//! heap.update(|tx| {
//!     tx.set_root(tx.alloc(tx.text("stable")));
//!     Ok(())
//! })?;
//! drop(heap);
//!
//! let heap = sidney::open(folder.path(), Options::default())?;
//! heap.view(|view| {
//!     let root = view.root::<Ref<Text>>()?.expect("set above");
//!     assert_eq!(root.read().as_str(), "stable");
//!     Ok(())
//! })?;
//! # Ok::<(), gordon::Error>(())
//! ```

use super::Heap;
use super::data_segment::DataSegment;
use super::layout::{identity_for, segment_bytes};
use super::options::{Collector, Limits, Options};
use super::recover::Check;
use super::state::{Space, State};
use crate::error::Result;
use crate::flash::{Bank, FileMedium, Holds, Medium, MemoryMedium, Model};
use crate::region::WORD;
use std::path::Path;
use std::sync::Arc;

const LOG: &str = "log";
const SEGMENT: &str = "segment";

/// Creates a heap with a redo log of about `size` bytes in the file `log` of `folder`, and a data
/// segment of twice that size in the file `segment`. The heap holds as much as the log.
///
/// # Errors
/// The files exist or cannot be written, or the size is out of range.
pub fn create(folder: &Path, size: u64, options: Options) -> Result<Heap> {
    let make = |name: &str, length| {
        let medium = FileMedium::create(&folder.join(name), length, &mut |_| {})?;
        Ok(Arc::new(medium) as Arc<dyn Medium>)
    };
    let is_new = !folder.join(LOG).exists();
    let made = create_in(
        |length| make(LOG, length),
        |length| make(SEGMENT, length),
        size,
        segment_bytes(size),
        None,
        options,
    );
    if made.is_err() && is_new {
        // The log is useless without its segment, and the returned error says why.
        let _ = std::fs::remove_file(folder.join(LOG));
    }
    made
}

/// Opens the heap in `folder`, as of its last commit.
///
/// # Errors
/// As for [`Heap::open`].
pub fn open(folder: &Path, options: Options) -> Result<Heap> {
    let log = FileMedium::open(&folder.join(LOG))?;
    let segment = FileMedium::open(&folder.join(SEGMENT))?;
    open_on(Arc::new(log), Arc::new(segment), None, options)
}

/// Creates a heap in memory, with the timing of a log of `segments` segments on `log`, and of a
/// data segment on `disk`.
///
/// # Errors
/// There is not enough memory, or too few segments.
pub fn emulated(log: Model, disk: Model, segments: u64, limits: Limits) -> Result<Heap> {
    let make = |length| Ok(Arc::new(MemoryMedium::new(length)?) as Arc<dyn Medium>);
    let options = Options {
        limits,
        model: Some(log),
        ..Options::default()
    };
    let segment = log.segment_bytes();
    create_in(make, make, segments * segment, segment, Some(disk), options)
}

/// Creates a heap on any two media, for the log and the data segment.
///
/// # Errors
/// As for [`create`].
pub fn create_in(
    make_log: impl FnOnce(u64) -> Result<Arc<dyn Medium>>,
    make_segment: impl FnOnce(u64) -> Result<Arc<dyn Medium>>,
    size: u64,
    segment_bytes: u64,
    disk: Option<Model>,
    options: Options,
) -> Result<Heap> {
    let ways = options.model.map_or(0, |model| model.ways);
    let identity = identity_for(Holds::RedoLog, size, ways, segment_bytes)?;
    let bank = Bank::create(make_log(identity.length())?, identity, options.model)?;
    let medium = make_segment(DataSegment::length(&identity))?;
    let segment = DataSegment::create(medium, &identity, disk)?;
    let state = State::create(bank, Some(segment), options.limits)?;
    Heap::start(state, stopping(options))
}

/// Opens the heap on two media.
///
/// # Errors
/// As for [`Heap::open`].
pub fn open_on(
    log: Arc<dyn Medium>,
    segment: Arc<dyn Medium>,
    disk: Option<Model>,
    options: Options,
) -> Result<Heap> {
    let bank = Bank::open(log, Holds::RedoLog, options.model)?;
    let segment = DataSegment::open(segment, bank.identity(), disk)?;
    let (key, limits) = (options.key, options.limits);
    let mut state = State::recover(bank, Some(segment), key, limits, Check::Everything)?;
    state.resume()?;
    Heap::start(state, stopping(options))
}

fn stopping(options: Options) -> Options {
    Options {
        collector: Collector::Stop,
        ..options
    }
}

impl State {
    /// Writes the changes of `space` since the last truncation to the data segment; returns the
    /// number of words. A new log replaces the old one only after this.
    pub(super) fn write_pages(&mut self, space: Space) -> Result<u64> {
        // The segment gets only changes that are stable in the log.
        self.sync()?;
        let segment = self.data_segment.as_mut().expect("a data segment");
        // A collection fills the other half.
        let (bytes, ns) = if space.area == self.mutable.area {
            segment.write_changed(&self.region, space.area, space.next)?
        } else {
            segment.write_other(&self.region, space.area, space.next)?
        };
        self.bank.wait(ns);
        Ok(bytes / WORD)
    }

    /// The log has `words` changed words at `address`.
    pub(super) fn touch(&mut self, address: u64, words: u64) {
        if let Some(segment) = &mut self.data_segment {
            let start = self.region.start(self.mutable.area);
            segment.touch(address - start, words * WORD);
        }
    }
}
