//! A run that pages, seen from outside: `flashvm top`, in a terminal and without one: its figures agree with the run's own
//! statistics, and the run is undisturbed. And its metrics and probes.

mod metrics;
mod probes;
mod readings;
mod refusals;
#[path = "../support/mod.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod support;
mod terminal;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output};
use std::time::Duration;
use support::children::{self, Bounded as _, wait_until};
use support::{FLASHVM, Folder, can_page, has_program};

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(300);

/// Touches pages at random, of more memory than the budget, until the file `stop` appears.
const PROGRAM: &str = "
import os
pages = 10000
data = bytearray(pages << 12)
for page in range(pages):
    data[page << 12] = page & 255 | 1
open('ready', 'w').close()
seed = 1
while not os.path.exists('stop'):
    for _ in range(200):
        seed = seed * 1103515245 + 12345 & 0x7fffffff
        page = (seed >> 8) % pages
        assert data[page << 12] == page & 255 | 1
# At once: what it holds at its end is seen in the statistics.
os._exit(0)
";

/// A run of that program in 16 MiB.
struct Busy {
    run: Option<Child>,
    folder: Folder,
    flash: Folder,
}

impl Busy {
    /// Starts the run and waits until it pages. If the machine cannot page, it says so and returns `None`.
    fn start(test: &str, options: &[&str]) -> Option<Self> {
        if !can_page(test) || !has_program(test, "python3") {
            return None;
        }
        let (folder, flash) = (Folder::new(), Folder::new());
        let run = children::command(FLASHVM)
            .args(["run", "--ram", "16M", "--flash-size", "256M", "--quiet"])
            .args(["--stats", "stats.json", "--flash"])
            .arg(flash.path())
            .args(options)
            .args(["--", "python3", "-c", PROGRAM])
            .current_dir(folder.path())
            .spawn()
            .expect("the command");
        let busy = Self {
            run: Some(run),
            folder,
            flash,
        };
        wait_until("the program pages", PATIENCE, || {
            busy.file("ready").exists()
        });
        Some(busy)
    }

    /// Process id of the supervisor.
    fn pid(&self) -> u32 {
        self.run.as_ref().expect("a run").id()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends the run; its statistics.
    fn stop(mut self) -> serde_json::Value {
        fs::write(self.file("stop"), "").expect("a file");
        let run = self.run.take().expect("a run");
        let output = children::finish("a run", run, PATIENCE);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "the run was harmed: {output:?}"
        );
        let left = fs::read_dir(self.flash.path()).expect("the folder").count();
        assert_eq!(left, 0, "files left behind");
        let stats = fs::read(self.file("stats.json")).expect("the statistics");
        serde_json::from_slice(&stats).expect("JSON")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(run) = &mut self.run {
            // The test has failed: the run is not needed any more.
            let _ = run.kill();
            let _ = run.wait();
        }
    }
}

/// `flashvm top`, without a terminal.
fn top(args: &[&str]) -> Output {
    children::command(FLASHVM)
        .arg("top")
        .args(args)
        .output_in_time()
        .expect("the command")
}
