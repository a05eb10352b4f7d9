//! System calls made from this object's own text.
//!
//! The guard lets calls from here through and catches those from the C library's text. So code that
//! runs inside the guard, or with a lock of the pager held, calls the kernel from here; that also
//! leaves `errno`, which is the program's, unchanged.

use rustix::io::Errno;

/// Makes a system call. The result is the kernel's: `-4095..=-1` are negated error codes.
///
/// # Safety
/// The safety conditions of the system call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn syscall(number: i64, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers rcx and r11 and returns in rax; the caller guarantees the memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call. The result is the kernel's: `-4095..=-1` are negated error codes.
///
/// # Safety
/// The safety conditions of the system call.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn syscall(number: i64, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel keeps all registers but x0; the caller guarantees the memory.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// The kernel's result as a `Result`.
#[inline]
pub(crate) fn result(value: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&value) {
        Err(Errno::from_raw_os_error(-value as i32))
    } else {
        Ok(value as usize)
    }
}

/// An error as the kernel returns it.
#[inline]
pub(crate) fn failed(error: Errno) -> isize {
    -(error.raw_os_error() as isize)
}

/// The kernel's signal mask: bit `n - 1` for signal `n`.
pub(crate) type SignalMask = u64;

/// Replaces the thread's signal mask and returns the one before.
pub(crate) fn set_signal_mask(mask: SignalMask) -> SignalMask {
    let mut before: SignalMask = 0;
    // SAFETY: both masks live over the call and have the size given.
    unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as usize,
                &raw const mask as usize,
                &raw mut before as usize,
                size_of::<SignalMask>(),
                0,
                0,
            ],
        );
    }
    before
}
