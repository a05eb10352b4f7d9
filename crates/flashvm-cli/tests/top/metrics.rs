//! `--metrics` and `--metrics-file`: read by a client, by Prometheus and by its checker.

use super::{Busy, PATIENCE};
use crate::support::children::{self, Bounded as _, wait_until};
use crate::support::{FLASHVM, Folder, has_program};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

fn get(mut stream: impl Read + Write, path: &str) -> String {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The value of a sample.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    line.unwrap_or_else(|| panic!("{sample} is missing: {text}"))
        .trim()
        .parse()
        .expect("a number")
}

const FLASH: &str = "flashvm_faults_total{kind=\"flash\"}";
const COMPRESSED: &str = "flashvm_faults_total{kind=\"compressed\"}";

/// Faults on pages that had left: to flash, or compressed.
fn faults(text: &str) -> f64 {
    value(text, FLASH) + value(text, COMPRESSED)
}

#[test]
fn metrics_are_served_and_written() {
    let options = [
        "--metrics",
        "unix:metrics.sock",
        "--metrics-file",
        "flashvm.prom",
    ];
    let Some(busy) = Busy::start("metrics_are_served_and_written", &options) else {
        return;
    };
    let (socket, file) = (busy.file("metrics.sock"), busy.file("flashvm.prom"));
    let served = || get(UnixStream::connect(&socket).expect("a server"), "/metrics");
    wait_until("faults are counted", PATIENCE, || faults(&served()) > 0.0);
    let before = faults(&served());
    wait_until("more faults are counted", PATIENCE, || {
        faults(&served()) > before
    });
    let answer = served();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"),
        "{answer}"
    );
    let used = value(&answer, "flashvm_memory_bytes{kind=\"plain\"}");
    assert!((1.0..=f64::from(16 << 20)).contains(&used), "{used}");
    assert_eq!(
        value(&answer, "flashvm_memory_limit_bytes"),
        f64::from(16 << 20)
    );
    assert!(get(UnixStream::connect(&socket).expect("a server"), "/").contains("404"));
    let folder = busy.folder.path().to_owned();
    let kept = Folder::new();
    let copy = kept.path().join("flashvm.prom");
    let text = |path: &std::path::Path| fs::read_to_string(path).expect("the file");
    assert!(text(&file).contains(FLASH));
    // The folder goes with the run.
    let stats = {
        fs::write(folder.join("stop"), "").expect("a file");
        wait_until("the run has ended", PATIENCE, || !socket.exists());
        fs::copy(&file, &copy).expect("a copy");
        busy.stop()
    };
    // The last text is that of the end of the run.
    assert_eq!(
        value(&text(&copy), FLASH),
        stats["totals"]["faults"]["major"]
            .as_f64()
            .expect("a number")
    );
    assert_eq!(
        value(&text(&copy), "flashvm_read_bytes_total"),
        stats["totals"]["bytes_read"].as_f64().expect("a number")
    );
    if has_program("metrics: promtool", "promtool") {
        let checked = children::command("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::from(fs::File::open(&copy).expect("the copy")))
            .output_in_time()
            .expect("promtool");
        assert!(checked.status.success(), "{checked:?}");
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn prometheus_scrapes_a_run() {
    const TEST: &str = "prometheus_scrapes_a_run";
    if !has_program(TEST, "prometheus") {
        return;
    }
    let (ours, theirs) = (free_port(), free_port());
    let address = format!("127.0.0.1:{ours}");
    let Some(busy) = Busy::start(TEST, &["--metrics", &address]) else {
        return;
    };
    let folder = Folder::new();
    let config = folder.path().join("prometheus.yml");
    fs::write(
        &config,
        format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: flashvm\n  static_configs: [{{targets: ['{address}']}}]\n"),
    )
    .expect("a file");
    let mut prometheus = children::command("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{theirs}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus");
    let asked = |query: &str| {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", theirs)) else {
            return false;
        };
        get(stream, &format!("/api/v1/query?query={query}")).contains("\"program\":\"python3\"")
    };
    // A rate needs two scrapes of a counter.
    let query = "flashvm_run_info*on(instance)group_left()sum%20by(instance)(rate(flashvm_faults_total%5B1m%5D))%3E0";
    let begun = std::time::Instant::now();
    while !asked(query) && begun.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let is_known = asked(query);
    prometheus.kill().expect("prometheus");
    prometheus.wait().expect("prometheus");
    assert!(is_known, "prometheus knows of no run that faults");
    busy.stop();
}

#[test]
fn bad_addresses() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    for (options, named) in [
        (
            &["--metrics", "example.org:80"][..],
            &["'example.org:80'", "unix:PATH"][..],
        ),
        (
            &["--metrics", "0.0.0.0:0"],
            &["0.0.0.0:0", "--metrics-insecure"],
        ),
        (&["--metrics", &taken], &[&*taken, "in use", "another port"]),
        (&["--metrics", "unix:/nowhere/a.sock"], &["/nowhere/a.sock"]),
        (
            &["--metrics-file", "/nowhere/a.prom"],
            &["--metrics-file", "/nowhere"],
        ),
        (
            &["--metrics-insecure"],
            &["--metrics-insecure", "--metrics ADDRESS"],
        ),
    ] {
        let output = children::command(FLASHVM)
            .arg("run")
            .args(options)
            .args(["--", "true"])
            .output_in_time()
            .expect("the command");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {errors}");
        assert!(
            named.iter().all(|word| errors.contains(word)),
            "{options:?}: {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
