//! `/proc/self/exe` of a carried program. The kernel has the dynamic linker there, which started the object that
//! carries the program. Calls that name this path get a descriptor of the program instead.

use super::memory;
use crate::sys::descriptors;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

struct Carried {
    /// The path by which it was executed.
    program: CString,
    /// Its file, as a path.
    file: CString,
}

static CARRIED: OnceLock<Carried> = OnceLock::new();

/// Remembers the program that this process carries, and its file.
///
/// # Errors
/// No number is left for a descriptor.
pub(super) fn set(program: CString, file: OwnedFd) -> Result<(), Errno> {
    let number = descriptors::keep_for_life(file)?;
    let file = format!("/proc/self/fd/{number}");
    let _ = CARRIED.set(Carried {
        program,
        file: CString::new(file).unwrap_or_default(),
    });
    Ok(())
}

fn is_own(path: &[u8]) -> bool {
    let own = |process: &[u8]| {
        process == b"self"
            || process == b"thread-self"
            || std::str::from_utf8(process)
                .ok()
                .and_then(|number| number.parse().ok())
                == Some(rustix::process::getpid().as_raw_nonzero().get())
    };
    path.strip_prefix(b"/proc/")
        .and_then(|rest| rest.strip_suffix(b"/exe"))
        .is_some_and(own)
}

/// The program, if `path` is `/proc/self/exe` of a carried one.
pub(super) fn of_program(path: &[u8]) -> Option<CString> {
    let carried = CARRIED.get()?;
    is_own(path).then(|| carried.program.clone())
}

/// The arguments of a call, with the program's file in place of `/proc/self/exe`.
pub(super) fn replace(number: i64, args: &[usize; 6]) -> [usize; 6] {
    let mut args = *args;
    let Some(carried) = CARRIED.get() else {
        return args;
    };
    let at = match number {
        libc::SYS_readlink | libc::SYS_open | libc::SYS_stat | libc::SYS_access => 0,
        libc::SYS_readlinkat
        | libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2 => 1,
        _ => return args,
    };
    // The longest such path; any longer text is none.
    const LONGEST: usize = "/proc/thread-self/exe".len() + 1;
    if memory::read_text(args[at], LONGEST).is_some_and(|path| is_own(&path)) {
        args[at] = carried.file.as_ptr() as usize;
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_this_process_is_its_own() {
        let pid = std::process::id();
        for own in ["self", "thread-self", &pid.to_string()] {
            assert!(is_own(format!("/proc/{own}/exe").as_bytes()), "{own}");
        }
        let other = format!("/proc/{}/exe", pid + 1);
        for path in [&other, "/proc/self/exe/", "/proc/self/maps", "exe", ""] {
            assert!(!is_own(path.as_bytes()), "{path}");
        }
    }
}
