//! `flashvm heap`: creates, inspects and maintains persistent heaps.

mod copies;

use super::args::{HeapBenchArgs, HeapCommand, HeapInitArgs, HeapPathArgs};
use super::refusal::Refusal;
use super::scratch::Scratch;
use super::units::{Size, count};
use super::write_out;
use gordon::flash::{FileMedium, SegmentState};
use gordon::{Collector, Error, Heap, Options, Report, Statistics, TypeStatistics, Var, View};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The exit code of `check` for a damaged heap.
const DAMAGED: u8 = 1;

/// Runs a command of `flashvm heap`.
pub(crate) fn heap(command: &HeapCommand) -> Result<ExitCode, Refusal> {
    match command {
        HeapCommand::Init(args) => init(args),
        HeapCommand::Info(args) => info(args),
        HeapCommand::Check(args) => check(args),
        HeapCommand::Export(args) => copies::export(args),
        HeapCommand::Backup(args) => copies::backup(args),
        HeapCommand::Grow(args) => copies::grow(args),
        HeapCommand::Collect(args) => collect(args),
        HeapCommand::Bench(args) => bench(args),
    }
}

/// The refusal for the heap at `path`, which it names.
fn refusal(path: &Path, error: &Error) -> Refusal {
    Refusal::new(match error {
        // These errors name the path themselves.
        Error::Io { .. } | Error::Locked(_) | Error::Occupied(_) => error.to_string(),
        error => format!("{}: {error}", path.display()),
    })
}

/// The refusal for a heap that cannot be made at `path`.
fn new_file_refusal(path: &Path, error: &Error) -> Refusal {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists => {
            Refusal::new(format!(
                "{} exists: remove it first, or choose another name",
                path.display()
            ))
        }
        error => refusal(path, error),
    }
}

fn init(args: &HeapInitArgs) -> Result<ExitCode, Refusal> {
    let terminal = std::io::stderr().is_terminal();
    let mut shown = Instant::now();
    let mut progress = |done: u64, total: u64| {
        if terminal && shown.elapsed() > Duration::from_millis(200) {
            shown = Instant::now();
            eprint!("\r{} of {} written ", Size(done), Size(total));
        }
    };
    let made =
        Heap::create_with_progress(&args.path, args.size.0, Options::default(), &mut progress);
    if terminal {
        eprint!("\r\x1b[K");
    }
    let heap = made.map_err(|error| new_file_refusal(&args.path, &error))?;
    let key = heap.key();
    heap.close().map_err(|error| refusal(&args.path, &error))?;
    write_out(&format!(
        "{}: a heap, persistent key {key:016x}\n",
        args.path.display()
    ))
}

/// Reads a heap: in its place, or on a copy in memory if another process has it or it may only be read.
fn read<R>(path: &Path, read: impl FnOnce(&View<'_>) -> Result<R, Error>) -> Result<R, Error> {
    let is_read_only = |source: &std::io::Error| {
        matches!(
            source.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
        )
    };
    match FileMedium::open(path) {
        Ok(medium) => Heap::inspect_with(Arc::new(medium), None, read),
        Err(Error::Locked(_)) => Heap::read_shared(path, None, read),
        Err(Error::Io { source, .. }) if is_read_only(&source) => {
            Heap::read_shared(path, None, read)
        }
        Err(error) => Err(error),
    }
}

/// The figures of a heap, and those by type if it knows its types.
fn inspect(path: &Path) -> Result<(Report, Option<Statistics>), Error> {
    read(path, |view| {
        let statistics = match view.statistics() {
            Ok(statistics) => Some(statistics),
            Err(Error::NoRoot | Error::NoTypes) => None,
            Err(error) => return Err(error),
        };
        Ok((view.report()?, statistics))
    })
}

#[derive(Debug, Serialize)]
struct Info {
    path: String,
    format: u32,
    key: String,
    base: String,
    bank_bytes: u64,
    segment_bytes: u64,
    segments: u64,
    segments_erased: u64,
    segments_allocated: u64,
    segments_dirty: u64,
    segments_retired: u64,
    erases_min: u32,
    erases_max: u32,
    state: u64,
    has_root: bool,
    immutable_bytes: u64,
    immutable_objects: u64,
    mutable_bytes: u64,
    mutable_objects: u64,
    pointers: u64,
    log_bytes: u64,
    /// Reachable objects by type; `None`: the heap does not know its types.
    types: Option<Vec<InfoType>>,
    own_bytes: Option<u64>,
    garbage_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct InfoType {
    name: String,
    objects: u64,
    bytes: u64,
}

impl Info {
    fn new(path: &Path, report: &Report, statistics: Option<&Statistics>) -> Self {
        let segments = |f: fn(&SegmentState) -> bool| {
            report
                .segments
                .iter()
                .filter(|segment| f(&segment.state))
                .count() as u64
        };
        let erases = report.segments.iter().map(|segment| segment.erases);
        Self {
            path: path.display().to_string(),
            format: gordon::flash::FORMAT,
            key: format!("{:016x}", report.identity.key),
            base: format!("{:#x}", report.identity.base),
            bank_bytes: report.identity.segment_bytes * report.identity.segments,
            segment_bytes: report.identity.segment_bytes,
            segments: report.identity.segments,
            segments_erased: segments(|state| *state == SegmentState::Erased),
            segments_allocated: segments(|state| matches!(state, SegmentState::Allocated { .. })),
            segments_dirty: segments(|state| *state == SegmentState::Dirty),
            segments_retired: segments(|state| *state == SegmentState::Retired),
            erases_min: erases.clone().min().unwrap_or(0),
            erases_max: erases.max().unwrap_or(0),
            state: report.sequence,
            has_root: report.has_root,
            immutable_bytes: report.immutable_bytes,
            immutable_objects: report.census.immutable_objects,
            mutable_bytes: report.mutable_bytes,
            mutable_objects: report.census.mutable_objects,
            pointers: report.census.pointers,
            log_bytes: report.log_bytes,
            types: statistics.map(|statistics| {
                let one = |of: &TypeStatistics| InfoType {
                    name: of.name.clone(),
                    objects: of.objects,
                    bytes: of.bytes,
                };
                statistics.types.iter().map(one).collect()
            }),
            own_bytes: statistics.map(|statistics| statistics.own_bytes),
            garbage_bytes: statistics.map(|statistics| statistics.garbage_bytes),
        }
    }

    /// What is reachable, by type.
    fn types_text(&self) -> String {
        let (Some(types), Some(garbage), Some(own)) =
            (&self.types, self.garbage_bytes, self.own_bytes)
        else {
            return match self.has_root {
                true => "  types      not known: an earlier version has set the root\n".to_owned(),
                false => String::new(),
            };
        };
        let line = |name: &str, objects: &str, bytes: u64| {
            format!(
                "    {objects:>12}  {:>9}  {name}\n",
                Size(bytes).to_string()
            )
        };
        let types = types
            .iter()
            .map(|of| line(&of.name, &count(of.objects), of.bytes));
        let rest = [
            line("root and types of the heap", "", own),
            line("garbage", "", garbage),
        ];
        let head = "  by type         objects      bytes\n".to_owned();
        std::iter::once(head).chain(types).chain(rest).collect()
    }

    fn text(&self) -> String {
        let root = if self.has_root { "set" } else { "not set" };
        format!(
            "{}: format {}, persistent key {}
  bank       {} in {} segments of {}
  segments   {} allocated, {} erased, {} to be erased, {} retired
  erases     {} to {} a segment
  addresses  from {}
  root       {root}
  immutable  {} in {} objects, garbage included
  mutable    {} in {} objects, garbage included
  log        {}
{}",
            self.path,
            self.format,
            self.key,
            Size(self.bank_bytes),
            self.segments,
            Size(self.segment_bytes),
            self.segments_allocated,
            self.segments_erased,
            self.segments_dirty,
            self.segments_retired,
            self.erases_min,
            self.erases_max,
            self.base,
            Size(self.immutable_bytes),
            count(self.immutable_objects),
            Size(self.mutable_bytes),
            count(self.mutable_objects),
            Size(self.log_bytes),
            self.types_text(),
        )
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data has a JSON form") + "\n"
}

fn info(args: &HeapPathArgs) -> Result<ExitCode, Refusal> {
    let inspected = inspect(&args.path).map_err(|error| refusal(&args.path, &error));
    let (report, statistics) = inspected?;
    let info = Info::new(&args.path, &report, statistics.as_ref());
    write_out(&if args.json { json(&info) } else { info.text() })
}

fn check(args: &HeapPathArgs) -> Result<ExitCode, Refusal> {
    #[derive(Serialize)]
    struct Checked {
        path: String,
        good: bool,
        damage: Option<String>,
        objects: u64,
        pointers: u64,
    }
    let path = args.path.display().to_string();
    let checked = match inspect(&args.path) {
        Ok((report, _)) => Checked {
            path,
            good: true,
            damage: None,
            objects: report.census.immutable_objects + report.census.mutable_objects,
            pointers: report.census.pointers,
        },
        Err(error @ (Error::Corrupted(_) | Error::Truncated { .. })) => Checked {
            path,
            good: false,
            damage: Some(error.to_string()),
            objects: 0,
            pointers: 0,
        },
        Err(error) => return Err(refusal(&args.path, &error)),
    };
    let written = write_out(&if args.json {
        json(&checked)
    } else if let Some(damage) = &checked.damage {
        format!("{}: {damage}\n", checked.path)
    } else {
        format!(
            "{}: good: {} objects, {} pointers, all checksums\n",
            checked.path,
            count(checked.objects),
            count(checked.pointers)
        )
    })?;
    Ok(if checked.good {
        written
    } else {
        ExitCode::from(DAMAGED)
    })
}

fn open(path: &Path) -> Result<Heap, Refusal> {
    let options = Options {
        collector: Collector::Stop,
        ..Options::default()
    };
    Heap::open(path, options).map_err(|error| refusal(path, &error))
}

fn collect(args: &HeapPathArgs) -> Result<ExitCode, Refusal> {
    let refused = |error: Error| refusal(&args.path, &error);
    let heap = open(&args.path)?;
    let report = || {
        let statistics = heap.view(|view| view.statistics()).ok();
        heap.report().map(|report| (report, statistics))
    };
    let (before, by_type) = report().map_err(refused)?;
    heap.collect().map_err(refused)?;
    let (after, by_type_after) = report().map_err(refused)?;
    heap.close().map_err(refused)?;
    #[derive(Serialize)]
    struct Collected {
        before: Info,
        after: Info,
    }
    let info = |report, by_type: &Option<_>| Info::new(&args.path, report, by_type.as_ref());
    let bytes = |report: &Report| Size(report.immutable_bytes + report.mutable_bytes);
    write_out(&if args.json {
        json(&Collected {
            before: info(&before, &by_type),
            after: info(&after, &by_type_after),
        })
    } else {
        format!(
            "{}: {} before, {} after\n",
            args.path.display(),
            bytes(&before),
            bytes(&after)
        )
    })
}

#[derive(Debug, Serialize)]
struct Bench {
    commits: u64,
    seconds: f64,
    commits_per_s: f64,
    latency_us: CommitLatency,
    syncs: u64,
}

#[derive(Debug, Serialize)]
struct CommitLatency {
    p50: f64,
    p99: f64,
    max: f64,
}

/// Commits a small update `--commits` times, in a temporary heap that is removed at the end.
fn bench(args: &HeapBenchArgs) -> Result<ExitCode, Refusal> {
    let folder = Scratch::within(&args.folder, ".flashvm-heap-bench-").map_err(|error| {
        Refusal::new(format!(
            "{}: {error}: give a folder that can be written",
            args.folder.display()
        ))
    })?;
    let path = folder.path().join("heap");
    let refused = |error: Error| refusal(&args.folder, &error);
    let heap = Heap::create(&path, 64 << 20, Options::default()).map_err(refused)?;
    heap.update(|tx| {
        tx.set_root(tx.var(0_u64));
        Ok(())
    })
    .map_err(refused)?;
    let syncs = heap.bank_counters().syncs;
    let mut times = Vec::new();
    let begun = Instant::now();
    for number in 0..args.commits {
        let begun = Instant::now();
        heap.update(|tx| {
            let root = tx
                .root::<Var<'_, u64>>()?
                .ok_or_else(|| Error::abort("no root"))?;
            root.write(tx, number);
            Ok(())
        })
        .map_err(refused)?;
        times.push(begun.elapsed());
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let us = |permille: usize| {
        let at = (times.len() - 1) * permille / 1000;
        times[at].as_nanos() as f64 / 1000.0
    };
    let bench = Bench {
        commits: args.commits,
        seconds,
        commits_per_s: args.commits as f64 / seconds,
        latency_us: CommitLatency {
            p50: us(500),
            p99: us(990),
            max: us(1000),
        },
        syncs: heap.bank_counters().syncs - syncs,
    };
    heap.close().map_err(refused)?;
    let CommitLatency { p50, p99, max } = bench.latency_us;
    write_out(&if args.json {
        json(&bench)
    } else {
        format!(
            "{} commits in {seconds:.2} s: {:.0} a second, p50 {p50:.0} us, p99 {p99:.0} us, max {max:.0} us, {} syncs\n",
            count(bench.commits),
            bench.commits_per_s,
            count(bench.syncs)
        )
    })
}
