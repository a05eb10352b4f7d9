//! Child programs: they are paged out of the same budget, or they are not started.
//!
//! A program that cannot be preloaded (static, setuid, of another C library) is refused, because
//! it would run unpaged beside the budget. An environment from which the run was lost gets it
//! back. The variadic calls of the family take the process' own environment and come through the
//! C library unchecked; the object they preload then does the rest.

use super::{for_pager, set_errno};
use flashvm::program::{Refused, check, find};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

const PRELOAD: &str = "LD_PRELOAD";

/// What a child needs in its environment: the object's path and the run.
struct Run {
    object: Vec<u8>,
    control: CString,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Notes this process' own part in the run, before the program can change its environment.
pub(super) fn remember_run() {
    let preload = std::env::var_os(PRELOAD).unwrap_or_default();
    let object = preload
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .find(|path| path.ends_with(b"libflashvm_preload.so"))
        .unwrap_or_default()
        .to_vec();
    let control = std::env::var_os(flashvm::control::VARIABLE).unwrap_or_default();
    let line = [
        flashvm::control::VARIABLE.as_bytes(),
        b"=",
        control.as_bytes(),
    ]
    .concat();
    if let Ok(control) = CString::new(line) {
        let _ = RUN.set(Run { object, control });
    }
}

/// An environment with the run in it. The strings that are not the program's are kept alive in
/// `owned`.
struct Environment {
    entries: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Environment {
    /// # Safety
    /// `environment` is null or a null-terminated array of strings.
    unsafe fn with_run(environment: *const *const c_char) -> Self {
        let mut entries = Vec::new();
        let mut owned = Vec::new();
        let Some(run) = RUN.get() else {
            return Self {
                entries,
                _owned: owned,
            };
        };
        let mut preload: Option<Vec<u8>> = None;
        let control_name = [flashvm::control::VARIABLE.as_bytes(), b"="].concat();
        for index in 0.. {
            // SAFETY: up to its null entry the array can be read.
            let entry = unsafe {
                if environment.is_null() {
                    std::ptr::null()
                } else {
                    *environment.add(index)
                }
            };
            if entry.is_null() {
                break;
            }
            // SAFETY: every entry is a string.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            if let Some(value) = text.strip_prefix(b"LD_PRELOAD=") {
                preload = Some(value.to_vec());
            } else if !text.starts_with(&control_name) {
                entries.push(entry);
            }
        }
        let value = match preload {
            Some(value) if contains(&value, &run.object) => value,
            Some(value) if !value.is_empty() => [&run.object[..], b":", &value].concat(),
            _ => run.object.clone(),
        };
        if let Ok(line) = CString::new([b"LD_PRELOAD=", &value[..]].concat()) {
            owned.push(line);
        }
        owned.push(run.control.clone());
        entries.extend(owned.iter().map(|line| line.as_ptr()));
        entries.push(std::ptr::null());
        Self {
            entries,
            _owned: owned,
        }
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.entries.as_ptr()
    }
}

fn contains(value: &[u8], object: &[u8]) -> bool {
    value
        .split(|byte| matches!(byte, b':' | b' '))
        .any(|path| path == object)
}

/// Whether a program has to be refused: says so.
fn refused(result: Result<(), Refused>) -> bool {
    // What is not there or cannot be executed the kernel says itself.
    let Err(Refused::Unpaged(why)) = result else {
        return false;
    };
    eprintln!("flashvm: not started, as it would run unpaged: {why}");
    true
}

/// # Safety
/// `path` is a string.
unsafe fn refused_path(path: *const c_char) -> bool {
    // SAFETY: by this function's own contract.
    let path = unsafe { CStr::from_ptr(path) };
    refused(check(Path::new(OsStr::from_bytes(path.to_bytes()))))
}

/// # Safety
/// `file` is a string.
unsafe fn refused_file(file: *const c_char) -> bool {
    // SAFETY: by this function's own contract.
    let file = unsafe { CStr::from_ptr(file) };
    refused(find(OsStr::from_bytes(file.to_bytes())).map(|_| ()))
}

/// The next symbol of this name: the C library's.
///
/// # Safety
/// `F` is the type of that function.
unsafe fn next<F: Copy>(name: &CStr) -> F {
    // SAFETY: the name is a string; a function pointer has the size of a data pointer.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        assert!(!symbol.is_null(), "the C library has {name:?}");
        std::mem::transmute_copy::<*mut c_void, F>(&symbol)
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

type Strings = *const *const c_char;
type Execve = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;

/// # Safety
/// As `execve` and its kin: strings and null-terminated arrays of strings.
unsafe fn execute(
    name: &CStr,
    refused: unsafe fn(*const c_char) -> bool,
    program: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as the program vouches for its arguments.
    unsafe {
        let call = next::<Execve>(name);
        if for_pager() {
            return call(program, arguments, environment);
        }
        if refused(program) {
            set_errno(Errno::ACCESS);
            return -1;
        }
        let environment = Environment::with_run(environment);
        call(program, arguments, environment.as_ptr())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, variables: Strings) -> c_int {
    // SAFETY: passes on what the program asked for.
    unsafe { execute(c"execve", refused_path, path, arguments, variables) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as above; the environment is the process' own.
    unsafe { execute(c"execve", refused_path, path, arguments, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, variables: Strings) -> c_int {
    // SAFETY: passes on what the program asked for.
    unsafe { execute(c"execvpe", refused_file, file, arguments, variables) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as above; the environment is the process' own.
    unsafe { execute(c"execvpe", refused_file, file, arguments, environ) }
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    variables: Strings,
) -> c_int {
    // SAFETY: passes on what the program asked for.
    unsafe {
        let call = next::<Spawn>(c"posix_spawn");
        if for_pager() {
            return call(pid, path, actions, attributes, arguments, variables);
        }
        if refused_path(path) {
            return libc::EACCES;
        }
        let variables = Environment::with_run(variables);
        call(
            pid,
            path,
            actions,
            attributes,
            arguments,
            variables.as_ptr(),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    variables: Strings,
) -> c_int {
    // SAFETY: passes on what the program asked for.
    unsafe {
        let call = next::<Spawn>(c"posix_spawnp");
        if for_pager() {
            return call(pid, file, actions, attributes, arguments, variables);
        }
        if refused_file(file) {
            return libc::EACCES;
        }
        let variables = Environment::with_run(variables);
        call(
            pid,
            file,
            actions,
            attributes,
            arguments,
            variables.as_ptr(),
        )
    }
}
