//! The statistics of `--stats`.

use super::Bench;
use std::fs;

#[test]
fn statistics_are_complete() {
    let Some(bench) = Bench::new("statistics_are_complete") else {
        return;
    };
    let script = "/bin/true; /bin/true; (exit 2); exit 4";
    let output = bench.run(&["--stats", "stats.json"], &["/bin/sh", "-c", script]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stderr);
    for line in ["faults", "latency", "prefetch", "resident", "processes"] {
        assert!(text.contains(line), "{text}");
    }
    let stats = fs::read(bench.file("stats.json")).expect("the statistics");
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
    assert_eq!(stats["ram_budget_pages"], 64 << 8);
    let processes = stats["processes"].as_array().expect("a list");
    assert_eq!(
        processes.len(),
        4,
        "a shell and its three children: {stats}"
    );
    let commands: Vec<_> = processes
        .iter()
        .map(|process| process["command"].clone())
        .collect();
    assert_eq!(
        commands
            .iter()
            .filter(|command| *command == "/bin/true")
            .count(),
        2,
        "{stats}"
    );
    for object in processes.iter().chain([&stats["totals"]]) {
        for key in [
            "/faults/total",
            "/faults/major",
            "/faults/soft",
            "/faults/zero",
            "/faults/write_protect",
            "/pages_in",
            "/pages_out",
            "/bytes_read",
            "/bytes_written",
            "/zero_pages_skipped",
            "/evicted/clean",
            "/evicted/dirty",
            "/prefetch/issued",
            "/prefetch/used",
            "/prefetch/wasted",
            "/resident_pages_max",
            "/fault_latency_us/p50",
            "/fault_latency_us/p99",
            "/fault_latency_us/p999",
            "/fault_latency_us/max",
            "/discard/commands",
            "/discard/bytes",
            "/pages_shown_again",
            "/locks_lost",
            "/uncounted_pages_max",
            "/overlays_max",
            "/refused/allocations",
            "/refused/forks",
            "/pages_lost",
        ] {
            assert!(
                object
                    .pointer(key)
                    .is_some_and(serde_json::Value::is_number),
                "{key}: {object}"
            );
        }
        assert_eq!(object["fault_mode"], super::fault_mode());
        assert_eq!(object["preset"], "modern");
        assert!(object["policy"].is_string());
    }
    for key in ["/faults/total", "/faults/zero", "/pages_out"] {
        let sum: u64 = processes
            .iter()
            .filter_map(|p| p.pointer(key)?.as_u64())
            .sum();
        assert_eq!(
            stats["totals"]
                .pointer(key)
                .and_then(serde_json::Value::as_u64),
            Some(sum),
            "{key}"
        );
    }
    let names: Vec<_> = fs::read_dir(&bench.other)
        .expect("the folder")
        .flatten()
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn statistics_go_wherever_asked() {
    let Some(bench) = Bench::new("statistics_go_wherever_asked") else {
        return;
    };
    let output = bench.run(&["--quiet", "--stats", "/dev/stdout"], &["/bin/true"]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(stats["totals"].is_object() && output.stderr.is_empty());
    // Written to, not replaced.
    let name = fs::symlink_metadata("/dev/stdout").expect("a name");
    assert!(name.is_symlink());
}
