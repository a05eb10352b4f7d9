//! `mmap` and its kin: large anonymous mappings are managed memory, the rest is the kernel's.

use super::{for_pager, pager, set_errno, status};
use flashvm_core::{Advice, PAGE_SIZE};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::ffi::{c_int, c_long, c_void};

/// Anonymous mappings of this size and more are managed.
const MANAGED_BYTES: usize = 64 << 10;
/// Flags that only the kernel's own memory can honour.
const KERNEL_ONLY: c_int =
    libc::MAP_SHARED | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_32BIT;

/// The system call, past all library symbols.
fn raw_mmap(
    address: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> Result<usize, Errno> {
    // SAFETY: passes on what the program asked of `mmap`.
    let result = unsafe { libc::syscall(libc::SYS_mmap, address, len, prot, flags, fd, offset) };
    if result == -1 {
        Err(errno())
    } else {
        Ok(result as usize)
    }
}

fn errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

/// Whether a range is managed memory, at least in part.
fn is_managed(address: *mut c_void, len: usize) -> bool {
    !for_pager() && pager().manages(address as usize, len)
}

#[unsafe(no_mangle)]
extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    match map(address, len, prot, flags, fd, offset) {
        Ok(address) => address as *mut c_void,
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    mmap(address, len, prot, flags, fd, offset)
}

fn map(
    address: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> Result<usize, Errno> {
    let kernel = || raw_mmap(address, len, prot, flags, fd, offset);
    if for_pager() {
        return kernel();
    }
    let at = address as usize;
    let ours = flags & libc::MAP_ANONYMOUS != 0 && flags & KERNEL_ONLY == 0;
    let prot_flags = ProtFlags::from_bits_retain(prot as u32);
    let commit = prot & libc::PROT_WRITE != 0 && flags & libc::MAP_NORESERVE == 0;
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if fixed {
        if !pager().manages(at, len) {
            return kernel();
        }
        if flags & libc::MAP_FIXED == 0 {
            // The reservation of the managed range counts as taken.
            return Err(Errno::EXIST);
        }
        if ours {
            return pager().map_over(at, len, prot_flags, commit).map(|()| at);
        }
        return pager().map_foreign(at, len, kernel);
    }
    if ours && len >= MANAGED_BYTES {
        return pager().map(len, prot_flags, commit);
    }
    kernel()
}

#[unsafe(no_mangle)]
extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    if is_managed(address, len) {
        return status(pager().unmap(address as usize, len));
    }
    // SAFETY: passes on what the program asked for.
    unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn mprotect(address: *mut c_void, len: usize, prot: c_int) -> c_int {
    if is_managed(address, len) && len > 0 {
        let flags = MprotectFlags::from_bits_retain(prot as u32);
        return status(pager().protect(address as usize, len, flags));
    }
    // SAFETY: passes on what the program asked for.
    unsafe { libc::syscall(libc::SYS_mprotect, address, len, prot) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn madvise(address: *mut c_void, len: usize, advice: c_int) -> c_int {
    if is_managed(address, len) && len > 0 {
        let at = address as usize;
        match advice {
            // A page that is freed lazily reads as its old contents or as zeros; zeros it is.
            libc::MADV_DONTNEED | libc::MADV_FREE => {
                return status(pager().discard_contents(at, len));
            }
            libc::MADV_WILLNEED => return status(pager().advise(at, len, Advice::WillNeed)),
            libc::MADV_COLD => return status(pager().advise(at, len, Advice::Cold)),
            libc::MADV_PAGEOUT => return status(pager().advise(at, len, Advice::PageOut)),
            // Not in the way of anything, and pages are small here.
            libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE | libc::MADV_MERGEABLE => return 0,
            // The child's copy of the page table would not know of these.
            libc::MADV_WIPEONFORK | libc::MADV_DONTFORK => return status(Err(Errno::INVAL)),
            _ => {}
        }
    }
    // SAFETY: passes on what the program asked for.
    unsafe { libc::syscall(libc::SYS_madvise, address, len, advice) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn posix_madvise(address: *mut c_void, len: usize, advice: c_int) -> c_int {
    // POSIX_MADV_DONTNEED must not lose contents: it says nothing of use to us.
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    super::keeping_errno(|| {
        if madvise(address, len, advice) == 0 {
            0
        } else {
            libc::EINVAL
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn mremap(
    address: *mut c_void,
    len: usize,
    new_len: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    if is_managed(address, len.max(1)) {
        let to = fixed.then_some(new_address as usize);
        let may_move = flags & libc::MREMAP_MAYMOVE != 0;
        let result = if new_len == 0 || len == 0 || flags & libc::MREMAP_DONTUNMAP != 0 {
            Err(Errno::INVAL)
        } else if fixed && !pager().manages(new_address as usize, new_len) {
            pager().move_out(address as usize, len, new_address as usize, new_len)
        } else {
            pager().remap(address as usize, len, new_len, may_move, to)
        };
        return match result {
            Ok(address) => address as *mut c_void,
            Err(error) => {
                set_errno(error);
                libc::MAP_FAILED
            }
        };
    }
    if fixed && is_managed(new_address, new_len) {
        let moved = pager().map_foreign(new_address as usize, new_len, || {
            raw_mremap(address, len, new_len, flags, new_address)
        });
        return match moved {
            Ok(address) => address as *mut c_void,
            Err(error) => {
                set_errno(error);
                libc::MAP_FAILED
            }
        };
    }
    match raw_mremap(address, len, new_len, flags, new_address) {
        Ok(address) => address as *mut c_void,
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

fn raw_mremap(
    address: *mut c_void,
    len: usize,
    new_len: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> Result<usize, Errno> {
    // SAFETY: passes on what the program asked of `mremap`.
    let result =
        unsafe { libc::syscall(libc::SYS_mremap, address, len, new_len, flags, new_address) };
    if result == -1 {
        Err(errno())
    } else {
        Ok(result as usize)
    }
}

/// Memory that a program locks must not be paged, and the budget is there to page it: locking
/// fails as it does where the limit on locked memory is reached.
fn lock_refused(address: *const c_void, len: usize) -> bool {
    len > 0 && is_managed(address.cast_mut(), len.next_multiple_of(PAGE_SIZE))
}

#[unsafe(no_mangle)]
extern "C" fn mlock(address: *const c_void, len: usize) -> c_int {
    if lock_refused(address, len) {
        return status(Err(Errno::NOMEM));
    }
    // SAFETY: passes on what the program asked for.
    unsafe { libc::syscall(libc::SYS_mlock, address, len) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn mlock2(address: *const c_void, len: usize, flags: c_int) -> c_int {
    if lock_refused(address, len) {
        return status(Err(Errno::NOMEM));
    }
    // SAFETY: passes on what the program asked for.
    unsafe { libc::syscall(libc::SYS_mlock2, address, len, flags) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn mlockall(flags: c_int) -> c_int {
    if !for_pager() {
        return status(Err(Errno::NOMEM));
    }
    // SAFETY: passes on what the program asked for.
    unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int }
}
