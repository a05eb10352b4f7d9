//! `flashvm heap` and `flashvm reproduce` as a user meets them.

#[path = "support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;

use children::Bounded as _;
use gordon::{Heap, Options, Persist, Ref, Text};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Output;

fn flashvm(folder: &Path, args: &[&str]) -> Output {
    children::command(env!("CARGO_BIN_EXE_flashvm"))
        .args(args)
        .current_dir(folder)
        .output_in_time()
        .expect("the command under test")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test")
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One line that names all of `named`, and exit code 2.
#[track_caller]
fn refused(output: &Output, named: &[&str]) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(
        line.starts_with("flashvm: ") && line.matches('\n').count() == 1,
        "{line:?}"
    );
    for name in named {
        assert!(line.contains(name), "{line:?} does not name {name:?}");
    }
}

#[test]
fn a_heap_is_made_shown_checked_and_collected() {
    let folder = folder();
    let run = |args: &[&str]| good(&flashvm(folder.path(), args));
    assert!(run(&["heap", "init", "h", "--size", "4M"]).contains("persistent key"));
    assert!(run(&["heap", "info", "h"]).contains("root       not set"));
    let info: serde_json::Value =
        serde_json::from_str(&run(&["heap", "info", "--json", "h"])).expect("JSON");
    assert_eq!(info["segment_bytes"], 65536);
    assert_eq!(info["segments"], 64);
    assert!(run(&["heap", "check", "h"]).contains("good: 1 objects"));
    assert!(run(&["heap", "collect", "h"]).contains("before"));
    assert!(run(&["heap", "check", "--json", "h"]).contains("\"good\":true"));

    // Damage the root's header in the log: the newest state becomes unreadable.
    let path = folder.path().join("h");
    let bytes = std::fs::read(&path).expect("the heap");
    let magic = b"GorLog1\n";
    let file = File::options().write(true).open(&path).expect("the heap");
    for at in bytes
        .windows(8)
        .enumerate()
        .filter(|(_, w)| w == magic)
        .map(|(at, _)| at)
    {
        file.write_all_at(&[0], at as u64 + 40).expect("damage");
    }
    let damaged = flashvm(folder.path(), &["heap", "check", "h"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&damaged.stdout).contains("corrupted"));
    refused(
        &flashvm(folder.path(), &["heap", "info", "h"]),
        &["h:", "corrupted"],
    );
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = folder();
    std::fs::write(folder.path().join("text"), "no heap").expect("a file");
    std::fs::write(folder.path().join("zeros"), vec![0; 100_000]).expect("a file");
    good(&flashvm(
        folder.path(),
        &["heap", "init", "empty", "--size", "4M"],
    ));
    for (args, named) in [
        (
            &["heap", "init", "small", "--size", "100K"][..],
            &["102400", "524288"][..],
        ),
        (&["heap", "init", "huge", "--size", "900T"], &["too large"]),
        (&["heap", "init", "odd", "--size", "many"], &["many"]),
        (
            &["heap", "init", "text", "--size", "1M"],
            &["text", "exists"],
        ),
        (
            &["heap", "init", "no/such/folder", "--size", "1M"],
            &["no/such/folder"],
        ),
        (&["heap", "info", "missing"], &["missing"]),
        (&["heap", "info", "text"], &["text", "init"]),
        (&["heap", "check", "zeros"], &["zeros", "init"]),
        (&["heap", "export", "missing"], &["missing"]),
        (&["heap", "export", "text"], &["text", "init"]),
        (&["heap", "export", "empty"], &["empty", "no root"]),
        (
            &["heap", "export", "--root", "empty"],
            &["empty", "no root"],
        ),
        (&["heap", "backup", "missing", "copy"], &["missing"]),
        (&["heap", "backup", "zeros", "copy"], &["zeros", "init"]),
        (&["heap", "backup", "empty", "text"], &["text", "exists"]),
        (
            &["heap", "backup", "empty", "no/folder/copy"],
            &["no/folder/copy"],
        ),
        (
            &["heap", "grow", "empty", "--size", "1M"],
            &["empty", "1048576", "4194304"],
        ),
        (
            &["heap", "grow", "empty", "--size", "2G"],
            &["empty", "2147483648", "78184448"],
        ),
        (&["heap", "grow", "missing", "--size", "2G"], &["missing"]),
        (&["heap", "grow", "empty"], &["--size"]),
        (&["heap", "bench", "missing"], &["missing"]),
        (&["heap", "bench", "--commits", "0"], &["0"]),
        (&["reproduce", "gordon", "table-9"], &["table-9", "table-3"]),
        (&["reproduce", "unix"], &["unix", "gordon"]),
    ] {
        refused(&flashvm(folder.path(), args), named);
    }
    let mut left: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["empty", "text", "zeros"]);
}

#[test]
fn a_reader_that_has_gone_away_is_no_failure() {
    let folder = folder();
    good(&flashvm(
        folder.path(),
        &["heap", "init", "h", "--size", "1M"],
    ));
    drop(notes(&folder.path().join("notes"), 50));
    for args in [
        &["heap", "init", "other", "--size", "1M"][..],
        &["heap", "info", "h"],
        &["heap", "info", "--json", "h"],
        &["heap", "check", "h"],
        &["heap", "grow", "h", "--size", "2M"],
        &["heap", "export", "notes"],
        &["heap", "export", "--root", "notes"],
        &["heap", "backup", "notes", "copy"],
        &["heap", "collect", "h"],
        &["heap", "bench", "--commits", "5"],
        &["reproduce", "gordon", "--list"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = children::command(env!("CARGO_BIN_EXE_flashvm"))
            .args(args)
            .current_dir(&folder)
            .stdout(writer)
            .output_in_time()
            .expect("the command under test");
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && line.is_empty(),
            "{args:?}: {line}"
        );
    }
}

#[test]
fn commits_are_measured_and_nothing_is_left() {
    let folder = folder();
    let bench = flashvm(
        folder.path(),
        &["heap", "bench", "--commits", "50", "--json"],
    );
    let bench: serde_json::Value = serde_json::from_str(&good(&bench)).expect("JSON");
    assert_eq!(bench["commits"], 50);
    assert_eq!(bench["syncs"], 50, "one sync a commit");
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
}

#[test]
fn a_killed_measurement_leaves_nothing_either() {
    let folder = folder();
    let mut bench = children::command(env!("CARGO_BIN_EXE_flashvm"))
        .args(["heap", "bench", "--commits", "1000000000"])
        .current_dir(&folder)
        .spawn()
        .expect("the command under test");
    let inside = || std::fs::read_dir(&folder).expect("the folder").flatten();
    children::wait_until("the heap is there", children::PATIENCE, || {
        inside().any(|entry| entry.path().join("heap").exists())
    });
    bench.kill().expect("the command");
    bench.wait().expect("the command");
    children::wait_until("the heap is gone", children::PATIENCE, || {
        inside().count() == 0
    });
}

#[test]
fn tables_are_printed_and_written() {
    let folder = folder();
    let args = ["reproduce", "gordon", "table-3", "--out", "results"];
    let printed = good(&flashvm(folder.path(), &args));
    assert!(printed.contains("Table 3") && printed.contains("5208"));
    let read =
        |name| std::fs::read_to_string(folder.path().join("results").join(name)).expect("written");
    assert!(read("table-3.csv").starts_with("ways,"));
    assert!(read("index.md").contains("5208"));
}

#[derive(Clone, Copy, Persist)]
struct Note<'t> {
    text: Text<'t>,
    older: Option<Ref<'t, Note<'t>>>,
}

/// A heap of this many notes, of which the first is replaced: garbage.
fn notes(path: &Path, count: usize) -> Heap {
    let heap = Heap::create(path, 4 << 20, Options::default()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.alloc(Note {
            text: tx.text("garbage"),
            older: None,
        }));
        Ok(())
    })
    .expect("a commit");
    heap.update(|tx| {
        let mut newest = None;
        for number in 0..count {
            let text = tx.text(&format!("note {number}"));
            newest = Some(tx.alloc(Note {
                text,
                older: newest,
            }));
        }
        tx.set_root(newest.expect("a note"));
        Ok(())
    })
    .expect("a commit");
    heap
}

#[test]
fn a_heap_of_a_program_is_exported_and_counted() {
    let folder = folder();
    let path = folder.path().join("h");
    let run = |args: &[&str]| good(&flashvm(folder.path(), args));
    // What follows works while the program has it as well.
    let mut heap = Some(notes(&path, 2));
    for _ in ["open", "closed", "read-only"] {
        assert_eq!(
            run(&["heap", "export", "h"]),
            concat!(
                r#"{"id":0,"type":"Ref<Note>","value":{"text":{"$ref":1},"older":{"$ref":2}}}"#,
                "\n",
                r#"{"id":1,"type":"Text","value":"note 1"}"#,
                "\n",
                r#"{"id":2,"type":"Ref<Note>","value":{"text":{"$ref":3},"older":null}}"#,
                "\n",
                r#"{"id":3,"type":"Text","value":"note 0"}"#,
                "\n",
            )
        );
        assert_eq!(
            run(&["heap", "export", "--root", "h"]),
            "{\"text\":\"note 1\",\"older\":{\"text\":\"note 0\",\"older\":null}}\n"
        );
        let info: serde_json::Value =
            serde_json::from_str(&run(&["heap", "info", "--json", "h"])).expect("JSON");
        // A note is a header and two pointers, a text of six bytes a header and a word.
        let types = serde_json::json!([
            {"name": "Ref<Note>", "objects": 2, "bytes": 48},
            {"name": "Text", "objects": 2, "bytes": 32},
        ]);
        assert_eq!(info["types"], types);
        assert_eq!(info["garbage_bytes"], 40);
        let text = run(&["heap", "info", "h"]);
        assert!(
            text.contains("Ref<Note>") && text.contains("garbage"),
            "{text}"
        );
        assert!(run(&["heap", "check", "h"]).contains("good"));
        if heap.take().is_none() {
            let mut only = std::fs::metadata(&path).expect("a file").permissions();
            only.set_readonly(true);
            std::fs::set_permissions(&path, only).expect("permissions");
        }
    }
}

#[test]
fn a_tree_too_deep_is_refused_before_anything_is_written() {
    let folder = folder();
    drop(notes(&folder.path().join("h"), 1000));
    let output = flashvm(folder.path(), &["heap", "export", "--root", "h"]);
    refused(&output, &["h:", "250 levels", "without --root"]);
    assert!(output.stdout.is_empty());
    assert_eq!(
        good(&flashvm(folder.path(), &["heap", "export", "h"]))
            .lines()
            .count(),
        2000
    );
}

#[test]
fn an_open_heap_is_copied_and_a_closed_one_grows() {
    let folder = folder();
    let run = |args: &[&str]| good(&flashvm(folder.path(), args));
    let heap = notes(&folder.path().join("h"), 50);
    let exported = run(&["heap", "export", "h"]);
    assert!(run(&["heap", "backup", "h", "open"]).contains("open: a copy of h"));
    refused(
        &flashvm(folder.path(), &["heap", "grow", "h", "--size", "8M"]),
        &["h", "in use"],
    );
    heap.close().expect("closed");
    run(&["heap", "backup", "h", "closed"]);
    assert_eq!(run(&["heap", "grow", "h", "--size", "8M"]), "h: 8 MiB\n");
    for copy in ["h", "open", "closed"] {
        assert!(run(&["heap", "check", copy]).contains("good"));
        assert_eq!(run(&["heap", "export", copy]), exported);
        run(&["heap", "collect", copy]);
        assert_eq!(run(&["heap", "export", copy]).len(), exported.len());
    }
}
