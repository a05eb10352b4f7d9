//! Runs programs under `flashvm run` with a bound on their time, and reports what hung.
//!
//! Each run gets an empty folder of its own for the store and as `TMPDIR`, which must be empty
//! again at the end: nothing is left behind. Exit code 2 of a probe means that the machine cannot page, and not that
//! the build is broken: its tests are named as skipped.

#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
pub(crate) mod children;
#[allow(dead_code, reason = "shared by all test programs; some replay nothing")]
pub(crate) mod recording;

use children::Bounded as _;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The command under test.
pub(crate) const FLASHVM: &str = env!("CARGO_BIN_EXE_flashvm");

/// The result of a run: its status and its output.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The object of `--stats`, empty without.
    pub(crate) stats: String,
}

impl Outcome {
    /// Fails the test unless the program ended with exit code 0.
    pub(crate) fn expect_success(self, what: &str) -> Self {
        assert!(
            self.status.success(),
            "{what}: {}\n--- stdout\n{}--- stderr\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// The exit code as a shell gives it: 128 and the signal for a program that a signal ended.
    pub(crate) fn shell_code(&self) -> i32 {
        self.status
            .code()
            .or_else(|| self.status.signal().map(|s| 128 + s))
            .unwrap_or(-1)
    }

    /// The number behind the last `"key":` of the statistics: the totals come last.
    pub(crate) fn stat(&self, key: &str) -> u64 {
        let quoted = format!("\"{key}\"");
        let after = self
            .stats
            .rsplit_once(quoted.as_str())
            .map(|(_, after)| after);
        let digits: String = after
            .unwrap_or_else(|| panic!("no {key} in the statistics: {}", self.stats))
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().expect("a number in the statistics")
    }
}

/// An empty folder that is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "run-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed must not hide the failure that is being reported.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes past the capture of test output, so that a skipped test is seen in every run.
pub(crate) fn say(line: &str) {
    // A closed standard error loses the line.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether this machine can page at all; says which test is skipped and why if not.
pub(crate) fn can_page(test: &str) -> bool {
    static REASON: Mutex<Option<Result<(), String>>> = Mutex::new(None);
    let mut reason = REASON.lock().expect("no test panics while it probes");
    let probed = reason.get_or_insert_with(|| {
        let probe = children::command(FLASHVM)
            .args(["run", "--ram", "16M", "--", "true"])
            .output_in_time()
            .expect("flashvm starts");
        match probe.status.code() {
            Some(0) => Ok(()),
            Some(2) => Err(String::from_utf8_lossy(&probe.stderr).trim().to_owned()),
            _ => panic!(
                "flashvm run -- true: {}\n{}",
                probe.status,
                String::from_utf8_lossy(&probe.stderr)
            ),
        }
    });
    if let Err(why) = probed {
        say(&format!("SKIPPED: {test}: {why}"));
    }
    probed.is_ok()
}

/// Whether `program` can be found; says which test is skipped if not.
pub(crate) fn has_program(test: &str, program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !found {
        say(&format!("SKIPPED: {test}: {program} is not installed"));
    }
    found
}

/// Set beside `FLASHVM_TEST_FAULT=protect`: access rights hide pages, as before Linux 6.15.
const NO_MARKERS: &str = "FLASHVM_TEST_NO_MARKERS";

/// The modes that the environment asks for, unless the test's options fix them: `FLASHVM_TEST_FAULT=handler` runs the
/// whole suite in handler mode, `FLASHVM_TEST_GRANULARITY=512` with small pages.
fn modes(options: &[&str]) -> Vec<String> {
    let asked = [
        ("--fault", "FLASHVM_TEST_FAULT"),
        ("--granularity", "FLASHVM_TEST_GRANULARITY"),
        ("--log-structuring", "FLASHVM_TEST_LOG_STRUCTURING"),
    ];
    let modes = asked
        .into_iter()
        .filter(|(option, _)| !options.contains(option));
    let mut modes: Vec<String> = modes
        .filter_map(|(option, variable)| Some([option.to_owned(), std::env::var(variable).ok()?]))
        .flatten()
        .collect();
    if modes.iter().any(|word| word == "protect") && std::env::var_os(NO_MARKERS).is_some() {
        modes.push("--no-markers".to_owned());
    }
    modes
}

/// Whether the environment asks for a fault mode although the options fix one: the run without the variable tests the
/// same.
#[allow(dead_code, reason = "shared by all test programs; some fix no mode")]
pub(crate) fn is_run_elsewhere(test: &str, options: &[&str]) -> bool {
    let elsewhere =
        options.contains(&"--fault") && std::env::var_os("FLASHVM_TEST_FAULT").is_some();
    if elsewhere {
        say(&format!(
            "run without FLASHVM_TEST_FAULT only: {test}, {options:?}"
        ));
    }
    elsewhere
}

/// `flashvm run OPTIONS -- PROGRAM`, bounded in time, with nothing left behind.
#[allow(
    dead_code,
    reason = "shared by all test programs; one has its stores at servers"
)]
pub(crate) fn flashvm_run<S: AsRef<OsStr>>(
    test: &str,
    options: &[&str],
    program: &[S],
    limit: Duration,
) -> Outcome {
    let folder = Folder::new();
    let outcome = flashvm_run_at(test, &folder, folder.path(), options, program, limit);
    let left: Vec<_> = fs::read_dir(folder.path())
        .expect("the folder of the run")
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    assert!(
        left.is_empty(),
        "{test}: left behind: {left:?}\n{}",
        outcome.stderr
    );
    outcome
}

/// `flashvm run --flash FLASH OPTIONS -- PROGRAM`, bounded in time. `temporary` is the program's `TMPDIR`.
pub(crate) fn flashvm_run_at<S: AsRef<OsStr>>(
    test: &str,
    temporary: &Folder,
    flash: impl AsRef<OsStr>,
    options: &[&str],
    program: &[S],
    limit: Duration,
) -> Outcome {
    let stats = Folder::new();
    let stats_file = stats.path().join("stats.json");
    let mut command = children::command(FLASHVM);
    command
        .arg("run")
        .args(modes(options))
        .args(options)
        .arg("--flash")
        .arg(flash)
        .arg("--stats")
        .arg(&stats_file)
        .arg("--")
        .args(program)
        .env("TMPDIR", temporary.path());
    let mut outcome = run_bounded(test, &mut command, limit);
    outcome.stats = fs::read_to_string(&stats_file).unwrap_or_default();
    outcome
}

/// Runs a command in a process group of its own. After `limit` it reports what hung, ends the group and fails the test.
pub(crate) fn run_bounded(test: &str, command: &mut Command, limit: Duration) -> Outcome {
    let folder = Folder::new();
    // Files, not pipes: an orphan that holds a pipe open would keep the test waiting.
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).expect("a file for standard output"))
        .stderr(fs::File::create(&err).expect("a file for standard error"))
        .process_group(0);
    let mut child = command.spawn().expect("the command starts");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if start.elapsed() > limit {
            let report = describe_group(child.id());
            end_group(child.id());
            let ended = child.wait();
            panic!(
                "{test}: hung for more than {limit:?} ({ended:?})\n{report}\n--- stdout\n{}--- stderr\n{}",
                read(&out),
                read(&err)
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // A program that outlives its parent would take memory and CPU from later tests.
    end_group(child.id());
    Outcome {
        status,
        stdout: read(&out),
        stderr: read(&err),
        stats: String::new(),
    }
}

fn read(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn end_group(group: u32) {
    // Fails if the group is gone, as it should be.
    let _ = children::command("kill")
        .args(["-KILL", "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status_in_time();
}

/// State, kernel function and system call of every thread of a process group, and the stacks if a debugger is
/// installed.
fn describe_group(group: u32) -> String {
    let mut report = String::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat = read(&entry.path().join("stat"));
        let after_name = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        if after_name.split(' ').nth(2) != Some(&group.to_string()) {
            continue;
        }
        let command = read(&entry.path().join("cmdline")).replace('\0', " ");
        report += &format!("process {pid}: {command}\n");
        for task in fs::read_dir(entry.path().join("task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let field = |name: &str| read(&task.path().join(name)).trim().to_owned();
            let state = field("stat");
            let state = state
                .rsplit_once(") ")
                .map_or("?", |(_, after)| &after[..1]);
            report += &format!(
                "  thread {} {} state {state} in {} syscall {}\n",
                task.file_name().to_string_lossy(),
                field("comm"),
                field("wchan"),
                field("syscall")
            );
        }
        let stacks = children::command("timeout")
            .args([
                "20",
                "gdb",
                "-batch",
                "-ex",
                "thread apply all bt 14",
                "-p",
                &pid.to_string(),
            ])
            .stderr(Stdio::null())
            .output_in_time();
        if let Ok(stacks) = stacks {
            report += &String::from_utf8_lossy(&stacks.stdout);
        }
    }
    report
}
