//! A JVM workload after SPECjbb's: orders of 16 warehouses, a thread each.

use super::{Failure, Prepared, Program, command, find, finish, finish_within};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("../../../../../../eval/programs/Warehouses.java");
/// The paper's heap, in MiB, and orders of each warehouse that fill it.
const HEAP_MIB: u32 = 1024;
const ORDERS: u32 = 42_000;

pub(super) struct Jvm {
    java: PathBuf,
    folder: PathBuf,
    heap_mib: u32,
    orders: u32,
}

pub(super) fn prepare(folder: &Path, scale: u32) -> Prepared {
    let package = "default-jdk-headless";
    let (java, javac) = (find("java", package)?, find("javac", package)?);
    std::fs::write(folder.join("Warehouses.java"), SOURCE).map_err(|e| e.to_string())?;
    let mut compile = Command::new(javac);
    finish(compile.arg("Warehouses.java").current_dir(folder))?;
    Ok(Box::new(Jvm {
        java,
        folder: folder.to_owned(),
        heap_mib: HEAP_MIB / scale,
        orders: ORDERS / scale,
    }))
}

impl Program for Jvm {
    fn what(&self) -> String {
        let (orders, heap) = (self.orders, self.heap_mib);
        format!("16 warehouses handle {orders} orders each, in a heap of {heap} MiB.")
    }

    fn run_within(&self, prefix: &[String], within: Duration) -> Result<Option<Duration>, Failure> {
        let (heap, orders) = (format!("-Xmx{}m", self.heap_mib), self.orders.to_string());
        let words = [
            &*heap,
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "Warehouses",
            &orders,
        ];
        finish_within(
            command(prefix, &self.java, &words).current_dir(&self.folder),
            within,
        )
    }
}
