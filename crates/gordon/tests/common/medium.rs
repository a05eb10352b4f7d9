//! A medium that records all writes, and images of it as a power cut leaves them.

use super::Rng;
use gordon::flash::{Medium, MemoryMedium};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

/// A medium in memory, kept beyond the heap on it.
pub fn kept(length: u64, medium: &mut Option<Arc<dyn Medium>>) -> gordon::Result<Arc<dyn Medium>> {
    let made: Arc<dyn Medium> = Arc::new(MemoryMedium::new(length)?);
    *medium = Some(Arc::clone(&made));
    Ok(made)
}

/// An operation on a medium.
#[derive(Clone, Debug)]
pub enum Op {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Stable when it has returned, regardless of other writes.
    Stable {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// All writes to this range are stable when it has returned.
    Sync(Range<u64>),
}

impl Op {
    /// The bytes written, with their place.
    fn written(&self) -> Option<(u64, &[u8])> {
        match self {
            Self::Write { offset, bytes } | Self::Stable { offset, bytes } => {
                Some((*offset, bytes))
            }
            Self::Sync(_) => None,
        }
    }
}

/// A medium in memory that records its operations.
#[derive(Debug)]
pub struct Recorder {
    memory: MemoryMedium,
    pub ops: Mutex<Vec<Op>>,
    /// The operation from which on all fail.
    pub fails_from: Mutex<usize>,
}

impl Recorder {
    pub fn new(memory: MemoryMedium) -> Arc<Self> {
        Arc::new(Self {
            memory,
            ops: Mutex::default(),
            fails_from: Mutex::new(usize::MAX),
        })
    }

    pub fn count(&self) -> usize {
        self.ops.lock().expect("ops").len()
    }

    fn note(&self, op: Op) -> io::Result<()> {
        let mut ops = self.ops.lock().expect("ops");
        if ops.len() >= *self.fails_from.lock().expect("a number") {
            return Err(io::Error::other("a fault was injected"));
        }
        ops.push(op);
        Ok(())
    }
}

impl Medium for Recorder {
    fn length(&self) -> io::Result<u64> {
        self.memory.length()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.note(Op::Write {
            offset,
            bytes: bytes.to_vec(),
        })?;
        self.memory.write(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.note(Op::Sync(0..u64::MAX))
    }

    fn write_stable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.note(Op::Stable {
            offset,
            bytes: bytes.to_vec(),
        })?;
        self.memory.write(offset, bytes)
    }

    /// The memory is long enough from the beginning.
    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        assert!(to <= self.length()?, "memory for the growth");
        self.write(from, &vec![0xFF; (to - from) as usize])?;
        self.sync()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.descriptor()
    }
}

/// A part of a recorder, with syncs of its own: one of two disks.
#[derive(Debug)]
pub struct Part {
    pub whole: Arc<Recorder>,
    pub range: Range<u64>,
}

impl Medium for Part {
    fn length(&self) -> io::Result<u64> {
        Ok(self.range.end - self.range.start)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.whole.read(self.range.start + offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.whole.write(self.range.start + offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.whole.note(Op::Sync(self.range.clone()))
    }

    fn write_stable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.whole.write_stable(self.range.start + offset, bytes)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        assert_eq!(self.range.start, 0, "only the first part is mapped");
        self.whole.descriptor()
    }
}

/// A possible image after a power cut before operation `cut`: `base` and all that was synced; of
/// the rest, any sectors of 512 bytes.
pub fn image(base: &[u8], ops: &[Op], cut: usize, rng: &mut Rng) -> Vec<u8> {
    let mut image = base.to_vec();
    let mut synced: Vec<&Range<u64>> = Vec::new();
    let (mut settled, mut pending, mut stable) = (Vec::new(), Vec::new(), Vec::new());
    for op in ops[..cut].iter().rev() {
        match (op, op.written()) {
            (Op::Sync(range), _) => {
                if !synced.contains(&range) {
                    synced.push(range);
                }
            }
            (_, Some(write)) if synced.iter().any(|range| range.contains(&write.0)) => {
                settled.push(write);
            }
            (Op::Stable { .. }, Some(write)) => {
                pending.push(write);
                stable.push(write);
            }
            (_, write) => pending.extend(write),
        }
    }
    let mut place = |(offset, bytes): (u64, &[u8])| {
        image[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    settled.into_iter().rev().for_each(&mut place);
    // Probability that a sector has reached the medium: none, few, most, all.
    let luck = [0, 20, 50, 80, 97, 100][rng.below(6)];
    pending.reverse();
    // One that has not returned may be there in part.
    let under_way = ops.get(cut).filter(|op| matches!(op, Op::Stable { .. }));
    pending.extend(under_way.and_then(Op::written));
    if rng.below(3) == 0 {
        for at in (1..pending.len()).rev() {
            pending.swap(at, rng.below(at + 1));
        }
    }
    for (offset, bytes) in pending {
        let mut at = 0;
        while at < bytes.len() {
            let start = offset as usize + at;
            let part = (512 - start % 512).min(bytes.len() - at);
            if rng.below(100) < luck {
                place((start as u64, &bytes[at..at + part]));
            }
            at += part;
        }
    }
    stable.into_iter().rev().for_each(&mut place);
    image
}
