//! The flash store of a run: a nameless file in a folder, a file that is unlinked, or a block device. It is
//! opened and checked before the program starts. A file without a name vanishes however the run ends.

use super::environment::Environment;
use super::machine::{file_system_name, free_bytes, in_ram};
use super::refusal::Refusal;
use super::units::Size;
use flashvm_live::StoreKind;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Prefix of temporary names, on file systems without nameless files (`O_TMPFILE`).
const PREFIX: &str = "flashvm-store-";
/// Default size of a store file: max(80 % of free, min(8 x RAM, 95 % of free)); refused if it is below 2 x RAM.
const FREE_PERCENT: u64 = 80;
const FREE_PERCENT_LEAST: u64 = 5;
const RAM_MULTIPLE: u64 = 8;
pub(super) const RAM_MULTIPLE_MIN: u64 = 2;
/// Space that is allocated when a store file of default size is opened; the rest is allocated on use.
const BACKED_BYTES_FIRST: u64 = 256 << 20;
pub(super) const PAGE: u64 = 4096;
/// The largest store that an engine can use.
const STORE_BYTES_MAX: u64 = 4 << 40;

/// Bytes from the start of a device in which [`holds`] looks for signatures.
pub(super) const HEAD_BYTES: usize = 128 << 10;

/// A page, aligned for direct I/O.
#[derive(Clone)]
#[repr(C, align(4096))]
pub(crate) struct Page(pub(crate) [u8; PAGE as usize]);

impl Page {
    /// A page of zeros.
    pub(super) fn zeros() -> Box<Self> {
        Box::new(Self([0; PAGE as usize]))
    }
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Store {
    /// Opened for reading and writing with direct I/O.
    pub(crate) fd: OwnedFd,
    /// Its size.
    pub(crate) bytes: u64,
    /// Bytes from the start that have disk space.
    pub(crate) backed: u64,
}

impl Store {
    /// Discards the first page, to see whether the store accepts discards. For a store without data.
    pub(crate) fn try_discard(&self) -> Result<(), Errno> {
        StoreKind::of(&self.fd)?.discard(&self.fd, 0, PAGE)
    }
}

/// Opens the store at `path`, of `asked` bytes, or by default of a size that suits a budget of `ram` bytes.
pub(crate) fn open(path: &Path, ram: u64, asked: Option<Size>) -> Result<Store, Refusal> {
    let shown = path.display();
    let stat = rustix::fs::stat(path).map_err(|e| match e {
        Errno::NOENT | Errno::NOTDIR => Refusal::new(format!(
            "--flash {shown}: no such folder, file or device: create it, or name another"
        )),
        e => Refusal::new(format!(
            "--flash {shown}: {e}: name a path that can be reached"
        )),
    })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => in_folder(path, ram, asked),
        FileType::RegularFile if stat.st_size == 0 && stat.st_nlink == 1 => {
            in_file(path, ram, asked)
        }
        FileType::RegularFile => Err(Refusal::new(format!(
            "--flash {shown}: a file that is not empty or has a second name: name an empty file or a folder"
        ))),
        FileType::BlockDevice => on_device(path, ram, asked),
        _ => Err(Refusal::new(format!(
            "--flash {shown}: neither folder, file nor block device: name one of these"
        ))),
    }
}

fn in_folder(folder: &Path, ram: u64, asked: Option<Size>) -> Result<Store, Refusal> {
    let size = file_bytes(folder, ram, asked)?;
    sweep(folder);
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let fd = match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => named_for_a_moment(folder),
        other => other,
    }
    .map_err(|e| cannot_open(folder, e))?;
    sized(fd, folder, size)
}

/// Creates a file and unlinks it: for file systems without nameless files.
fn named_for_a_moment(folder: &Path) -> Result<OwnedFd, Errno> {
    let path = folder.join(format!("{PREFIX}{}-{:016x}", std::process::id(), random()));
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let fd = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    // The lock keeps another run's sweep away until the file is unlinked.
    let locked = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
    match rustix::fs::unlink(&path) {
        Ok(()) | Err(Errno::NOENT) => locked.map(|()| fd),
        Err(e) => Err(e),
    }
}

fn in_file(path: &Path, ram: u64, asked: Option<Size>) -> Result<Store, Refusal> {
    let path = &std::fs::canonicalize(path).map_err(|e| {
        Refusal::new(format!(
            "--flash {}: {e}: name a path that can be reached",
            path.display()
        ))
    })?;
    let size = file_bytes(path, ram, asked)?;
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| cannot_open(path, e))?;
    rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Refusal::new(format!(
            "--flash {}: in use by another run: name another",
            path.display()
        ))
    })?;
    let store = sized(fd, path, size)?;
    rustix::fs::fchmod(&store.fd, Mode::RUSR | Mode::WUSR)
        .and_then(|()| rustix::fs::unlink(path))
        .map_err(|e| {
            // The file keeps its name: leave it empty, as it was found.
            let _ = rustix::fs::ftruncate(&store.fd, 0);
            Refusal::new(format!(
                "--flash {}: its name cannot be removed ({e}): name a file in a folder of your own",
                path.display()
            ))
        })?;
    Ok(store)
}

fn on_device(path: &Path, ram: u64, asked: Option<Size>) -> Result<Store, Refusal> {
    let shown = path.display();
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
        Errno::BUSY => Refusal::new(format!(
            "--flash {shown}: the device is mounted or in use: unmount it, or name another"
        )),
        e => cannot_open(path, e),
    })?;
    let there =
        rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).map_err(|e| cannot_open(path, e))?;
    if let Some(held) = holds(&head(&fd)) {
        return Err(Refusal::new(format!(
            "--flash {shown}: the device holds {held}: name another, or erase it with 'wipefs -a {shown}'"
        )));
    }
    let bytes = bytes_of_device(&shown.to_string(), there, ram, asked)?;
    direct(&fd, path)?;
    Ok(Store {
        fd,
        bytes,
        backed: bytes,
    })
}

/// The size of a store on a device or export of `there` bytes, for a budget of `ram` bytes.
pub(super) fn bytes_of_device(
    shown: &str,
    there: u64,
    ram: u64,
    asked: Option<Size>,
) -> Result<u64, Refusal> {
    let bytes = match asked {
        Some(Size(asked)) if asked > there => {
            return Err(Refusal::new(format!(
                "--flash-size {}: {shown} has only {}: ask for less",
                Size(asked),
                Size(there)
            )));
        }
        Some(Size(asked)) => asked,
        None => there,
    };
    let bytes = bytes.min(STORE_BYTES_MAX) / PAGE * PAGE;
    if asked.is_none() && bytes < ram.saturating_mul(RAM_MULTIPLE_MIN) {
        return Err(Refusal::new(format!(
            "--flash {shown}: {} is less than twice the budget of {}: name a larger one or a smaller --ram",
            Size(bytes),
            Size(ram)
        )));
    }
    Ok(bytes)
}

/// Refuses a folder or file on a file system that is in RAM.
pub(crate) fn refuse_ram(path: &Path) -> Result<(), Refusal> {
    let on_file_system = path.is_dir() || path.is_file();
    match rustix::fs::statfs(path) {
        Ok(statfs) if on_file_system && in_ram(&statfs) => Err(Refusal::new(format!(
            "--flash {}: on {}, which is RAM: {}",
            path.display(),
            file_system_name(&statfs),
            Environment::here().disk()
        ))),
        _ => Ok(()),
    }
}

/// Default size of a store file for a budget of `ram` bytes, where `free` bytes are free.
fn bytes_that_suit(free: u64, ram: u64) -> u64 {
    let share = free / 100 * FREE_PERCENT;
    let most = free / 100 * (100 - FREE_PERCENT_LEAST);
    share.max(ram.saturating_mul(RAM_MULTIPLE).min(most))
}

/// The size of a store file at `path`, and the bytes to allocate at once: all if a size was asked for, else
/// [`BACKED_BYTES_FIRST`] at most.
fn file_bytes(path: &Path, ram: u64, asked: Option<Size>) -> Result<(u64, u64), Refusal> {
    let shown = path.display();
    let statfs = rustix::fs::statfs(path).map_err(|e| cannot_open(path, e))?;
    let free = free_bytes(&statfs);
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let bytes = match asked {
        Some(Size(asked)) if asked > free => {
            return Err(Refusal::new(format!(
                "--flash-size {}: only {} are free at {shown}: ask for less, or name another --flash",
                Size(asked),
                Size(free)
            )));
        }
        Some(Size(asked)) => asked,
        None => {
            let bytes = bytes_that_suit(free, ram);
            let least = ram.saturating_mul(RAM_MULTIPLE_MIN);
            if bytes < least {
                return Err(Refusal::new(format!(
                    "--flash {shown}: {} free, less than twice the budget of {}: make room, or name another --flash",
                    Size(free),
                    Size(ram)
                )));
            }
            bytes.min(limit.max(least))
        }
    };
    let bytes = bytes.min(STORE_BYTES_MAX) / PAGE * PAGE;
    if limit < bytes {
        return Err(Refusal::new(format!(
            "the limit on file sizes (ulimit -f) is {}, and the store takes {}: raise it, or ask for a smaller \
             --flash-size",
            Size(limit),
            Size(bytes)
        )));
    }
    let backed = match asked {
        Some(_) => bytes,
        None => bytes.min(BACKED_BYTES_FIRST),
    };
    Ok((bytes, backed))
}

/// Sizes a fresh store file, and allocates its first `backed` bytes where the file system can. These bytes are used
/// first, and no write to them fails for lack of space.
fn sized(fd: OwnedFd, path: &Path, (bytes, backed): (u64, u64)) -> Result<Store, Refusal> {
    let taken = match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, backed) {
        Ok(()) => Ok(backed),
        // The file system cannot allocate in advance: treat all bytes as backed.
        Err(Errno::OPNOTSUPP) => Ok(bytes),
        Err(e) => Err(e),
    };
    let ready = taken
        .and_then(|backed| rustix::fs::ftruncate(&fd, bytes).map(|()| backed))
        .map_err(|e| {
            Refusal::new(format!(
                "--flash {}: cannot hold {} ({e}): make room, or ask for less with --flash-size",
                path.display(),
                Size(bytes)
            ))
        })
        .and_then(|backed| direct(&fd, path).map(|()| backed));
    match ready {
        Ok(backed) => Ok(Store { fd, bytes, backed }),
        Err(refusal) => {
            // A file with a name must be empty, as it was found.
            let _ = rustix::fs::ftruncate(&fd, 0);
            Err(refusal)
        }
    }
}

/// Gives a store file another size, all of which is allocated where the file system can.
pub(super) fn allocate(store: &mut Store, bytes: u64) -> Result<(), Errno> {
    match rustix::fs::fallocate(&store.fd, FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(e) => return Err(e),
    }
    rustix::fs::ftruncate(&store.fd, bytes)?;
    (store.bytes, store.backed) = (bytes, bytes);
    Ok(())
}

/// Tries direct I/O: writes a page of zeros at the start.
fn direct(fd: &OwnedFd, path: &Path) -> Result<(), Refusal> {
    let page = Page::zeros();
    let written = match rustix::io::pwrite(fd, &page.0, 0) {
        Ok(bytes) if bytes == page.0.len() => Ok(()),
        Ok(_) => Err(Errno::NOSPC),
        Err(e) => Err(e),
    };
    written.map_err(|e| {
        Refusal::new(format!(
            "--flash {}: direct I/O in pages of 4 KiB fails ({e}): name a folder on ext4, xfs or btrfs",
            path.display()
        ))
    })
}

fn cannot_open(path: &Path, e: Errno) -> Refusal {
    let shown = path.display();
    Refusal::new(match e {
        Errno::INVAL => format!(
            "--flash {shown}: no direct I/O there: name a folder on a local disk (ext4, xfs, btrfs)"
        ),
        Errno::ROFS => format!(
            "--flash {shown}: on a read-only file system: {}",
            Environment::here().disk()
        ),
        Errno::ACCESS | Errno::PERM => {
            format!("--flash {shown}: not writable ({e}): name a path that you may write to")
        }
        Errno::NOSPC | Errno::DQUOT => {
            format!("--flash {shown}: no space ({e}): make room, or name another path")
        }
        e => format!("--flash {shown}: {e}: name another path"),
    })
}

/// Removes stores in `folder` that runs created and were killed before they unlinked them.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let left: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()))
        .map(|entry| entry.path())
        .collect();
    for path in left {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::open(&path, flags, Mode::empty()) else {
            continue;
        };
        let ours = rustix::fs::fstat(&fd).is_ok_and(|stat| {
            stat.st_uid == rustix::process::geteuid().as_raw()
                && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        });
        if ours && rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // An error means that another run has swept it.
            let _ = rustix::fs::unlink(&path);
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // If it fails, the name is still exclusive: the file is created with O_EXCL.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// The first [`HEAD_BYTES`] of a device, as far as they are readable.
fn head(fd: &OwnedFd) -> Vec<u8> {
    let mut head = Vec::new();
    let mut page = Page::zeros();
    while head.len() < HEAD_BYTES
        && rustix::io::pread(fd, &mut page.0[..], head.len() as u64) == Ok(PAGE as usize)
    {
        head.extend_from_slice(&page.0);
    }
    head
}

/// What a device holds, by the signatures in its first bytes; `None`: nothing known.
pub(super) fn holds(head: &[u8]) -> Option<&'static str> {
    let signatures: [(usize, &[u8], &str); 10] = [
        (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (0, b"LUKS\xba\xbe", "a LUKS volume"),
        (512, b"LABELONE", "an LVM volume"),
        (4096, b"\xfc\x4e\x2b\xa9", "a RAID member"),
        (512, b"EFI PART", "a partition table"),
        (510, b"\x55\xaa", "a partition table or a boot sector"),
    ];
    signatures
        .iter()
        .find(|(at, magic, _)| head.get(*at..).is_some_and(|head| head.starts_with(magic)))
        .map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn file_systems_are_recognised() {
        let mut head = vec![0_u8; 128 << 10];
        assert_eq!(holds(&head), None);
        head[4086..4096].copy_from_slice(b"SWAPSPACE2");
        assert_eq!(holds(&head), Some("swap space"));
        assert_eq!(holds(&[]), None);
    }

    #[test]
    fn a_store_has_no_name() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let fd = named_for_a_moment(folder.path()).unwrap();
        let stat = rustix::fs::fstat(&fd).unwrap();
        assert_eq!((stat.st_nlink, stat.st_mode & 0o777), (0, 0o600));
        let store = open(folder.path(), 1 << 20, None).unwrap();
        assert!(store.bytes > 8 << 20 && store.backed <= 256 << 20);
        let taken = rustix::fs::fstat(&store.fd).unwrap().st_blocks as u64 * 512;
        assert!(taken <= 257 << 20, "{taken} bytes of the disk are taken");
        assert_eq!(rustix::fs::fstat(&store.fd).unwrap().st_nlink, 0);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn the_size_follows_the_disk_and_the_budget() {
        const GIB: u64 = 1 << 30;
        for (free, ram, bytes) in [
            // 80 % of the disk.
            (100 * GIB, GIB, 80 * GIB),
            // Eight budgets, up to 95 % of the disk.
            (100 * GIB, 11 * GIB, 88 * GIB),
            (100 * GIB, 20 * GIB, 95 * GIB),
        ] {
            assert_eq!(
                bytes_that_suit(free, ram) >> 20,
                bytes >> 20,
                "{free} {ram}"
            );
        }
    }

    #[test]
    fn only_abandoned_names_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let [left, held, other] =
            ["flashvm-store-1-a", "flashvm-store-2-b", "other"].map(|n| folder.path().join(n));
        for path in [&left, &held, &other] {
            fs::write(path, "x").unwrap();
        }
        let lock = fs::File::open(&held).unwrap();
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(folder.path());
        assert!(!left.exists() && held.exists() && other.exists());
    }
}
