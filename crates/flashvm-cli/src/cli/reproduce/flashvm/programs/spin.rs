//! spin: a model checker that stores every state of a system.

use super::{Failure, Program, command, find, finish};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Peterson's filter lock.
const MODEL: &str = include_str!("../../../../../../../eval/models/filter.pml");
const PROCESSES: u32 = 4;

pub(super) struct Spin {
    pan: PathBuf,
}

pub(super) fn prepare(folder: &Path) -> Result<Spin, Failure> {
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
    Ok(Spin {
        pan: folder.join("pan"),
    })
}

impl Program for Spin {
    fn what(&self) -> String {
        format!("all states of Peterson's lock for {PROCESSES} processes are visited.")
    }

    fn ram(&self) -> &'static str {
        "24M"
    }

    fn run(&self, prefix: &[String]) -> Result<Duration, Failure> {
        let folder = self.pan.parent().unwrap_or(Path::new("."));
        finish(command(prefix, &self.pan, &["-m100000", "-w19"]).current_dir(folder))
    }
}
