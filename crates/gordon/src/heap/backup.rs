//! Copies of a heap. A *backup* has the last state as if the heap had been closed: its log, its immutable space, and one entry
//! of the mini-log that names their ends. All that lies before these ends is written and never changes until a collection
//! frees it. So only the list is made under the heap's lock, and the bytes are copied while commits go on; what a collection
//! has replaced meanwhile stays until the copy is complete.
//!
//! A *snapshot* is for a process that does not have the heap: it copies the allocated segments of a file that another
//! process may be changing, in the order in which a commit must not be ahead of what it needs: mini-log, log, immutable
//! space. Recovery checks it as after a crash; a copy that is no state was overtaken, and is made again.

use super::options::{Limits, Report};
use super::recover::Check;
use super::shared::{Inside, Shared, Wake};
use super::state::State;
use super::tx::View;
use super::{Heap, log};
use crate::error::{Error, Result};
use crate::flash::{Bank, FileMedium, Holds, Identity, Medium, MemoryMedium, SegmentState, Table};
use crate::region::Area;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes copied at once.
const CHUNK: u64 = 1 << 20;
/// Copies under a lock that is free, before one for which commits wait.
const FREE_TRIES: u32 = 3;
/// Snapshots made before an error counts as damage of the heap.
const SNAPSHOTS: u32 = 20;

/// What a copy of a heap consists of.
struct Image {
    identity: Identity,
    table: Table,
    /// Offset and length of the parts to copy.
    parts: Vec<(u64, u64)>,
    /// The entry of the mini-log, and its offset.
    mini: (u64, [u64; 8]),
    /// Frees of segments before.
    freed: u64,
}

fn failed(error: std::io::Error) -> Error {
    Error::io("copying the heap", error)
}

/// Copies a part of a medium to the same place on another one.
fn copy(from: &dyn Medium, to: &dyn Medium, offset: u64, bytes: u64) -> Result<()> {
    let mut buffer = vec![0; CHUNK.min(bytes) as usize];
    let mut at = offset;
    while at < offset + bytes {
        let part = &mut buffer[..CHUNK.min(offset + bytes - at) as usize];
        from.read(at, part)
            .and_then(|()| to.write(at, part))
            .map_err(failed)?;
        at += part.len() as u64;
    }
    Ok(())
}

impl Image {
    fn of(heap: &State) -> Result<Self> {
        let region = &heap.region;
        let identity = *heap.bank.identity();
        let sequence = heap.sequence + 1;
        let mini_at = region.start(heap.mini.area);
        let ends = [
            (heap.mini.area, mini_at + log::MINI_BYTES),
            (heap.log.area, heap.log.next),
            (heap.immutable.area, heap.immutable.next),
        ];
        let mut table = Table::new(&identity);
        table.stable = sequence;
        let (mut parts, mut mini) = (Vec::new(), None);
        for (segment, line) in heap.bank.segments().iter().enumerate() {
            table.segments[segment].erases = line.erases;
            let SegmentState::Allocated { address, .. } = line.state else {
                if line.state == SegmentState::Retired {
                    table.segments[segment].state = SegmentState::Retired;
                }
                continue;
            };
            let area = region.area(address);
            let end = ends
                .iter()
                .find(|(of, _)| Some(*of) == area)
                .map(|(_, end)| *end);
            let Some(bytes) = end
                .and_then(|end| end.checked_sub(address))
                .filter(|bytes| *bytes > 0)
            else {
                continue;
            };
            table.segments[segment].state = line.state;
            let offset = identity.offset(segment);
            if area == Some(heap.mini.area) {
                mini = Some(offset);
            } else {
                parts.push((offset, bytes.min(identity.segment_bytes)));
            }
        }
        let mini = mini.ok_or_else(|| Error::corrupted("the mini-log has no segment"))?;
        Ok(Self {
            identity,
            table,
            parts,
            mini: (
                mini,
                heap.mini_entry(sequence, sequence).encode(identity.key),
            ),
            freed: heap.freed,
        })
    }

    /// Writes all but the identity, without which the copy is no heap.
    fn copy(&mut self, from: &dyn Medium, to: &dyn Medium) -> Result<()> {
        if self.identity.ways > 0 {
            // Flash that ANDs is ones where nothing is written.
            let ones = vec![0xFF; CHUNK as usize];
            for at in (0..self.identity.length()).step_by(CHUNK as usize) {
                let part = CHUNK.min(self.identity.length() - at) as usize;
                to.write(at, &ones[..part]).map_err(failed)?;
            }
        }
        for (offset, bytes) in &self.parts {
            copy(from, to, *offset, *bytes)?;
        }
        let (at, entry) = &self.mini;
        to.write(*at, bytemuck::cast_slice(entry)).map_err(failed)
    }

    /// Makes the copy a heap.
    fn finish(&mut self, to: &dyn Medium) -> Result<()> {
        self.table.store(&self.identity, to)?;
        self.identity.write(to)?;
        to.sync().map_err(failed)
    }
}

/// A backup under way: what a collection replaces stays.
struct Keeping<'a>(&'a Shared);

impl<'a> Keeping<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.write().backups += 1;
        Self(shared)
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.write().backups -= 1;
        // The collector may have something to free.
        self.0.signal(Wake::Work);
    }
}

impl Heap {
    /// Copies the heap, as of its last commit, to a new file or a block device, while other threads go on changing it. The
    /// copy is a heap of the same size with the same persistent key, as if it had been closed; changes that are not
    /// committed are not in it. The file gets its name when all of it is stable.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("heap");
    /// use gordon::{Heap, Options, Var};
    ///
    /// let heap = Heap::create(&path, 1 << 20, Options::default())?;
    /// heap.update(|tx| {
    ///     tx.set_root(tx.var(7_u64));
    ///     Ok(())
    /// })?;
    /// let copy = folder.path().join("copy");
    /// heap.backup(&copy)?;
    /// drop(heap);
    ///
    /// let heap = Heap::open(&copy, Options::default())?;
    /// heap.view(|view| {
    ///     assert_eq!(view.root::<Var<u64>>()?.unwrap().read(), 7);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), gordon::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file exists or cannot be written; this is inside an update or a view; or the heap is one of [`crate::sidney`].
    pub fn backup(&self, path: &Path) -> Result<()> {
        let _inside = Inside::enter(self.shared.id, "a backup")?;
        let length = self.shared.read().bank.identity().length();
        FileMedium::create_filled(path, length, &mut |copy| self.copy_to(copy)).map(|_| ())
    }

    /// The same on any medium that is long enough and has no heap.
    ///
    /// # Errors
    /// As for [`Heap::backup`].
    pub fn backup_on(&self, to: &dyn Medium) -> Result<()> {
        let _inside = Inside::enter(self.shared.id, "a backup")?;
        self.copy_to(to)
    }

    fn copy_to(&self, to: &dyn Medium) -> Result<()> {
        let keeping = Keeping::begin(&self.shared);
        for _ in 0..FREE_TRIES {
            let (mut image, medium) = {
                let state = self.shared.read();
                state.check_failed()?;
                (state.image()?, Arc::clone(state.bank.medium()))
            };
            image.copy(&*medium, to)?;
            // A commit that found no room freed segments after all.
            if self.shared.read().freed == image.freed {
                return image.finish(to);
            }
        }
        let state = self.shared.read();
        let mut image = state.image()?;
        let copied = image.copy(&**state.bank.medium(), to);
        drop(state);
        drop(keeping);
        copied.and_then(|()| image.finish(to))
    }

    /// Reads the heap on a medium, which nobody else has, as of its last commit. Writes nothing, except data of a commit that
    /// was interrupted before it reached its place.
    ///
    /// # Errors
    /// As for [`Heap::open`], and that of `read`.
    pub fn inspect_with<R>(
        medium: Arc<dyn Medium>,
        key: Option<u64>,
        read: impl FnOnce(&View<'_>) -> Result<R>,
    ) -> Result<R> {
        let bank = Bank::open(medium, Holds::Heap, None)?;
        let state = State::recover(bank, None, key, Limits::default(), Check::Everything)?;
        read(&View::new(&state))
    }

    /// Reads a state of the heap in a file or on a block device that another process may have open, and may go on changing:
    /// the last commit that had returned there before this began, or a later one. It works on a copy in memory, of as many
    /// bytes as the heap has in allocated segments, and neither waits for the other process nor makes it wait.
    ///
    /// # Errors
    /// As for [`Heap::open`], and that of `read`. Damage is found like there, after more than one copy.
    pub fn read_shared<R>(
        path: &Path,
        key: Option<u64>,
        read: impl FnOnce(&View<'_>) -> Result<R>,
    ) -> Result<R> {
        let medium = FileMedium::open_to_read(path)?;
        let mut tries = 1;
        loop {
            let recovered = snapshot(&medium).and_then(|copy| {
                let bank = Bank::open(copy, Holds::Heap, None)?;
                State::recover(bank, None, key, Limits::default(), Check::Everything)
            });
            match recovered {
                Ok(state) => return read(&View::new(&state)),
                // Overtaken by the other process, or damaged.
                Err(Error::Corrupted(_)) if tries < SNAPSHOTS => tries += 1,
                Err(error) => return Err(error),
            }
            std::thread::sleep(Duration::from_millis(tries.into()));
        }
    }
}

/// Copies the allocated segments of a heap that another process may be changing. The copy may be no state of it: recovery
/// says so.
///
/// # Errors
/// It is no heap, or cannot be read.
pub(super) fn snapshot(from: &dyn Medium) -> Result<Arc<dyn Medium>> {
    let identity = Identity::read(from, Holds::Heap)?;
    let mut table = Table::load(&identity, from)?;
    let copied = MemoryMedium::sized(identity.length())?;
    let allocated = table
        .segments
        .iter()
        .enumerate()
        .filter_map(|(segment, line)| match line.state {
            SegmentState::Allocated { address, .. } => Some((address, segment)),
            _ => None,
        });
    let mut allocated: Vec<_> = allocated.collect();
    // Areas are in the order in which they are to be copied.
    allocated.sort_unstable();
    for (_, segment) in allocated {
        copy(
            from,
            &copied,
            identity.offset(segment),
            identity.segment_bytes,
        )?;
    }
    table.store(&identity, &copied)?;
    identity.write(&copied)?;
    Ok(Arc::new(copied))
}

impl State {
    fn image(&self) -> Result<Image> {
        if self.data_segment.is_some() {
            return Err(Error::Unsupported(
                "a heap on recoverable virtual memory is in two files: close it and copy both",
            ));
        }
        Image::of(self)
    }
}

impl View<'_> {
    /// Copies what is read here to a new file or a block device: see [`Heap::backup`].
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn backup(&self, path: &Path) -> Result<()> {
        let mut image = self.state.image()?;
        let length = image.identity.length();
        let medium = self.state.bank.medium();
        let mut fill = |copy: &FileMedium| {
            image.copy(&**medium, copy)?;
            image.finish(copy)
        };
        FileMedium::create_filled(path, length, &mut fill).map(|_| ())
    }

    /// Checks every object and pointer, and returns the figures.
    ///
    /// # Errors
    /// Something is damaged, or there are changes that are not committed.
    pub fn report(&self) -> Result<Report> {
        self.state.report()
    }
}

/// Whether segments of this area are copied before those of the next: what a record needs is copied after it.
const _: () = assert!(
    (Area::MiniLog1 as u8) < Area::Log0 as u8 && (Area::Log1 as u8) < Area::ImmutableA as u8
);
