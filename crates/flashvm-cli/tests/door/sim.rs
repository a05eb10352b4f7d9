//! `flashvm sim`: refusals, and one line of JSON for each policy and size.

use super::{flashvm, folder, refused};
use std::fs;

const GCC: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../flashvm-sim/tests/data/gcc.trace.gz"
);

#[test]
fn bad_input() {
    for (args, named) in [
        (&["--frames", "0"][..], &["--frames", "0", "one frame"][..]),
        (&["--frames", "0%"], &["--frames", "0%", "294 pages"]),
        (&["--frames", "many"], &["--frames", "'many'", "10%"]),
        (
            &["--frames", "8", "--policy", "lru,lifo"],
            &["'lifo'", "craw-a"],
        ),
        (&["--frames", "8", "--policy", ""], &["--policy"]),
        (
            &["--frames", "8", "--policy", "cflru(window=2)"],
            &["window=2", "at most 1"],
        ),
        (
            &["--frames", "8", "--format", "pcap"],
            &["'pcap'", "lackey"],
        ),
        (
            &["--frames", "8", "--device-model", "tape"],
            &["'tape'", "slc-nand"],
        ),
        (&["--frames", "8", "--threads", "0"], &["--threads", "0"]),
        (
            &["--frames", "8", "--plot", "/nonexistent/a.svg"],
            &["/nonexistent", "--plot"],
        ),
    ] {
        let args: Vec<_> = ["sim", "--trace", GCC]
            .iter()
            .chain(args)
            .copied()
            .collect();
        refused(&flashvm(&args), 2, named);
    }
    refused(&flashvm(&["sim", "--trace", GCC]), 2, &["--frames"]);
}

#[test]
fn bad_traces() {
    let folder = folder();
    for (name, bytes, named) in [
        ("empty", &b""[..], &["no reference"][..]),
        ("foreign", b"\x7fELF\x02\x01\x01", &["--format"]),
        ("bad-line", b"1\n2\nthree\n", &["line 3", "'three'"]),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("the trace");
        let path = path.to_str().expect("a plain name");
        let output = flashvm(&["sim", "--trace", path, "--frames", "8"]);
        refused(&output, 2, &[&[path], named].concat());
    }
    let output = flashvm(&["sim", "--trace", "missing.trace", "--frames", "8"]);
    refused(&output, 2, &["missing.trace"]);
}

#[test]
fn one_line_for_each_policy_and_size() {
    let policies = "lru,clock(insert=clear),opt";
    let args = [
        "sim", "--trace", GCC, "--policy", policies, "--frames", "32,10%",
    ];
    let output = flashvm(&[&args[..], &["--json"]].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("JSON");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<serde_json::Value> = lines.collect();
    assert_eq!(lines.len(), 6);
    for (line, misses) in lines.iter().zip([736, 797, 491]) {
        assert_eq!(line["misses"], misses);
        assert_eq!(line["requests"], 515_683);
        for key in [
            "trace",
            "policy",
            "frames",
            "observed",
            "page_reads",
            "page_writes",
            "io_time_us",
        ] {
            assert!(!line[key].is_null(), "{key}");
        }
        assert!(line["wall_s"].as_f64() > Some(0.0));
        assert!(line["requests_per_s"].as_f64() > Some(0.0));
    }
    assert_eq!(lines[3]["frames"], 29);
    let table = flashvm(&args);
    assert!(table.status.success());
    let table = String::from_utf8(table.stdout).expect("text");
    assert!(table.contains("294 pages") && table.contains("clock(insert=clear)"));
}
