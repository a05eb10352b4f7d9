//! In a container whose profile forbids system calls: a filter as Docker's, set before `flashvm` starts,
//! and a `/dev` without `userfaultfd`.

use super::children::{self, Bounded as _};
use super::{FLASHVM, folder, is_root, refused, skipped};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

/// A `flashvm` for which these system calls fail with EPERM.
fn flashvm_without(calls: &'static [libc::c_long]) -> Command {
    let mut command = children::command(FLASHVM);
    let hide_devices = is_root();
    // SAFETY: between fork and exec the child only makes system calls, on memory of this frame.
    unsafe {
        command.pre_exec(move || {
            if hide_devices {
                hide_dev()?;
            }
            forbid(calls)
        })
    };
    command
}

/// An empty `/dev`, for this process alone: root could open `/dev/userfaultfd` otherwise.
fn hide_dev() -> io::Result<()> {
    let none = c"none".as_ptr();
    // SAFETY: the arguments are constant strings; only this process' view of the mounts changes.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none,
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                none,
                c"/dev".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                std::ptr::null(),
            ) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn forbid(calls: &[libc::c_long]) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const MOST: usize = 8;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [step(LOAD, 0, 0, 0); 2 * MOST + 2];
    let mut length = 1;
    for &call in calls {
        filter[length] = step(EQUAL, 0, 1, call as u32);
        let error = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        filter[length + 1] = step(ANSWER, 0, 0, error);
        length += 2;
    }
    filter[length] = step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW);
    let program = libc::sock_fprog {
        len: length as u16 + 1,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its filter live over the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn run(calls: &'static [libc::c_long], args: &[&str]) -> Output {
    let folder = folder();
    flashvm_without(calls)
        .args(args)
        .env("TMPDIR", folder.path())
        .output_in_time()
        .expect("the command under test")
}

#[test]
fn userfaultfd_is_forbidden() {
    for fault in ["auto", "inline", "handler"] {
        let args = ["run", "--fault", fault, "--ram", "16M", "--", "true"];
        let output = run(&[libc::SYS_userfaultfd], &args);
        let line = String::from_utf8_lossy(&output.stderr);
        // Where system calls can be dispatched to their process.
        if fault == "auto" && output.status.success() {
            assert!(line.contains("(protect mode"), "{line}");
            continue;
        }
        refused(&output, 2, &["userfaultfd is not permitted"]);
        assert!(
            line.contains("seccomp") || line.contains("sysctl"),
            "{line} names no remedy"
        );
    }
}

#[test]
fn io_uring_is_forbidden() {
    let calls = &[
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    let script = "seq 1 250000 | sort --reverse --buffer-size=64M --parallel=1 | cksum";
    let bare = children::command("sh")
        .args(["-c", script])
        .output_in_time()
        .expect("a shell");
    let paged = run(
        calls,
        &[
            "run",
            "--ram",
            "8M",
            "--flash-size",
            "256M",
            // The pool alone would hold these lines.
            "--compress",
            "off",
            "--",
            "sh",
            "-c",
            script,
        ],
    );
    let said = String::from_utf8_lossy(&paged.stderr);
    assert!(paged.status.success(), "{said}");
    assert_eq!(paged.stdout, bare.stdout, "{said}");
    assert!(!said.contains(" 0 from flash"), "nothing was paged: {said}");

    let doctor = run(calls, &["doctor"]);
    let report = String::from_utf8_lossy(&doctor.stdout);
    assert!(report.contains("I/O by io_submit"), "{report}");
    assert!(report.contains("times: io_uring instead"), "{report}");
}

/// `prctl` switches the dispatch of system calls on; all of it is forbidden, as before Linux 5.11 this part is.
#[test]
fn dispatch_of_system_calls_is_forbidden() {
    let args = ["run", "--fault", "inline", "--ram", "16M", "--", "true"];
    let output = run(&[libc::SYS_prctl], &args);
    refused(&output, 2, &["Syscall User Dispatch", "Linux 5.11"]);
}

/// `flashvm run` after `script` has changed the mounts that it sees. They may hide the command: it is opened before.
fn refused_among_mounts(test: &str, script: &str, args: &[&str], named: &[&str]) {
    if !is_root() {
        skipped(test, "needs root to change mounts");
        return;
    }
    let script = format!(
        "set -e; exec 9<\"$1\"; {script}; open=/proc/self/fd/9; [ -e $open ] || open=$1; shift; exec $open \"$@\""
    );
    let output = children::command("unshare")
        .args(["--mount", "sh", "-c", &script, "sh", FLASHVM, "run"])
        .args(args)
        .args(["--", "true"])
        .env_remove("TMPDIR")
        .output_in_time()
        .expect("unshare");
    refused(&output, 2, named);
}

#[test]
fn proc_is_missing() {
    let hide = "mount -t tmpfs none /proc";
    let named = ["/proc is not mounted", "proc"];
    refused_among_mounts("proc_is_missing", hide, &["--ram", "auto"], &named);
}

#[test]
fn folders_are_in_ram_or_read_only() {
    const TEST: &str = "folders_are_in_ram_or_read_only";
    let ram = "mount -t tmpfs none /var/tmp; mount -t tmpfs none /tmp";
    let named = ["/var/tmp is on tmpfs, which is RAM", "/tmp is", "--flash"];
    refused_among_mounts(TEST, ram, &["--ram", "16M"], &named);
    let named = ["--flash /tmp: on tmpfs, which is RAM", "with --flash"];
    refused_among_mounts(TEST, ram, &["--ram", "16M", "--flash", "/tmp"], &named);
    let fixed = "for f in /var/tmp /tmp; do mount --bind $f $f; mount -o remount,bind,ro $f; done";
    let named = ["/var/tmp is on a read-only file system", "--flash"];
    refused_among_mounts(TEST, fixed, &["--ram", "16M"], &named);
    let named = ["--flash /tmp: on a read-only file system", "with --flash"];
    refused_among_mounts(TEST, fixed, &["--ram", "16M", "--flash", "/tmp"], &named);
}
