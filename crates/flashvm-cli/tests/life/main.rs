//! The life of a run: exit codes, signals and job control are the program's, the statistics are
//! complete, and no end leaves anything behind.

mod causes;
#[path = "../support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;
mod signals;
mod stats;
mod stores;
mod users;

use children::Bounded as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

const FLASHVM: &str = env!("CARGO_BIN_EXE_flashvm");
/// Longest time of any of these programs.
const PATIENCE: Duration = Duration::from_secs(300);

/// The fault mode of all runs: `FLASHVM_TEST_FAULT=handler` runs the suite in handler mode.
fn fault_mode() -> String {
    std::env::var("FLASHVM_TEST_FAULT").unwrap_or_else(|_| "inline".to_owned())
}

/// With `FLASHVM_TEST_NO_MARKERS` beside protect mode, access rights hide pages, as before Linux 6.15.
fn no_markers() -> Option<&'static str> {
    let asked = std::env::var_os("FLASHVM_TEST_NO_MARKERS").is_some();
    (asked && fault_mode() == "protect").then_some("--no-markers")
}

/// Names a test that this machine cannot run. Written directly: the harness hides what a test
/// prints.
fn skipped(test: &str, lacking: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {lacking}");
}

/// A folder that holds the store, and must be empty at the end.
struct Bench {
    flash: tempfile::TempDir,
    other: tempfile::TempDir,
}

impl Bench {
    /// If the machine cannot page, it says so and returns `None`.
    fn new(test: &str) -> Option<Self> {
        static WORKS: OnceLock<bool> = OnceLock::new();
        let works = *WORKS.get_or_init(|| {
            let doctor = children::command(FLASHVM)
                .arg("doctor")
                .output_in_time()
                .expect("the command");
            doctor.status.success()
        });
        if !works {
            skipped(
                test,
                "`flashvm doctor` says that programs cannot be run here",
            );
            return None;
        }
        let folder = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        Some(Self {
            flash: folder(),
            other: folder(),
        })
    }

    /// A file of the test.
    fn file(&self, name: &str) -> PathBuf {
        self.other.path().join(name)
    }

    fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = children::command(FLASHVM);
        command
            .args(["run", "--ram", "64M", "--flash-size", "256M", "--flash"])
            .arg(self.flash.path())
            .args(["--fault", &fault_mode()])
            .args(no_markers())
            .args(options)
            .arg("--")
            .args(program)
            .current_dir(&self.other);
        command
    }

    fn run(&self, options: &[&str], program: &[&str]) -> Output {
        finish(self.command(options, program).spawn().expect("the command"))
    }

    /// Starts a shell script and waits until it has written the file `ready`.
    fn start(&self, script: &str) -> Child {
        let child = self
            .command(&["--quiet"], &["/bin/sh", "-c", script])
            .spawn();
        let child = child.expect("the command");
        wait_until("the script is ready", || self.file("ready").exists());
        child
    }

    /// The number in a file.
    fn number(&self, name: &str) -> u32 {
        let text = fs::read_to_string(self.file(name)).expect("a file of the script");
        text.trim().parse().expect("a number")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let left: Vec<_> = fs::read_dir(&self.flash).expect("the folder").collect();
        if !std::thread::panicking() {
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    children::wait_until(what, PATIENCE, done);
}

/// Waits for a run, which is ended if it takes too long.
#[track_caller]
fn finish(child: Child) -> Output {
    children::finish("a run", child, PATIENCE)
}

fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("to send a signal");
}

/// The state of a process, `None` if there is none.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next())
}

#[test]
fn exit_codes_pass() {
    let Some(bench) = Bench::new("exit_codes_pass") else {
        return;
    };
    for code in [0, 1, 7, 255] {
        let output = bench.run(&["--quiet"], &["/bin/sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code));
        assert!(
            output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The tables of the pager are as large as its region, and take no RAM where nothing was stored.
#[test]
fn a_process_starts_with_little_memory() {
    const MOST_KIB: u32 = 16 << 10;
    let Some(bench) = Bench::new("a_process_starts_with_little_memory") else {
        return;
    };
    for preset in ["modern", "flashvm", "native"] {
        let options = ["--quiet", "--preset", preset];
        let output = bench.run(&options, &["/bin/grep", "VmHWM", "/proc/self/status"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let kib = text.split_whitespace().nth(1).expect("VmHWM: KIB kB");
        assert!(kib.parse::<u32>().expect("a number") < MOST_KIB, "{text}");
    }
}

#[test]
fn what_is_left_running_keeps_its_memory() {
    let Some(bench) = Bench::new("what_is_left_running_keeps_its_memory") else {
        return;
    };
    // The orphan prints after the program has ended.
    let script = "(while kill -0 $$ 2>/dev/null; do /bin/sleep 0.01; done; echo late) & exit 3";
    let output = bench.run(&["--quiet"], &["/bin/sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"late\n");
}

#[test]
fn nothing_outlives_a_killed_supervisor() {
    let Some(bench) = Bench::new("nothing_outlives_a_killed_supervisor") else {
        return;
    };
    let script =
        "(echo $$ >pid; exec /bin/sh -c 'echo $$ >inner; touch ready; /bin/sleep 1000; :'); :";
    let child = bench.start(script);
    let (outer, inner) = (bench.number("pid"), bench.number("inner"));
    kill(child.id(), rustix::process::Signal::KILL);
    assert_eq!(finish(child).status.signal(), Some(9));
    let gone = |pid| matches!(state(pid), None | Some('Z'));
    wait_until("all have ended", || gone(outer) && gone(inner));
}

#[test]
fn a_configuration_file_is_as_good() {
    let Some(bench) = Bench::new("a_configuration_file_is_as_good") else {
        return;
    };
    fs::write(
        bench.file("run.toml"),
        "preset = \"flashvm\"\nstats = \"s.json\"\nquiet = true\n",
    )
    .expect("the configuration");
    let output = bench.run(
        &["--config", "run.toml", "--policy", "fifo"],
        &["/bin/true"],
    );
    assert!(output.status.success() && output.stderr.is_empty());
    let stats = fs::read_to_string(bench.file("s.json")).expect("the statistics");
    assert!(
        stats.contains("\"preset\":\"flashvm\",\"policy\":\"fifo\""),
        "{stats}"
    );
}

#[test]
fn what_was_preloaded_stays_preloaded() {
    let Some(bench) = Bench::new("what_was_preloaded_stays_preloaded") else {
        return;
    };
    let mut command = bench.command(&["--quiet"], &["/bin/sh", "-c", "echo $LD_PRELOAD"]);
    let other = format!("/lib/{}-linux-gnu/libm.so.6", std::env::consts::ARCH);
    command.env("LD_PRELOAD", &other);
    let output = finish(command.spawn().expect("the command"));
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let (object, others) = text.trim().split_once(':').expect("two objects");
    assert!(object.starts_with("/proc/"), "{text}");
    assert_eq!(others, other);
}

#[test]
fn progress_is_shown() {
    let Some(bench) = Bench::new("progress_is_shown") else {
        return;
    };
    let output = bench.run(&["--progress", "--quiet"], &["/bin/sleep", "1.3"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!((1..=3).contains(&text.lines().count()), "{text}");
    assert!(text.contains("faults") && text.contains("64 MiB"), "{text}");
}
