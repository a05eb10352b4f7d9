//! What a run tells at its end: some lines for people, one JSON object for programs.

use super::refusal::Refusal;
use super::supervise::{End, Outcome};
use super::units::{Size, count, latency};
use flashvm::control::{Control, Deliveries, Histogram, ProcessRecord, StatsSnapshot};
use flashvm_core::{PolicySpec, Preset};
use flashvm_sim::device::Wear;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// `--stats`.
#[derive(Debug, Serialize)]
struct Stats<'a> {
    ram_budget_pages: u64,
    processes: Vec<Process<'a>>,
    totals: Totals<'a>,
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    pid: u32,
    command: &'a str,
    /// Why the pager has ended it, if it has.
    ended_by_pager: Option<&'a str>,
    /// The first system call that the pager has refused it, and why.
    refused_call: Option<&'a str>,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Debug, Serialize)]
struct Totals<'a> {
    processes: u64,
    elapsed_s: f64,
    device_model: Option<DeviceModel<'a>>,
    #[serde(flatten)]
    figures: Figures,
}

/// The figures of one process, or their sums.
#[derive(Debug, Serialize)]
struct Figures {
    fault_mode: Deliveries,
    preset: Preset,
    policy: PolicySpec,
    small_pages: SmallPages,
    faults: Faults,
    pages_in: u64,
    pages_out: u64,
    bytes_read: u64,
    bytes_written: u64,
    zero_pages_skipped: u64,
    zero_pages_not_read: u64,
    sampled: u64,
    writes_held_back_s: f64,
    evicted: Evicted,
    prefetch: Prefetch,
    resident_pages_max: u64,
    fault_latency_us: Latency,
    discard: Discard,
    overlays_max: u64,
    refused: Refusals,
    pages_lost: u64,
    read_errors: u64,
    write_errors: u64,
    slots_bad: u64,
    budget_overruns: u64,
    moves_misreported: u64,
}

/// What budget and store had no room for: the program was told ENOMEM.
#[derive(Debug, Serialize)]
struct Refusals {
    allocations: u64,
    forks: u64,
}

#[derive(Debug, Serialize)]
struct Faults {
    total: u64,
    major: u64,
    soft: u64,
    zero: u64,
    write_protect: u64,
    waited: u64,
    stalled: u64,
}

#[derive(Debug, Serialize)]
struct Evicted {
    clean: u64,
    dirty: u64,
}

/// The heap of small pages, and its log.
#[derive(Debug, Serialize)]
struct SmallPages {
    faults: u64,
    major: u64,
    soft: u64,
    fresh: u64,
    pages_in: u64,
    bytes_in: u64,
    pages_out: u64,
    bytes_out: u64,
    evicted: Evicted,
    zero_pages_skipped: u64,
    log_bytes_written: u64,
    log_bytes_cleaned: u64,
    write_amplification: f64,
    table_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Prefetch {
    issued: u64,
    used: u64,
    wasted: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Discard commands to the device, and clusters that were overwritten in their stead.
#[derive(Debug, Serialize)]
struct Discard {
    commands: u64,
    bytes: u64,
    time_us: u64,
    elided: u64,
    refused: u64,
}

/// The device model, and what writing has done to it if it knows.
#[derive(Debug, Serialize)]
struct DeviceModel<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<f64>,
    #[serde(flatten)]
    wear: Option<&'a Wear>,
}

/// What the settings were called.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The program, for people.
    pub(crate) program: String,
    /// The preset.
    pub(crate) preset: Preset,
    /// The policy.
    pub(crate) policy: PolicySpec,
    /// The device model.
    pub(crate) device: Option<String>,
    /// Where changed small pages go: `log` or `in place`.
    pub(crate) organization: &'static str,
}

fn figures(stats: &StatsSnapshot, names: &Names) -> Figures {
    Figures {
        fault_mode: stats.deliveries,
        preset: names.preset,
        policy: names.policy,
        faults: Faults {
            total: stats.faults_total + stats.svmp_faults,
            major: stats.faults_major + stats.svmp_major,
            soft: stats.faults_soft + stats.svmp_soft,
            zero: stats.faults_zero + svmp_zero_faults(stats),
            write_protect: stats.faults_write_protect,
            waited: stats.faults_waited,
            stalled: stats.faults_stalled,
        },
        pages_in: stats.pages_in,
        pages_out: stats.pages_out,
        bytes_read: bytes_read(stats),
        bytes_written: bytes_written(stats),
        zero_pages_skipped: stats.zero_pages_skipped,
        zero_pages_not_read: stats.zero_pages_not_read,
        sampled: stats.sampled,
        writes_held_back_s: stats.writes_held_back_ns as f64 / 1e9,
        evicted: Evicted {
            clean: stats.evicted_clean,
            dirty: stats.evicted_dirty,
        },
        prefetch: Prefetch {
            issued: stats.prefetch_issued,
            used: stats.prefetch_used,
            wasted: stats.prefetch_wasted,
        },
        resident_pages_max: stats.resident_pages_max,
        fault_latency_us: latencies(&stats.latency),
        discard: Discard {
            commands: stats.discard_commands,
            bytes: stats.discard_pages * PAGE,
            time_us: stats.discard_ns / 1000,
            elided: stats.discards_elided,
            refused: stats.discards_refused,
        },
        overlays_max: stats.overlays_max,
        small_pages: small_pages(stats),
        refused: Refusals {
            allocations: stats.allocations_refused,
            forks: stats.forks_refused,
        },
        pages_lost: stats.pages_lost,
        read_errors: stats.read_errors + stats.svmp_read_errors,
        write_errors: stats.write_errors + stats.log_write_errors,
        slots_bad: stats.slots_bad,
        budget_overruns: stats.budget_overruns,
        moves_misreported: stats.moves_misreported,
    }
}

/// Bytes read from the store, for pages of all sizes and by the log's cleaner.
fn bytes_read(stats: &StatsSnapshot) -> u64 {
    stats.bytes_read + stats.svmp_bytes_in + stats.log_bytes_cleaned
}

/// Bytes written to the store, for pages of all sizes.
fn bytes_written(stats: &StatsSnapshot) -> u64 {
    stats.bytes_written + stats.log_bytes_written
}

/// Faults on small pages of zeros: those that found nothing else.
fn svmp_zero_faults(stats: &StatsSnapshot) -> u64 {
    stats
        .svmp_faults
        .saturating_sub(stats.svmp_major + stats.svmp_soft)
}

fn small_pages(stats: &StatsSnapshot) -> SmallPages {
    SmallPages {
        faults: stats.svmp_faults,
        major: stats.svmp_major,
        soft: stats.svmp_soft,
        fresh: stats.svmp_fresh,
        pages_in: stats.svmp_pages_in,
        bytes_in: stats.svmp_bytes_in,
        pages_out: stats.log_pages,
        bytes_out: stats.log_bytes_changed,
        evicted: Evicted {
            clean: stats.svmp_evicted_clean,
            dirty: stats.svmp_evicted_dirty,
        },
        zero_pages_skipped: stats.svmp_zero_pages,
        log_bytes_written: stats.log_bytes_written,
        log_bytes_cleaned: stats.log_bytes_cleaned,
        write_amplification: write_amplification(stats),
        table_bytes: stats.svmp_table_bytes,
    }
}

/// Bytes written to the log for each byte of a changed page; 0 if there were none.
fn write_amplification(stats: &StatsSnapshot) -> f64 {
    match stats.log_bytes_changed {
        0 => 0.0,
        changed => stats.log_bytes_written as f64 / changed as f64,
    }
}

fn latencies(histogram: &Histogram) -> Latency {
    let us = |ns: u64| ns as f64 / 1e3;
    Latency {
        p50: us(histogram.quantile(0.5)),
        p99: us(histogram.quantile(0.99)),
        p999: us(histogram.quantile(0.999)),
        max: us(histogram.max()),
    }
}

/// The sums over all processes; the most resident pages are those of all at one time.
fn totals(outcome: &Outcome, control: Control) -> StatsSnapshot {
    let mut sum = StatsSnapshot::default();
    let mut resident_pages_max = u64::from(control.used_frames_max());
    for record in outcome.records.iter() {
        resident_pages_max = resident_pages_max.max(record.stats.resident_pages_max);
        sum.add(&record.stats);
    }
    StatsSnapshot {
        resident_pages_max,
        ..sum
    }
}

/// Where `--stats` goes, checked before the run.
#[derive(Debug)]
pub(crate) struct StatsFile {
    path: PathBuf,
    /// The folder for the new file, or `None` if something that is no file is written to.
    folder: Option<PathBuf>,
}

impl StatsFile {
    /// Checks that a file can be written at `path`.
    pub(crate) fn check(path: &Path) -> Result<Self, Refusal> {
        let refuse = |why: &dyn std::fmt::Display| {
            Refusal::new(format!(
                "--stats {}: {why}: name a file that can be written",
                path.display()
            ))
        };
        let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
        if special {
            if path.is_dir() {
                return Err(refuse(&"a folder"));
            }
            return Ok(Self {
                path: path.to_owned(),
                folder: None,
            });
        }
        // A link keeps pointing to what it points to.
        let path_real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match path_real.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return Err(refuse(&"not a file")),
        };
        // The program may change the working folder of nobody but itself; but be sure.
        let folder = std::fs::canonicalize(folder).map_err(|e| refuse(&e))?;
        rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).map_err(|e| refuse(&e))?;
        Ok(Self {
            path: path_real,
            folder: Some(folder),
        })
    }

    /// Writes the object: another reader sees the whole of it or nothing.
    pub(crate) fn write(
        &self,
        outcome: &Outcome,
        control: Control,
        names: &Names,
    ) -> std::io::Result<()> {
        let stats = Stats {
            ram_budget_pages: control.budget_frames().into(),
            processes: outcome
                .records
                .iter()
                .map(|record| Process {
                    pid: record.pid,
                    command: &record.command,
                    ended_by_pager: record.ended.as_deref(),
                    refused_call: record.refused.as_deref(),
                    figures: figures(&record.stats, names),
                })
                .collect(),
            totals: Totals {
                processes: outcome.records.processes(),
                elapsed_s: outcome.elapsed.as_secs_f64(),
                device_model: names.device.as_deref().map(|model| DeviceModel {
                    model,
                    write_amplification: outcome.wear.as_ref().map(Wear::write_amplification),
                    wear: outcome.wear.as_ref(),
                }),
                figures: figures(&totals(outcome, control), names),
            },
        };
        let mut json = serde_json::to_vec(&stats)?;
        json.push(b'\n');
        let Some(folder) = &self.folder else {
            return std::fs::OpenOptions::new()
                .write(true)
                .open(&self.path)?
                .write_all(&json);
        };
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let mut file = tempfile::Builder::new()
            .prefix(".flashvm-stats-")
            .permissions(permissions)
            .tempfile_in(folder)?;
        file.write_all(&json)?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// The lines for people.
pub(crate) fn lines(outcome: &Outcome, control: Control, names: &Names) -> String {
    let sum = totals(outcome, control);
    let end = match outcome.end {
        End::Exited(code) => format!("exit code {code}"),
        End::Signalled(signal) => format!("ended by signal {signal}"),
    };
    let budget_pages = u64::from(control.budget_frames());
    let mut lines = format!(
        "flashvm: {}: {end} after {:.1} s in {} of RAM ({} mode, preset {}, policy {})\n",
        names.program,
        outcome.elapsed.as_secs_f64(),
        Size(budget_pages * PAGE),
        sum.deliveries,
        names.preset,
        names.policy,
    );
    let mut line = |name: &str, text: String| {
        lines.push_str(&format!("  {name:<10}{text}\n"));
    };
    if outcome.records.processes() == 0 {
        line("processes", "none was paged".to_owned());
        return lines;
    }
    line(
        "faults",
        format!(
            "{}: {} from flash, {} soft, {} zero, {} first writes",
            count(sum.faults_total + sum.svmp_faults),
            count(sum.faults_major + sum.svmp_major),
            count(sum.faults_soft + sum.svmp_soft),
            count(sum.faults_zero + svmp_zero_faults(&sum)),
            count(sum.faults_write_protect)
        ),
    );
    line(
        "latency",
        format!(
            "p50 {}, p99 {}, max {}",
            latency(sum.latency.quantile(0.5)),
            latency(sum.latency.quantile(0.99)),
            latency(sum.latency.max())
        ),
    );
    line(
        "in",
        format!("{} pages, {}", count(sum.pages_in), Size(sum.bytes_read)),
    );
    line(
        "out",
        format!(
            "{} pages, {}; {} pages of zeros not written",
            count(sum.pages_out),
            Size(sum.bytes_written),
            count(sum.zero_pages_skipped)
        ),
    );
    if sum.svmp_fresh > 0 {
        line(
            "small",
            format!(
                "{} pages in, {}; {} out, {}; {} mappings at most",
                count(sum.svmp_pages_in),
                Size(sum.svmp_bytes_in),
                count(sum.log_pages),
                Size(sum.log_bytes_changed),
                count(sum.overlays_max)
            ),
        );
        line(
            names.organization,
            format!(
                "{} written, {} read to clean: {:.2} times what has changed",
                Size(sum.log_bytes_written),
                Size(sum.log_bytes_cleaned),
                write_amplification(&sum)
            ),
        );
    }
    if sum.zero_pages_skipped > 0 {
        let moved = sum.pages_out + sum.zero_pages_skipped;
        line(
            "zeros",
            format!(
                "{:.1} % of page writes saved, {} reads",
                sum.zero_pages_skipped as f64 * 100.0 / moved as f64,
                count(sum.zero_pages_not_read)
            ),
        );
    }
    if sum.sampled > 0 {
        line("sampled", format!("{} dirty pages", count(sum.sampled)));
    }
    if sum.writes_held_back_ns > 0 {
        line(
            "limit",
            format!(
                "writes held back for {:.1} s in all",
                sum.writes_held_back_ns as f64 / 1e9
            ),
        );
    }
    if sum.discard_commands + sum.discards_elided > 0 {
        line(
            "discards",
            format!(
                "{} commands, {}, {:.1} s; {} clusters overwritten instead",
                count(sum.discard_commands),
                Size(sum.discard_pages * PAGE),
                sum.discard_ns as f64 / 1e9,
                count(sum.discards_elided)
            ),
        );
    }
    if let Some(model) = &names.device {
        let wear = outcome.wear.as_ref().map_or(String::new(), |wear| {
            format!(
                ": write amplification {:.2}, blocks erased {:.1} times ({} to {})",
                wear.write_amplification(),
                wear.erase_mean,
                wear.erase_min,
                wear.erase_max
            )
        });
        line("device", format!("{model}{wear}"));
    }
    let share = match sum.prefetch_issued {
        0 => String::new(),
        issued => format!(
            " ({:.1} %)",
            sum.prefetch_used as f64 * 100.0 / issued as f64
        ),
    };
    line(
        "prefetch",
        format!(
            "{} pages, {} used{share}, {} wasted",
            count(sum.prefetch_issued),
            count(sum.prefetch_used),
            count(sum.prefetch_wasted)
        ),
    );
    line(
        "resident",
        format!(
            "{} of {} pages at most",
            count(sum.resident_pages_max),
            count(budget_pages)
        ),
    );
    let read_errors = sum.read_errors + sum.svmp_read_errors;
    let write_errors = sum.write_errors + sum.log_write_errors;
    if read_errors + write_errors > 0 {
        line(
            "errors",
            format!("{read_errors} pages not read, {write_errors} writes repeated"),
        );
    }
    if outcome.records.processes() > 1 {
        line("processes", count(outcome.records.processes()));
    }
    for (name, text) in causes(outcome, control, &sum) {
        line(name, text);
    }
    lines
}

/// What the pager did to a program that failed, for who wants to hear of nothing else.
pub(crate) fn complaints(outcome: &Outcome, control: Control, names: &Names) -> String {
    causes(outcome, control, &totals(outcome, control))
        .into_iter()
        .filter(|(name, _)| *name != CALLS)
        .map(|(name, text)| format!("flashvm: {}: {name}: {text}\n", names.program))
        .collect()
}

/// The line on system calls that were refused: who made them has heard of it at once.
const CALLS: &str = "calls";
/// Processes that are named, of those that the pager has ended or refused a call.
const NAMED_MAX: usize = 5;

/// What the pager refused its processes, what it lost of theirs, and which ones it ended: a name and a
/// text for each line.
fn causes(outcome: &Outcome, control: Control, sum: &StatsSnapshot) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let refused: Vec<_> = [
        (sum.allocations_refused, "allocation"),
        (sum.forks_refused, "fork"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, what)| number_of(number, what))
    .collect();
    if !refused.is_empty() {
        lines.push((
            "refused",
            format!("{} (ENOMEM): {}", refused.join(", "), too_little(control)),
        ));
    }
    if sum.pages_lost > 0 {
        lines.push((
            "lost",
            format!(
                "{}, which flash did not return as written: a touch of them is SIGBUS; see the device's log",
                number_of(sum.pages_lost, "page")
            ),
        ));
    }
    let reasons = |name, of: fn(&ProcessRecord) -> Option<&String>| {
        let told: Vec<_> = outcome
            .records
            .iter()
            .filter_map(|record| {
                let reason = one_line(of(record)?);
                let command = one_line(&record.command);
                Some(format!("process {} ({command}): {reason}", record.pid))
            })
            .collect();
        let more = told.len().saturating_sub(NAMED_MAX) as u64;
        let more = (more > 0).then(|| format!("and {} more", number_of(more, "process")));
        let named = told.into_iter().take(NAMED_MAX);
        named
            .chain(more)
            .map(move |text| (name, text))
            .collect::<Vec<_>>()
    };
    lines.extend(reasons(CALLS, |record| record.refused.as_ref()));
    lines.extend(reasons("ended", |record| record.ended.as_ref()));
    lines
}

/// Why there was no room for what was refused, and what helps.
fn too_little(control: Control) -> String {
    if control.disk_was_full() {
        return "the disk of the flash store is full: make room there, or name another --flash"
            .to_owned();
    }
    let (_, most) = control.committed_pages();
    format!(
        "budget and store hold {} together: give it a larger --flash-size (it was {}) or more --ram",
        Size(most * PAGE),
        Size(u64::from(control.store_slots()) * PAGE)
    )
}

/// `1 fork`, `1,234 allocations`.
fn number_of(number: u64, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "process") => format!("{} processes", count(number)),
        _ => format!("{} {what}s", count(number)),
    }
}

/// A text of a process', without what would end the line or do things to a terminal.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}
