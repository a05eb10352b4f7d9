//! The programs of `tests/torture`, compiled.

use crate::support;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use support::children::Bounded as _;

/// Compiles programs of `tests/torture` once: all the C files of the torture program, or one file.
pub(super) fn compiled(name: &str) -> PathBuf {
    static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("torture-{}", std::process::id()));
    let binary = folder.join(name);
    let mut done = DONE.lock().expect("no compilation panicked");
    if done.iter().any(|other| other == name) {
        return binary;
    }
    std::fs::create_dir_all(&folder).expect("a folder for programs");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/torture");
    let is_static = name.ends_with("-static");
    let (compiler, files): (&str, &[&str]) = match name.trim_end_matches("-static") {
        "torture" => (
            "cc",
            &[
                "torture.c",
                "rewrite.c",
                "fork.c",
                "syscalls.c",
                "remap.c",
                "protect.c",
                "guard.c",
                "signals.c",
                "alloc.c",
                "exit.c",
                "table.c",
                "table_ways.c",
            ],
        ),
        "torture_cxx" => ("c++", &["torture_cxx.cc"]),
        "enomem" => ("cc", &["enomem.c"]),
        "sigbus" => ("cc", &["sigbus.c"]),
        "huge" => ("cc", &["huge.c"]),
        "code" => ("cc", &["code.c"]),
        "crowd" => ("cc", &["crowd.c"]),
        "idle" => ("cc", &["idle.c"]),
        "interrupt" => ("cc", &["interrupt.c"]),
        "late" => ("cc", &["late.c"]),
        "moved_in" => ("cc", &["moved_in.c"]),
        "namespace" => ("cc", &["namespace.c"]),
        "mappings" => ("cc", &["mappings.c"]),
        "streams" => ("cc", &["streams.c"]),
        "unusual" => ("cc", &["unusual.c"]),
        "alone" => ("cc", &["alone.c"]),
        other => panic!("no torture program {other}"),
    };
    let status = support::children::command(compiler)
        .args(["-O2", "-g", "-pthread"])
        .args(is_static.then_some("-static"))
        .arg("-o")
        .arg(&binary)
        .args(files.iter().map(|file| sources.join(file)))
        .status_in_time();
    assert!(
        status.is_ok_and(|s| s.success()),
        "{compiler} cannot compile {name}"
    );
    done.push(name.to_owned());
    binary
}
