//! The storage below a bank: a file, a block device, or memory. Few operations, so that a test can
//! substitute a double that fails, records, or cuts the power.

use crate::error::{Error, Result};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Storage of a bank. Reads go through a shared mapping of [`Medium::descriptor`], which must
/// reflect every [`Medium::write`] at once.
pub trait Medium: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills `bytes` from `offset` on.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes `bytes` at `offset`; stable after the next [`Medium::sync`].
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns when all writes are stable.
    fn sync(&self) -> io::Result<()>;
    /// Writes `bytes` at `offset` and returns when they are stable, regardless of other writes.
    fn write_stable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(offset, bytes)?;
        self.sync()
    }

    /// Makes it at least `to` bytes long, and the bytes from `from` on erased ones; stable when this returns.
    ///
    /// # Errors
    /// This medium does not grow, or there is no room.
    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The descriptor to map.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Writes ones, as erased flash has, to a part of a file.
fn erase(file: &File, from: u64, to: u64, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    let erased = vec![0xFF; CHUNK.min(to.saturating_sub(from)) as usize];
    let mut at = from;
    while at < to {
        let part = CHUNK.min(to - at);
        file.write_all_at(&erased[..part as usize], at)?;
        at += part;
        progress(at);
    }
    Ok(())
}

/// A file or block device: stable with `fdatasync`.
#[derive(Debug)]
pub struct FileMedium(File);

impl FileMedium {
    /// Creates a file of `length` bytes. All of them are written, so that no later sync has to
    /// allocate; `progress` gets the bytes written so far. The file gets its name at the end: an
    /// interruption leaves nothing behind. A block device gives its first `length` bytes.
    /// # Errors
    /// The path exists as a file, or as a device with data; it is in use, or cannot be
    /// written.
    pub fn create(path: &Path, length: u64, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        Self::create_filled(path, length, &mut |medium| {
            let filled = medium.fill(length, progress);
            filled.map_err(|error| Error::io(format!("making {}", path.display()), error))
        })
    }

    /// The same, filled by `fill`, which makes all of it stable.
    pub(crate) fn create_filled(
        path: &Path,
        length: u64,
        fill: &mut dyn FnMut(&Self) -> Result<()>,
    ) -> Result<Self> {
        let failed = |error: io::Error| Error::io(format!("making {}", path.display()), error);
        let kind = std::fs::symlink_metadata(path).map(|_| std::fs::metadata(path));
        let device = matches!(&kind, Ok(Ok(m)) if m.file_type().is_block_device());
        if device {
            let medium = Self::open(path)?;
            let found = medium.length().map_err(failed)?;
            if found < length {
                return Err(Error::Truncated {
                    found,
                    expected: length,
                });
            }
            medium.refuse_data(path)?;
            fill(&medium)?;
            return Ok(medium);
        }
        if kind.is_ok() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let nameless = rustix::fs::open(
            folder,
            OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        );
        let has_name = nameless.is_err();
        let medium = match nameless {
            Ok(file) => Self(file.into()),
            // A file system without nameless files.
            Err(Errno::OPNOTSUPP) => {
                let mut open = File::options();
                Self(
                    open.read(true)
                        .write(true)
                        .create_new(true)
                        .open(path)
                        .map_err(failed)?,
                )
            }
            Err(errno) => return Err(failed(errno.into())),
        };
        lock(&medium.0, path)?;
        let name = || -> io::Result<()> {
            if has_name {
                return Ok(());
            }
            let itself = format!("/proc/self/fd/{}", medium.0.as_raw_fd());
            rustix::fs::linkat(CWD, itself, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
            // Makes the name stable as well.
            File::open(folder)?.sync_all()
        };
        let made = medium.reserve(length).map_err(failed);
        let named = made
            .and_then(|()| fill(&medium))
            .and_then(|()| name().map_err(failed));
        if named.is_err() && has_name {
            // The partial file is useless, and the returned error says why.
            let _ = std::fs::remove_file(path);
        }
        named?;
        Ok(medium)
    }

    /// A device becomes a bank only if it is empty at its start: zeros, or erased flash.
    fn refuse_data(&self, path: &Path) -> Result<()> {
        let mut front = vec![0; 1 << 20];
        let length = self
            .length()
            .map_err(|error| Error::io("measuring the bank", error))?;
        front.truncate(length.min(front.len() as u64) as usize);
        self.read(0, &mut front)
            .map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
        let blank = [0, 0xFF]
            .iter()
            .any(|blank| front.iter().all(|byte| byte == blank));
        if blank {
            Ok(())
        } else {
            Err(Error::Occupied(path.display().to_string()))
        }
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, length) {
            Err(Errno::OPNOTSUPP) if self.length()? < length => {
                Ok(rustix::fs::ftruncate(&self.0, length)?)
            }
            Err(Errno::OPNOTSUPP) => Ok(()),
            reserved => Ok(reserved?),
        }
    }

    fn fill(&self, length: u64, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
        erase(&self.0, 0, length, progress)?;
        self.0.sync_all()
    }

    /// Opens a file or block device to read it, whoever has it.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self> {
        let opened = File::open(path);
        opened
            .map(Self)
            .map_err(|error| Error::io(format!("opening {}", path.display()), error))
    }

    /// Opens a file or block device and locks it against others.
    ///
    /// # Errors
    /// It cannot be opened, or another process has it.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = File::options();
        options.read(true).write(true);
        if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            // The kernel refuses a device that is mounted, or opened this way by another process.
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => Error::Locked(path.display().to_string()),
            _ => Error::io(format!("opening {}", path.display()), error),
        })?;
        lock(&file, path)?;
        Ok(Self(file))
    }
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked(path.display().to_string())),
        Err(errno) => Err(Error::io(format!("locking {}", path.display()), errno)),
    }
}

impl Medium for FileMedium {
    fn length(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.0, rustix::fs::SeekFrom::End(0))?)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write_stable(&self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let part = [IoSlice::new(bytes)];
            match rustix::io::pwritev2(&self.0, &part, offset, ReadWriteFlags::DSYNC) {
                Ok(written) => {
                    offset += written as u64;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => {
                    self.write(offset, bytes)?;
                    return self.sync();
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// A device is as long as it is, and what lies behind a heap on it is not the heap's.
    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        if !self.0.metadata()?.is_file() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.reserve(to)?;
        erase(&self.0, from, to, &mut |_| {})?;
        self.0.sync_all()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Memory: for emulated banks, and for images of crashed banks.
#[derive(Debug)]
pub struct MemoryMedium(File);

impl MemoryMedium {
    /// `length` erased bytes: all ones.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(length: u64) -> Result<Self> {
        let medium = Self::sized(length)?;
        erase(&medium.0, 0, length, &mut |_| {})
            .map_err(|error| Error::io("memory for a bank", error))?;
        Ok(medium)
    }

    /// A bank with these bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let medium = Self::sized(bytes.len() as u64)?;
        medium
            .write(0, bytes)
            .map_err(|error| Error::io("memory for a bank", error))?;
        Ok(medium)
    }

    /// `length` bytes, all zero.
    pub(crate) fn sized(length: u64) -> Result<Self> {
        let file = rustix::fs::memfd_create("gordon-bank", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|errno| Error::io("memory for a bank", errno))?;
        file.set_len(length)
            .map_err(|error| Error::io("memory for a bank", error))?;
        Ok(Self(file))
    }
}

impl Medium for MemoryMedium {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        self.0.set_len(self.length()?.max(to))?;
        erase(&self.0, from, to, &mut |_| {})
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<M: Medium + ?Sized> Medium for std::sync::Arc<M> {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        (**self).read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn write_stable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_stable(offset, bytes)
    }

    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        (**self).extend(from, to)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        (**self).descriptor()
    }
}
