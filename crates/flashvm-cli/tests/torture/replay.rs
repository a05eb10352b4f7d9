//! A recorded live run, given to a fresh engine, gives the same actions: what the simulator tests is
//! what runs.

use crate::support::{Folder, can_page, flashvm_run, has_program};
use flashvm_core::record::{Recording, Step, replay};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

fn load(path: &Path) -> Recording {
    let file = File::open(path).expect("a recording");
    let mut lines = BufReader::new(file).lines().map(|l| l.expect("a line"));
    let config = lines.next().expect("the configuration");
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        match serde_json::from_str(&line) {
            Ok(step) => steps.push(step),
            // The last line of a process that ended while it was written.
            Err(error) => assert!(error.is_eof(), "{}: {error}", path.display()),
        }
    }
    Recording {
        config: serde_json::from_str(&config).expect("a configuration"),
        steps,
    }
}

/// Sorts in several times the budget, for each preset and without `UFFDIO_MOVE`.
#[test]
fn live_runs_replay() {
    const TEST: &str = "live_runs_replay";
    if !can_page(TEST) || !has_program(TEST, "sort") {
        return;
    }
    let modes: [&[&str]; 4] = [
        &["--preset", "modern"],
        &["--preset", "flashvm"],
        &["--preset", "native"],
        &["--no-move", "--fault", "inline"],
    ];
    for mode in modes {
        let folder = Folder::new();
        let record = folder.path().join("steps").display().to_string();
        // Room for sort's buffer beside the others: which of them asks first is open.
        let budget = ["--ram", "8M", "--flash-size", "256M", "--record", &record];
        let options = [&budget, mode].concat();
        let script = "seq 1 250000 | sort --reverse --buffer-size=64M --parallel=1 | cksum";
        let outcome =
            flashvm_run(TEST, &options, &["sh", "-c", script], super::LIMIT).expect_success(TEST);
        for entry in fs::read_dir(folder.path()).expect("the folder") {
            let recording = load(&entry.expect("an entry").path());
            replay(&recording)
                .unwrap_or_else(|difference| panic!("{TEST}, {mode:?}: {difference}"));
        }
        assert!(
            outcome.stat("bytes_written") > 0,
            "{TEST}, {mode:?}: nothing was paged out"
        );
    }
}
