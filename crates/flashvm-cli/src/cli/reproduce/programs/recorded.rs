//! The traces of the programs ([`flashvm_sim::program_trace`]): the built-in ones, or those in a folder that `flashvm
//! reproduce record` has written.

use super::{ALL, Info, Name};
use crate::cli::refusal::Refusal;
use flashvm_sim::ProgramTrace;
use flashvm_sim::program_trace::Damage;
use std::cell::OnceCell;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The ending of a trace's file.
pub(in crate::cli::reproduce) const ENDING: &str = "fvp";

/// The built-in traces, in the order of [`ALL`].
const SHIPPED: [&[u8]; 5] = [
    include_bytes!("../../../../../../traces/flashvm/imagemagick.fvp"),
    include_bytes!("../../../../../../traces/flashvm/spin.fvp"),
    include_bytes!("../../../../../../traces/flashvm/specjbb.fvp"),
    include_bytes!("../../../../../../traces/flashvm/memcached-store.fvp"),
    include_bytes!("../../../../../../traces/flashvm/memcached-lookup.fvp"),
];

/// A program and its trace.
pub(in crate::cli::reproduce) struct Recorded {
    pub(in crate::cli::reproduce) info: &'static Info,
    pub(in crate::cli::reproduce) trace: ProgramTrace,
}

impl Recorded {
    /// Its memory in Table 4, at the trace's scale, in pages.
    pub(in crate::cli::reproduce) fn frames(&self) -> u32 {
        self.info.frames(self.scale())
    }

    /// The paper's sizes are divided by this.
    pub(in crate::cli::reproduce) fn scale(&self) -> u32 {
        self.trace.origin().scale.max(1)
    }
}

/// All programs, read at their first use.
pub(in crate::cli::reproduce) struct RecordedPrograms {
    folder: Option<PathBuf>,
    all: OnceCell<Vec<Recorded>>,
}

impl RecordedPrograms {
    /// The traces in a folder, or the built-in ones.
    pub(in crate::cli::reproduce) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            all: OnceCell::new(),
        }
    }

    /// In the order of Table 4.
    pub(in crate::cli::reproduce) fn all(&self) -> Result<&[Recorded], Refusal> {
        if self.all.get().is_none() {
            let places = ALL.iter().zip(SHIPPED);
            let all = places.map(|(info, shipped)| {
                let trace = match &self.folder {
                    Some(folder) => in_folder(folder, info)?,
                    None => {
                        ProgramTrace::read(shipped).map_err(|e| refuse(info.file.as_ref(), &e))?
                    }
                };
                Ok(Recorded { info, trace })
            });
            let all: Vec<_> = all.collect::<Result<_, Refusal>>()?;
            let _ = self.all.set(all);
        }
        Ok(self.all.get().expect("they were read"))
    }

    /// One program.
    pub(in crate::cli::reproduce) fn get(&self, name: Name) -> Result<&Recorded, Refusal> {
        let found = self.all()?.iter().find(|one| one.info.name == name);
        Ok(found.expect("every program is in the list"))
    }
}

fn in_folder(folder: &Path, info: &Info) -> Result<ProgramTrace, Refusal> {
    let path = folder.join(info.file).with_extension(ENDING);
    let file = File::open(&path).map_err(|e| {
        Refusal::new(format!(
            "--traces {}: {}: {e}: name a folder that flashvm reproduce record has written",
            folder.display(),
            path.display()
        ))
    })?;
    ProgramTrace::read(BufReader::new(file)).map_err(|e| refuse(&path, &e))
}

fn refuse(path: &Path, why: &Damage) -> Refusal {
    Refusal::new(format!("{}: {why}", path.display()))
}
