//! Files of the supervisor that the processes of a run open, through `/proc`.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// The path by which other processes open a file of this one.
pub(super) fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// A memfd with these bytes, which nobody can change any more.
pub(super) fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // With vm.memfd_noexec=2 the kernel refuses a memfd without NOEXEC_SEAL; Linux before 6.3 does not know the
    // flag. The seal forbids execve, not executable mappings.
    let memfd = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))?;
    let mut file = File::from(memfd);
    file.write_all(bytes)?;
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, all)?;
    Ok(file.into())
}
