//! `mmap` and its family. In handler mode the program calls these symbols; in inline mode the guard
//! catches the system call, on a stack that is not managed memory.

use crate::c_library::{keeping_errno, set_errno, status};
use crate::state::{for_pager, guarded};
use flashvm_live::guard::aside;
use flashvm_live::program::mapping;
use rustix::io::Errno;
use std::ffi::{c_int, c_long, c_void};

/// Whether a call goes to the kernel unchanged: it is the pager's, or the guard will catch it.
fn passes() -> bool {
    for_pager() || guarded()
}

fn address(result: Result<usize, Errno>) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    if passes() {
        // SAFETY: the arguments are the caller's: with `MAP_FIXED` it gives up what lies there. The guard catches what is managed.
        return unsafe {
            libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) as *mut c_void
        };
    }
    let offset = offset as usize;
    let at = at as usize;
    // SAFETY: the program asks for this mapping. With `MAP_FIXED` it gives up memory of its own that lies there.
    address(aside(move || unsafe {
        mapping::map(at, len, prot, flags, fd, offset)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: `mmap64` is `mmap` where offsets have 64 bits: the caller guarantees the same.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller guarantees the same.
    unsafe { unmap(at, len) }
}

/// `munmap` by this object. A process that joins a run keeps the C library's function of that name, and so does this object
/// there.
///
/// # Safety
/// Nobody uses the range any more.
pub(crate) unsafe fn unmap(at: *mut c_void, len: usize) -> c_int {
    if passes() {
        // SAFETY: the caller gives up the range. The guard catches what is managed.
        return unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int };
    }
    let at = at as usize;
    // SAFETY: the program gives up memory of its own, which nobody else uses.
    status(aside(move || unsafe { mapping::unmap(at, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int {
    if passes() {
        // SAFETY: the caller gives up the access that it takes away. The guard catches what is managed.
        return unsafe { libc::syscall(libc::SYS_mprotect, at, len, prot) as c_int };
    }
    let at = at as usize;
    // SAFETY: the program changes its own access to memory of its own, which nobody else uses.
    status(aside(move || unsafe {
        mapping::protect(at, len, prot as u32)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller guarantees the same.
    unsafe { advise(at, len, advice) }
}

/// `madvise` by this object, as [`unmap`].
///
/// # Safety
/// The range is the caller's, who gives up contents that the advice drops.
pub(crate) unsafe fn advise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    if passes() {
        // SAFETY: the caller gives up contents that the advice drops. The guard catches what is managed.
        return unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) as c_int };
    }
    let at = at as usize;
    // SAFETY: the range is memory of the program's own. Where the advice drops its contents, the program gives them up.
    status(aside(move || unsafe { mapping::advise(at, len, advice) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    // POSIX_MADV_DONTNEED must not lose contents: there is nothing to do.
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    keeping_errno(|| {
        // SAFETY: the caller guarantees the range; the other POSIX advice has the kernel's numbers,
        // and drops no contents.
        if unsafe { madvise(at, len, advice) } == 0 {
            0
        } else {
            libc::EINVAL
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mremap(
    at: *mut c_void,
    len: usize,
    new_len: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller guarantees the same.
    unsafe { remap(at, len, new_len, flags, to) }
}

/// `mremap` by this object, as [`unmap`].
///
/// # Safety
/// Nobody uses the old range any more if the memory moves, nor the new one with `MREMAP_FIXED`.
pub(crate) unsafe fn remap(
    at: *mut c_void,
    len: usize,
    new_len: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if passes() {
        // SAFETY: the caller gives up the old range, and with `MREMAP_FIXED` what lies at the new one. The guard
        // catches what is managed.
        return unsafe {
            libc::syscall(libc::SYS_mremap, at, len, new_len, flags, to) as *mut c_void
        };
    }
    let (at, to) = (at as usize, to as usize);
    // SAFETY: the program moves memory of its own. With `MREMAP_FIXED` it gives up what lies at the new place.
    address(aside(move || unsafe {
        mapping::remap(at, len, new_len, flags, to)
    }))
}

/// Locks managed memory (handler mode); `None`: there is none in the range.
fn lock(at: *const c_void, len: usize, flags: c_int) -> Option<c_int> {
    if passes() {
        return None;
    }
    let (start, len) = mapping::managed_pages(at as usize, len)?;
    let on_fault = flags & libc::MLOCK_ONFAULT as c_int != 0;
    let result = aside(move || {
        // SAFETY: populating a range changes no contents; the kernel checks the range.
        let touch = || unsafe {
            libc::syscall(libc::SYS_madvise, start, len, libc::MADV_POPULATE_READ) == 0
        };
        mapping::lock(start, len, (!on_fault).then_some(touch))
    });
    Some(status(result))
}

#[unsafe(no_mangle)]
extern "C" fn mlock(at: *const c_void, len: usize) -> c_int {
    pin(at, len)
}

/// `mlock` by this object, as [`unmap`].
pub(crate) fn pin(at: *const c_void, len: usize) -> c_int {
    lock(at, len, 0).unwrap_or_else(|| {
        // SAFETY: `mlock` pins pages and changes no contents; the kernel checks the range. The guard catches what is managed.
        unsafe { libc::syscall(libc::SYS_mlock, at, len) as c_int }
    })
}

#[unsafe(no_mangle)]
extern "C" fn mlock2(at: *const c_void, len: usize, flags: c_int) -> c_int {
    lock(at, len, flags).unwrap_or_else(|| {
        // SAFETY: as `mlock`, at once or when pages are touched.
        unsafe { libc::syscall(libc::SYS_mlock2, at, len, flags) as c_int }
    })
}

#[unsafe(no_mangle)]
extern "C" fn munlock(at: *const c_void, len: usize) -> c_int {
    unpin(at, len)
}

/// `munlock` by this object, as [`unmap`].
pub(crate) fn unpin(at: *const c_void, len: usize) -> c_int {
    if !passes()
        && let Some((start, len)) = mapping::managed_pages(at as usize, len)
    {
        return status(aside(move || mapping::unlock(start, len)));
    }
    // SAFETY: `munlock` changes no contents; the kernel checks the range. The guard catches what is managed.
    unsafe { libc::syscall(libc::SYS_munlock, at, len) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn munlockall() -> c_int {
    if !passes() {
        aside(mapping::unlock_all);
    }
    // SAFETY: it takes no pointer, and changes no contents.
    unsafe { libc::syscall(libc::SYS_munlockall) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn mlockall(flags: c_int) -> c_int {
    if !for_pager() {
        return status(Err(Errno::NOMEM));
    }
    // SAFETY: it takes no pointer, and changes no contents.
    unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int }
}
