//! spin: a model checker that stores every state of a system.

use super::{Failure, Prepared, Program, command, find, finish, finish_within};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Peterson's filter lock.
const MODEL: &str = include_str!("../../../../../../eval/models/filter.pml");
const PROCESSES: u32 = 4;
/// The paper's depth of the search. spin allocates the search's stack and its hash table in advance, and clears them.
const DEPTH: u32 = 10_000_000;
/// Entries of the table, of 8 bytes: the logarithm.
const TABLE_BITS: u32 = 26;

pub(super) struct Spin {
    pan: PathBuf,
    depth: u32,
    table_bits: u32,
}

pub(super) fn prepare(folder: &Path, scale: u32) -> Prepared {
    let (spin, cc) = (find("spin", "spin")?, find("cc", "gcc")?);
    std::fs::write(folder.join("filter.pml"), MODEL).map_err(|e| e.to_string())?;
    let mut generate = Command::new(spin);
    generate
        .arg(format!("-DN={PROCESSES}"))
        .args(["-DROUNDS=1", "-a", "filter.pml"]);
    finish(generate.current_dir(folder))?;
    let mut compile = Command::new(cc);
    compile.args([
        "-O2",
        "-w",
        "-DSAFETY",
        "-DMEMLIM=16000",
        "-o",
        "pan",
        "pan.c",
    ]);
    finish(compile.current_dir(folder))?;
    Ok(Box::new(Spin {
        pan: folder.join("pan"),
        depth: DEPTH / scale,
        table_bits: TABLE_BITS - scale.ilog2(),
    }))
}

impl Program for Spin {
    fn what(&self) -> String {
        format!(
            "All states of Peterson's lock for {PROCESSES} processes are visited, at a depth of at most {}.",
            self.depth
        )
    }

    fn run_within(&self, prefix: &[String], within: Duration) -> Result<Option<Duration>, Failure> {
        let folder = self.pan.parent().unwrap_or(Path::new("."));
        let words = [
            format!("-m{}", self.depth),
            format!("-w{}", self.table_bits),
        ];
        finish_within(
            command(prefix, &self.pan, &words).current_dir(folder),
            within,
        )
    }
}
