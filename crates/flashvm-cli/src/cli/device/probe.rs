//! `flashvm device probe`: measures a real device as FlashVM's Table 2, Figure 4 and Figure 5(a) do.
//!
//! All requests bypass the page cache. A queue of 32 is 32 threads with one request each. Every measurement is
//! bounded in time, and reads only what was written before.

use super::args::ProbeArgs;
use crate::cli::refusal::Refusal;
use crate::cli::store::{self, Page};
use crate::cli::units::Size;
use crate::cli::write_out;
use flashvm_live::StoreKind;
use flashvm_sim::Rng;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use serde::Serialize;
use std::io::{IoSlice, IoSliceMut, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Pages per request of a stream.
const STREAM_PAGES: u64 = 256;
/// Requests in flight.
const DEPTH: usize = 32;
/// Pages per request of the mixed stream (FlashVM, 5.2.1).
const MIXED_PAGES: u64 = 5;
/// Sizes of discards: those of Figure 4, and some between.
const DISCARDS: [u64; 9] = [
    4 << 10,
    32 << 10,
    128 << 10,
    1 << 20,
    10 << 20,
    32 << 20,
    100 << 20,
    512 << 20,
    1 << 30,
];
/// Bounds of `--size`.
const SIZE_MIN: u64 = 16 << 20;
const SIZE_MAX: u64 = 1 << 40;
/// Steps of a probe, for the progress bar.
const STEPS: u64 = 6 + 6 + DISCARDS.len() as u64;

/// What was measured.
#[derive(Debug, Serialize)]
struct ProbeReport {
    path: PathBuf,
    ground: &'static str,
    size_bytes: u64,
    sequential_read_mb_s: f64,
    sequential_write_mb_s: f64,
    random_read_iops: f64,
    random_write_iops: f64,
    read_latency_us: f64,
    write_latency_us: f64,
    mixed: Vec<Mixed>,
    discards: Vec<DiscardTime>,
    /// Why `discards` is empty or incomplete.
    discards_refused: Option<String>,
}

/// Requests of five pages: reads in one half of the target, writes in the other (Figure 5(a)).
#[derive(Debug, Serialize)]
struct Mixed {
    writes_percent: u64,
    mb_s: f64,
}

#[derive(Debug, Serialize)]
struct DiscardTime {
    bytes: u64,
    ms: f64,
}

pub(super) fn probe(args: &ProbeArgs) -> Result<ExitCode, Refusal> {
    let Size(size) = args.size;
    if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
        return Err(Refusal::new(format!(
            "--size {}: ask for 16M to 1T",
            args.size
        )));
    }
    if args.seconds == 0 || args.seconds > 3600 {
        return Err(Refusal::new("--seconds: ask for 1 to 3600"));
    }
    let size = size / PAGE * PAGE;
    let target = open(&args.path, size, args.yes)?;
    let device = Device {
        kind: StoreKind::of(&target).map_err(|e| failed(&args.path, e))?,
        file: target,
        pages: size / PAGE,
        limit: Duration::from_secs(args.seconds),
    };
    let bar = ProgressBar::new(STEPS).with_style(
        ProgressStyle::with_template("{msg:32} {bar:30} {pos}/{len}, {elapsed}")
            .expect("a valid template"),
    );
    let report = device
        .measure(&args.path, &bar)
        .map_err(|e| failed(&args.path, e))?;
    bar.finish_and_clear();
    write_out(&if args.json {
        serde_json::to_string(&report).expect("numbers and texts") + "\n"
    } else {
        lines(&report)
    })
}

fn failed(path: &Path, e: rustix::io::Errno) -> Refusal {
    Refusal::new(format!("{}: {e}: nothing was measured", path.display()))
}

/// Opens the target: a nameless file, or a device after a confirmation.
fn open(path: &Path, size: u64, yes: bool) -> Result<OwnedFd, Refusal> {
    let stat = rustix::fs::stat(path).map_err(|e| {
        Refusal::new(format!(
            "{}: {e}: name a folder, a file or a block device",
            path.display()
        ))
    })?;
    let place = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        },
        _ => path,
    };
    if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice && !yes {
        ask(path)?;
    }
    // Checks mounts, file systems, space and direct I/O, as for a run's store.
    store::open(place, 0, Some(Size(size)))
        .map(|store| store.fd)
        .map_err(|refusal| refusal.renamed(&[("--flash-size", "--size"), ("--flash ", "")]))
}

fn ask(path: &Path) -> Result<(), Refusal> {
    let shown = path.display();
    if !std::io::stdin().is_terminal() {
        return Err(Refusal::new(format!(
            "{shown}: a probe overwrites the device: say so with --yes"
        )));
    }
    eprint!("flashvm: a probe overwrites {shown}. Go on? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Refusal::new(format!("{shown}: not measured"))),
    }
}

type Outcome<T> = Result<T, rustix::io::Errno>;

/// An open device.
struct Device {
    file: OwnedFd,
    kind: StoreKind,
    pages: u64,
    limit: Duration,
}

impl Device {
    fn measure(&self, path: &Path, bar: &ProgressBar) -> Outcome<ProbeReport> {
        let step = |what: &'static str| {
            bar.set_message(what);
            bar.inc(1);
        };
        step("writing a stream");
        let sequential_write_mb_s = self.fill()?;
        step("reading a stream");
        let sequential_read_mb_s = self.stream()?;
        step("reading at random");
        let random_read_iops = self.random(DEPTH, false)?;
        step("writing at random");
        let random_write_iops = self.random(DEPTH, true)?;
        step("reading one at a time");
        let read_latency_us = 1e6 / self.random(1, false)?;
        step("writing one at a time");
        let write_latency_us = 1e6 / self.random(1, true)?;
        let mut mixed = Vec::new();
        for writes_percent in [0, 20, 40, 60, 80, 100] {
            step("reads and writes mixed");
            mixed.push(Mixed {
                writes_percent,
                mb_s: self.mixed(writes_percent)?,
            });
        }
        let mut discards = Vec::new();
        let mut discards_refused = None;
        for bytes in DISCARDS
            .into_iter()
            .filter(|bytes| *bytes <= self.pages * PAGE)
        {
            step("discards");
            match self.discard(bytes)? {
                Ok(ms) => discards.push(DiscardTime { bytes, ms }),
                Err(e) => {
                    discards_refused = Some(e.to_string());
                    break;
                }
            }
        }
        Ok(ProbeReport {
            path: path.to_owned(),
            ground: match self.kind {
                StoreKind::File => "file",
                StoreKind::Device => "block device",
            },
            size_bytes: self.pages * PAGE,
            sequential_read_mb_s,
            sequential_write_mb_s,
            random_read_iops,
            random_write_iops,
            read_latency_us,
            write_latency_us,
            mixed,
            discards,
            discards_refused,
        })
    }

    /// Writes the whole target once, in a stream: MB/s.
    fn fill(&self) -> Outcome<f64> {
        let begun = Instant::now();
        let buffer = pages(STREAM_PAGES, 1);
        let next = AtomicU64::new(0);
        // Two in flight keep the device busy between requests.
        self.side_by_side(2, |_| {
            loop {
                let first = next.fetch_add(STREAM_PAGES, Ordering::Relaxed);
                if first >= self.pages {
                    return Ok(());
                }
                let count = STREAM_PAGES.min(self.pages - first);
                self.write(&buffer[..count as usize], first)?;
            }
        })?;
        Ok((self.pages * PAGE) as f64 / 1e6 / begun.elapsed().as_secs_f64())
    }

    fn stream(&self) -> Outcome<f64> {
        let begun = Instant::now();
        let next = AtomicU64::new(0);
        let read = AtomicU64::new(0);
        self.side_by_side(2, |_| {
            let mut buffer = pages(STREAM_PAGES, 0);
            while begun.elapsed() < self.limit {
                let first = next.fetch_add(STREAM_PAGES, Ordering::Relaxed);
                let Some(count) = self.pages.checked_sub(first).filter(|left| *left > 0) else {
                    break;
                };
                let count = count.min(STREAM_PAGES);
                self.read(&mut buffer[..count as usize], first)?;
                read.fetch_add(count, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok((read.into_inner() * PAGE) as f64 / 1e6 / begun.elapsed().as_secs_f64())
    }

    /// Single random pages: requests a second.
    fn random(&self, threads: usize, write: bool) -> Outcome<f64> {
        let begun = Instant::now();
        let done = AtomicU64::new(0);
        self.side_by_side(threads, |thread| {
            let mut rng = Rng::new(thread as u64 + 1);
            let mut buffer = pages(1, 2);
            while begun.elapsed() < self.limit {
                let page = rng.below(self.pages);
                match write {
                    true => self.write(&buffer, page)?,
                    false => self.read(&mut buffer, page)?,
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(done.into_inner() as f64 / begun.elapsed().as_secs_f64())
    }

    /// Requests of five pages, one at a time; each continues the stream of its direction: MB/s.
    fn mixed(&self, writes_percent: u64) -> Outcome<f64> {
        let begun = Instant::now();
        let mut rng = Rng::new(writes_percent + 1);
        let mut buffer = pages(MIXED_PAGES, 3);
        let half = self.pages / 2;
        let (mut at, mut done) = ([0, half], 0);
        while begun.elapsed() < self.limit {
            let write = rng.below(100) < writes_percent;
            let place = &mut at[usize::from(write)];
            let base = if write { half } else { 0 };
            if *place + MIXED_PAGES > base + half {
                *place = base;
            }
            match write {
                true => self.write(&buffer, *place)?,
                false => self.read(&mut buffer, *place)?,
            }
            *place += MIXED_PAGES;
            done += MIXED_PAGES * PAGE;
        }
        Ok(done as f64 / 1e6 / begun.elapsed().as_secs_f64())
    }

    /// Writes a range and discards it: the median time, in ms. The inner error: the device refuses discards.
    fn discard(&self, bytes: u64) -> Outcome<Result<f64, rustix::io::Errno>> {
        let count = bytes / PAGE;
        let buffer = pages(STREAM_PAGES, 4);
        let mut times = Vec::new();
        let begun = Instant::now();
        while times.len() < 9 && (times.is_empty() || begun.elapsed() < self.limit) {
            let mut at = 0;
            while at < count {
                let part = STREAM_PAGES.min(count - at);
                self.write(&buffer[..part as usize], at)?;
                at += part;
            }
            let sent = Instant::now();
            if let Err(e) = self.kind.discard(&self.file, 0, bytes) {
                return Ok(Err(e));
            }
            times.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_unstable_by(f64::total_cmp);
        Ok(Ok(times[times.len() / 2]))
    }

    /// Runs `threads` threads to their end; the first error of any.
    fn side_by_side(
        &self,
        threads: usize,
        work: impl Fn(usize) -> Outcome<()> + Sync,
    ) -> Outcome<()> {
        let error = Mutex::new(None);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (work, error, stop) = (&work, &error, &stop);
                scope.spawn(move || {
                    if !stop.load(Ordering::Relaxed)
                        && let Err(e) = work(thread)
                    {
                        stop.store(true, Ordering::Relaxed);
                        error.lock().expect("no thread panics").get_or_insert(e);
                    }
                });
            }
        });
        match error.into_inner().expect("no thread panics") {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    fn write(&self, pages: &[Page], at: u64) -> Outcome<()> {
        let parts: Vec<_> = pages.iter().map(|page| IoSlice::new(&page.0)).collect();
        let bytes = rustix::io::pwritev(&self.file, &parts, at * PAGE)?;
        whole(bytes, pages.len())
    }

    fn read(&self, pages: &mut [Page], at: u64) -> Outcome<()> {
        let count = pages.len();
        let parts = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0));
        let mut parts: Vec<_> = parts.collect();
        let bytes = rustix::io::preadv(&self.file, &mut parts, at * PAGE)?;
        whole(bytes, count)
    }
}

fn whole(bytes: usize, pages: usize) -> Outcome<()> {
    if bytes == pages * PAGE as usize {
        Ok(())
    } else {
        Err(rustix::io::Errno::IO)
    }
}

/// Random contents: a device cannot compress them.
fn pages(count: u64, seed: u64) -> Vec<Page> {
    let mut rng = Rng::new(seed);
    let mut page = Page([0; PAGE as usize]);
    (0..count)
        .map(|_| {
            for word in page.0.as_chunks_mut::<8>().0 {
                *word = rng.next_u64().to_ne_bytes();
            }
            page.clone()
        })
        .collect()
}

fn lines(report: &ProbeReport) -> String {
    let mut text = format!(
        "{}, a {}, {} of it\n\n\
         as FlashVM's Table 2       read       write\n\
         sequential      {:>10.0} {:>11.0}  MB/s\n\
         random 4 KiB    {:>10.0} {:>11.0}  IO/s, {DEPTH} at a time\n\
         latency         {:>10.3} {:>11.3}  ms, one at a time\n\n\
         as Figure 5(a): requests of five blocks, one at a time\n",
        report.path.display(),
        report.ground,
        Size(report.size_bytes),
        report.sequential_read_mb_s,
        report.sequential_write_mb_s,
        report.random_read_iops,
        report.random_write_iops,
        report.read_latency_us / 1e3,
        report.write_latency_us / 1e3,
    );
    for mixed in &report.mixed {
        let (writes, mb_s) = (mixed.writes_percent, mixed.mb_s);
        text.push_str(&format!("{writes:>4} % writes   {mb_s:>10.0}  MB/s\n"));
    }
    text.push_str("\nas Figure 4: one discard of what has just been written\n");
    for discard in &report.discards {
        let size = Size(discard.bytes).to_string();
        text.push_str(&format!("{size:>10}      {:>10.3}  ms\n", discard.ms));
    }
    if let Some(why) = &report.discards_refused {
        text.push_str(&format!("      refused: {why}\n"));
    }
    text
}
