//! Checks of the store: its path, its space, direct I/O, and how long a random read takes.

use super::{Check, Verdict, bad, good};
use crate::cli::environment::Environment;
use crate::cli::machine::{self, file_system_name, free_bytes, in_ram};
use crate::cli::store::{self, Page};
use crate::cli::units::Size;
use flashvm_sim::Rng;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of the file in which reads are timed.
pub(super) const TIMED_BYTES: u64 = 16 << 20;
/// Bytes in one write of that file.
const WRITE_BYTES: usize = 1 << 20;
/// Most time for writing it, and for reading in it.
const WRITING_MAX: Duration = Duration::from_millis(200);
const READING_MAX: Duration = Duration::from_millis(150);
/// Reads to time; fewer than the least make no median.
const READS: usize = 500;
const READS_MIN: usize = 15;
const PAGE: u64 = 4096;

/// The store's checks, and the time of a random read there.
pub(super) struct Flash {
    pub(super) checks: Vec<Check>,
    /// Median of random reads of 4 KiB, in nanoseconds; `None`: not measured.
    pub(super) read_ns: Option<u64>,
}

impl Flash {
    fn of(checks: Vec<Check>) -> Self {
        Self {
            checks,
            read_ns: None,
        }
    }

    /// Why there can be no store; `None`: there can.
    pub(super) fn lacks(&self) -> Option<&Check> {
        self.checks
            .iter()
            .find(|check| check.verdict == Verdict::Missing)
    }
}

/// Checks the path of the store: `given`, or the default.
pub(super) fn look(given: Option<&Path>, place: &Environment) -> Flash {
    let missing = |name, value: String, remedy: String| {
        Flash::of(vec![bad(name, Verdict::Missing, value, remedy)])
    };
    let path = match given.map_or_else(machine::temporary_folder, |path| Ok(PathBuf::from(path))) {
        Ok(path) => path,
        Err(refusal) => return missing("flash path", "none".to_owned(), refusal.to_string()),
    };
    let shown = path.display();
    let statfs = match rustix::fs::statfs(&path) {
        Ok(statfs) => statfs,
        Err(e) => {
            let remedy = "name a folder, an empty file or a block device with --flash".to_owned();
            return missing("flash path", format!("{shown}: {e}"), remedy);
        }
    };
    if !path.is_dir() {
        return Flash::of(vec![good(
            "flash path",
            format!("{shown}: checked when a run opens it"),
        )]);
    }
    let value = format!("{shown} on {}", file_system_name(&statfs));
    if in_ram(&statfs) {
        return missing("flash path", format!("{value}, which is RAM"), place.disk());
    }
    let free = format!("{} at {shown}", Size(free_bytes(&statfs)));
    let mut checks = vec![good("flash path", value), good("free space", free)];
    let mut read_ns = None;
    match store::open(&path, 0, Some(Size(TIMED_BYTES))) {
        Ok(store) => {
            checks.push(good("direct I/O", format!("works at {shown}")));
            read_ns = time_reads(&store.fd).ok().flatten();
            if let Some(ns) = read_ns {
                let latency = crate::cli::units::latency(ns);
                let value = format!(
                    "{latency}: median of 4 KiB, one at a time, in {} just written",
                    Size(TIMED_BYTES)
                );
                checks.push(good("random read", value));
            }
        }
        Err(refusal) => checks.push(bad(
            "direct I/O",
            Verdict::Missing,
            refusal.to_string(),
            place.disk(),
        )),
    }
    Flash { checks, read_ns }
}

/// The time of a random read of 4 KiB at the store's path: `given`, or the default. `None`: it cannot be measured.
pub(crate) fn read_time(given: Option<&Path>) -> Option<Duration> {
    look(given, &Environment::here())
        .read_ns
        .map(Duration::from_nanos)
}

/// Writes the file, then reads pages of it at random, one at a time: the median in nanoseconds. `None`: the time was
/// too short for [`READS_MIN`]. Reads bypass the page cache, not the device's own.
fn time_reads(file: &OwnedFd) -> Result<Option<u64>, Errno> {
    // Allocated, unwritten space would read as zeros without the device.
    let mut random = Rng::new(1);
    let mut buffer = vec![Page([0; PAGE as usize]); WRITE_BYTES / PAGE as usize];
    for page in &mut buffer {
        for bytes in page.0.chunks_exact_mut(8) {
            bytes.copy_from_slice(&random.next_u64().to_ne_bytes());
        }
    }
    let started = Instant::now();
    let mut written = 0;
    while written < TIMED_BYTES && started.elapsed() < WRITING_MAX {
        let slices: Vec<_> = buffer
            .iter()
            .map(|page| std::io::IoSlice::new(&page.0))
            .collect();
        written += rustix::io::pwritev(file, &slices, written)? as u64;
    }
    let pages = written / PAGE;
    let started = Instant::now();
    let mut times = Vec::with_capacity(READS);
    let page = &mut buffer[0];
    while pages > 0 && times.len() < READS && started.elapsed() < READING_MAX {
        let at = random.below(pages) * PAGE;
        let begun = Instant::now();
        rustix::io::pread(file, &mut page.0[..], at)?;
        times.push(begun.elapsed().as_nanos() as u64);
    }
    Ok(median(times))
}

/// The median; `None` for fewer than [`READS_MIN`] values.
fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (values.len() >= READS_MIN).then(|| *values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_needs_enough_values() {
        assert_eq!(median((0..14).collect()), None);
        assert_eq!(median((0..15).rev().collect()), Some(7));
    }

    #[test]
    fn reads_of_a_disk_take_time() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let flash = look(Some(folder.path()), &Environment::Bare);
        assert!(flash.lacks().is_none(), "{:?}", flash.checks);
        assert!(flash.read_ns.is_some_and(|ns| ns > 0), "{:?}", flash.checks);
        let left = std::fs::read_dir(folder.path()).expect("the folder");
        assert_eq!(left.count(), 0, "the file has no name");
    }
}
