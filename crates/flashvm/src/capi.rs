//! The functions of `flashvm.h` and `flashvm_arena.h` for a library in C: the code is that of this crate.
//!
//! `flashvm_map` and `flashvm_unmap` are not here: these names are the preloaded object's, and a library that exported them would be taken for
//! a run.
#![allow(unsafe_code, reason = "the callers are in C")]
#![allow(unreachable_pub, reason = "the header has what is pub")]
#![allow(non_camel_case_types, reason = "the names are C's")]

use crate::advice::advise_on;
use crate::{Advice, Arena, Error, Stats, is_run, stats};
use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

/// An arena: objects of any size in managed memory. One thread at a time uses it.
pub struct flashvm_arena(Arena);

/// What flashvm_advise() says about memory. The contents stay as they are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum flashvm_advice {
    /// read it ahead
    FLASHVM_WILLNEED = 3,
    /// evict it before other memory
    FLASHVM_COLD = 20,
    /// begin to evict it now
    FLASHVM_PAGEOUT = 21,
    /// keep it in RAM, from now on: mlock()
    FLASHVM_PIN = 1001,
    /// no longer: munlock()
    FLASHVM_UNPIN = 1002,
}

/// Sets `errno` to what the headers say for an error.
fn set_errno(error: &Error) {
    let errno = match error {
        Error::NotARun => libc::ENOSYS,
        Error::NoRoom { .. } | Error::TooManyPins { .. } => libc::ENOMEM,
        Error::Os { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EINVAL,
    };
    // SAFETY: `errno` is a variable of this thread.
    unsafe { *libc::__errno_location() = errno };
}

fn status(done: Result<(), Error>) -> c_int {
    done.map_or_else(
        |error| {
            set_errno(&error);
            -1
        },
        |()| 0,
    )
}

/// The layout of an object; an alignment of 0 is 16, and an object of 0 bytes has a place, too.
fn layout(bytes: usize, align: usize) -> Result<Layout, Error> {
    let align = if align == 0 { 16 } else { align };
    if !align.is_power_of_two() || align > crate::pages::PAGE {
        return Err(Error::Invalid(format!("an alignment of {align} bytes")));
    }
    Layout::from_size_align(bytes.max(1), align.max(16)).map_err(|_| Error::NoRoom { bytes })
}

/// Whether this process runs under flashvm.
#[unsafe(no_mangle)]
pub extern "C" fn flashvm_is_run() -> c_int {
    c_int::from(is_run())
}

/// An empty arena, or null and errno: ENOSYS outside of a run.
#[unsafe(no_mangle)]
pub extern "C" fn flashvm_arena_create() -> *mut flashvm_arena {
    match Arena::new() {
        Ok(arena) => Box::into_raw(Box::new(flashvm_arena(arena))),
        Err(error) => {
            set_errno(&error);
            null_mut()
        }
    }
}

/// An object of `bytes`, aligned to `align`: a power of two up to 4096, or 0 for 16. Null and errno: EINVAL for another `align`, ENOMEM if budget
/// and store together have no room. Its contents are zeros, unless its place served a freed object.
///
/// # Safety
/// The arena is from flashvm_arena_create(), was not destroyed, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashvm_arena_alloc(
    arena: *mut flashvm_arena,
    bytes: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: the caller says that this is an arena, which this thread alone uses.
    let arena = unsafe { &(*arena).0 };
    let object = layout(bytes, align).and_then(|layout| arena.allocate(layout));
    object.map_or_else(
        |error| {
            set_errno(&error);
            null_mut()
        },
        |object| object.as_ptr().cast(),
    )
}

/// Frees an object of flashvm_arena_alloc(), or nothing if it is null; `bytes` and `align` are those it was made with. It does not touch the
/// object, so that one on flash is not read.
///
/// # Safety
/// As flashvm_arena_alloc(); the object is of this arena, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashvm_arena_free(
    arena: *mut flashvm_arena,
    object: *mut c_void,
    bytes: usize,
    align: usize,
) {
    let (Some(object), Ok(layout)) = (NonNull::new(object.cast()), layout(bytes, align)) else {
        return;
    };
    // SAFETY: the caller says that the object is of this arena and layout, and gives it up.
    unsafe { (*arena).0.free(object, layout) };
}

/// Frees all objects of an arena, and the arena; nothing if it is null.
///
/// # Safety
/// The arena is from flashvm_arena_create() and was not destroyed; nobody uses it or its objects any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashvm_arena_destroy(arena: *mut flashvm_arena) {
    if !arena.is_null() {
        // SAFETY: `flashvm_arena_create` has made the box, and the caller gives it up.
        drop(unsafe { Box::from_raw(arena) });
    }
}

/// Tells the pager how memory will be used: one of enum flashvm_advice. FLASHVM_COLD and FLASHVM_PAGEOUT are about the pages that hold nothing
/// else, the others about every page that the range touches. 0, or -1 and errno: ENOMEM if more than (budget - 256 KiB) / 2 would be
/// pinned, EINVAL for other advice.
#[unsafe(no_mangle)]
pub extern "C" fn flashvm_advise(memory: *const c_void, bytes: usize, advice: c_int) -> c_int {
    use flashvm_advice::*;
    let all = [
        (FLASHVM_WILLNEED, Advice::WillNeed),
        (FLASHVM_COLD, Advice::Cold),
        (FLASHVM_PAGEOUT, Advice::PageOut),
        (FLASHVM_PIN, Advice::Pin),
        (FLASHVM_UNPIN, Advice::Unpin),
    ];
    let found = all
        .into_iter()
        .find(|&(number, _)| number as c_int == advice);
    let found = found.ok_or_else(|| Error::Invalid(format!("advice {advice}")));
    status(found.and_then(|(_, advice)| advise_on(memory as usize, bytes, advice)))
}

/// Fills `out` with the statistics of this process. 0, or -1 and errno. A field more in the structure is another soname.
///
/// # Safety
/// `out` is a structure to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashvm_get_stats(out: *mut Stats) -> c_int {
    status(stats().map(|now| {
        // SAFETY: the caller says that it may be written.
        unsafe { out.write(now) };
    }))
}

/// An error of these functions, with its remedy.
#[unsafe(no_mangle)]
pub extern "C" fn flashvm_explain(error: c_int) -> *const c_char {
    explanation(error).map_or_else(
        // SAFETY: it takes any number, and returns a text that stays until the next call in this thread.
        || unsafe { libc::strerror(error).cast_const() },
        CStr::as_ptr,
    )
}

fn explanation(error: c_int) -> Option<&'static CStr> {
    Some(match error {
        0 => c"no error",
        libc::ENOSYS => {
            c"this process does not run under flashvm: start it with flashvm run --ram SIZE -- PROGRAM"
        }
        libc::ENOMEM => {
            c"budget and store have no room: give the run more --ram or a larger --flash-size, or pin less"
        }
        libc::EINVAL => {
            c"the range is no managed memory, or has no bytes: pass what flashvm_map returned"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    #[test]
    fn explanations_are_those_of_the_header() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/flashvm.h");
        let header = std::fs::read_to_string(header).expect("the header");
        for error in [0, libc::ENOSYS, libc::ENOMEM, libc::EINVAL] {
            let text = explanation(error).expect("a text").to_str().expect("UTF-8");
            assert!(header.contains(&format!("return \"{text}\";")), "{text}");
        }
        // SAFETY: a text of the C library.
        let other = unsafe { CStr::from_ptr(flashvm_explain(libc::EPERM)) };
        assert_eq!(other.to_str(), Ok("Operation not permitted"));
    }

    /// The numbers of the header's enum.
    #[test]
    fn advice_has_the_numbers_of_the_header() {
        use flashvm_advice::*;
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/flashvm.h");
        let header = std::fs::read_to_string(header).expect("the header");
        for advice in [
            FLASHVM_WILLNEED,
            FLASHVM_COLD,
            FLASHVM_PAGEOUT,
            FLASHVM_PIN,
            FLASHVM_UNPIN,
        ] {
            let line = format!("{advice:?} = {}", advice as c_int);
            assert!(header.contains(&line), "{line}");
        }
    }

    #[test]
    fn outside_of_a_run_all_is_enosys() {
        assert_eq!(flashvm_is_run(), 0);
        assert!(flashvm_arena_create().is_null());
        assert_eq!(errno(), libc::ENOSYS);
        let mut now = Stats::default();
        // SAFETY: the structure is this test's.
        assert_eq!(unsafe { flashvm_get_stats(&raw mut now) }, -1);
        assert_eq!(errno(), libc::ENOSYS);
        assert_eq!(flashvm_advise([0_u8].as_ptr().cast(), 1, 20), -1);
        assert_eq!(errno(), libc::ENOSYS);
        assert_eq!(flashvm_advise([0_u8].as_ptr().cast(), 1, 4), -1);
        assert_eq!(errno(), libc::EINVAL);
    }

    #[test]
    fn layouts_are_those_of_the_header() {
        let of = |bytes, align| layout(bytes, align).map(|layout| (layout.size(), layout.align()));
        assert_eq!(of(0, 0).expect("a place"), (1, 16));
        assert_eq!(of(24, 8).expect("a place"), (24, 16));
        assert_eq!(of(24, 4096).expect("a place"), (24, 4096));
        for align in [3, 8192] {
            assert!(matches!(of(1, align), Err(Error::Invalid(_))), "{align}");
        }
        let error = of(usize::MAX, 0).expect_err("too much");
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    }
}
