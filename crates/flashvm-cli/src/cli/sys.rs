//! What no safe interface offers the supervisor: signals as a descriptor, a child with the original signal
//! mask, ending by a given signal, the bytes of the carried object.
//!
//! Safety argument of the module: the supervisor has one thread, so nobody else uses the signal mask; the
//! closure between fork and exec only makes system calls; the object's bytes are part of the command and never change.
#![allow(
    unsafe_code,
    reason = "the only home of unsafe code in the command; the argument is above"
)]

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, Signal};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that the supervisor handles.
pub(crate) const SUPERVISED: [i32; 10] = [
    libc::SIGCHLD,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// A signal that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Its number.
    pub(crate) number: i32,
    /// The kernel sent it for the terminal: the program got it too.
    pub(crate) from_terminal: bool,
}

/// The signals of this process, blocked and readable from a descriptor.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
    mask_before: libc::sigset_t,
}

impl Signals {
    /// Blocks these signals.
    pub(crate) fn take(signals: &[i32]) -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that it is given, and fails for no set.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: `set` is initialised; sigaddset fails for a number that is no signal.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        let mut mask_before = set;
        // SAFETY: both sets are initialised and outlive the call.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut mask_before) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, mask_before })
    }

    /// Becomes readable when a signal has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal that has arrived.
    pub(crate) fn next(&self) -> Option<Received> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut info);
        let word =
            |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        (read == Ok(info.len())).then(|| Received {
            number: word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo)),
            from_terminal: word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_code))
                == libc::SI_KERNEL,
        })
    }

    /// Gives a command the signal mask that this process started with, and ends it together with this process.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let mask = self.mask_before;
        let supervisor = rustix::process::getpid();
        let before_exec = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(supervisor) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            // SAFETY: `mask` was filled by sigprocmask and belongs to the closure.
            if unsafe {
                libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut())
            } != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: the closure makes three system calls; it neither allocates nor locks.
        unsafe { command.pre_exec(before_exec) };
    }
}

/// Ends this process by `signal`, as its program ended, without a core dump. Returns only if the signal does
/// not end a process.
pub(crate) fn end_by(signal: i32) {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Without the limit a second core file may appear: no reason to stay.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: SIG_DFL is no handler; a set for one signal is initialised before its use.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
    send(rustix::process::getpid(), signal);
}

/// Sends any signal, real-time signals included.
pub(crate) fn send(to: Pid, signal: i32) {
    // SAFETY: kill takes two numbers. An ended process is no error here.
    unsafe { libc::kill(to.as_raw_nonzero().get(), signal) };
}

#[cfg(not(feature = "external-preload"))]
std::arch::global_asm!(
    ".pushsection .rodata.flashvm_object, \"a\"",
    ".globl flashvm_object, flashvm_object_end",
    ".hidden flashvm_object, flashvm_object_end",
    "flashvm_object:",
    concat!(".incbin \"", env!("FLASHVM_OBJECT"), "\""),
    "flashvm_object_end:",
    ".popsection",
    options(raw)
);

/// The preloaded object, as it was built with the command. The assembler reads it, not `include_bytes!`: a check of
/// the code builds no object.
#[cfg(not(feature = "external-preload"))]
pub(crate) fn carried_object() -> &'static [u8] {
    unsafe extern "C" {
        static flashvm_object: u8;
        static flashvm_object_end: u8;
    }
    let (start, end) = (&raw const flashvm_object, &raw const flashvm_object_end);
    // SAFETY: both labels delimit the bytes that the assembler put between them, which nothing writes to.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

/// Whether the kernel maps code from a file.
#[cfg(not(feature = "external-preload"))]
pub(crate) fn try_to_map_code(file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    const PAGE: usize = 4096;
    let wanted = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the kernel chooses the place; the mapping is private, is never used, and is removed at once.
    unsafe {
        let at = mmap(
            std::ptr::null_mut(),
            PAGE,
            wanted,
            MapFlags::PRIVATE,
            file,
            0,
        )?;
        munmap(at, PAGE)
    }
}
