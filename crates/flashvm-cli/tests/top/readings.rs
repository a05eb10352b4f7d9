//! `--once` and `--json`.

use super::support::children::{self, Lines};
use super::{Busy, FLASHVM, PATIENCE, top};
use serde_json::Value;
use std::process::Stdio;

/// A reading of one run, as JSON.
fn reading(pid: u32) -> Value {
    let output = top(&["--once", "--json", "--interval", "0.3", &pid.to_string()]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value, pointer: &str) -> f64 {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("no {pointer}: {value}"))
}

/// Counters that only grow.
const COUNTERS: [&str; 14] = [
    "/faults/total",
    "/faults/major",
    "/faults/soft",
    "/faults/zero",
    "/faults/write_protect",
    "/pages_in",
    "/pages_out",
    "/bytes_read",
    "/bytes_written",
    "/evicted/clean",
    "/evicted/dirty",
    "/prefetch/issued",
    "/resident_pages_max",
    "/fault_latency_us/max",
];

/// Every name of an object, with those of the objects in it.
fn names(object: &Value, prefix: &str, to: &mut Vec<String>) {
    for (name, value) in object.as_object().into_iter().flatten() {
        let name = format!("{prefix}/{name}");
        names(value, &name, to);
        to.push(name);
    }
}

/// A process in the statistics: `python3` may be a script that starts others before it becomes the program.
fn process_of(stats: &Value, pid: u32) -> &Value {
    let mut processes = stats["processes"].as_array().expect("a list").iter();
    let one = processes.find(|process| process["pid"] == pid);
    one.unwrap_or_else(|| panic!("no process {pid}: {stats}"))
}

#[test]
fn a_reading_agrees_with_the_statistics_of_the_run() {
    let test = "a_reading_agrees_with_the_statistics_of_the_run";
    // Each page that is not resident has a slot.
    let Some(busy) = Busy::start(test, &["--compress", "off"]) else {
        return;
    };
    let (first, second) = (reading(busy.pid()), reading(busy.pid()));
    for one in [&first, &second] {
        assert!(number(one, "/interval_s") >= 0.3);
        assert_eq!(one["runs"].as_array().map(Vec::len), Some(1), "{one}");
        let run = &one["runs"][0];
        assert_eq!(number(run, "/pid"), f64::from(busy.pid()));
        assert_eq!(number(run, "/ram_budget_pages"), 4096.0);
        let command = run["command"].as_str().expect("the program");
        assert!(command.starts_with("python3 -c"), "{command}");
        assert_eq!(run["processes"].as_array().map(Vec::len), Some(1), "{run}");
        let process = &run["processes"][0];
        assert!(number(process, "/interval/faults/total") > 0.0, "{process}");
        assert!(number(process, "/interval/faults/major") > 0.0, "{process}");
        assert!(number(process, "/gauges/slots_used") >= 10_000.0 - 4096.0);
        assert!(number(process, "/gauges/read_time_ns") > 0.0);
        assert!(number(process, "/committed_pages") >= 10_000.0);
        let resident = number(process, "/resident_pages");
        assert!((1000.0..=4096.0).contains(&resident), "{resident}");
    }
    // The program's own id finds the same run.
    let pid = number(&second, "/runs/0/processes/0/pid") as u32;
    assert_eq!(reading(pid)["runs"][0]["pid"], busy.pid());

    let stats = busy.stop();
    let one = process_of(&stats, pid);
    let all = [
        &first["runs"][0]["processes"][0],
        &second["runs"][0]["processes"][0],
        one,
    ];
    for pointer in COUNTERS {
        let values = all.map(|value| number(value, pointer));
        assert!(values.is_sorted(), "{pointer}: {values:?}");
    }
    assert!(number(all[0], "/faults/total") < number(all[1], "/faults/total"));
    // A reading has every figure of --stats under the same name, except those on the process's end.
    let mut wanted = Vec::new();
    names(one, "", &mut wanted);
    assert!(wanted.len() > 50, "{wanted:?}");
    for name in wanted {
        let of_its_end = ["/ended_by_pager", "/refused_call", "/decisions"];
        let of_its_end = of_its_end.iter().any(|one| name.starts_with(one));
        assert!(of_its_end || all[0].pointer(&name).is_some(), "no {name}");
    }
}

#[test]
fn a_compressing_run_has_a_pool() {
    let test = "a_compressing_run_has_a_pool";
    let Some(busy) = Busy::start(test, &["--compress", "lz4"]) else {
        return;
    };
    let reading = reading(busy.pid());
    let process = &reading["runs"][0]["processes"][0];
    let [pages, frames, share] = ["pool_pages_held", "pool_frames", "pool_share_frames"]
        .map(|name| number(process, &format!("/gauges/{name}")));
    // The pages are nearly empty: many in a frame.
    assert!(frames >= 1.0 && pages > 4.0 * frames, "{pages} in {frames}");
    assert!(share >= 1.0 && frames <= 4096.0, "{share}, {frames}");
    let text = top(&["--once", "--interval", "0.1", &busy.pid().to_string()]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("compressed in"), "{text}");
    let stats = busy.stop();
    let one = process_of(&stats, number(process, "/pid") as u32);
    assert!(number(one, "/gauges/pool_pages_held") > 0.0, "{one}");
    assert!(stats.pointer("/totals/gauges").is_none(), "{stats}");
}

#[test]
fn text_has_a_table() {
    let Some(busy) = Busy::start("text_has_a_table", &["--compress", "off"]) else {
        return;
    };
    // Other runs of this user may be there, too.
    let output = top(&["--once", "--interval", "0.2"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains(&format!("run {}: python3 -c", busy.pid())),
        "{text}"
    );
    let of_run =
        |line: &&str| line.split_ascii_whitespace().next() == Some(&busy.pid().to_string());
    let row = text.lines().find(of_run).expect("a row of the run");
    assert!(row.contains("(all)") && row.contains("16M"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    busy.stop();
}

#[test]
fn readings_follow_until_the_run_ends() {
    let Some(busy) = Busy::start("readings_follow_until_the_run_ends", &[]) else {
        return;
    };
    let mut viewer = children::command(FLASHVM)
        .args(["top", "--json", "--interval", "0.1"])
        .arg(busy.pid().to_string())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the command");
    let lines = Lines::of(viewer.stdout.take().expect("a pipe"));
    let mut last = 0.0;
    for _ in 0..3 {
        let line = lines.next("a reading").expect("a line");
        let reading: Value = serde_json::from_str(&line).expect("JSON");
        let faults = number(&reading, "/runs/0/totals/faults/total");
        assert!(faults > last, "{faults} after {last}");
        last = faults;
    }
    let stats = busy.stop();
    assert!(number(&stats, "/totals/faults/total") >= last);
    while lines.next("the last readings").is_some() {}
    let end = children::wait_for("the viewer", &mut viewer, PATIENCE);
    assert_eq!(end.code(), Some(0));
}
