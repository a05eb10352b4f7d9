//! `flashvm run --save-pages` and `--prefetch-pages`: the order in which a program waited for pages from flash, kept in a
//! trace, and brought in ahead in the next run.
//!
//! A page is its place in managed memory, the same in every run: addresses may differ. A run saves the order of one process:
//! the one that waited most. In the next run the first process of that program follows it.

use super::refusal::Refusal;
use super::run_report::OrderOfProcess;
use super::shared_file::{path_of, sealed};
use super::trace::Output;
use super::units::{Size, count};
use flashvm_live::control::{FOLLOWED_MAX, Followed};
use flashvm_sim::trace::{Format, Granularity, Kind, Provenance, Reference, open};
use rustix::fd::OwnedFd;
use std::path::Path;

/// The end of the source of such a trace; before it stands the program.
const SOURCE: &str = " (flashvm run --save-pages)";

/// The file of `--save-pages`, checked before the run.
pub(crate) struct SavedPages {
    path: std::path::PathBuf,
}

impl SavedPages {
    pub(crate) fn check(path: &Path) -> Result<Self, Refusal> {
        let provenance = provenance("", "");
        // Nothing appears before `finish`.
        Output::create(path, Granularity::Pages, &provenance).map(drop)?;
        let path = std::path::absolute(path)
            .map_err(|e| Refusal::new(format!("{}: {e}: name another file", path.display())))?;
        Ok(Self { path })
    }

    /// Writes the order of a process. `quiet`: without the line about it.
    pub(crate) fn write(
        &self,
        order: Option<OrderOfProcess>,
        settings: &str,
        quiet: bool,
    ) -> Result<(), Refusal> {
        let path = self.path.display();
        let Some(order) = order else {
            let line = format!("{path}: no process waited for flash: there is nothing to save");
            return Err(Refusal::new(line));
        };
        let provenance = provenance(&order.program, settings);
        let mut output = Output::create(&self.path, Granularity::Pages, &provenance)?;
        for page in &order.pages {
            output.push(Reference {
                address: page.0.into(),
                bytes: 0,
                kind: Kind::Read,
            })?;
        }
        let bytes = output.finish()?;
        if !quiet {
            let left_out = match order.left_out {
                0 => String::new(),
                pages => format!(", the last {} left out", count(pages)),
            };
            eprintln!(
                "  saved     {path}: {} pages that {} waited for{left_out}, {}",
                count(order.pages.len() as u64),
                order.program,
                Size(bytes)
            );
        }
        Ok(())
    }
}

fn provenance(program: &str, settings: &str) -> Provenance {
    Provenance {
        source: format!("{program}{SOURCE}"),
        steps: vec![format!("pages that it waited for, {settings}")],
        shard_bits: 0,
    }
}

/// The pages of `--prefetch-pages`, where the processes of the run find them.
pub(crate) struct PagesToFollow {
    /// Pages as numbers of 32 bits, in the machine's order of bytes.
    memfd: OwnedFd,
    program: String,
}

impl PagesToFollow {
    /// Reads a trace of `--save-pages`.
    pub(crate) fn read(path: &Path) -> Result<Self, Refusal> {
        let refuse = |why: &str| {
            Refusal::new(format!(
                "--prefetch-pages {}: {why}: name a file that flashvm run --save-pages has written",
                path.display()
            ))
        };
        let mut trace = open(path, Some(Format::Flashvm))
            .map_err(|e| Refusal::new(format!("--prefetch-pages: {e}")))?;
        let program = trace.provenance().source.strip_suffix(SOURCE);
        let program = program.ok_or_else(|| refuse("a trace of another kind"))?;
        let program = program.to_owned();
        let mut bytes = Vec::new();
        loop {
            let batch = trace.batch().map_err(|e| refuse(&e.to_string()))?;
            if batch.is_empty() {
                break;
            }
            for reference in batch {
                let page = u32::try_from(reference.address)
                    .map_err(|_| refuse(&format!("page {} is none of ours", reference.address)))?;
                bytes.extend(page.to_ne_bytes());
            }
            if bytes.len() / 4 > FOLLOWED_MAX {
                return Err(refuse(&format!(
                    "more than {} pages",
                    count(FOLLOWED_MAX as u64)
                )));
            }
        }
        let memfd = sealed("flashvm-pages", &bytes).map_err(|e| refuse(&e.to_string()))?;
        Ok(Self { memfd, program })
    }

    /// What the processes of the run need to know.
    pub(crate) fn followed(&self) -> Followed {
        Followed {
            path: path_of(&self.memfd),
            program: self.program.clone(),
        }
    }
}
