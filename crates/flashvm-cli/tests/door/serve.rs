//! `flashvm serve`: what it tells, when it ends, what it refuses. The Python package's tests join it.

use super::programs::{NOBODY, for_nobody};
use super::{FLASHVM, flashvm, folder, is_root, refused, skipped};
use crate::children::{self, Bounded as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// It tells where processes join, and stays in the background until its standard input ends.
#[test]
fn it_stays_until_its_input_ends() {
    let test = "it_stays_until_its_input_ends";
    if !is_root() {
        return skipped(test, "handler mode needs CAP_SYS_PTRACE");
    }
    let folder = folder();
    let stats = folder.path().join("stats.json");
    let mut command = children::command(FLASHVM);
    command
        .args(["serve", "--quiet", "--ram", "16M", "--flash"])
        .arg(folder.path())
        .arg("--stats")
        .arg(&stats);
    // It keeps standard error, for what it has to say later.
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    let mut child = command.spawn().expect("the command");
    let input = child.stdin.take();
    let output = children::finish(test, child, PATIENCE);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let [object, address] = lines[..] else {
        panic!("{text:?}");
    };
    let supervisor = address.split(':').next().expect("a process id");
    let folder_of_it = format!("/proc/{supervisor}");
    assert!(std::fs::read(object).is_ok_and(|object| object.starts_with(b"\x7fELF")));
    std::thread::sleep(Duration::from_millis(600));
    assert!(Path::new(&folder_of_it).exists() && !stats.exists());
    drop(input);
    children::wait_until("the statistics", PATIENCE, || {
        std::fs::read_to_string(&stats).is_ok_and(|text| text.ends_with("}\n"))
    });
    let is_gone = || {
        let state = std::fs::read_to_string(format!("{folder_of_it}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    children::wait_until("its end", PATIENCE, is_gone);
}

#[test]
fn bad_values_are_refused_before_it_goes_into_the_background() {
    refused(&flashvm(&["serve", "--ram", "much"]), 2, &["'much'"]);
    refused(
        &flashvm(&["serve", "--ram", "16M", "--fault", "inline"]),
        2,
        &["--fault", "flashvm run"],
    );
    refused(
        &flashvm(&["serve", "--ram", "16M", "--select", "all"]),
        2,
        &["--select", "leave it out"],
    );
    refused(
        &flashvm(&["serve", "--ram", "16M", "--granularity", "512"]),
        2,
        &["--granularity 512"],
    );
    refused(
        &flashvm(&["serve", "--ram", "16M", "--flash", "/nowhere"]),
        2,
        &["/nowhere"],
    );
    refused(&flashvm(&["serve", "--ram", "16M", "true"]), 2, &["'true'"]);
}

#[test]
fn without_the_capability_the_other_way_is_named() {
    let test = "without_the_capability_the_other_way_is_named";
    if !is_root() {
        return skipped(test, "only root can be somebody else");
    }
    let (_folder, copy) = for_nobody();
    let mut command = children::command(&copy);
    command.args(["serve", "--ram", "16M"]).stdin(Stdio::null());
    let output = command.uid(NOBODY).gid(NOBODY).output_in_time();
    refused(
        &output.expect("the command"),
        2,
        &["CAP_SYS_PTRACE", "or start the program with flashvm run"],
    );
}
