//! The traces of the programs: the built-in ones, or a folder of them.

use crate::cli::refusal::Refusal;
use crate::cli::trace::measure;
use flashvm_core::PolicySpec;
use flashvm_sim::locality::Locality;
use flashvm_sim::sweep::{Counts, Job, Observation, References, SweepError, Watch, sweep};
use flashvm_sim::trace::{Provenance, Trace, open, read};
use flashvm_sim::{Device, ModelKind};
use indicatif::ProgressBar;
use std::cell::OnceCell;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The program, its counterpart in the paper, its trace.
const SHIPPED: [(&str, &str, &[u8]); 6] = [
    (
        "mpg123",
        "xmms",
        include_bytes!("../../../../../../traces/mpg123.fvt"),
    ),
    (
        "feh",
        "gqview",
        include_bytes!("../../../../../../traces/feh.fvt"),
    ),
    (
        "xedit",
        "gedit",
        include_bytes!("../../../../../../traces/xedit.fvt"),
    ),
    (
        "freecell",
        "freecell",
        include_bytes!("../../../../../../traces/freecell.fvt"),
    ),
    (
        "mupdf",
        "kghostview",
        include_bytes!("../../../../../../traces/mupdf.fvt"),
    ),
    (
        "tar-gzip",
        "tar_gzip",
        include_bytes!("../../../../../../traces/tar-gzip.fvt"),
    ),
];

/// The paper's policies. CLOCK is first: the others' figures are relative to it.
pub(super) const POLICIES: [&str; 5] = ["clock", "car", "cfclock", "craw", "craw-a"];
/// Memory in percent of the footprint (section V.B).
const PERCENTS: [u32; 13] = [1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// A program's trace, and its locality.
pub(super) struct TracedProgram {
    pub(super) name: String,
    /// Its counterpart in the paper.
    pub(super) paper: &'static str,
    pub(super) provenance: Provenance,
    pub(super) locality: Locality,
    pub(super) references: References,
}

/// The programs, read at their first use.
pub(in crate::cli::reproduce) struct Programs {
    folder: Option<PathBuf>,
    all: OnceCell<Vec<TracedProgram>>,
    swept: OnceCell<Vec<Swept>>,
}

/// The sweep of a program, in the order of [`PERCENTS`].
pub(super) type Swept = Vec<SweptSize>;

/// One memory size.
pub(super) struct SweptSize {
    pub(super) percent: u32,
    pub(super) frames: u32,
    /// In the order of [`POLICIES`].
    pub(super) counts: Vec<Counts>,
}

impl Programs {
    /// The traces in a folder, or the built-in ones.
    pub(in crate::cli::reproduce) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            all: OnceCell::new(),
            swept: OnceCell::new(),
        }
    }

    /// The folder, which kept results name.
    pub(in crate::cli::reproduce) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    pub(super) fn all(&self, bar: &ProgressBar) -> Result<&[TracedProgram], Refusal> {
        if self.all.get().is_none() {
            let all = match &self.folder {
                Some(folder) => in_folder(folder, bar)?,
                None => shipped(bar)?,
            };
            let _ = self.all.set(all);
        }
        Ok(self.all.get().expect("they were read"))
    }

    /// All programs, sizes and policies, in the order of [`Programs::all`].
    pub(super) fn swept(&self, bar: &ProgressBar) -> Result<&[Swept], Refusal> {
        if self.swept.get().is_none() {
            let programs = self.all(bar)?.iter();
            let swept = programs.map(|program| {
                bar.set_message(format!("{}: policies and sizes", program.name));
                run(program)
            });
            let swept = swept.collect::<Result<_, _>>()?;
            let _ = self.swept.set(swept);
        }
        Ok(self.swept.get().expect("they were swept"))
    }
}

fn shipped(bar: &ProgressBar) -> Result<Vec<TracedProgram>, Refusal> {
    let programs = SHIPPED.iter().map(|&(name, paper, bytes)| {
        bar.set_message(format!("{name}: reading"));
        let trace = || read(name.as_ref(), Cursor::new(bytes), None);
        program(name.to_owned(), paper, trace()?, trace()?)
    });
    programs.collect()
}

fn in_folder(folder: &Path, bar: &ProgressBar) -> Result<Vec<TracedProgram>, Refusal> {
    let refuse = |why: &dyn std::fmt::Display| {
        let line = format!(
            "--traces {}: {why}: name a folder of traces",
            folder.display()
        );
        Refusal::new(line)
    };
    let entries = std::fs::read_dir(folder).map_err(|e| refuse(&e))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| refuse(&e))?;
    let is_text = |path: &Path| path.extension().is_some_and(|ending| ending == "md");
    paths.retain(|path| path.is_file() && !is_text(path));
    paths.sort();
    if paths.is_empty() {
        return Err(refuse(&"it has no file"));
    }
    let programs = paths.iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        bar.set_message(format!("{name}: reading"));
        let known = SHIPPED.iter().find(|(known, ..)| *known == name);
        let paper = known.map_or("", |(_, paper, _)| paper);
        program(
            name.into_owned(),
            paper,
            open(path, None)?,
            open(path, None)?,
        )
    });
    programs.collect()
}

fn program(
    name: String,
    paper: &'static str,
    mut to_measure: Trace,
    to_sweep: Trace,
) -> Result<TracedProgram, Refusal> {
    let provenance = to_measure.provenance().clone();
    let locality = measure(&mut to_measure)?;
    let references = References::read(to_sweep.granularity(), to_sweep);
    Ok(TracedProgram {
        name,
        paper,
        provenance,
        locality,
        references: references.map_err(|e| refusal(&e))?,
    })
}

fn run(program: &TracedProgram) -> Result<Swept, Refusal> {
    let policies = POLICIES.map(spec);
    let all = sweep_of(program, &policies, &PERCENTS, &device(), Observation::Full)?;
    let sizes = PERCENTS.iter().zip(all);
    let sizes = sizes.map(|(&percent, counts)| SweptSize {
        percent,
        frames: frames(program, percent),
        counts,
    });
    Ok(sizes.collect())
}

/// A policy's I/O time over CLOCK's, by size.
pub(super) fn ratios(sizes: &[Vec<Counts>], policy: usize) -> Vec<f64> {
    let ratio = |counts: &Vec<Counts>| counts[policy].io_time.0 as f64 / counts[0].io_time.0 as f64;
    sizes.iter().map(ratio).collect()
}

/// The mean of some figures.
pub(super) fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// Frames of a size of memory in percent of the footprint.
pub(super) fn frames(program: &TracedProgram, percent: u32) -> u32 {
    (program.references.pages() * percent).div_ceil(100)
}

/// A program's figures: by size of memory, in the order of the policies.
pub(super) fn sweep_of(
    program: &TracedProgram,
    policies: &[PolicySpec],
    percents: &[u32],
    device: &Device,
    observation: Observation,
) -> Result<Vec<Vec<Counts>>, Refusal> {
    let sizes: Vec<_> = percents
        .iter()
        .map(|&percent| frames(program, percent))
        .collect();
    let jobs = Job::all(policies, &sizes, observation);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let figures = sweep(
        &program.references,
        &jobs,
        device,
        threads,
        &Watch::default(),
    );
    let figures = figures.map_err(|e| refusal(&e))?;
    let by_size = figures.chunks(policies.len());
    Ok(by_size
        .map(|figures| figures.iter().map(|figures| figures.counts).collect())
        .collect())
}

/// The paper's flash.
pub(super) fn device() -> Device {
    Device::new(ModelKind::SlcNand)
}

pub(super) fn spec(policy: &str) -> PolicySpec {
    policy.parse().expect("a policy of the list")
}

pub(super) fn refusal(error: &SweepError) -> Refusal {
    Refusal::new(error.to_string())
}
