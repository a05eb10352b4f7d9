//! Child programs: they are paged within the same budget, or not started.
//!
//! A program that cannot be preloaded (static, setuid, of another C library) is refused, because it
//! would run unpaged beside the budget. An environment without the run gets it back.

use super::executable::{Refused, check};
use crate::sys::message::eprint_line;
use rustix::fs::Access;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

const PRELOAD: &str = "LD_PRELOAD";

/// The run as a child's environment needs it: the object's path and the control variable.
#[derive(Debug)]
struct Run {
    object: Vec<u8>,
    control: Vec<u8>,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Records this process's own run, before the program can change its environment.
pub fn remember_run() {
    let preload = std::env::var_os(PRELOAD).unwrap_or_default();
    let object = preload
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .find(|path| path.ends_with(b"libflashvm_preload.so"))
        .unwrap_or_default()
        .to_vec();
    let control = std::env::var_os(crate::control::VARIABLE).unwrap_or_default();
    let _ = RUN.set(Run {
        object,
        control: control.as_bytes().to_vec(),
    });
}

/// An environment with the run in it.
#[must_use]
pub fn with_run(environment: Vec<CString>) -> Vec<CString> {
    let Some(run) = RUN.get() else {
        return environment;
    };
    let control = [crate::control::VARIABLE.as_bytes(), b"="].concat();
    let mut preload = Vec::new();
    let mut entries = environment;
    entries.retain(|entry| {
        if let Some(value) = entry.to_bytes().strip_prefix(b"LD_PRELOAD=") {
            preload = value.to_vec();
            return false;
        }
        !entry.to_bytes().starts_with(&control)
    });
    let there = preload
        .split(|byte| matches!(byte, b':' | b' '))
        .any(|path| path == run.object);
    if !there {
        preload = match preload.is_empty() {
            true => run.object.clone(),
            false => [&run.object[..], b":", &preload].concat(),
        };
    }
    let lines = [
        [b"LD_PRELOAD=", &preload[..]].concat(),
        [&control[..], &run.control].concat(),
    ];
    // None contains a zero byte: all come from an environment.
    entries.extend(lines.into_iter().filter_map(|line| CString::new(line).ok()));
    entries
}

/// Whether the program at a path has to be refused; tells the user. The kernel refuses missing and
/// non-executable files.
#[must_use]
pub fn refused(path: &OsStr) -> bool {
    if rustix::fs::access(path, Access::EXEC_OK).is_err() {
        return false;
    }
    say(check(Path::new(path)))
}

/// The same for a result of [`check`] or [`super::find`].
#[must_use]
pub fn say(result: Result<(), Refused>) -> bool {
    let Err(Refused::Unpaged(why)) = result else {
        return false;
    };
    eprint_line(&format!(
        "flashvm: not started, as it would run unpaged: {why}"
    ));
    true
}
