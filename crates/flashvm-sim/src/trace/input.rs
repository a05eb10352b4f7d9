//! Files and their compression: gzip and zstd are detected by their first bytes, whatever the name.

use super::error::{Fault, Position, TraceError};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes from which formats are guessed.
pub(super) const HEAD_BYTES: usize = 8 * 1024;
/// Bytes read from a file at a time.
const BUFFER_BYTES: usize = 256 * 1024;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// How far a file has been read, in bytes of the file: for a progress bar.
#[derive(Clone, Debug)]
pub struct Progress {
    read: Arc<AtomicU64>,
    bytes: u64,
}

impl Progress {
    /// Bytes read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the file; 0 if unknown, as for a pipe.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The decompressed input of a trace.
pub(super) struct Input {
    reader: Box<dyn BufRead + Send>,
    head: Vec<u8>,
}

impl Input {
    /// Opens a file, or standard input if its name is `-`.
    pub(super) fn open(path: &Path) -> Result<(Self, Progress), TraceError> {
        let failed = |source| TraceError::Open {
            path: path.to_owned(),
            source,
        };
        if path == Path::new("-") {
            return Self::of(path, Box::new(io::stdin()), 0);
        }
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let bytes = if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
        Self::of(path, Box::new(file), bytes)
    }

    /// Reads through the compression, if there is one. `bytes` is the size of the file, 0 if unknown.
    pub(super) fn of(
        path: &Path,
        reader: Box<dyn Read + Send>,
        bytes: u64,
    ) -> Result<(Self, Progress), TraceError> {
        let progress = Progress {
            read: Arc::default(),
            bytes,
        };
        let failed = |source| Fault::io(Position::Byte(0), source).of(path);
        let counted = Counted {
            inner: reader,
            read: Arc::clone(&progress.read),
        };
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, counted);
        let magic = peek(&mut raw, ZSTD.len()).map_err(failed)?;
        let raw = Cursor::new(magic.clone()).chain(raw);
        let mut reader: Box<dyn BufRead + Send> = if magic.starts_with(GZIP) {
            buffered(MultiGzDecoder::new(raw))
        } else if magic.starts_with(ZSTD) {
            buffered(zstd::stream::read::Decoder::with_buffer(raw).map_err(failed)?)
        } else {
            Box::new(raw)
        };
        let head = peek(&mut reader, HEAD_BYTES).map_err(failed)?;
        let reader = Box::new(Cursor::new(head.clone()).chain(reader));
        Ok((Self { reader, head }, progress))
    }

    /// The first [`HEAD_BYTES`] bytes, or all if there are fewer.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether [`Self::head`] is everything.
    pub(super) fn is_whole(&self) -> bool {
        self.head.len() < HEAD_BYTES
    }

    /// All bytes from the first on.
    pub(super) fn into_reader(self) -> Box<dyn BufRead + Send> {
        self.reader
    }
}

fn buffered(reader: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, reader))
}

/// The next `count` bytes, or all if there are fewer.
fn peek(reader: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    reader.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Counts the bytes read.
struct Counted {
    inner: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
