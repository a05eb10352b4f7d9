//! `flashvm probes`, and the static probes themselves: read from the object, and counted by bpftrace.

use super::refusals::refused;
use super::support::children::{self, Bounded as _, Lines, wait_until};
use super::support::{FLASHVM, Folder, can_page, has_program, say};
use super::{Busy, PATIENCE};
use std::fs;
use std::process::{Output, Stdio};

fn probes(args: &[&str]) -> Output {
    children::command(FLASHVM)
        .arg("probes")
        .args(args)
        .output_in_time()
        .expect("the command")
}

fn line(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// The probes in an object's notes: names, and numbers of arguments.
fn in_notes(object: &[u8]) -> Vec<(String, usize)> {
    let at = |bytes: &[u8], end: usize| bytes[end..].iter().position(|b| *b == 0).map(|n| end + n);
    let mut found = Vec::new();
    let marker = b"stapsdt\0";
    let starts = (0..object.len() - 64).filter(|&at| object[at..].starts_with(marker));
    for start in starts {
        // Three addresses, then three texts: provider, name, arguments.
        let mut texts = Vec::new();
        let mut from = start + marker.len() + 24;
        while texts.len() < 3 {
            let Some(end) = at(object, from) else { break };
            texts.push(String::from_utf8_lossy(&object[from..end]).into_owned());
            from = end + 1;
        }
        if texts.len() == 3 && texts[0] == "flashvm" {
            found.push((texts[1].clone(), texts[2].split_whitespace().count()));
        }
    }
    found.sort();
    found
}

#[test]
fn the_object_has_the_listed_probes() {
    const TEST: &str = "the_object_has_the_listed_probes";
    let listed = line(&probes(&["--list"]));
    let mut listed: Vec<_> = listed
        .lines()
        .map(|line| {
            let (name, rest) = line.split_once('(').expect("arguments");
            let (arguments, meaning) = rest.split_once(')').expect("arguments");
            assert!(!meaning.trim().is_empty(), "{line}");
            (name.to_owned(), arguments.split(", ").count())
        })
        .collect();
    listed.sort();
    assert_eq!(listed.len(), 7);
    let Some(busy) = Busy::start(TEST, &[]) else {
        return;
    };
    let path = line(&probes(&[&busy.pid().to_string()]));
    let object = fs::read(&path).expect("the object");
    assert_eq!(in_notes(&object), listed, "{path}");
    busy.stop();
}

/// Waits for the file `go`, then writes and reads three times the budget.
const PROGRAM: &str = "
import os, time
open('ready', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.01)
pages = 12000
data = bytearray(os.urandom(pages << 12))
assert sum(data[page << 12] for page in range(pages)) > 0
# At once: what it holds at its end is seen in the statistics.
os._exit(0)
";

#[test]
fn bpftrace_counts_what_the_run_counts() {
    const TEST: &str = "bpftrace_counts_what_the_run_counts";
    if !can_page(TEST) || !has_program(TEST, "python3") || !has_program(TEST, "bpftrace") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return say(&format!("SKIPPED: {TEST}: bpftrace needs root"));
    }
    let folder = Folder::new();
    let run = children::command(FLASHVM)
        .args(["run", "--ram", "16M", "--quiet", "--stats", "stats.json"])
        .args(["--", "python3", "-c", PROGRAM])
        .current_dir(folder.path())
        .spawn()
        .expect("the command");
    wait_until("the program has started", PATIENCE, || {
        folder.path().join("ready").exists()
    });
    let object = line(&probes(&[&run.id().to_string()]));
    // It prints once all probes are attached.
    let script = "usdt:$1:flashvm:fault { @fault[arg1] = count(); } \
                  usdt:$1:flashvm:evict { @left = sum(arg1); } \
                  interval:ms:100 { printf(\"attached\\n\"); }";
    let mut tracer = children::command("bpftrace")
        .args(["-e", script, &object])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bpftrace");
    let said = Lines::of(tracer.stdout.take().expect("a pipe"));
    while let Some(text) = said.next("bpftrace attaches") {
        if text == "attached" {
            break;
        }
    }
    fs::write(folder.path().join("go"), "").expect("a file");
    let output = children::finish("a run", run, PATIENCE);
    assert!(output.status.success(), "{output:?}");
    let pid = rustix::process::Pid::from_child(&tracer);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("bpftrace");
    let mut counted = String::new();
    while let Some(text) = said.next("bpftrace ends") {
        counted += &text;
        counted.push('\n');
    }
    tracer.wait().expect("bpftrace");
    let count = |key: &str| {
        let found = counted.lines().find_map(|text| text.strip_prefix(key));
        found.map_or(0, |text| text.trim().parse::<u64>().expect("a number"))
    };
    let stats = fs::read(folder.path().join("stats.json")).expect("the statistics");
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
    let totals = &stats["totals"];
    // A fault that finds no free frame is decided on later: its kind is not known when the probe fires.
    let stalled = totals["faults"]["stalled"].as_u64().expect("a number");
    for (key, figure) in [
        ("@fault[1]:", &totals["faults"]["major"]),
        ("@fault[2]:", &totals["compressed"]["faults"]),
        ("@fault[3]:", &totals["faults"]["soft"]),
    ] {
        // A soft fault on a page that was brought in ahead has a kind of its own.
        let ahead = if key == "@fault[3]:" {
            count("@fault[8]:")
        } else {
            0
        };
        let (seen, figure) = (count(key) + ahead, figure.as_u64().expect("a number"));
        let bounds = seen..=seen + stalled;
        assert!(
            bounds.contains(&figure),
            "{key} {figure} in {bounds:?}: {counted}"
        );
    }
    assert!(
        count("@fault[1]:") > 100 && count("@left:") > 8000,
        "{counted}"
    );
}

#[test]
fn what_is_no_run() {
    refused(&probes(&["1"]), &["probes: process 1:"]);
    refused(&probes(&["soon"]), &["'soon'", "no process id"]);
    refused(&probes(&["--list", "1"]), &["--list"]);
}
