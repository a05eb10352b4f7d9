//! Every policy that can be live, under the presets of the paper and of today: a program that keeps
//! twice its budget in memory, changes it at random and knows what must be there.

mod support;

use flashvm_core::PolicyKind;
use std::time::Duration;
use support::{can_page, flashvm_run, has_program};

const LIMIT: Duration = Duration::from_secs(120);

/// Pages are read and written at random, a quarter of them most of the time; each read is checked.
const PROGRAM: &str = "
import random
chance, pages = random.Random(1), 8192
memory, known = bytearray(pages * 4096), [0] * pages
for turn in range(1, 60001):
    page = chance.randrange(pages if turn % 8 == 0 else pages // 4)
    at = page * 4096 + page % 4000
    assert int.from_bytes(memory[at:at + 8], 'little') == known[page], page
    if chance.randrange(3) == 0:
        known[page] = turn
        memory[at:at + 8] = turn.to_bytes(8, 'little')
print(sum(known))
";

fn run_all(preset: &str) {
    let test = format!("policies_{preset}");
    if !can_page(&test) || !has_program(&test, "python3") {
        return;
    }
    let mut sums = Vec::new();
    for info in PolicyKind::ALL
        .iter()
        .filter(|info| !info.kind.is_offline())
    {
        let options = ["--ram", "16M", "--preset", preset, "--policy", info.name];
        let program = ["python3", "-c", PROGRAM];
        let outcome = flashvm_run(&test, &options, &program, LIMIT).expect_success(info.name);
        assert!(outcome.stat("pages_out") > 0, "{}", info.name);
        sums.push((info.name, outcome.stdout));
    }
    for (name, sum) in &sums {
        assert_eq!(*sum, sums[0].1, "{name}");
    }
}

#[test]
fn all_policies_under_preset_modern() {
    run_all("modern");
}

#[test]
fn all_policies_under_preset_flashvm() {
    run_all("flashvm");
}
