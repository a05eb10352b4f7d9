//! Child programs: they are paged within the same budget, or not started.
//!
//! A program into which the object does not get (setuid, of another architecture) is refused, because it would run
//! unpaged beside the budget. An environment without the run gets it back. A program that has to be carried is started
//! by the object, which glibc's dynamic linker runs like a program.

use super::executable::{Loading, Refused, check, refuse_carried};
use crate::control::{Descriptors, RunAddress, STORES_MAX, Stores};
use crate::space::Delivery;
use crate::sys::descriptors;
use crate::sys::message::eprint_line;
use rustix::fs::Access;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
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
    /// Whether the guard runs, which carried programs need.
    carries: bool,
}

/// glibc's dynamic linker, at the place that the psABI gives it.
pub const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

static RUN: OnceLock<Inherited> = OnceLock::new();

/// What the programs executed by this one inherit.
#[derive(Debug)]
pub struct HandedOn {
    /// How this program has found the run.
    pub address: RunAddress,
    /// The control region.
    pub region: OwnedFd,
    /// The files or devices of the store.
    pub stores: Stores<OwnedFd>,
    /// The preloaded object, unless programs load it from a named file.
    pub object: Option<OwnedFd>,
}

/// Records how programs that this one executes find the run. `loaded` is the path from which the dynamic linker loaded
/// the preloaded object.
///
/// # Errors
/// No number is left for a descriptor.
pub fn remember_run(run: HandedOn, loaded: &CStr, delivery: Delivery) -> rustix::io::Result<()> {
    let mut stores = [None; STORES_MAX];
    for (place, store) in stores.iter_mut().zip(run.stores) {
        *place = store.map(descriptors::hand_on).transpose()?;
    }
    let inherited = Descriptors {
        region: descriptors::hand_on(run.region)?,
        stores,
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
        carries: delivery.is_in_thread(),
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

/// How the object gets into the program at a path, or `None` if the program has to be refused, of which this tells the
/// user. The kernel refuses missing and non-executable files.
#[must_use]
pub fn loading(path: &OsStr) -> Option<Loading> {
    if rustix::fs::access(path, Access::EXEC_OK).is_err() {
        return Some(Loading::Preloaded);
    }
    let path = Path::new(path);
    let carries = RUN.get().is_some_and(|run| run.carries);
    let loading = check(path).and_then(|loading| match loading {
        Loading::Carried if !carries => refuse_carried(path).map(|()| loading),
        _ => Ok(loading),
    });
    match loading {
        Ok(loading) => Some(loading),
        Err(Refused::Unpaged(why)) => {
            eprint_line(&format!(
                "flashvm: not started, as it would run unpaged: {why}"
            ));
            None
        }
        Err(_) => Some(Loading::Preloaded),
    }
}

/// The path and the arguments with which the kernel starts the object, for a program that it carries.
#[must_use]
pub fn carried(
    object: &CStr,
    program: CString,
    arguments: Vec<CString>,
) -> (CString, Vec<CString>) {
    let linker = CString::new(LINKER).unwrap_or_default();
    let mut all = vec![linker.clone(), object.to_owned(), program.clone()];
    if arguments.is_empty() {
        all.push(program);
    }
    all.extend(arguments);
    (linker, all)
}

/// The path of the object, for [`carried`].
pub(crate) fn object() -> CString {
    let paths = RUN.get().map(|run| &run.object[..]).unwrap_or_default();
    let first = paths.split(|byte| *byte == b':').next().unwrap_or_default();
    // It contains no zero byte: it comes from an environment.
    CString::new(first).unwrap_or_default()
}

/// Arguments of the object that precede those of the program that it carries: its own path and the program's.
pub const CARRIED_AFTER: usize = 2;

/// The path of the program that the object carries; `None` if it was preloaded. `loaded` is the path from which the
/// dynamic linker loaded the object.
#[must_use]
pub fn carried_program(loaded: &CStr) -> Option<OsString> {
    let mut arguments = std::env::args_os();
    let is_object = arguments.next()?.as_bytes() == loaded.to_bytes();
    let program = arguments.next().filter(|_| is_object)?;
    arguments.next().map(|_| program)
}
