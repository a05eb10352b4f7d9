//! The most frequent system calls. In inline and protect mode they go to the kernel from here, past the guard,
//! which would cost one to two microseconds. A call that fails because memory is not in RAM, or that cannot
//! be repeated, goes through the guard. In handler mode the C library makes them.

use crate::c_library::{keeping_errno, next, set_errno};
use crate::detour::detour;
use flashvm_live::guard::Sent;
use flashvm_live::program::descriptor_kind::{Kind, kind};
use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const EFAULT: isize = -(libc::EFAULT as isize);

/// Whether the calls go to the kernel from here.
static FROM_HERE: AtomicBool = AtomicBool::new(false);

/// From now on the calls go to the kernel from here, also those that the C library makes for itself. Called before the
/// pager has threads.
pub(crate) fn start() {
    FROM_HERE.store(true, Ordering::Relaxed);
    if is_single_threaded() {
        // SAFETY: no other thread runs. Both functions here do what the C library's do, and call them only in handler mode.
        unsafe {
            detour(c"read", read as *const () as usize);
            detour(c"write", write as *const () as usize);
        }
    }
}

// The address of the C library's flag, or null: glibc has it since 2.32. A weak reference keeps the object loadable before.
std::arch::global_asm!(
    ".weak __libc_single_threaded",
    ".pushsection .data.rel.ro.flashvm_single_threaded, \"aw\"",
    ".p2align 3",
    ".globl flashvm_single_threaded",
    ".hidden flashvm_single_threaded",
    "flashvm_single_threaded:",
    ".quad __libc_single_threaded",
    ".popsection",
);

unsafe extern "C" {
    static flashvm_single_threaded: *const u8;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

const ASYNCHRONOUS: c_int = 1;

/// Whether the C library says that there is one thread.
#[inline]
fn is_single_threaded() -> bool {
    // SAFETY: the dynamic linker has put the flag's address into the pointer, or null, and the C library keeps the flag.
    unsafe { flashvm_single_threaded.as_ref() }.is_some_and(|&flag| flag != 0)
}

/// Makes a call as a cancellation point, as in the C library.
#[inline]
fn cancellable<R>(make: impl FnOnce() -> R) -> R {
    if is_single_threaded() {
        return make();
    }
    // SAFETY: a cancellation between the two changes of the type leaves nothing to undo.
    unsafe {
        let mut before = 0;
        pthread_setcanceltype(ASYNCHRONOUS, &raw mut before);
        let result = make();
        pthread_setcanceltype(before, &raw mut before);
        result
    }
}

/// Makes a system call from this object's text.
///
/// # Safety
/// The arguments are valid as this system call demands.
#[inline]
unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees the arguments.
    cancellable(|| unsafe { flashvm_live::raw_call(number, args) })
}

/// Makes a system call that sends from this object's text.
///
/// # Safety
/// The arguments are valid as this system call demands.
#[inline]
unsafe fn send_call(number: c_long, [fd, a, b, c, ..]: [usize; 6]) -> Sent {
    // SAFETY: the caller guarantees the arguments.
    cancellable(|| unsafe { flashvm_live::guard::send(number, [fd, a, b, c]) })
}

/// Makes a system call through the guard, which brings absent memory in. Returns -1 with `errno` for an error.
///
/// # Safety
/// The arguments are valid as this system call demands.
#[cold]
unsafe fn guarded_call(number: c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller guarantees the arguments; the guard catches a call from the C library's text.
    cancellable(|| unsafe { libc::syscall(number, a, b, c, d, e, f) as isize })
}

/// Converts the kernel's result to the C library's: -1 and `errno` for an error.
#[inline]
fn answer(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        set_errno(Errno::from_raw_os_error(-result as i32));
        return -1;
    }
    result
}

#[inline]
fn is_managed(address: usize, len: usize) -> bool {
    flashvm_live::pager().is_some_and(|pager| pager.manages(address, len))
}

/// The direction of a transfer, which decides what happens if the transfer meets absent memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It sends: it may be repeated, and goes on until everything is sent.
    Send,
    /// It receives: the kind of the descriptor decides whether it may be repeated or go on.
    Receive,
}

/// A transfer between a descriptor (argument 0) and memory (arguments 1 and 2).
///
/// # Safety
/// The arguments are valid as this system call demands.
#[inline]
unsafe fn transfer(number: c_long, way: Way, args: [usize; 6], at_offset: bool) -> isize {
    let [fd, buffer, len, ..] = args;
    if !is_managed(buffer, len) {
        // SAFETY: the caller guarantees the arguments.
        return answer(unsafe { call(number, args) });
    }
    let kind = match way {
        Way::Send => Kind::File,
        Way::Receive => kind(fd as c_int),
    };
    // SAFETY: the caller guarantees the arguments.
    let guarded = || unsafe { guarded_call(number, args) };
    if kind == Kind::Consumed {
        return guarded();
    }
    let (done, interrupted) = match way {
        Way::Send => {
            // SAFETY: the caller guarantees the arguments.
            let sent = unsafe { send_call(number, args) };
            (sent.result, sent.is_interrupted())
        }
        // SAFETY: the caller guarantees the arguments.
        Way::Receive => (unsafe { call(number, args) }, false),
    };
    let next = buffer.wrapping_add(done as usize);
    if done == EFAULT {
        return guarded();
    }
    // The transfer may have stopped where memory was absent: transfer the rest. If a full buffer ended it, the kernel
    // refuses the rest. Whether the memory is in RAM now does not tell: pages come and go meanwhile.
    if done > 0
        && (done as usize) < len
        && kind == Kind::File
        && !interrupted
        && is_managed(next, 1)
    {
        let mut rest = args;
        (rest[1], rest[2]) = (next, len - done as usize);
        if at_offset {
            rest[3] += done as usize;
        }
        // SAFETY: `rest` names the part of the caller's memory that the first call has not reached.
        return keeping_errno(|| done + unsafe { guarded_call(number, rest) }.max(0));
    }
    answer(done)
}

/// A call that may be repeated after `EFAULT`.
///
/// # Safety
/// The arguments are valid as this system call demands.
#[inline]
unsafe fn repeatable(number: c_long, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees the arguments.
    match unsafe { call(number, args) } {
        // SAFETY: the caller guarantees the arguments, and the first call has done nothing.
        EFAULT => unsafe { guarded_call(number, args) },
        result => answer(result),
    }
}

/// Sends a message. The part that absent memory kept back follows, piece by piece.
///
/// # Safety
/// As for sendmsg(2).
unsafe fn send_message(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    let args = [fd as usize, message as usize, flags as usize, 0, 0, 0];
    // SAFETY: the caller guarantees what sendmsg(2) demands.
    let sent = unsafe { send_call(libc::SYS_sendmsg, args) };
    if sent.result == EFAULT {
        // SAFETY: the caller guarantees what sendmsg(2) demands, and the first call has sent nothing.
        return unsafe { guarded_call(libc::SYS_sendmsg, args) };
    }
    let mut done = sent.result;
    if done <= 0 || sent.is_interrupted() {
        return answer(done);
    }
    // SAFETY: the kernel has just read the program's structure and its vector: null for no parts.
    let parts = unsafe {
        let message = &*message;
        match message.msg_iovlen {
            0 => &[],
            len => std::slice::from_raw_parts(message.msg_iov, len),
        }
    };
    let mut skip = done as usize;
    for part in parts {
        let here = skip.min(part.iov_len);
        skip -= here;
        let (next, len) = (part.iov_base as usize + here, part.iov_len - here);
        if len == 0 {
            continue;
        }
        let rest = [fd as usize, next, len, flags as usize, 0, 0];
        // SAFETY: `rest` names a part of the message, which the caller keeps until this returns.
        let more = keeping_errno(|| unsafe { guarded_call(libc::SYS_sendto, rest) });
        done += more.max(0);
        if more < len as isize {
            break;
        }
    }
    done
}

/// Whether a message can be received past the guard: no part of it is lost if memory is absent.
///
/// # Safety
/// `message` is null or the address of a structure, as recvmsg(2) demands.
unsafe fn message_stays(fd: c_int, message: usize) -> bool {
    if kind(fd) != Kind::Stream || is_managed(message, size_of::<libc::msghdr>()) {
        return false;
    }
    let message = message as *const libc::msghdr;
    // SAFETY: the caller guarantees null or a structure. Its memory is not managed, as checked above, so that reading it is
    // no fault.
    message.is_null() || unsafe { (*message).msg_control.is_null() }
}

/// The address of the C library's function of this name; `cache` keeps it.
fn real(cache: &AtomicUsize, name: &CStr) -> usize {
    let mut known = cache.load(Ordering::Relaxed);
    if known == 0 {
        // SAFETY: a number may have any value; nothing is called here.
        known = unsafe { next::<usize>(name) };
        cache.store(known, Ordering::Relaxed);
    }
    known
}

/// Defines a symbol: past the guard, or the C library's in handler mode.
macro_rules! symbol {
    ($name:ident, $real:literal, ($($arg:ident: $kind:ty),*) -> $result:ty, $inline:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $result {
            if FROM_HERE.load(Ordering::Relaxed) {
                // SAFETY: the caller of this symbol guarantees what the call of its name demands.
                return unsafe { $inline } as $result;
            }
            static REAL: AtomicUsize = AtomicUsize::new(0);
            // SAFETY: the C library's function of this name has this type, and the caller guarantees what it demands.
            unsafe {
                let real: unsafe extern "C-unwind" fn($($kind),*) -> $result =
                    std::mem::transmute(real(&REAL, $real));
                real($($arg),*)
            }
        }
    };
}

symbol!(read, c"read", (fd: c_int, buffer: *mut c_void, len: usize) -> isize,
    transfer(libc::SYS_read, Way::Receive, [fd as usize, buffer as usize, len, 0, 0, 0], false));
symbol!(write, c"write", (fd: c_int, buffer: *const c_void, len: usize) -> isize,
    transfer(libc::SYS_write, Way::Send, [fd as usize, buffer as usize, len, 0, 0, 0], false));
symbol!(pread, c"pread", (fd: c_int, buffer: *mut c_void, len: usize, at: i64) -> isize,
    transfer(libc::SYS_pread64, Way::Receive, [fd as usize, buffer as usize, len, at as usize, 0, 0], true));
symbol!(pread64, c"pread64", (fd: c_int, buffer: *mut c_void, len: usize, at: i64) -> isize,
    transfer(libc::SYS_pread64, Way::Receive, [fd as usize, buffer as usize, len, at as usize, 0, 0], true));
symbol!(pwrite, c"pwrite", (fd: c_int, buffer: *const c_void, len: usize, at: i64) -> isize,
    transfer(libc::SYS_pwrite64, Way::Send, [fd as usize, buffer as usize, len, at as usize, 0, 0], true));
symbol!(pwrite64, c"pwrite64", (fd: c_int, buffer: *const c_void, len: usize, at: i64) -> isize,
    transfer(libc::SYS_pwrite64, Way::Send, [fd as usize, buffer as usize, len, at as usize, 0, 0], true));
symbol!(send, c"send", (fd: c_int, buffer: *const c_void, len: usize, flags: c_int) -> isize,
    transfer(libc::SYS_sendto, Way::Send, [fd as usize, buffer as usize, len, flags as usize, 0, 0], false));
symbol!(recv, c"recv", (fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> isize, {
    let args = [fd as usize, buffer as usize, len, flags as usize, 0, 0];
    if flags & libc::MSG_WAITALL != 0 && is_managed(buffer as usize, len) {
        // The receive must fill the buffer even where memory is absent.
        guarded_call(libc::SYS_recvfrom, args)
    } else {
        transfer(libc::SYS_recvfrom, Way::Receive, args, false)
    }
});
symbol!(sendmsg, c"sendmsg", (fd: c_int, message: *const c_void, flags: c_int) -> isize,
    send_message(fd, message.cast(), flags));
symbol!(recvmsg, c"recvmsg", (fd: c_int, message: *mut c_void, flags: c_int) -> isize, {
    let args = [fd as usize, message as usize, flags as usize, 0, 0, 0];
    if message_stays(fd, message as usize) {
        repeatable(libc::SYS_recvmsg, args)
    } else {
        guarded_call(libc::SYS_recvmsg, args)
    }
});
symbol!(poll, c"poll", (fds: *mut c_void, count: u64, timeout: c_int) -> c_int, {
    let args = [fds as usize, count as usize, timeout as usize, 0, 0, 0];
    // The kernel stores results after its wait: if it cannot, the wait would begin anew.
    if timeout > 0 && is_managed(fds as usize, count as usize * size_of::<libc::pollfd>()) {
        guarded_call(libc::SYS_poll, args)
    } else {
        repeatable(libc::SYS_poll, args)
    }
});
symbol!(epoll_wait, c"epoll_wait", (fd: c_int, events: *mut c_void, count: c_int, timeout: c_int) -> c_int,
    repeatable(libc::SYS_epoll_wait, [fd as usize, events as usize, count as usize, timeout as usize, 0, 0]));
