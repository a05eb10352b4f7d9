//! What a bank's bytes lie on: a file, a block device, or memory. Five operations, so that a test
//! can put a double in between that fails, records, or cuts the power.

use crate::error::{Error, Result};
use rustix::fs::{FlockOperation, MemfdFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Storage of a bank. Reads go through a shared mapping of [`Medium::descriptor`], so whatever
/// [`Medium::write`] takes must be seen there at once.
pub trait Medium: Send + Sync {
    /// Bytes in all.
    fn length(&self) -> io::Result<u64>;
    /// Fills `bytes` from `offset` on.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes `bytes` at `offset`; stable after the next [`Medium::sync`].
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns when all that was written is stable.
    fn sync(&self) -> io::Result<()>;
    /// What is mapped.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// A file or block device: stable with `fdatasync`.
#[derive(Debug)]
pub struct FileMedium(File);

impl FileMedium {
    /// Makes a file of `length` bytes, all written, so that no later sync has to allocate; `progress`
    /// is told of bytes written. A block device is used as far as `length`.
    ///
    /// # Errors
    /// The path exists as a file, is in use, or cannot be written.
    pub fn create(path: &Path, length: u64, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
        let mut open = File::options();
        open.read(true).write(true);
        if !device {
            open.create_new(true);
        }
        let file = open
            .open(path)
            .map_err(|error| Error::io(format!("making {}", path.display()), error))?;
        let made = Self::fill(&file, path, length, device, progress);
        if made.is_err() && !device {
            // What was begun is of no use, and the error that is returned says why.
            let _ = std::fs::remove_file(path);
        }
        made.map(|()| Self(file))
    }

    fn fill(
        file: &File,
        path: &Path,
        length: u64,
        device: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        const CHUNK: u64 = 1 << 20;
        let failed = |error: io::Error| Error::io(format!("writing {}", path.display()), error);
        lock(file, path)?;
        if device {
            let found = Self(file.try_clone().map_err(failed)?)
                .length()
                .map_err(failed)?;
            if found < length {
                return Err(Error::Truncated {
                    found,
                    expected: length,
                });
            }
        } else {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length)
                .or_else(|errno| match errno {
                    rustix::io::Errno::OPNOTSUPP => rustix::fs::ftruncate(file, length),
                    errno => Err(errno),
                })
                .map_err(|errno| failed(errno.into()))?;
        }
        let erased = vec![0xFF; CHUNK as usize];
        let mut at = 0;
        while at < length {
            let part = CHUNK.min(length - at);
            file.write_all_at(&erased[..part as usize], at)
                .map_err(failed)?;
            at += part;
            progress(at);
        }
        file.sync_all().map_err(failed)
    }

    /// Opens a file or block device and locks it against others.
    ///
    /// # Errors
    /// It cannot be opened, or another process has it.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| Error::io(format!("opening {}", path.display()), error))?;
        lock(&file, path)?;
        Ok(Self(file))
    }
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(path.display().to_string())),
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

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Memory: what emulated banks are made of, and images of crashed ones.
#[derive(Debug)]
pub struct MemoryMedium(File);

impl MemoryMedium {
    /// `length` erased bytes: all ones.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(length: u64) -> Result<Self> {
        let medium = Self::sized(length)?;
        let erased = vec![0xFF; 1 << 16];
        let mut at = 0;
        while at < length {
            let part = (length - at).min(erased.len() as u64);
            medium
                .write(at, &erased[..part as usize])
                .map_err(|error| Error::io("memory for a bank", error))?;
            at += part;
        }
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

    fn sized(length: u64) -> Result<Self> {
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

    fn descriptor(&self) -> BorrowedFd<'_> {
        (**self).descriptor()
    }
}
