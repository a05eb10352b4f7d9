//! Growth of an open heap: more segments behind the last one. Addresses stay as they are, and so does the place of the first
//! segment, so a heap grows as far as its areas and the room of its segment tables go.

use super::Heap;
use super::shared::{AbortOnPanic, Doing, Inside};
use crate::error::{Error, Result};

impl Heap {
    /// Makes the heap's file larger, so that the bank has about `size` bytes, while other threads use it; returns the bytes
    /// that it has then. It is stable when this returns; a crash before leaves the old size.
    ///
    /// A heap grows to 1 GiB, a larger one to the next power of two. With segments of 64 KiB (made with up to 16 MiB) it is
    /// 74 MiB, with 128 KiB (up to 32 MiB) 319 MiB: [`Identity::most_segments`](crate::flash::Identity::most_segments).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("heap");
    /// use gordon::{Heap, Options};
    ///
    /// let heap = Heap::create(&path, 1 << 20, Options::default())?;
    /// let full = |heap: &Heap| {
    ///     heap.update(|tx| {
    ///         tx.set_root(tx.bytes(&vec![7; 1 << 20]));
    ///         Ok(())
    ///     })
    /// };
    /// assert!(full(&heap).is_err());
    /// heap.grow(4 << 20)?;
    /// full(&heap)?;
    /// # Ok::<(), gordon::Error>(())
    /// ```
    ///
    /// # Errors
    /// The size is less than the heap has, or more than it can have; there is no room on the file system; it is on a block
    /// device; this is inside an update or a view; or the heap is one of [`crate::sidney`].
    pub fn grow(&self, size: u64) -> Result<u64> {
        let _inside = Inside::enter(self.shared.id, "growth")?;
        let mut state = AbortOnPanic(self.shared.write(), Doing::Work);
        let state = &mut *state.0;
        state.check_failed()?;
        if state.data_segment.is_some() {
            return Err(Error::Unsupported(
                "a heap on recoverable virtual memory has the size of its data segment: make a larger one",
            ));
        }
        let identity = *state.bank.identity();
        let segment = identity.segment_bytes;
        let (found, most) = (
            identity.segments * segment,
            identity.most_segments() * segment,
        );
        if size < found || size > most {
            return Err(Error::Growth {
                found,
                asked: size,
                most,
            });
        }
        let segments = size / segment;
        if segments > identity.segments {
            state.bank.extend(segments).map_err(|error| match error {
                Error::Io { source, .. } if source.kind() == std::io::ErrorKind::Unsupported => {
                    Error::Unsupported("this heap is not in a file: only files grow")
                }
                error => error,
            })?;
            let grown = state.bank.grow(segments);
            grown.map_err(|error| state.fail(error))?;
        }
        Ok(segments * segment)
    }
}
