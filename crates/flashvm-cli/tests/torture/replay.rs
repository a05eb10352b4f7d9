//! A fresh engine repeats the actions of a recorded live run: the simulator tests the code that runs.

use crate::support::{Folder, can_page, flashvm_run, has_program, is_run_elsewhere, recording};
use flashvm_core::record::{Recording, replay};
use flashvm_core::{Action, Event, Nanos};
use std::collections::HashMap;
use std::path::Path;

/// The recordings of page engines in a folder, after a replay of each.
fn replayed(test: &str, folder: &Path) -> Vec<Recording> {
    let paths = recording::find(folder).0;
    assert!(!paths.is_empty(), "{test}: nothing was recorded");
    let load = |path: &std::path::PathBuf| {
        let (config, steps) = recording::load(path);
        let recording = Recording { config, steps };
        replay(&recording)
            .unwrap_or_else(|difference| panic!("{test}, {}: {difference}", path.display()));
        recording
    };
    paths.iter().map(load).collect()
}

fn actions(recording: &Recording) -> impl Iterator<Item = &Action> {
    recording.steps.iter().flat_map(|step| &step.actions)
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
        if is_run_elsewhere(TEST, mode) {
            continue;
        }
        let folder = Folder::new();
        let record = folder.path().join("steps").display().to_string();
        // Room for sort's buffer beside the other programs, whatever order they ask in.
        let budget = ["--ram", "8M", "--flash-size", "256M", "--record", &record];
        let options = [&budget, mode].concat();
        let script = "seq 1 250000 | sort --reverse --buffer-size=64M --parallel=1 | cksum";
        let outcome =
            flashvm_run(TEST, &options, &["sh", "-c", script], super::LIMIT).expect_success(TEST);
        let recordings = replayed(&format!("{TEST}, {mode:?}"), folder.path());
        let actions = recordings.iter().flat_map(actions);
        let writes = actions
            .filter(|action| matches!(action, Action::Write { .. }))
            .count();
        assert!(writes > 0, "{TEST}, {mode:?}: no recording of a write");
        assert!(
            outcome.stat("bytes_written") > 0,
            "{TEST}, {mode:?}: nothing was paged out"
        );
    }
}

/// A forked child's recording begins with its parent's.
#[test]
fn forked_children_replay() {
    const TEST: &str = "forked_children_replay";
    if !super::ready(TEST) {
        return;
    }
    for mode in [&[][..], &["--no-move", "--fault", "inline"]] {
        let test = format!("{TEST}, {mode:?}");
        if is_run_elsewhere(&test, mode) {
            continue;
        }
        let folder = Folder::new();
        let record = folder.path().join("steps").display().to_string();
        let program = [
            &super::compiled("torture").display().to_string(),
            "--only",
            "fork",
            "--mib",
            "6",
            // Three threads record up to 1.3 GB: they go on paging while each child copies the recording.
            "--threads",
            "1",
            "--seconds",
            "0.3",
            "--seed",
            "1",
        ];
        let budget = ["--ram", "4M", "--flash-size", "64M", "--record", &record];
        let options = [&budget, mode].concat();
        flashvm_run(&test, &options, &program, super::LIMIT).expect_success(&test);
        let recordings = replayed(&test, folder.path());
        // Recordings that begin with the same step are those of a parent and its children: the time of the step is
        // unique.
        let mut families: HashMap<Nanos, Vec<&Recording>> = HashMap::new();
        for recording in recordings
            .iter()
            .filter(|recording| !recording.steps.is_empty())
        {
            families
                .entry(recording.steps[0].now)
                .or_default()
                .push(recording);
        }
        let family = families.values().max_by_key(|family| family.len());
        let family = family.expect("a recording");
        assert!(family.len() > 2, "{test}: no child was recorded");
        let parent = family[0];
        let mut steps = parent.steps.iter();
        let fork = steps.position(|step| step.event == Event::Forked);
        let past = fork.expect("it forks");
        assert!(past > 10, "{test}: the program has no past: {past} steps");
        let mut paging = 0;
        for member in family {
            assert_eq!(member.steps[..past], parent.steps[..past], "{test}");
            let mut after = member.steps[past..].iter().flat_map(|step| &step.actions);
            paging += usize::from(after.any(|action| matches!(action, Action::Write { .. })));
        }
        assert!(paging > 2, "{test}: children page as well: {paging}");
    }
}
