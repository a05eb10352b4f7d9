//! A recorded live run, given to a fresh engine, gives the same actions: what the simulator tests is
//! what runs.

use crate::support::{Folder, can_page, flashvm_run, has_program, recording};
use flashvm_core::Action;
use flashvm_core::record::{Recording, replay};

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
        let mut writes = 0;
        for path in recording::find(folder.path()).0 {
            let (config, steps) = recording::load(&path);
            let recording = Recording { config, steps };
            replay(&recording)
                .unwrap_or_else(|difference| panic!("{TEST}, {mode:?}: {difference}"));
            let actions = recording.steps.iter().flat_map(|step| &step.actions);
            writes += actions
                .filter(|action| matches!(action, Action::Write { .. }))
                .count();
        }
        assert!(writes > 0, "{TEST}, {mode:?}: no recording of a write");
        assert!(
            outcome.stat("bytes_written") > 0,
            "{TEST}, {mode:?}: nothing was paged out"
        );
    }
}
