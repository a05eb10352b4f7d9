//! The report of a run: each section has its data, the counts are those of `--stats`, and a browser shows the page
//! without a complaint.

use crate::compiled::compiled;
use crate::support::children::{self, Bounded as _};
use crate::support::{FLASHVM, Folder, Outcome, flashvm_run, say};
use std::fs;
use std::path::{Path, PathBuf};

/// Largest page.
const PAGE_BYTES_MAX: usize = 3 << 20;
const SECTIONS: [&str; 9] = [
    "faults",
    "latency",
    "ram",
    "heat",
    "stacks",
    "allocations",
    "cold",
    "writes",
    "what-if",
];

/// A part of the torture program, with its arguments.
fn rewriting() -> Vec<String> {
    let program = compiled("torture").display().to_string();
    let part = [
        "--only",
        "rewrite",
        "--mib",
        "48",
        "--seconds",
        "1",
        "--seed",
    ];
    let words = part.map(str::to_owned).into_iter();
    [program]
        .into_iter()
        .chain(words)
        .chain([super::seed()])
        .collect()
}

/// Runs a part of the torture program with a report.
fn reported(test: &str, file: &Path, options: &[&str]) -> Outcome {
    let program = rewriting();
    let file = file.display().to_string();
    let budget = [
        "--ram",
        "8M",
        "--flash-size",
        "1G",
        "--compress",
        "off",
        "--granularity",
        "4096",
    ];
    let options = [&budget, &["--report", &file][..], options].concat();
    flashvm_run(test, &options, &program, super::LIMIT).expect_success(test)
}

/// The page that `flashvm report` makes of a record.
fn page_of(record: &Path, out: &Path) -> String {
    let done = children::command(FLASHVM)
        .arg("report")
        .arg(record)
        .arg("-o")
        .arg(out)
        .output_in_time()
        .expect("the command");
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    fs::read_to_string(out).expect("a page")
}

/// The parts of a page between its sections' tags, by id.
fn section<'p>(page: &'p str, id: &str) -> &'p str {
    let start = page.find(&format!("<section id=\"{id}\">"));
    let rest = &page[start.unwrap_or_else(|| panic!("no section {id}"))..];
    &rest[..rest.find("</section>").expect("its end")]
}

#[test]
fn a_page_shows_the_run() {
    const TEST: &str = "a_page_shows_the_run";
    if !super::ready(TEST) {
        return;
    }
    let folder = Folder::new();
    let record = folder.path().join("run.json");
    let outcome = reported(TEST, &record, &[]);
    let json = fs::read(&record).expect("a record");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    // The end of the timeline has the counts of `--stats`.
    let last = json["timeline"].as_array().and_then(|points| points.last());
    let last = last.expect("points");
    for (key, stat) in [
        ("faults_flash", "major"),
        ("faults_soft", "soft"),
        ("faults_zero", "zero"),
        ("first_stores", "write_protect"),
        ("bytes_read", "bytes_read"),
        ("bytes_written", "bytes_written"),
    ] {
        assert_eq!(last[key], outcome.stat(stat), "{key}");
    }
    assert_eq!(json["totals"]["faults"], outcome.stat("total"));
    let major = outcome.stat("major");
    assert!(major > 0, "{}", outcome.stats);
    // The heat map misses only what it says it misses.
    let cells = json["heat"]["rows"].as_array().expect("rows").iter();
    let cells = cells.flat_map(|row| row["cells"].as_array().expect("cells"));
    let touched: u64 = cells
        .map(|cell| cell[1]["t"].as_u64().expect("a count"))
        .sum();
    let lost = json["heat"]["lost"].as_u64().expect("a count");
    let seen = outcome.stat("total") + outcome.stat("write_protect");
    assert!(touched <= seen + seen / 50, "{touched} of {seen}");
    assert!(
        touched + lost >= seen * 9 / 10,
        "{touched} and {lost} of {seen}"
    );
    let is_handler = std::env::var("FLASHVM_TEST_FAULT").is_ok_and(|mode| mode == "handler");
    if !is_handler {
        let named = json["stacks"]["stacks"].to_string();
        assert!(named.contains("\"main\""), "no stack has main: {named}");
        let faults = json["stacks"]["faults"].as_u64().expect("a count");
        assert!(
            faults <= major && faults >= major / 2,
            "{faults} of {major}"
        );
        // The program's large pieces, by the lines that asked for them.
        let allocations = &json["allocations"];
        let of_all = allocations["faults"].as_u64().expect("a count");
        let first = &allocations["listed"][0];
        let of_first = first["faults"].as_u64().expect("a count");
        assert!(of_first * 2 > of_all, "{allocations}");
        let asker = first["by"][0]["line"].as_str();
        assert!(
            asker.is_some_and(|line| line.contains(".c:")),
            "{allocations}"
        );
    }

    let page_file = folder.path().join("run.html");
    let page = page_of(&record, &page_file);
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    for id in SECTIONS {
        let section = section(&page, id);
        if ["stacks", "allocations"].contains(&id) && is_handler {
            continue;
        }
        assert!(
            section.contains("<figure") || section.contains("<table"),
            "{id}: {section}"
        );
        assert!(
            !section.contains("data-points=\"0\""),
            "{id}: a chart without data"
        );
    }
    for forbidden in [
        "<script",
        "http://www.w3.org/1999/xlink",
        "src=\"http",
        "url(",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    is_shown_by_a_browser(TEST, &page_file);
}

/// `--report FILE.html` makes the same kind of page at once.
#[test]
fn a_page_is_made_at_once() {
    const TEST: &str = "a_page_is_made_at_once";
    if !super::ready(TEST) {
        return;
    }
    let folder = Folder::new();
    let file = folder.path().join("run.html");
    reported(TEST, &file, &["--quiet"]);
    let page = fs::read_to_string(&file).expect("a page");
    SECTIONS
        .iter()
        .for_each(|id| assert!(!section(&page, id).is_empty()));
    let left: Vec<_> = fs::read_dir(folder.path()).expect("the folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Where the report cannot be written at the end, the run is unharmed; one line says so, and exit code 2.
#[test]
fn a_full_disk_harms_no_run() {
    const TEST: &str = "a_full_disk_harms_no_run";
    if !super::can_page(TEST) {
        return;
    }
    let folder = Folder::new();
    for (script, code) in [("echo done", 2), ("echo done; exit 5", 5)] {
        // A link: the ending says what is to be written.
        let file = folder.path().join("full.html");
        let _ = fs::remove_file(&file);
        std::os::unix::fs::symlink("/dev/full", &file).expect("a link");
        let file = file.display().to_string();
        let options = ["--ram", "16M", "--report", &file, "--quiet"];
        let outcome = flashvm_run(TEST, &options, &["sh", "-c", script], super::LIMIT);
        assert_eq!(
            (outcome.status.code(), &*outcome.stdout),
            (Some(code), "done\n")
        );
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("--report") && outcome.stderr.contains("space"),
            "{}",
            outcome.stderr
        );
    }
}

/// `--profile` says of a run that pages how long it waited, and of one that fits that it never had to; nothing else changes.
#[test]
fn a_profile_is_a_few_sentences() {
    const TEST: &str = "report::a_profile_is_a_few_sentences";
    if !super::can_page(TEST) {
        return;
    }
    let options = ["--ram", "8M", "--profile", "--compress", "off"];
    let paged = flashvm_run(TEST, &options, &rewriting(), super::LIMIT).expect_success(TEST);
    let (_, sentences) = paged.stderr.split_once("  profile   ").expect("sentences");
    assert!(
        sentences.contains("faults on pages that were read from flash"),
        "{sentences}"
    );
    if std::env::var("FLASHVM_TEST_FAULT").as_deref() != Ok("handler") {
        assert!(sentences.contains(" asked for"), "{sentences}");
    }
    let options = ["--ram", "64M", "--profile", "--quiet"];
    let fits = flashvm_run(TEST, &options, &["sh", "-c", "echo done"], super::LIMIT);
    assert_eq!((fits.status.code(), &*fits.stdout), (Some(0), "done\n"));
    assert!(
        fits.stderr
            .starts_with("  profile   It never had to wait for a page: it used at most"),
        "{}",
        fits.stderr
    );
    assert_eq!(fits.stderr.lines().count(), 1, "{}", fits.stderr);
}

/// Loads a page in headless Chromium, if there is one: no message on its console, and every chart has its size.
fn is_shown_by_a_browser(test: &str, page: &Path) {
    let names = ["chromium-headless-shell", "chromium", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file: &PathBuf| file.is_file());
    let Some(browser) = found else {
        return say(&format!(
            "SKIPPED: {test}, in a browser: no Chromium is installed"
        ));
    };
    let profile = Folder::new();
    let picture = profile.path().join("page.png");
    let output = children::command(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--screenshot={}", picture.display()))
        .args(["--window-size=1000,1200", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output_in_time()
        .expect("a browser");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(!messages.contains("CONSOLE"), "{messages}");
    let shown = String::from_utf8_lossy(&output.stdout);
    let source = fs::read_to_string(page).expect("the page");
    for tag in ["<figure", "<svg", "<image", "<table"] {
        let count = |text: &str| text.matches(tag).count();
        assert!(
            count(&source) > 0 && count(&shown) == count(&source),
            "{tag}"
        );
    }
    let bytes = fs::metadata(&picture).expect("a picture").len();
    assert!(bytes > 10_000, "an empty picture: {bytes} bytes");
}
