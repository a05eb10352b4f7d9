//! `execve` and its family: see [`flashvm_live::program::exec`]. In inline mode the guard catches the
//! system call. In handler mode the variadic functions of the family use the process's own
//! environment and pass through the C library unchecked; the object preloaded into the new program
//! then checks.

use crate::c_library::{next, set_errno};
use crate::state::{for_pager, guarded};
use flashvm_live::program::exec::{loading, with_run};
use flashvm_live::program::locate;
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// An environment that names the run.
struct Environment {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Environment {
    /// # Safety
    /// `environment` is null or a null-terminated array of strings.
    unsafe fn with_run(environment: Strings) -> Self {
        let mut entries = Vec::new();
        // SAFETY: the caller guarantees strings up to a null entry; the loop stops there.
        unsafe {
            let mut at = environment;
            while !at.is_null() && !(*at).is_null() {
                entries.push(CStr::from_ptr(*at).to_owned());
                at = at.add(1);
            }
        }
        let owned = with_run(entries);
        let end = std::iter::once(std::ptr::null());
        Self {
            pointers: owned
                .iter()
                .map(|entry| entry.as_ptr())
                .chain(end)
                .collect(),
            _owned: owned,
        }
    }

    fn as_ptr(&self) -> Strings {
        self.pointers.as_ptr()
    }
}

/// # Safety
/// `path` is a string.
unsafe fn refused_path(path: *const c_char) -> bool {
    // SAFETY: the caller guarantees that `path` is a C string, which stays during this call.
    let path = unsafe { CStr::from_ptr(path) };
    loading(OsStr::from_bytes(path.to_bytes())).is_none()
}

/// # Safety
/// `file` is a string.
unsafe fn refused_file(file: *const c_char) -> bool {
    // SAFETY: the caller guarantees that `file` is a C string, which stays during this call.
    let file = unsafe { CStr::from_ptr(file) };
    // The C library reports a program that is not there.
    locate(OsStr::from_bytes(file.to_bytes())).is_ok_and(|path| loading(path.as_os_str()).is_none())
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
    // SAFETY: the C library's `execve` and `execvpe` have the type `Execve`. The caller guarantees
    // strings and arrays of strings; `environment` lives until `call` returns.
    unsafe {
        let call = next::<Execve>(name);
        if for_pager() || guarded() {
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
    // SAFETY: the path and both lists are the caller's, valid as execve(2) demands.
    unsafe { execute(c"execve", refused_path, path, arguments, variables) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: path and list are the caller's, valid as execv(3) demands; the environment is the
    // process's.
    unsafe { execute(c"execve", refused_path, path, arguments, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, variables: Strings) -> c_int {
    // SAFETY: the name and both lists are the caller's, valid as execvpe(3) demands.
    unsafe { execute(c"execvpe", refused_file, file, arguments, variables) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: name and list are the caller's, valid as execvp(3) demands; the environment is the
    // process's.
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

/// Spawns by the C library's function `name`; `call` calls it with the environment to use.
///
/// # Safety
/// As `posix_spawn` and its kin: strings and null-terminated arrays of strings.
unsafe fn spawn(
    name: &CStr,
    refused: unsafe fn(*const c_char) -> bool,
    program: *const c_char,
    variables: Strings,
    call: impl FnOnce(Spawn, Strings) -> c_int,
) -> c_int {
    // SAFETY: the C library's `posix_spawn` and `posix_spawnp` have the type `Spawn`. The caller
    // guarantees a string and an array of strings; `variables` lives until `call` returns.
    unsafe {
        let spawn = next::<Spawn>(name);
        if for_pager() || guarded() {
            return call(spawn, variables);
        }
        if refused(program) {
            return libc::EACCES;
        }
        let variables = Environment::with_run(variables);
        call(spawn, variables.as_ptr())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    variables: Strings,
) -> c_int {
    // SAFETY: all pointers are the caller's, valid as posix_spawn(3) demands.
    unsafe {
        spawn(
            c"posix_spawn",
            refused_path,
            path,
            variables,
            |spawn, variables| spawn(pid, path, actions, attributes, arguments, variables),
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
    // SAFETY: all pointers are the caller's, valid as posix_spawnp(3) demands.
    unsafe {
        spawn(
            c"posix_spawnp",
            refused_file,
            file,
            variables,
            |spawn, variables| spawn(pid, file, actions, attributes, arguments, variables),
        )
    }
}
