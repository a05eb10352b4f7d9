//! A JVM workload after SPECjbb's: orders of 16 warehouses, a thread each.

use super::{Failure, Program, command, find, finish};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("../../../../../../../eval/programs/Warehouses.java");
const ORDERS: &str = "4000";

pub(super) struct Jvm {
    java: PathBuf,
    folder: PathBuf,
}

pub(super) fn prepare(folder: &Path) -> Result<Jvm, Failure> {
    let package = "default-jdk-headless";
    let (java, javac) = (find("java", package)?, find("javac", package)?);
    std::fs::write(folder.join("Warehouses.java"), SOURCE).map_err(|e| e.to_string())?;
    let mut compile = Command::new(javac);
    finish(compile.arg("Warehouses.java").current_dir(folder))?;
    Ok(Jvm {
        java,
        folder: folder.to_owned(),
    })
}

impl Program for Jvm {
    fn what(&self) -> String {
        format!("16 warehouses handle {ORDERS} orders each.")
    }

    fn ram(&self) -> &'static str {
        "48M"
    }

    fn run(&self, prefix: &[String]) -> Result<Duration, Failure> {
        let words = [
            "-Xmx96m",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "Warehouses",
            ORDERS,
        ];
        finish(command(prefix, &self.java, &words).current_dir(&self.folder))
    }
}
