//! What the machine offers: available memory, and the flash path's file system.

use super::refusal::Refusal;
use rustix::fs::StatFs;
use rustix::thread::CapabilitySet;
use std::path::{Path, PathBuf};

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// Available RAM in bytes: min(`MemAvailable`, what the memory cgroups leave).
pub(crate) fn available_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_bytes(Path::new("/sys/fs/cgroup"), &groups);
    Some(cgroup.unwrap_or(u64::MAX).min(kib * 1024))
}

/// min(limit - use) in bytes, over the memory cgroups in `groups` (`/proc/self/cgroup`) and their ancestors. `None`:
/// no limit.
fn cgroup_bytes(root: &Path, groups: &str) -> Option<u64> {
    groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let (base, limit, used) = if controllers.is_empty() {
                (root.to_owned(), "memory.max", "memory.current")
            } else if controllers.split(',').any(|name| name == "memory") {
                (
                    root.join("memory"),
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                )
            } else {
                return None;
            };
            // In a container the path may be the host's and not exist here; then the limit of the root counts.
            let inner = base.join(path.trim_start_matches('/'));
            inner
                .ancestors()
                .take_while(|folder| folder.starts_with(&base))
                .filter_map(|folder| {
                    let limit: u64 = number(&folder.join(limit))?;
                    let used: u64 = number(&folder.join(used))?;
                    Some(limit.saturating_sub(used))
                })
                .min()
        })
        .min()
}

/// The number in a one-line file; `None` also for "max".
pub(crate) fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
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

/// Free bytes of a file system, without those that it reserves for root.
pub(crate) fn free_bytes(statfs: &StatFs) -> u64 {
    statfs.f_bavail.saturating_mul(statfs.f_frsize as u64)
}

/// The default folder of the store: the first that exists, is on a disk and is writable.
pub(crate) fn temporary_folder() -> Result<PathBuf, Refusal> {
    let given = std::env::var_os("TMPDIR")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let usable = |folder: &PathBuf| {
        folder.is_dir()
            && rustix::fs::statfs(folder).is_ok_and(|statfs| !in_ram(&statfs))
            && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
    };
    given.into_iter().chain(["/var/tmp".into(), "/tmp".into()]).find(usable).ok_or_else(|| {
        Refusal::new(
            "neither $TMPDIR nor /var/tmp nor /tmp is a writable folder on a disk: name one with --flash",
        )
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
    use std::fs;

    #[test]
    fn the_tightest_cgroup_decides() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/b/memory.max", "max\n");
        put("a/b/memory.current", "100\n");
        put("a/memory.max", "1000\n");
        put("a/memory.current", "300\n");
        assert_eq!(cgroup_bytes(root.path(), "0::/a/b\n"), Some(700));
        assert_eq!(cgroup_bytes(root.path(), "0::/elsewhere\n"), None);

        put("memory/x/memory.limit_in_bytes", "500\n");
        put("memory/x/memory.usage_in_bytes", "600\n");
        assert_eq!(
            cgroup_bytes(root.path(), "3:cpu:/x\n2:memory:/x\n0::/\n"),
            Some(0)
        );

        put("memory.max", "5000\n");
        put("memory.current", "1\n");
        assert_eq!(
            cgroup_bytes(root.path(), "0::/host/path/not/here\n"),
            Some(4999)
        );
    }
}
