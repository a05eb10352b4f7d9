//! Bad input: one line that names the value and the remedy, and exit code 2.

use super::support::children::{self, Bounded as _};
use super::support::say;
use super::{Busy, FLASHVM, top};
use std::os::unix::process::CommandExt as _;
use std::process::Output;

#[track_caller]
pub(super) fn refused(output: &Output, named: &[&str]) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(
        line.starts_with("flashvm: ") && line.lines().count() == 1,
        "{line}"
    );
    for word in named {
        assert!(line.contains(word), "{word}: {line}");
    }
}

#[test]
fn what_is_no_run() {
    let ordinary = std::process::id().to_string();
    for (pid, named) in [
        ("1", &["process 1:"][..]),
        (&ordinary, &[&ordinary[..], "neither flashvm run"]),
        ("2147483647", &["process 2147483647", "no such process"]),
        ("0", &["'0'", "no process id"]),
        ("python", &["'python'", "no process id"]),
        ("99999999999", &["'99999999999'"]),
    ] {
        refused(&top(&["--once", pid]), named);
        refused(&top(&[pid]), named);
    }
}

#[test]
fn what_is_no_interval() {
    for bad in ["0", "0.01", "-1", "nan", "3601", "soon"] {
        let option = format!("--interval={bad}");
        refused(
            &top(&["--once", &option]),
            &["--interval", &format!("'{bad}'"), "0.1"],
        );
    }
    refused(&top(&["--twice"]), &["'--twice'"]);
}

#[test]
fn no_terminal() {
    refused(&top(&[]), &["no terminal", "--once", "--json"]);
}

#[test]
fn the_run_of_another_user() {
    let test = "the_run_of_another_user";
    if !rustix::process::geteuid().is_root() {
        say(&format!("SKIPPED: {test}: only root can be somebody else"));
        return;
    }
    let Some(busy) = Busy::start(test, &[]) else {
        return;
    };
    // A copy that all users can reach, whatever the permissions of the build's folder.
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("a folder of ours");
    let copy = folder.path().join("flashvm");
    std::fs::copy(FLASHVM, &copy).expect("a copy");
    let as_nobody = |args: &[&str]| {
        let mut command = children::command(&copy);
        command.arg("top").args(args).uid(65534).gid(65534);
        command
            .current_dir("/")
            .output_in_time()
            .expect("the command")
    };
    let pid = busy.pid().to_string();
    refused(&as_nobody(&["--once", &pid]), &[&pid, "another user"]);
    let all = as_nobody(&["--once", "--interval", "0.1"]);
    let text = String::from_utf8(all.stdout).expect("text");
    assert!(all.status.success() && !text.contains(&pid), "{text}");
    busy.stop();
}
