//! Child programs: they are paged within the same budget, or not started.
//!
//! A program that cannot be preloaded (static, setuid, of another C library) is refused, because it
//! would run unpaged beside the budget. An environment without the run gets it back.

use super::executable::{Refused, check};
use crate::control::{Descriptors, RunAddress};
use crate::space::Delivery;
use crate::sys::descriptors;
use crate::sys::message::eprint_line;
use rustix::fs::Access;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

/// The run as a child's environment needs it.
#[derive(Debug)]
struct Inherited {
    /// The path from which the dynamic linker loaded the preloaded object.
    loaded: Vec<u8>,
    /// The entries of `LD_PRELOAD` for the object.
    object: Vec<u8>,
    /// The value of the control variable.
    control: Vec<u8>,
}

static RUN: OnceLock<Inherited> = OnceLock::new();

/// What the programs executed by this one inherit.
#[derive(Debug)]
pub struct HandedOn {
    /// How this program has found the run.
    pub address: RunAddress,
    /// The control region.
    pub region: OwnedFd,
    /// The store.
    pub store: OwnedFd,
    /// The preloaded object, unless programs load it from a named file.
    pub object: Option<OwnedFd>,
}

/// Records how programs that this one executes find the run. `loaded` is the path from which the dynamic linker loaded
/// the preloaded object.
///
/// # Errors
/// No number is left for a descriptor.
pub fn remember_run(run: HandedOn, loaded: &CStr, delivery: Delivery) -> rustix::io::Result<()> {
    let inherited = Descriptors {
        region: descriptors::hand_on(run.region)?,
        store: descriptors::hand_on(run.store)?,
        object: run.object.map(descriptors::hand_on).transpose()?,
    };
    let address = RunAddress {
        inherited: Some(inherited),
        ..run.address
    };
    let loaded = loaded.to_bytes();
    let paths = address.object_paths(!delivery.is_in_thread());
    let _ = RUN.set(Inherited {
        loaded: loaded.to_vec(),
        object: paths.map_or_else(|| loaded.to_vec(), String::into_bytes),
        control: address.to_string().into_bytes(),
    });
    Ok(())
}

/// An environment with the run in it, for a program that is about to be executed.
#[must_use]
pub fn with_run(environment: Vec<CString>) -> Vec<CString> {
    let Some(run) = RUN.get() else {
        return environment;
    };
    descriptors::let_inherit();
    let control = [crate::control::VARIABLE.as_bytes(), b"="].concat();
    let mut preload = run.object.clone();
    let mut entries = environment;
    entries.retain(|entry| {
        if let Some(value) = entry.to_bytes().strip_prefix(b"LD_PRELOAD=") {
            let is_ours = |path: &[u8]| {
                path == run.loaded
                    || run
                        .object
                        .split(|byte| *byte == b':')
                        .any(|ours| ours == path)
            };
            for path in value.split(|byte| matches!(byte, b':' | b' ')) {
                if !path.is_empty() && !is_ours(path) {
                    preload.push(b':');
                    preload.extend_from_slice(path);
                }
            }
            return false;
        }
        !entry.to_bytes().starts_with(&control)
    });
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
