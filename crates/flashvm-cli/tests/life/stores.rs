//! Stores that are no folder.

use super::children::{self, Bounded as _};
use super::{Bench, FLASHVM, finish, skipped};
use std::fs;
use std::path::Path;

#[test]
fn an_empty_file_is_a_store_without_a_name() {
    let Some(bench) = Bench::new("an_empty_file_is_a_store_without_a_name") else {
        return;
    };
    let file = bench.flash.path().join("store");
    fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("a path in UTF-8");
    let mut command = children::command(FLASHVM);
    command.args([
        "run",
        "--ram",
        "64M",
        "--flash-size",
        "256M",
        "--quiet",
        "--flash",
        file,
    ]);
    command.args(["--", "/bin/ls"]).arg(bench.flash.path());
    let output = command.spawn().map(finish).expect("the command");
    assert!(output.status.success() && output.stdout.is_empty());
}

/// A loop device, detached when dropped.
pub(super) struct Loop(pub(super) String);

impl Loop {
    /// One over a new file; `None` without the privilege.
    pub(super) fn over(image: &Path, bytes: u64) -> Option<Self> {
        fs::File::create(image)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        let mut losetup = children::command("losetup");
        let output = losetup.args(["--find", "--show"]).arg(image);
        let output = output.output_in_time().ok()?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = children::command("losetup")
            .args(["--detach", &self.0])
            .status_in_time();
    }
}

#[test]
fn a_device_is_a_store() {
    let Some(bench) = Bench::new("a_device_is_a_store") else {
        return;
    };
    let Some(device) = Loop::over(&bench.file("image"), 256 << 20) else {
        skipped("a_device_is_a_store", "needs root and loop devices");
        return;
    };
    let run = |discard: &str| {
        let mut command = children::command(FLASHVM);
        command.args([
            "run",
            "--ram",
            "8M",
            "--flash-size",
            "256M",
            "--stats",
            "/dev/stdout",
            "--quiet",
            // What the compressed store takes does not reach the device.
            "--compress",
            "off",
            "--discard",
            discard,
            "--flash",
            &device.0,
        ]);
        // Lines and their index take several times the budget.
        let script = "seq 1000000 | /usr/bin/sort --buffer-size=200M --parallel=1 -o /dev/null";
        command
            .args(["--", "/bin/sh", "-c", script])
            .current_dir(&bench.other);
        command.spawn().map(finish).expect("the command")
    };
    for discard in ["off", "native"] {
        let output = run(discard);
        assert!(output.status.success());
        let stats: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(
            stats["totals"]["pages_out"].as_u64() > Some(1000),
            "{stats}"
        );
        // `BLKDISCARD`, which a loop device knows.
        let discards = &stats["totals"]["discard"];
        assert_eq!(
            discards["commands"].as_u64() > Some(0),
            discard == "native",
            "{stats}"
        );
        assert_eq!(discards["refused"], 0, "{stats}");
    }
}
