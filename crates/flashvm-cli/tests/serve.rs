//! `flashvm serve`: what it tells, when it ends, what it refuses. The Python package's tests join it.

#[path = "support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;

use children::Bounded as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

const FLASHVM: &str = env!("CARGO_BIN_EXE_flashvm");
const PATIENCE: Duration = Duration::from_secs(60);

fn skipped(test: &str, lacking: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {lacking}");
}

fn serve(args: &[&str]) -> Output {
    let mut command = children::command(FLASHVM);
    command.arg("serve").args(args).stdin(Stdio::null());
    command.output_in_time().expect("the command")
}

#[track_caller]
fn refused(output: &Output, named: &[&str]) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty());
    assert_eq!(line.matches('\n').count(), 1, "{line:?}");
    for name in named {
        assert!(line.contains(name), "{line:?} does not name {name:?}");
    }
}

/// It tells where processes join, and stays in the background until its standard input ends.
#[test]
fn it_stays_until_its_input_ends() {
    let test = "it_stays_until_its_input_ends";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "handler mode needs CAP_SYS_PTRACE");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
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
    refused(&serve(&["--ram", "much"]), &["'much'"]);
    refused(
        &serve(&["--ram", "16M", "--fault", "inline"]),
        &["--fault", "flashvm run"],
    );
    refused(
        &serve(&["--ram", "16M", "--select", "all"]),
        &["--select", "leave it out"],
    );
    refused(
        &serve(&["--ram", "16M", "--granularity", "512"]),
        &["--granularity 512"],
    );
    refused(
        &serve(&["--ram", "16M", "--flash", "/nowhere"]),
        &["/nowhere"],
    );
    refused(&serve(&["--ram", "16M", "true"]), &["'true'"]);
}

#[test]
fn without_the_capability_the_other_way_is_named() {
    let test = "without_the_capability_the_other_way_is_named";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "only root can be somebody else");
    }
    // A copy that all users can reach, whatever the permissions of the build's folder.
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("a folder of ours");
    let copy = folder.path().join("flashvm");
    std::fs::copy(FLASHVM, &copy).expect("a copy");
    let mut command = children::command(&copy);
    command.args(["serve", "--ram", "16M"]).stdin(Stdio::null());
    let output = command
        .uid(65534)
        .gid(65534)
        .current_dir("/")
        .output_in_time();
    refused(
        &output.expect("the command"),
        &["CAP_SYS_PTRACE", "or start the program with flashvm run"],
    );
}
