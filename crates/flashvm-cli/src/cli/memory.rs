//! RAM: how much is available, and the limit above which the kernel ends programs.
//!
//! All functions are pure over the contents of files, which a [`Read`] gives.

use super::cgroups;
use std::fmt;
use std::path::{Path, PathBuf};

/// Gives the content of a file; `None` if it cannot be read.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Where the hierarchies of cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The limit of a version 1 cgroup without one: the largest signed number, in whole pages.
const NO_LIMIT: u64 = i64::MAX as u64 / 4096 * 4096;

/// The least and the largest part of a limit that `--ram auto` leaves for what is not heap. See [`headroom`].
const HEADROOM_BYTES_MIN: u64 = 64 << 20;
const HEADROOM_PART: u64 = 8;
const HEADROOM_PART_MAX: u64 = 2;

/// The limit on the RAM of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    pub(crate) source: Source,
}

/// What sets a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The memory cgroup of this file.
    Cgroup(PathBuf),
    /// The machine.
    Machine,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = super::units::Size(self.bytes);
        match &self.source {
            Source::Cgroup(file) => {
                write!(
                    f,
                    "the memory cgroup's limit of {size} ({})",
                    file.display()
                )
            }
            Source::Machine => write!(f, "the machine's RAM of {size}"),
        }
    }
}

/// Reads a file of this machine.
pub(crate) fn of_this_machine(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The smallest limit of the memory cgroups of this process and their ancestors, or the machine's RAM if that is smaller.
/// `None`: neither can be read.
pub(crate) fn memory_limit(read: Read) -> Option<MemoryLimit> {
    let of_cgroups = memory_cgroups(read).into_iter().filter_map(|cgroup| {
        let bytes = number(read, &cgroup.limit).filter(|&bytes| bytes < NO_LIMIT)?;
        let source = Source::Cgroup(cgroup.limit);
        Some(MemoryLimit { bytes, source })
    });
    let of_machine = meminfo(read, "MemTotal:").map(|bytes| MemoryLimit {
        bytes,
        source: Source::Machine,
    });
    of_cgroups.chain(of_machine).min_by_key(|limit| limit.bytes)
}

/// Available RAM in bytes: min(`MemAvailable`, what the memory cgroups leave). `None`: `/proc/meminfo` cannot be read.
pub(crate) fn available_bytes(read: Read) -> Option<u64> {
    let left = memory_cgroups(read).into_iter().filter_map(|cgroup| {
        Some(number(read, &cgroup.limit)?.saturating_sub(number(read, &cgroup.used)?))
    });
    let machine = available_of_machine(read)?;
    Some(left.min().unwrap_or(u64::MAX).min(machine))
}

/// RAM that the whole machine has available, in bytes.
pub(crate) fn available_of_machine(read: Read) -> Option<u64> {
    meminfo(read, "MemAvailable:")
}

/// RAM that `--ram auto` leaves for what is not heap: limit / 8, at least 64 MiB, at most limit / 2.
///
/// Measured: 9 to 36 MiB for budgets to 136 MiB, 36 to 47 for about 512 (docs/containers.md). It grows with the heap, as
/// bookkeeping and page tables take about 40 bytes for each of its pages, wherever that is: 8 % of the budget for a heap of
/// eight times its size.
pub(crate) fn headroom(limit_bytes: u64) -> u64 {
    let part = limit_bytes / HEADROOM_PART;
    part.max(HEADROOM_BYTES_MIN)
        .min(limit_bytes / HEADROOM_PART_MAX)
}

/// A memory cgroup's files.
struct Cgroup {
    limit: PathBuf,
    used: PathBuf,
}

/// The memory cgroups of this process and their ancestors, the innermost first. In a container the path in
/// `/proc/self/cgroup` may be the host's and not exist: then the root's files are the container's. They are also looked at
/// without `/proc`.
fn memory_cgroups(read: Read) -> Vec<Cgroup> {
    let groups = read(Path::new("/proc/self/cgroup"));
    let groups = groups.as_deref().unwrap_or("0::/\n1:memory:/\n");
    let mut found = Vec::new();
    for (controllers, path) in cgroups::lines(groups) {
        let (base, limit, used) = if controllers.is_empty() {
            (PathBuf::from(CGROUPS), "memory.max", "memory.current")
        } else if controllers.split(',').any(|name| name == "memory") {
            let base = Path::new(CGROUPS).join("memory");
            (base, "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        let inner = base.join(path.trim_start_matches('/'));
        let folders = inner.ancestors().filter(|path| path.starts_with(&base));
        found.extend(folders.map(|folder| Cgroup {
            limit: folder.join(limit),
            used: folder.join(used),
        }));
    }
    found
}

/// The number in a one-line file; `None` also for "max".
pub(crate) fn number(read: Read, path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// A figure of `/proc/meminfo`, in bytes.
fn meminfo(read: Read, name: &str) -> Option<u64> {
    let meminfo = read(Path::new("/proc/meminfo"))?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// A version 1 cgroup without a limit.
    const V1_MAX: &str = "9223372036854771712\n";
    const MEMINFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n",
    );

    /// A machine with these files.
    fn with<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn the_smallest_limit_applies() {
        let cgroup = |bytes, file: &str| {
            let source = Source::Cgroup(file.into());
            Some(MemoryLimit { bytes, source })
        };
        let machine = Some(MemoryLimit {
            bytes: 1024 * MIB,
            source: Source::Machine,
        });
        type Files = &'static [(&'static str, &'static str)];
        let table: [(&str, Files, Option<MemoryLimit>); 11] = [
            ("nothing can be read", &[], None),
            ("no cgroup", &[MEMINFO], machine.clone()),
            (
                "version 2, the inner is smaller",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/memory.max", "400000000\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "300000000\n"),
                ],
                cgroup(300_000_000, "/sys/fs/cgroup/a/b/memory.max"),
            ),
            (
                "version 2, the outer is smaller",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/memory.max", "200000000\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "300000000\n"),
                ],
                cgroup(200_000_000, "/sys/fs/cgroup/a/memory.max"),
            ),
            (
                "version 2, max inside",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/memory.max", "400000000\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                ],
                cgroup(400_000_000, "/sys/fs/cgroup/a/memory.max"),
            ),
            (
                "version 2, max everywhere",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a\n"),
                    ("/sys/fs/cgroup/a/memory.max", "max\n"),
                ],
                machine.clone(),
            ),
            (
                "more than the machine has",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a\n"),
                    ("/sys/fs/cgroup/a/memory.max", "99999999999\n"),
                ],
                machine.clone(),
            ),
            (
                "a container with the host's path",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/host/scope\n"),
                    ("/sys/fs/cgroup/memory.max", "500000000\n"),
                ],
                cgroup(500_000_000, "/sys/fs/cgroup/memory.max"),
            ),
            (
                "version 1, nested, beside an empty version 2",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "3:cpu:/x\n2:memory:/x/y\n0::/\n"),
                    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_MAX),
                    (
                        "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                        "200000000\n",
                    ),
                    ("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", V1_MAX),
                ],
                cgroup(200_000_000, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"),
            ),
            (
                "version 1 without a limit, and no RAM to be read",
                &[
                    ("/proc/self/cgroup", "2:cpu,memory:/\n"),
                    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_MAX),
                ],
                None,
            ),
            (
                "a container without /proc",
                &[("/sys/fs/cgroup/memory.max", "100000000\n")],
                cgroup(100_000_000, "/sys/fs/cgroup/memory.max"),
            ),
        ];
        for (name, files, wanted) in table {
            assert_eq!(memory_limit(&with(files)), wanted, "{name}");
        }
    }

    #[test]
    fn the_tightest_cgroup_decides_what_is_available() {
        let mut files = vec![
            MEMINFO,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "100\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "300\n"),
        ];
        assert_eq!(available_bytes(&with(&files)), Some(700));
        files[1] = ("/proc/self/cgroup", "0::/elsewhere\n");
        assert_eq!(available_bytes(&with(&files)), Some(512 * MIB));
        files[1] = ("/proc/self/cgroup", "3:cpu:/x\n2:memory:/x\n0::/\n");
        files.push(("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "500\n"));
        files.push(("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "600\n"));
        assert_eq!(available_bytes(&with(&files)), Some(0));
        assert_eq!(available_bytes(&with(&files[1..])), None);
    }

    #[test]
    fn headroom_grows_with_the_limit() {
        let table = [
            (32, 16),
            (64, 32),
            (128, 64),
            (256, 64),
            (512, 64),
            (1024, 128),
            (8192, 1024),
        ];
        for (limit, wanted) in table {
            assert_eq!(headroom(limit * MIB), wanted * MIB, "{limit} MiB");
        }
    }
}
