//! Refusals of programs: not found, not executable, or unable to load the object.

use super::children::{self, Bounded as _};
use super::{FLASHVM, flashvm, folder, is_root, refused, skipped};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

/// The user "nobody": without any privilege.
pub(super) const NOBODY: u32 = 65534;

/// The smallest file that passes for an ELF program with this class and interpreter.
fn elf(class: u8, machine: u16, interpreter: Option<&[u8]>) -> Vec<u8> {
    let mut elf = vec![0_u8; 120];
    elf[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    elf[32] = 64;
    elf[54] = 56;
    elf[56] = 1;
    if let Some(name) = interpreter {
        elf[64] = 3;
        elf[72] = 120;
        elf[96] = u8::try_from(name.len()).expect("a short name");
        elf.extend_from_slice(name);
    }
    elf
}

fn put(path: &Path, bytes: &[u8], mode: u32) {
    fs::write(path, bytes).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn programs() {
    let here = if cfg!(target_arch = "x86_64") {
        62
    } else {
        183
    };
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let glibc: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    put(&path("static"), &elf(2, here, None), 0o755);
    put(
        &path("musl"),
        &elf(2, here, Some(b"/lib/ld-musl-x86_64.so.1\0")),
        0o755,
    );
    put(&path("narrow"), &elf(1, 3, Some(glibc)), 0o755);
    put(&path("foreign"), &elf(2, 0xf3, Some(glibc)), 0o755);
    put(&path("short"), &elf(2, here, None)[..40], 0o755);
    put(&path("data"), b"just text", 0o755);
    put(&path("plain"), b"#!/bin/sh\n", 0o644);
    put(
        &path("script"),
        format!("#! {} -x\n", path("static").display()).as_bytes(),
        0o755,
    );
    put(&path("orphan"), b"#!/no/such/interpreter\n", 0o755);
    put(
        &path("loop"),
        format!("#!{}\n", path("loop").display()).as_bytes(),
        0o755,
    );
    for (name, code, named) in [
        ("static", 2, &["statically linked"][..]),
        ("musl", 2, &["not for glibc", "segments"]),
        ("narrow", 2, &["32-bit"]),
        ("foreign", 2, &["architecture"]),
        ("short", 2, &["truncated"]),
        ("script", 2, &["statically linked"]),
        ("data", 126, &["ELF"]),
        ("plain", 126, &["executed"]),
        ("orphan", 126, &["/no/such/interpreter"]),
        ("loop", 126, &["interpreter"]),
        ("absent", 127, &["no such program"]),
    ] {
        let program = path(name);
        let program = program.to_str().expect("a path in UTF-8");
        refused(&flashvm(&["run", "--", program]), code, named);
    }
    let own_folder = folder.path().to_str().expect("a path in UTF-8");
    refused(
        &flashvm(&["run", "--", own_folder]),
        126,
        &["not a regular file"],
    );
    refused(
        &flashvm(&["run", "--", "no-such-program"]),
        127,
        &["no-such-program", "$PATH"],
    );
    refused(&flashvm(&["run", "--", ""]), 127, &["''"]);
}

/// A static program is carried, where the guard runs and its own `malloc` is what was asked for.
#[test]
fn carried_programs_are_refused_what_they_cannot_have() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = folder();
    let program = folder.path().join("static");
    let mut image = elf(2, 62, None);
    // One segment: the file's bytes, at address 0 of a movable program.
    (image[16], image[64], image[96], image[104]) = (3, 1, 120, 120);
    put(&program, &image, 0o755);
    let script = folder.path().join("script");
    put(
        &script,
        format!("#!{}\n", program.display()).as_bytes(),
        0o755,
    );
    let path = program.to_str().expect("a path in UTF-8");
    let run = |options: &[&str]| flashvm(&[&["run"], options, &["--", path]].concat());
    for option in [["--malloc", "mimalloc"], ["--granularity", "512"]] {
        refused(
            &run(&option),
            2,
            &["keeps its own malloc", option[0], "leave"],
        );
    }
    let handler = run(&["--fault", "handler"]);
    if !String::from_utf8_lossy(&handler.stderr).contains("CAP_SYS_PTRACE") {
        refused(&handler, 2, &["handler mode", "--fault inline"]);
    }
    let script = script.to_str().expect("a path in UTF-8");
    refused(
        &flashvm(&["run", "--", script]),
        2,
        &["interpreter", "name it", path],
    );
}

#[test]
fn programs_with_rights_of_their_own() {
    if !is_root() {
        skipped(
            "programs_with_rights_of_their_own",
            "needs root to make such programs",
        );
        return;
    }
    let folder = folder();
    let program = folder.path().join("other");
    copy("/bin/true", &program);
    std::os::unix::fs::chown(&program, Some(NOBODY), Some(NOBODY)).expect("another owner");
    for (mode, named) in [(0o4755, "setuid"), (0o2755, "setgid")] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("its mode");
        let program = program.to_str().expect("a path in UTF-8");
        refused(&flashvm(&["run", "--", program]), 2, &[named, program]);
    }
}

/// Copies a program in a separate process. Otherwise a program that another test starts could inherit our descriptor
/// for writing, and the copy would be "busy".
fn copy(from: &str, to: &Path) {
    let status = children::command("cp").arg(from).arg(to).status_in_time();
    assert!(status.is_ok_and(|status| status.success()), "cp {from}");
}

/// A copy of the command that every user can reach, and a folder of the user nobody. The command needs no other file.
pub(super) fn for_nobody() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder for the test");
    let command = folder.path().join("flashvm");
    copy(FLASHVM, &command);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    (folder, command)
}

#[test]
fn without_privilege() {
    if !is_root() {
        skipped("without_privilege", "needs root to become another user");
        return;
    }
    let (_folder, command) = for_nobody();
    let run = |args: &[&str]| {
        children::command(&command)
            .args(args)
            .uid(NOBODY)
            .gid(NOBODY)
            .output_in_time()
            .expect("the command")
    };
    let handler = ["run", "--fault", "handler", "--ram", "64M", "--", "true"];
    refused(&run(&handler), 2, &["userfaultfd", "CAP_SYS_PTRACE"]);
    let report = run(&["doctor", "--json"]);
    let works = report.status.success();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!(report["fault_modes"]["handler"], false);
    assert_eq!(report["fault_modes"]["inline"], works);
    if works {
        let output = run(&["run", "--ram", "64M", "--", "sh", "-c", "echo $(id -u)"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(
            output.stdout,
            NOBODY
                .to_string()
                .as_bytes()
                .iter()
                .chain(b"\n")
                .copied()
                .collect::<Vec<_>>()
        );
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("inline mode"), "{errors}");
    } else {
        skipped("without_privilege, a run", "inline mode does not work here");
    }

    // File capabilities change the rights of all users but root.
    let program = command.with_file_name("capable");
    copy("/bin/true", &program);
    let set = children::command("setcap")
        .arg("cap_net_raw+ep")
        .arg(&program)
        .status_in_time();
    if set.is_ok_and(|status| status.success()) {
        let program = program.to_str().expect("a path in UTF-8");
        refused(&run(&["run", "--", program]), 2, &["file capabilities"]);
        // The command itself with rights of its own: its descriptors are hidden from the program.
        let set = children::command("setcap")
            .arg("cap_sys_ptrace+ep")
            .arg(&command)
            .status_in_time();
        assert!(set.is_ok_and(|status| status.success()));
        let line = ["run", "--ram", "64M", "--", "true"];
        if works {
            refused(&run(&line), 2, &["file capabilities", "setcap -r"]);
        }
    } else {
        skipped("without_privilege, file capabilities", "needs setcap");
    }
}

/// The command runs from any path, even one that `LD_PRELOAD` could not hold, and leaves no file.
#[test]
fn one_file_works_alone() {
    let folder = folder();
    let spaced = folder.path().join("a b:c");
    fs::create_dir(&spaced).expect("a folder");
    let command = spaced.join("flashvm");
    copy(FLASHVM, &command);
    let home = folder.path().join("home");
    fs::create_dir(&home).expect("a home");
    let run = |args: &[&str]| {
        let mut command = children::command(&command);
        command
            .args(args)
            .env("HOME", &home)
            .env_remove("XDG_CACHE_HOME");
        command.output_in_time().expect("the command")
    };
    if !run(&["doctor"]).status.success() {
        skipped("one_file_works_alone", "this machine cannot page");
        return;
    }
    let output = run(&[
        "run",
        "--ram",
        "64M",
        "--",
        "sh",
        "-c",
        "echo $(echo paged)",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"paged\n");
    let script = "ulimit -f 2048; exec \"$0\" run --ram 4M --flash-size 1M -- true";
    let limited = children::command("sh")
        .args(["-c", script])
        .arg(&command)
        .output_in_time();
    refused(&limited.expect("a shell"), 2, &["ulimit -f", "object"]);
    assert_eq!(fs::read_dir(&home).expect("the home").count(), 0);
    let names = fs::read_dir(&spaced).expect("the folder");
    assert_eq!(names.count(), 1);
}

/// The C code of the codecs runs where faults are served. The stack protector would read its canary from thread-local
/// storage, which may be managed memory.
#[test]
fn the_object_needs_no_stack_protector() {
    // The command carries it.
    let bytes = fs::read(FLASHVM).expect("the command");
    assert!(
        bytes
            .windows(4)
            .filter(|window| window == b"\x7fELF")
            .count()
            >= 2
    );
    let name = b"__stack_chk_fail";
    assert!(!bytes.windows(name.len()).any(|window| window == name));
}
