//! `flashvm device` and `flashvm reproduce` at the door, and what they print when all is well.

use super::children::{self, Bounded as _};
use super::{FLASHVM, flashvm, folder, refused};
use std::fs;
use std::process::Output;

fn within(folder: &tempfile::TempDir, args: &[&str]) -> Output {
    let command = children::command(FLASHVM)
        .args(args)
        .current_dir(folder)
        .output_in_time();
    command.expect("the command under test")
}

#[track_caller]
fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn bad_models_geometries_workloads_and_paths() {
    for (args, named) in [
        (
            &["device", "simulate", "--model", "floppy"][..],
            &["'floppy'", "raw-nand"][..],
        ),
        (
            &["device", "simulate", "--model", "nvme"],
            &["nvme", "raw-nand"],
        ),
        (
            &["device", "simulate", "--model", "none.toml"],
            &["none.toml", "readable"],
        ),
        (
            &["device", "simulate", "--over-provisioning", "0"],
            &["over-provisioning of 0"],
        ),
        (
            &["device", "simulate", "--over-provisioning", "x"],
            &["'x'", "7%"],
        ),
        (&["device", "simulate", "--blocks", "0"], &["0 blocks"]),
        (
            &["device", "simulate", "--blocks", "4294967295"],
            &["4294967295 blocks"],
        ),
        (
            &["device", "simulate", "--pages-per-block", "1"],
            &["1 pages a block", "2"],
        ),
        (
            &[
                "device",
                "simulate",
                "--blocks",
                "10",
                "--over-provisioning",
                "1%",
            ],
            &["10 blocks", "more over-provisioning"],
        ),
        (
            &["device", "simulate", "--frontiers", "three"],
            &["'three'", "shared, separate"],
        ),
        (
            &["device", "simulate", "--workload", "none.txt"],
            &["none.txt", "hot-cold"],
        ),
        (
            &["device", "probe", "/no/such/place"],
            &["/no/such/place", "folder"],
        ),
        (&["device", "probe", "/proc", "--size", "16M"], &["/proc"]),
        (&["device", "probe", ".", "--size", "1K"], &["1 KiB", "16M"]),
        (&["device", "probe", ".", "--seconds", "0"], &["--seconds"]),
        (&["device", "probe", "/dev/null"], &["/dev/null", "folder"]),
        (
            &["reproduce", "flashvm", "table-9"],
            &["'table-9'", "table-4"],
        ),
        (
            &["reproduce", "flashvm", "table-2", "--out", "/proc/no"],
            &["/proc/no", "--out"],
        ),
    ] {
        refused(&flashvm(args), 2, named);
    }
}

#[test]
fn model_files_and_traces_are_read_or_refused() {
    let folder = folder();
    fs::write(
        folder.path().join("m.toml"),
        "pages-per-block = 32\ncleaning = \"cost-benefit\"\n",
    )
    .expect("a file");
    fs::write(folder.path().join("writes.txt"), "w 10\nw 20\n10\nd 20\n").expect("a file");
    let args = [
        "device", "simulate", "--model", "m.toml", "--blocks", "64", "--json",
    ];
    let text = printed(&within(
        &folder,
        &[&args[..], &["--workload", "writes.txt"]].concat(),
    ));
    let keys = [
        "write_amplification",
        "erase_min",
        "erase_mean",
        "erase_max",
        "free_blocks",
    ];
    let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        object.as_object().map(|object| object.len()),
        Some(keys.len())
    );
    assert!(keys.iter().all(|key| object[key].is_number()), "{text}");
    for (file, contents, named) in [
        ("typo.toml", "pages-per-blok = 3", "pages-per-blok"),
        ("none.toml", "channels = 0", "channels"),
        ("size.toml", "over-provisioning = -0.5", "-0.5"),
        ("broken.toml", "reserve = ", "broken.toml"),
        ("disk.toml", "model = \"seagate-7200\"", "seagate-7200"),
        (
            "parts.toml",
            "model = \"block-nand\"\nchannels = 2",
            "one part: open-blocks",
        ),
        ("open.toml", "open-blocks = 2", "a part of block-nand"),
        (
            "blocks.toml",
            "model = \"block-nand\"\nopen-blocks = 2",
            "block-nand",
        ),
    ] {
        fs::write(folder.path().join(file), contents).expect("a file");
        refused(
            &within(&folder, &["device", "simulate", "--model", file]),
            2,
            &[named],
        );
    }
    fs::write(folder.path().join("bad.txt"), "w 1\nwrite 2\n").expect("a file");
    let args = ["device", "simulate", "--workload", "bad.txt"];
    refused(
        &within(&folder, &args),
        2,
        &["bad.txt", "line 2", "'write 2'"],
    );
}

#[test]
fn models_are_listed_and_amplify_as_published() {
    let lines = printed(&flashvm(&["device", "models"]));
    for name in [
        "seagate-7200",
        "ibm-ssd",
        "ocz-vertex",
        "intel-x25m",
        "nand",
        "raw-nand",
        "nvme",
        "block-nand",
    ] {
        assert!(lines.lines().any(|line| line.starts_with(name)), "{name}");
    }
    let args = [
        "device",
        "simulate",
        "--over-provisioning",
        "0.25",
        "--json",
    ];
    let text = printed(&flashvm(&args));
    let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let amplification = object["write_amplification"].as_f64().expect("a number");
    assert!((amplification / 2.60 - 1.0).abs() < 0.01, "{amplification}");
}

#[test]
fn a_folder_is_probed_and_left_as_it_was() {
    let folder = folder();
    fs::write(folder.path().join("file"), "mine").expect("a file");
    let args = [
        "device",
        "probe",
        "file",
        "--size",
        "16M",
        "--seconds",
        "1",
        "--json",
    ];
    let text = printed(&within(&folder, &args));
    let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for key in [
        "sequential_read_mb_s",
        "random_write_iops",
        "read_latency_us",
    ] {
        assert!(
            object[key].as_f64().is_some_and(|rate| rate > 0.0),
            "{key}: {text}"
        );
    }
    assert_eq!(object["mixed"].as_array().map(Vec::len), Some(6));
    let left = fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(
        (left, fs::read(folder.path().join("file")).ok()),
        (1, Some(b"mine".to_vec()))
    );
}

#[test]
fn a_reproduction_is_kept_and_goes_on() {
    let folder = folder();
    printed(&within(
        &folder,
        &["reproduce", "flashvm", "table-2", "--out", "r"],
    ));
    let kept = folder.path().join("r/table-2.json");
    let before = fs::metadata(&kept)
        .and_then(|meta| meta.modified())
        .expect("it is there");
    let text = printed(&within(
        &folder,
        &["reproduce", "flashvm", "figure-4", "table-2", "--out", "r"],
    ));
    assert!(
        text.contains("Table 2") && text.contains("Figure 4"),
        "{text}"
    );
    let after = fs::metadata(&kept)
        .and_then(|meta| meta.modified())
        .expect("it is there");
    assert_eq!(before, after, "it was measured again");
    let page = fs::read_to_string(folder.path().join("r/index.html")).expect("a page");
    assert!(page.contains("figure-4.svg") && page.contains("table-2.csv"));
    let picture = fs::read_to_string(folder.path().join("r/figure-4.svg")).expect("a picture");
    assert!(picture.contains("OCZ-Vertex"), "{picture}");
    // Damaged results are measured again.
    fs::write(&kept, "{").expect("a file");
    printed(&within(
        &folder,
        &["reproduce", "flashvm", "table-2", "--out", "r"],
    ));
    assert!(fs::metadata(&kept).is_ok_and(|meta| meta.len() > 100));
}
