//! Signals and job control.

use super::children::{self, Bounded as _};
use super::{Bench, FLASHVM, finish, kill, state, wait_until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;

#[test]
fn deadly_signals_pass() {
    let Some(bench) = Bench::new("deadly_signals_pass") else {
        return;
    };
    for signal in ["HUP", "INT", "KILL", "USR1", "PIPE", "TERM"] {
        let script = format!("kill -{signal} $$");
        let status = bench
            .command(&["--quiet"], &["/bin/sh", "-c", &script])
            .spawn()
            .map(finish)
            .expect("the command")
            .status;
        let plain = children::command("/bin/sh")
            .args(["-c", &script])
            .status_in_time()
            .expect("a shell");
        assert!(plain.signal().is_some(), "{signal}: {plain}");
        assert_eq!(status, plain, "{signal}");
    }
    let crash = bench.run(
        &["--quiet"],
        &["/bin/sh", "-c", "ulimit -c 0; kill -SEGV $$"],
    );
    assert_eq!(crash.status.signal(), Some(11));
    assert!(!crash.status.core_dumped());
}

/// Forked children, and the programs that they start, have the mask that they would have without the pager.
#[test]
fn children_have_the_mask_of_their_parents() {
    let Some(bench) = Bench::new("children_have_the_mask_of_their_parents") else {
        return;
    };
    let script = "look() { grep SigBlk /proc/self/status; }; look; (look; true); \
                  { look; (look & wait); } | cat; (look) & wait";
    let output = bench.run(&["--quiet"], &["/bin/sh", "-c", script]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines.iter().all(|line| *line == lines[0]), "{text}");
}

#[test]
fn signals_to_the_supervisor_reach_the_program() {
    let Some(bench) = Bench::new("signals_to_the_supervisor_reach_the_program") else {
        return;
    };
    for (signal, name) in [(Signal::USR2, "USR2"), (Signal::TERM, "TERM")] {
        let script =
            format!("trap 'exit 5' {name}; touch ready; while :; do /bin/sleep 0.05; done");
        let child = bench.start(&script);
        kill(child.id(), signal);
        assert_eq!(finish(child).status.code(), Some(5), "{name}");
        fs::remove_file(bench.file("ready")).expect("to remove it");
    }
    // Without a handler it ends both.
    let child = bench.start("touch ready; exec /bin/sleep 1000");
    kill(child.id(), Signal::TERM);
    assert_eq!(finish(child).status.signal(), Some(15));
}

/// `alarm 1` before `exec flashvm run` ends the program, as it would end a program without the pager. No other
/// process of the group gets the kernel's signal.
#[test]
fn a_timer_of_the_supervisor_ends_the_program() {
    let Some(bench) = Bench::new("a_timer_of_the_supervisor_ends_the_program") else {
        return;
    };
    let mut command = bench.command(&["--quiet"], &["/bin/sleep", "1000"]);
    // SAFETY: `alarm` takes a number and is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(1);
            Ok(())
        });
    }
    let status = finish(command.spawn().expect("the command")).status;
    assert_eq!(status.signal(), Some(libc::SIGALRM), "{status}");
}

#[test]
fn stopping_and_going_on() {
    let Some(bench) = Bench::new("stopping_and_going_on") else {
        return;
    };
    let child = bench.start("echo $$ >pid; touch ready; kill -STOP $$; exit 6");
    let (supervisor, program) = (child.id(), bench.number("pid"));
    wait_until("both have stopped", || {
        state(supervisor) == Some('T') && state(program) == Some('T')
    });
    kill(supervisor, Signal::CONT);
    assert_eq!(finish(child).status.code(), Some(6));
}

#[test]
fn the_program_starts_with_the_signals_of_its_starter() {
    let Some(bench) = Bench::new("the_program_starts_with_the_signals_of_its_starter") else {
        return;
    };
    let program = ["/bin/grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    // The C library's own two signals, 32 and 33, change with the number of threads. Inline mode
    // catches SIGBUS, SIGSEGV and SIGSYS.
    let ours = 3 << 31 | 1 << 6 | 1 << 10 | 1 << 30;
    let sets = |status: &[u8]| -> Vec<u64> {
        let status = String::from_utf8_lossy(status);
        let masks = status.lines().filter_map(|line| line.split_once(":\t"));
        masks
            .map(|(_, mask)| u64::from_str_radix(mask, 16).expect("a mask") & !ours)
            .collect()
    };
    // As from a login, and as under `nohup` or in the background of a script.
    for ignored in ["", "trap '' HUP INT QUIT TERM; "] {
        let script = format!("{ignored}exec \"$@\"");
        let started = |command: &mut Command| {
            let words = Vec::from_iter(command.get_args().map(ToOwned::to_owned));
            let mut shell = children::command("/bin/sh");
            shell.args(["-c", &script, "sh"]).arg(command.get_program());
            shell.args(words).output_in_time().expect("a shell").stdout
        };
        let bare = started(children::command(program[0]).args(&program[1..]));
        let paged = started(&mut bench.command(&["--quiet"], &program));
        assert_eq!(sets(&bare).len(), 3);
        assert_eq!(sets(&paged), sets(&bare), "{ignored}");
    }
}

/// Under `nohup` a hang-up ends neither the program nor the run.
#[test]
fn ignored_signals_stay_ignored() {
    let Some(bench) = Bench::new("ignored_signals_stay_ignored") else {
        return;
    };
    // A shell cannot reset signals that were ignored when it started: the inner shell is the program.
    let script = "touch ready; while [ ! -e go ]; do /bin/sleep 0.05; done; exit 7";
    let run = bench.command(&["--quiet"], &["/bin/sh", "-c", script]);
    let mut shell = children::command("/bin/sh");
    shell.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]);
    shell.arg(run.get_program()).args(run.get_args());
    let child = shell.current_dir(&bench.other).spawn().expect("a shell");
    wait_until("the script is ready", || bench.file("ready").exists());
    for signal in [Signal::HUP, Signal::INT] {
        kill(child.id(), signal);
    }
    fs::write(bench.file("go"), "").expect("a file");
    assert_eq!(finish(child).status.code(), Some(7));
}

/// The run of an experiment does not outlive the command that makes it.
#[test]
fn an_experiment_ends_with_its_command() {
    let Some(bench) = Bench::new("an_experiment_ends_with_its_command") else {
        return;
    };
    let command = children::command(FLASHVM)
        .args(["reproduce", "chameleon", "figure-6", "--out"])
        .arg(bench.other.path())
        .env("TMPDIR", bench.flash.path())
        .spawn()
        .expect("the command");
    let is_run = |child: &u32| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"run")
    };
    let run = || children::of(command.id()).into_iter().find(is_run);
    wait_until("a run is under way", || run().is_some());
    let run = run().expect("seen above");
    let files = || fs::read_dir(bench.flash.path()).expect("a folder").count();
    assert!(files() > 0);
    // It cannot end by itself.
    kill(run, Signal::STOP);
    kill(command.id(), Signal::TERM);
    assert_eq!(finish(command).status.signal(), Some(15));
    wait_until("the run has ended", || state(run).is_none_or(|s| s == 'Z'));
    wait_until("its files are gone", || files() == 0);
}
