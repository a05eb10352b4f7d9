//! The functions of the object that a run preloads, looked up by name as `include/flashvm.h` does.
//!
//! Unsafe code: a symbol becomes a function of the type that the header gives it. The object exports these names with these
//! types in every version; a program that defines `flashvm_map` itself with another type breaks that, as in C.
#![allow(unsafe_code, reason = "a symbol has no type until it is given one")]

use crate::{Error, Result};
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// The functions of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Functions {
    /// Managed memory of so many bytes: zeros. Null and `errno`.
    pub(crate) map: extern "C" fn(usize) -> *mut c_void,
    /// Frees whole pages of it. 0, or -1 and `errno`.
    pub(crate) unmap: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
    /// Fills so many bytes with statistics. 0, or -1 and `errno`.
    pub(crate) stats: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero; looking a symbol up runs none of its code.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn look_up() -> Option<Functions> {
    let (map, unmap) = (symbol(c"flashvm_map")?, symbol(c"flashvm_unmap")?);
    let stats = symbol(c"flashvm_stats")?;
    // SAFETY: the object exports `flashvm_map` with this type.
    let map =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> *mut c_void>(map) };
    type OfRange = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
    // SAFETY: the object exports `flashvm_unmap` with this type.
    let unmap = unsafe { std::mem::transmute::<*mut c_void, OfRange>(unmap) };
    // SAFETY: the object exports `flashvm_stats` with this type.
    let stats = unsafe { std::mem::transmute::<*mut c_void, OfRange>(stats) };
    Some(Functions { map, unmap, stats })
}

/// The functions of the run; the object stays loaded as long as the process lives.
pub(crate) fn functions() -> Result<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(look_up).as_ref().ok_or(Error::NotARun)
}

/// Whether this process runs under flashvm.
///
/// ```
/// if !flashvm::is_run() {
///     eprintln!("{}", flashvm::Error::NotARun);
/// }
/// ```
#[must_use]
pub fn is_run() -> bool {
    functions().is_ok()
}
