//! What no safe interface offers the supervisor: signals as a descriptor, a child with the original signal
//! mask, going into the background, ending by a given signal, the bytes of the carried object.
//!
//! Safety argument of the module: only the main thread changes a signal mask. [`Signals::take`] runs before the
//! device model's thread starts, which inherits the mask, and [`end_by`] after that thread has ended. The closures
//! between fork and exec only make system calls. [`go_into_background`] runs while there is one thread. The object's
//! bytes are part of the command and never change.
#![allow(
    unsafe_code,
    reason = "the only home of unsafe code in the command; the argument is above"
)]

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, Signal, WaitOptions};
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

/// Signals that the kernel sends to a terminal's whole foreground group. It sends the end of a timer to this process
/// alone.
const FROM_TERMINAL: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP];

/// A signal that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) number: i32,
    /// The kernel sent it (SI_KERNEL), as for a key of the terminal: then the program got it too.
    pub(crate) from_terminal: bool,
}

/// The signals of this process, blocked and readable from a descriptor.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
    mask_before: libc::sigset_t,
}

impl Signals {
    /// Blocks `signals` in the calling thread, and makes a descriptor for them.
    pub(crate) fn take(signals: &[i32]) -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` has room for a sigset_t; sigemptyset initialises it and cannot fail.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: `set` is initialised; for a number that is no signal sigaddset leaves it unchanged.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        let mut mask_before = set;
        // SAFETY: both sets are locals that live through the call; it reads `set` and writes `mask_before`.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut mask_before) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `set` is initialised and lives through the call; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd has just opened this descriptor (not negative, checked above): nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, mask_before })
    }

    /// Becomes readable when a signal has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal that has arrived; `None`: there is none.
    pub(crate) fn next(&self) -> Option<Received> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut info);
        let word =
            |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        let number = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo));
        let code = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_code));
        (read == Ok(info.len())).then_some(Received {
            number,
            from_terminal: FROM_TERMINAL.contains(&number) && code == libc::SI_KERNEL,
        })
    }

    /// Gives a command the signal mask that this process had before `take`, and lets the kernel kill it when this
    /// process dies.
    pub(crate) fn prepare(&self, command: &mut Command) {
        die_with_this_process(command);
        let mask = self.mask_before;
        let before_exec = move || {
            // SAFETY: `mask` is the closure's own copy of the set that sigprocmask filled in `take`; a null pointer
            // asks for no old mask.
            if unsafe {
                libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut())
            } != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: the closure only makes a system call and an error from its error code: it neither allocates nor locks, so
        // another thread at the time of the fork does no harm.
        unsafe { command.pre_exec(before_exec) };
    }
}

/// Lets the kernel kill a command's process when the thread that starts it ends: at the latest with this process.
pub(crate) fn die_with_this_process(command: &mut Command) {
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        match rustix::process::getppid() {
            Some(now) if now == parent => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: as in `Signals::prepare`; the system calls are prctl and getppid.
    unsafe { command.pre_exec(before_exec) };
}

/// Where [`go_into_background`] returns.
pub(crate) enum Background {
    /// In the process that stays.
    Here(Ready),
    /// In the one that was started, when the other is ready or has ended: the exit code of this one.
    There(u8),
}

/// Tells the process that was started that it can end.
pub(crate) struct Ready(OwnedFd);

impl Ready {
    pub(crate) fn tell(self) -> io::Result<()> {
        rustix::io::write(&self.0, &[0])?;
        Ok(())
    }
}

/// Goes on in a child, in a session of its own. Call it before any thread is started.
pub(crate) fn go_into_background() -> io::Result<Background> {
    let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread, so its copy has everything that the program's code needs.
    let child = unsafe { libc::fork() };
    match Pid::from_raw(child) {
        _ if child < 0 => Err(io::Error::last_os_error()),
        None => {
            rustix::process::setsid()?;
            Ok(Background::Here(Ready(ours)))
        }
        Some(child) => {
            drop(ours);
            let told = rustix::io::retry_on_intr(|| rustix::io::read(&theirs, &mut [0_u8; 1]))?;
            if told == 1 {
                return Ok(Background::There(0));
            }
            let ended = rustix::process::waitpid(Some(child), WaitOptions::empty())?;
            let code = ended.and_then(|(_, status)| status.exit_status());
            Ok(Background::There(code.map_or(1, |code| code as u8)))
        }
    }
}

/// Ends this process by `signal`, as its program ended, without a core dump. Returns only if the default action of the
/// signal does not end a process.
pub(crate) fn end_by(signal: i32) {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // If the limit cannot be set, a second core file may appear: no reason not to end.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: SIG_DFL installs no code of ours; sigemptyset initialises `set` before the other calls use it, and `set`
    // lives through all of them.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
    send(rustix::process::getpid(), signal);
}

/// Sends any signal, real-time signals included. A process that has ended is no error.
pub(crate) fn send(to: Pid, signal: i32) {
    // SAFETY: kill takes two numbers and touches no memory of this process.
    unsafe { libc::kill(to.as_raw_nonzero().get(), signal) };
}

/// Whether the command's own file gave this process rights that its caller lacks: setuid, setgid or file capabilities.
pub(crate) fn has_rights_of_its_file() -> bool {
    // SAFETY: getauxval looks a number up in the auxiliary vector, which the kernel made; any key is allowed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
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

/// The preloaded object that was built with the command. The assembler includes it instead of `include_bytes!`, because
/// `cargo check` builds no object.
#[cfg(not(feature = "external-preload"))]
pub(crate) fn carried_object() -> &'static [u8] {
    unsafe extern "C" {
        static flashvm_object: u8;
        static flashvm_object_end: u8;
    }
    let (start, end) = (&raw const flashvm_object, &raw const flashvm_object_end);
    // SAFETY: the assembly above puts both labels around the object's bytes, in one read-only section: `start <= end`,
    // all bytes between are initialised, and nothing writes to them.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

/// Maps a page of a file as code, and unmaps it.
///
/// # Errors
/// The kernel refuses, as a security module or `noexec` may demand.
#[cfg(not(feature = "external-preload"))]
pub(crate) fn try_to_map_code(file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    const PAGE: usize = 4096;
    let wanted = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: without MAP_FIXED the kernel chooses a free place, so the new mapping replaces none; nobody accesses it,
    // and munmap removes this page only.
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
