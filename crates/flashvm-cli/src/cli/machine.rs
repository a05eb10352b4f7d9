//! What the machine offers: capabilities, io_uring, and the flash path's file system.

use super::environment::{Environment, Need};
use super::memory;
use super::refusal::Refusal;
use super::units::Size;
use flashvm_core::PAGE_SIZE;
use flashvm_live::control::HugePages;
use rustix::fs::StatFs;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::path::{Path, PathBuf};

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// The number in a one-line file; `None` also for "max".
pub(crate) fn number(path: &Path) -> Option<u64> {
    memory::number(&memory::of_this_machine, path)
}

/// Whether this process has `CAP_SYS_PTRACE` in the initial user namespace, which fork events by userfaultfd
/// need.
pub(crate) fn may_trace() -> bool {
    let held = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    held && map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether a file system keeps its files in RAM.
pub(crate) fn in_ram(statfs: &StatFs) -> bool {
    matches!(statfs.f_type as u64, TMPFS | RAMFS)
}

/// The name of a file system's type, from the magic number in `statfs`.
pub(crate) fn file_system_name(statfs: &StatFs) -> String {
    let magic = statfs.f_type as u64 & 0xffff_ffff;
    let known = [
        (0xEF53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683E, "btrfs"),
        (0xF2F5_2010, "f2fs"),
        (0x2FC1_2FC1, "zfs"),
        (0x794C_7630, "overlay"),
        (0x6969, "nfs"),
        (0x6573_5546, "fuse"),
        (TMPFS, "tmpfs"),
        (RAMFS, "ramfs"),
    ];
    known.iter().find(|(known, _)| *known == magic).map_or_else(
        || format!("type {magic:#x}"),
        |(_, name)| (*name).to_owned(),
    )
}

/// The kernel's setting of huge pages.
pub(crate) const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Where the kernel gives huge pages; nowhere if it has none.
pub(crate) fn huge_pages() -> HugePages {
    let chosen = |text: &str, word: &str| text.contains(&format!("[{word}]"));
    match std::fs::read_to_string(HUGE_PAGES) {
        Ok(text) if chosen(&text, "always") => HugePages::Always,
        Ok(text) if chosen(&text, "madvise") => HugePages::Madvise,
        _ => HugePages::Never,
    }
}

/// Free bytes of a file system, without those that it reserves for root.
pub(crate) fn free_bytes(statfs: &StatFs) -> u64 {
    statfs.f_bavail.saturating_mul(statfs.f_frsize as u64)
}

/// The default folder of the store: the first that exists, is on a disk and is writable.
///
/// # Errors
/// There is none: what each lacks, and the remedy.
pub(crate) fn temporary_folder() -> Result<PathBuf, Refusal> {
    let given = std::env::var_os("TMPDIR")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let folders = given.into_iter().chain(["/var/tmp".into(), "/tmp".into()]);
    let mut reasons = Vec::new();
    for folder in folders {
        match lacks(&folder) {
            None => return Ok(folder),
            Some(why) => reasons.push(format!("{} {why}", folder.display())),
        }
    }
    Err(Refusal::new(format!(
        "there is no folder for the store ({}): {}",
        reasons.join("; "),
        Environment::here().disk()
    )))
}

/// Why a folder cannot hold the store; `None`: it can.
fn lacks(folder: &Path) -> Option<String> {
    let statfs = match rustix::fs::statfs(folder) {
        Ok(_) if !folder.is_dir() => return Some("is no folder".to_owned()),
        Ok(statfs) => statfs,
        Err(_) => return Some("does not exist".to_owned()),
    };
    if in_ram(&statfs) {
        return Some(format!("is on {}, which is RAM", file_system_name(&statfs)));
    }
    match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        Ok(()) => None,
        Err(Errno::ROFS) => Some("is on a read-only file system".to_owned()),
        Err(_) => Some("is not writable".to_owned()),
    }
}

/// Refuses a machine without `/proc`: a program finds its run through it.
pub(crate) fn check_proc(place: &Environment) -> Result<(), Refusal> {
    if Path::new("/proc/self/fd").exists() {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "/proc is not mounted, and a run needs it: {}",
        place.remedy(Need::Proc)
    )))
}

/// Refuses a kernel whose pages have another size than the pager's, as many on aarch64.
///
/// # Errors
/// The size, and the remedy.
pub(crate) fn check_page_bytes() -> Result<(), Refusal> {
    page_bytes_refusal(rustix::param::page_size()).map_or(Ok(()), |line| Err(Refusal::new(line)))
}

fn page_bytes_refusal(bytes: usize) -> Option<String> {
    let (here, wanted) = (Size(bytes as u64), Size(PAGE_SIZE as u64));
    (bytes != PAGE_SIZE).then(|| {
        format!("this kernel has pages of {here}, and a run needs {wanted}: boot a kernel with pages of {wanted}")
    })
}

/// Whether the kernel permits io_uring. The answer holds for the program too: it inherits a seccomp filter.
///
/// # Errors
/// The kernel's error.
pub(crate) fn io_uring() -> std::io::Result<()> {
    io_uring::IoUring::new(4).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_page_sizes_are_refused_by_name() {
        assert_eq!(page_bytes_refusal(4 << 10), None);
        for (bytes, shown) in [(16 << 10, "16 KiB"), (64 << 10, "64 KiB")] {
            let line = page_bytes_refusal(bytes).expect("a refusal");
            assert!(line.contains(shown) && line.contains("4 KiB"), "{line}");
        }
    }
}
