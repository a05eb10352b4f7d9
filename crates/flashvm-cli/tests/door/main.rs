//! Bad input at the door: each case ends with its exit code and exactly one line that names the
//! value and the remedy, and leaves the flash folder as it was.

#[path = "../support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;
mod container;
mod devices;
mod documents;
mod flash;
mod programs;
mod serve;
mod sim;

use children::Bounded as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Output;

const FLASHVM: &str = env!("CARGO_BIN_EXE_flashvm");

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Names a test, or a part of one, that this machine cannot run. Written directly: the harness hides what a test
/// prints.
fn skipped(what: &str, lacking: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {lacking}");
}

/// Runs the command with `args`; an empty folder is the working and the default flash folder.
fn flashvm(args: &[&str]) -> Output {
    let folder = folder();
    let output = children::command(FLASHVM)
        .args(args)
        .current_dir(&folder)
        .env("TMPDIR", folder.path())
        .output_in_time()
        .expect("the command under test");
    let left: Vec<_> = fs::read_dir(&folder).expect("the folder").collect();
    assert!(left.is_empty(), "{args:?} left {left:?}");
    output
}

/// Checks one refusal: exit code, one line, and that it names all of `named`.
#[track_caller]
fn refused(output: &Output, code: i32, named: &[&str]) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert!(output.stdout.is_empty());
    assert!(
        line.starts_with("flashvm: ") && line.ends_with('\n'),
        "{line:?}"
    );
    assert_eq!(line.matches('\n').count(), 1, "{line:?}");
    for name in named {
        assert!(line.contains(name), "{line:?} does not name {name:?}");
    }
}

/// A caller that leaves standard error to the program reads the line in a file; the program does not inherit the
/// variable.
#[test]
fn a_refusal_is_left_in_a_file() {
    let folder = folder();
    let file = folder.path().join("refusal");
    let run = |args: &[&str]| {
        children::command(FLASHVM)
            .args(["run", "--quiet"])
            .args(args)
            .current_dir(&folder)
            .env("FLASHVM_REFUSAL", &file)
            .output_in_time()
            .expect("the command under test")
    };
    let output = run(&["--ram", "none", "--", "true"]);
    refused(&output, 2, &["--ram", "'none'"]);
    assert_eq!(fs::read(&file).expect("a line"), output.stderr[9..]);
    fs::remove_file(&file).expect("the file");
    let inherits = "test -n \"$FLASHVM_REFUSAL\"";
    let output = run(&["--ram", "16M", "--", "sh", "-c", inherits]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!file.exists());
}

#[test]
fn options() {
    for (args, named) in [
        (
            &["run", "--sampling", "uniform:1", "--", "true"][..],
            &["'uniform:1'", "adaptive:N"][..],
        ),
        (
            &["run", "--discard=trim", "--", "true"],
            &["'trim'", "native, merged"],
        ),
        (
            &["run", "--discard=merged:3T", "--", "true"],
            &["'merged:3T'", "merged:100M"],
        ),
        (
            &["run", "--granularity", "100", "--", "true"],
            &["granularity", "'100'", "512, 4096"],
        ),
        (
            &[
                "run",
                "--granularity",
                "512",
                "--padding",
                "4000",
                "--",
                "true",
            ],
            &["--padding 4000", "1024"],
        ),
        (
            &["run", "--padding", "8", "--", "true"],
            &["--padding 8", "add --granularity 512"],
        ),
        (
            &["run", "--log-structuring", "off", "--", "true"],
            &["--log-structuring off", "add --granularity 512"],
        ),
        (
            &[
                "run",
                "--granularity",
                "512",
                "--cluster",
                "1M",
                "--",
                "true",
            ],
            &["--cluster 1 MiB", "256 KiB"],
        ),
        (
            &[
                "run",
                "--granularity",
                "512",
                "--fault",
                "handler",
                "--",
                "true",
            ],
            &["inline and protect mode", "leave --fault handler out"],
        ),
        (
            &["run", "--peer", "ssdalloc:99", "--", "true"],
            &["'ssdalloc:99'", "ssdalloc:N"],
        ),
        (
            &["run", "--presett", "64M", "--", "true"],
            &["'--presett'", "'--preset'"],
        ),
        (
            &["run", "--ram", "12X", "--", "true"],
            &["--ram", "'12X'", "512M", "80%", "auto"],
        ),
        (
            &["run", "--ram", "0%", "--", "true"],
            &["--ram", "'0%'", "1% to 100%"],
        ),
        (
            &["run", "--ram", "120%", "--", "true"],
            &["--ram", "'120%'", "1% to 100%"],
        ),
        (&["run", "--ram", "-5M", "--", "true"], &["-5"]),
        (&["run", "--ram", "", "--", "true"], &["--ram"]),
        (
            &["run", "--ram", "1M", "--", "true"],
            &["--ram 1 MiB", "4M"],
        ),
        (&["run", "--ram", "99T", "--", "true"], &["too large"]),
        (&["run", "--ram"], &["--ram"]),
        (
            &["run", "--ram", "8M", "--ram", "9M", "--", "true"],
            &["--ram", "more than once"],
        ),
        (
            &["run", "--preset", "fast", "--", "true"],
            &["preset", "'fast'", "modern", "native"],
        ),
        (
            &["run", "--policy", "lru2", "--", "true"],
            &["policy", "'lru2'", "clock", "fifo"],
        ),
        (
            &["run", "--readahead", "many", "--", "true"],
            &["--readahead", "'many'"],
        ),
        (
            &["run", "--readahead", "5000", "--", "true"],
            &["readahead", "5000", "1024"],
        ),
        (
            &["run", "--preclean", "0", "--", "true"],
            &["preclean", "0"],
        ),
        (
            &["run", "--cluster", "12K", "--", "true"],
            &["power of two"],
        ),
        (
            &["run", "--cluster", "8M", "--", "true"],
            &["cluster", "2048"],
        ),
        (
            &["run", "--erase-block", "100000", "--", "true"],
            &["--erase-block", "'100000'", "whole number of pages"],
        ),
        (
            &["run", "--erase-block", "12K", "--", "true"],
            &["erase block", "power of two"],
        ),
        (
            &["run", "--zero-sharing", "maybe", "--", "true"],
            &["--zero-sharing", "'maybe'"],
        ),
        (
            &["run", "--congestion-timeout", "1", "--", "true"],
            &["'1'", "1ms"],
        ),
        (
            &["run", "--fault", "magic", "--", "true"],
            &["'magic'", "auto, inline, handler"],
        ),
        (
            &["run", "--inject", "{\"flip_ppm\": 5}", "--", "true"],
            &["--inject", "flip_ppm", "read=PPM"],
        ),
        (
            &["run", "--inject", "flip=1000001", "--", "true"],
            &["--inject", "flip=1000001", "1000000"],
        ),
        (
            &["run", "--granularity=512", "--ram=65G", "--", "true"],
            &["--ram 65 GiB", "64G"],
        ),
        (
            &["run", "--stats", "/nowhere/s.json", "--", "true"],
            &["/nowhere/s.json"],
        ),
        (
            &["run", "--stats", "/", "--", "true"],
            &["--stats /", "folder"],
        ),
        (
            &["run", "--report", "/nowhere/r.html", "--", "true"],
            &["--report /nowhere/r.html", "name a file"],
        ),
        (
            &["run", "--report", "r.txt", "--", "true"],
            &["--report r.txt", ".html", ".json"],
        ),
        (
            &["report", "/nowhere/r.json", "-o", "r.html"],
            &["/nowhere/r.json", "flashvm run --report"],
        ),
        (
            &["report", "/dev/null", "-o", "r.html"],
            &["/dev/null", "not a record"],
        ),
        (
            &["report", "/dev/null", "-o", "/nowhere/r.html"],
            &["--out /nowhere/r.html", "name a file"],
        ),
        (&["report", "r.json"], &["--out", "missing"]),
        (
            &[
                "run",
                "--flash-size",
                "8K",
                "--cluster",
                "64K",
                "--",
                "true",
            ],
            &["cluster"],
        ),
        (&["run"], &["no program"]),
        (&["run", "--"], &["no program"]),
        (&["fly"], &["'fly'", "run"]),
        (&[], &["no command", "--help"]),
        (&["doctor", "--flush"], &["'--flush'"]),
        (&["run", "--ram", "1\n2", "--", "true"], &["--ram"]),
    ] {
        refused(&flashvm(args), 2, named);
    }
}

#[test]
fn records_of_other_versions() {
    let folder = folder();
    let file = folder.path().join("run.json");
    let path = file.to_str().expect("text");
    for (record, named) in [
        (
            "{\"format\":99,\"news\":1}",
            &["format 99", "flashvm that wrote it"][..],
        ),
        ("{\"format\":2,\"about\":7}", &["damaged", "again"]),
        ("{\"totals\":{}}", &["not a record", "--report"]),
    ] {
        fs::write(&file, record).expect("a file");
        refused(&flashvm(&["report", path, "-o", "page.html"]), 2, named);
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    let version = concat!("flashvm ", env!("CARGO_PKG_VERSION"), "\n");
    for (args, says) in [
        (&["--help"][..], "\nUsage: flashvm <COMMAND>\n"),
        (
            &["run", "--help"],
            "\nUsage: flashvm run [OPTIONS] -- PROGRAM [ARGS]...\n",
        ),
        (&["doctor", "--help"], "\nUsage: flashvm doctor [OPTIONS]\n"),
        (&["--version"], version),
    ] {
        let output = flashvm(args);
        assert!(output.status.success() && output.stderr.is_empty());
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains(says), "{args:?}: {text}");
    }
    let help = |word| String::from_utf8(flashvm(&["run", word]).stdout).expect("text");
    let (short, long) = (help("-h"), help("--help"));
    assert!(short.contains("Examples:") && long.contains("Examples:"));
    assert!(!short.contains("--inject") && long.contains("--inject"));
}

#[test]
fn configuration_files() {
    let folder = folder();
    let path = folder.path().join("flashvm.toml");
    let shown = path.to_str().expect("a path in UTF-8");
    for (text, named) in [
        (
            "ram = \"64M\"\nrma = 3\n",
            &["line 2", "`rma`", "`ram`"][..],
        ),
        ("ram = \"lots\"\n", &["line 1", "'lots'"]),
        ("\n\nzero-sharing = 3\n", &["line 3", "'3'"]),
        ("ram = \n", &["line 1"]),
        ("preset = \"fast\"\n", &["'fast'", "modern"]),
        ("ram = 4096\n", &["--ram 4 KiB"]),
        ("inject = \"{}\"\n", &["line 1", "`inject`", "'{}'"]),
        (
            "config = \"more.toml\"\n",
            &["line 1", "`config`", "--config"],
        ),
        ("ram = 0x1000\n", &["line 1", "`ram`", "decimal"]),
    ] {
        fs::write(&path, text).expect("the configuration");
        refused(
            &flashvm(&["run", "--config", shown, "--", "true"]),
            2,
            named,
        );
    }
    refused(
        &flashvm(&["run", "--config", "none.toml", "--", "true"]),
        2,
        &["none.toml"],
    );
    // The command line wins: its value is refused.
    fs::write(&path, "ram = \"64M\"\npolicy = \"clock\"\n").expect("the configuration");
    let args = ["run", "--config", shown, "--ram", "2M", "--", "true"];
    refused(&flashvm(&args), 2, &["--ram 2 MiB"]);
}

#[test]
fn the_doctor_reports() {
    let folder = folder();
    let path = folder.path().to_str().expect("a path in UTF-8");
    let output = flashvm(&["doctor", "--json", "--flash", path]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let works = report["works"].as_bool().expect("a verdict");
    assert_eq!(output.status.code(), Some(i32::from(!works)));
    let names: Vec<&str> = report["checks"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    let verdict = report["verdict"].as_str().expect("a line");
    assert_eq!(
        verdict.starts_with("Programs run here: "),
        works,
        "{verdict}"
    );
    assert!(!report["environment"].as_str().expect("words").is_empty());
    for way in report["ways"].as_array().expect("a list") {
        let name = way["name"].as_str().expect("a name");
        assert_eq!(report["fault_modes"][name], way["lacks"].is_null(), "{way}");
    }
    for advice in report["faster"].as_array().expect("a list") {
        assert!(advice["times"].as_f64() > Some(0.0) && advice["how"].is_string());
    }
    for name in [
        "kernel",
        "memory limit",
        "userfaultfd",
        "CAP_SYS_PTRACE",
        "seccomp",
        "io_uring",
        "direct I/O",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for check in report["checks"].as_array().expect("a list") {
        assert_eq!(
            check["verdict"] == "good",
            check["remedy"].is_null(),
            "{check}"
        );
    }
    let lines = String::from_utf8(flashvm(&["doctor"]).stdout).expect("text");
    assert!(lines.contains("fault mode handler") && !lines.contains('\x1b'));
    assert!(lines.starts_with("Programs "), "{lines}");
    assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 0);
}

#[test]
fn names_that_are_no_text() {
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let output = children::command(FLASHVM)
        .arg("run")
        .arg("--")
        .arg(odd)
        .output_in_time()
        .expect("the command");
    refused(&output, 127, &["$PATH"]);
    let output = children::command(FLASHVM)
        .args(["run", "--ram"])
        .arg(odd)
        .args(["--", "true"])
        .output_in_time()
        .expect("it");
    refused(&output, 2, &["UTF-8", "--help"]);
}
