//! `flashvm reproduce record`: runs the programs of the evaluation live, in little memory, and keeps what they did to their
//! pages as traces.

use crate::cli::refusal::Refusal;
use crate::cli::report::write_whole;
use crate::cli::reproduce::programs::recorded::ENDING;
use crate::cli::reproduce::programs::{ALL, Failure, Info, Program, THREADED, flashvm, text};
use crate::cli::reproduce::progress_of;
use crate::cli::scratch::Scratch;
use crate::cli::units::{Size, count};
use crate::cli::write_out;
use clap::Args;
use flashvm_core::Nanos;
use flashvm_sim::ProgramTrace;
use flashvm_sim::program_trace::{Origin, Threads, observe};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The recorded run has the program's memory in Table 4 divided by this: returns to a page within it are not seen.
const RAM_SHARE: u32 = 4;

/// `flashvm reproduce record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Programs [default: all]
    #[arg(value_name = "PROGRAM")]
    names: Vec<String>,
    /// Folder for the traces
    #[arg(long, value_name = "FOLDER", default_value = "program-traces")]
    out: PathBuf,
    /// Divides the paper's inputs; 1 is the paper's size, and needs 1.5 GiB of RAM and 6 GB on disk
    #[arg(long, value_name = "N", default_value_t = 4)]
    scale: u32,
}

/// Records the programs.
pub(crate) fn record(args: &RecordArgs) -> Result<ExitCode, Refusal> {
    if !(1..=64).contains(&args.scale) || !args.scale.is_power_of_two() {
        return Err(Refusal::new(format!(
            "--scale {}: write a power of two from 1 to 64",
            args.scale
        )));
    }
    let all = || ALL.iter().chain([&THREADED]);
    let known = Vec::from_iter(all().map(|info| info.file)).join(", ");
    if let Some(name) = args
        .names
        .iter()
        .find(|name| !all().any(|info| info.file == **name))
    {
        return Err(Refusal::new(format!(
            "unknown program '{name}': known are {known}"
        )));
    }
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        Refusal::new(format!("{}: {why}", path.display()))
    };
    std::fs::create_dir_all(&args.out).map_err(|e| failed(&args.out, &e))?;
    let chosen = all()
        .filter(|info| args.names.is_empty() || args.names.iter().any(|name| name == info.file));
    let chosen = Vec::from_iter(chosen);
    let bar = progress_of(chosen.len());
    let mut lines = String::new();
    for info in chosen {
        bar.set_prefix(info.title);
        let path = args.out.join(info.file).with_extension(ENDING);
        let trace = traced(info, args.scale, &bar).map_err(|why| failed(&path, &why))?;
        let mut bytes = Vec::new();
        trace.write(&mut bytes).map_err(|e| failed(&path, &e))?;
        write_whole(&path, &bytes)?;
        lines += &format!(
            "{}: {} references to {} pages, {:.1} s of computing, {}\n",
            path.display(),
            count(trace.steps(0).count() as u64),
            count(trace.pages().into()),
            trace.work().0 as f64 / 1e9,
            Size(bytes.len() as u64)
        );
        bar.inc(1);
    }
    bar.finish_and_clear();
    write_out(&lines)
}

fn traced(info: &Info, scale: u32, bar: &ProgressBar) -> Result<ProgramTrace, Failure> {
    let folder =
        Scratch::within(Path::new("/var/tmp"), "flashvm-").map_err(|e| format!("/var/tmp: {e}"))?;
    bar.set_message("preparing");
    let program = info.prepare(folder.path(), scale)?;
    bar.set_message("alone");
    let work = whole_run(&*program, &[])?;
    bar.set_message("in little memory");
    let ram_bytes = u64::from(info.frames(scale) / RAM_SHARE) << 12;
    let steps = folder.path().join("steps");
    // Every fault is the program's own: nothing is brought in ahead, and nothing waits compressed.
    let prefix = flashvm::<&str>(&[
        "--ram",
        &format!("{}K", ram_bytes >> 10),
        "--flash-size",
        "6G",
        "--compress",
        "off",
        "--prefetcher",
        "off",
        "--record",
        &text(&steps)?,
    ])?;
    whole_run(&*program, &prefix)?;
    bar.set_message("reading what it did");
    let recording = longest(folder.path())?;
    let file = File::open(&recording).map_err(|e| e.to_string())?;
    let work = Nanos(work.as_nanos() as u64);
    let threads = match info.name == THREADED.name {
        true => Threads::Apart,
        false => Threads::Merged,
    };
    let steps = observe(BufReader::new(file), work, threads).map_err(|e| e.to_string())?;
    let origin = Origin {
        program: info.title.to_owned(),
        what: program.what(),
        scale,
        ram_bytes,
    };
    Ok(ProgramTrace::of_threads(steps, origin))
}

/// The time of a whole run, with what is not timed in Table 4.
fn whole_run(program: &dyn Program, prefix: &[String]) -> Result<Duration, Failure> {
    let begun = Instant::now();
    program.run(prefix)?;
    Ok(begun.elapsed())
}

/// The recording of the process that did most.
fn longest(folder: &Path) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|e| e.to_string())?;
    let recordings = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("steps.")
    });
    let longest = recordings.max_by_key(|entry| entry.metadata().map_or(0, |about| about.len()));
    let longest = longest.ok_or("no process of it was paged")?;
    Ok(longest.path())
}
