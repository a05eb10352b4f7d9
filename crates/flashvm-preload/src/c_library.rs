//! The C library beside this object: its symbols, and its way of reporting errors.

use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_void};

/// The next symbol of this name: the C library's.
///
/// # Safety
/// `F` is the type of a pointer to that function, or `usize`.
pub(crate) unsafe fn next<F: Copy>(name: &CStr) -> F {
    // SAFETY: the name is a string. The caller guarantees the type of the function; a pointer to it
    // has the size of a data pointer.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        assert!(!symbol.is_null(), "the C library has {name:?}");
        std::mem::transmute_copy::<*mut c_void, F>(&symbol)
    }
}

/// The path from which the dynamic linker loaded this object.
pub(crate) fn own_path() -> &'static CStr {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function fills in `info`. If it knows the address, the name is a string of the dynamic linker, which
    // lives as long as this object: it is never unloaded.
    unsafe {
        let known = libc::dladdr(own_path as *const c_void, info.as_mut_ptr());
        let name = info.assume_init().dli_fname;
        assert!(
            known != 0 && !name.is_null(),
            "the dynamic linker knows this object"
        );
        CStr::from_ptr(name)
    }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(error: Errno) {
    // SAFETY: the C library returns the location of this thread's `errno`.
    unsafe { *libc::__errno_location() = error.raw_os_error() };
}

/// Runs `work` and leaves `errno` as it was.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the location is this thread's own, and initialised by the C library.
    let errno = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: the location is this thread's own; `work` keeps no reference to it.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// A C result: 0, or -1 with `errno` set.
pub(crate) fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}
