//! `flashvm man` and `flashvm completions` at the door.

use super::children::{self, Bounded as _};
use super::{FLASHVM, flashvm, folder, refused};
use std::fs;

/// The output of a command that must succeed.
fn written(args: &[&str]) -> String {
    let output = flashvm(args);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{args:?}"
    );
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn manual_pages() {
    let page = written(&["man", "run"]);
    for part in [
        ".TH",
        "flashvm",
        r"\-\-ram",
        r"\-\-zero\-sharing",
        r"\-\-padding",
        "half of the available RAM",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(written(&["man"]).contains("completions"));
    assert!(written(&["man", "heap", "init"]).contains(r"\-\-size"));
    refused(&flashvm(&["man", "fly"]), 2, &["'fly'"]);
    refused(
        &flashvm(&["man", "--out", ".", "run"]),
        2,
        &["--out", "COMMAND"],
    );
    refused(
        &flashvm(&["man", "--out", "/nowhere/at/all"]),
        2,
        &["--out", "/nowhere/at/all"],
    );

    let folder = folder();
    let path = folder.path().to_str().expect("a path in UTF-8");
    assert_eq!(written(&["man", "--out", path]), "");
    let pages = fs::read_dir(&folder).expect("the folder").flatten();
    let mut pages: Vec<_> = pages
        .map(|entry| entry.file_name().into_string())
        .collect::<Result<_, _>>()
        .expect("names");
    pages.sort();
    for name in [
        "flashvm.1",
        "flashvm-run.1",
        "flashvm-heap-init.1",
        "flashvm-completions.1",
    ] {
        assert!(pages.iter().any(|page| page == name), "{pages:?}");
    }
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let text = written(&["completions", shell]);
        for word in [
            "zero-sharing",
            "segmented-fifo",
            "completions",
            "granularity",
        ] {
            assert!(text.contains(word), "{shell}: {word}");
        }
        // The shell itself checks the syntax.
        let folder = folder();
        let path = folder.path().join("completions");
        fs::write(&path, text).expect("the completions");
        let check = children::command(shell)
            .arg("-n")
            .arg(&path)
            .output_in_time();
        match check {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(_) => super::skipped("completions", &format!("{shell} is not installed")),
        }
    }
    refused(
        &flashvm(&["completions", "tcsh"]),
        2,
        &["'tcsh'", "bash, zsh, fish"],
    );
    refused(&flashvm(&["completions"]), 2, &["missing", "bash|zsh|fish"]);
}

/// The completions that bash offers for a line typed so far.
#[test]
fn bash_completes_options_and_their_values() {
    let script = r#"source <("$0" completions bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flashvm flashvm "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[@]}""#;
    for (line, completed) in [
        (&["flashvm", "run", "--gran"][..], "--granularity"),
        (&["flashvm", "run", "--preset", "fl"], "flashvm"),
        (&["flashvm", "run", "--policy", "seg"], "segmented-fifo"),
    ] {
        let output = children::command("bash")
            .args(["-c", script, FLASHVM])
            .args(line)
            .output_in_time();
        let Ok(output) = output else {
            super::skipped(
                "bash_completes_options_and_their_values",
                "bash is not installed",
            );
            return;
        };
        let words = String::from_utf8_lossy(&output.stdout);
        assert_eq!(words.trim(), completed, "{line:?}: {output:?}");
    }
}
