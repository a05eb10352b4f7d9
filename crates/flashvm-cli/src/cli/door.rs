//! The door of a run without a program of its own: how processes that run already come in.
//!
//! The supervisor says on standard output where processes join, and closes the run to others when its standard input has ended. A
//! library keeps the other end open, and so do the children that its process forks. It keeps standard error, for what it
//! has to say later.
//!
//! Only handler mode can take in a process that runs: inline and protect mode catch system calls by Syscall User
//! Dispatch, which a thread can ask for itself alone (`prctl(2)`, `PR_SET_SYSCALL_USER_DISPATCH`).

use super::options::{FaultMode, RunOptions, WhichMemory};
use super::refusal::Refusal;
use super::sys::Ready;
use flashvm_live::control::RunAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use std::io::{self, Write};
use std::path::Path;

/// The options, as far as a process that runs can have them.
pub(super) fn options_of(mut options: RunOptions) -> Result<RunOptions, Refusal> {
    if options
        .select
        .is_some_and(|select| select != WhichMemory::Api)
    {
        return Err(Refusal::new(
            "--select: a process that runs already has its other memory: leave it out, it is api",
        ));
    }
    if !matches!(
        options.fault,
        None | Some(FaultMode::Auto | FaultMode::Handler)
    ) {
        return Err(Refusal::new(
            "--fault: inline and protect mode hold only for threads that start under them: leave it out, or start the \
             program with flashvm run",
        ));
    }
    options.select = Some(WhichMemory::Api);
    options.fault = Some(FaultMode::Handler);
    Ok(options)
}

/// Why handler mode does not work here, with the other way.
pub(super) fn forbidden(why: Refusal) -> Refusal {
    let why = why.renamed(&[(", or use --fault inline", "")]);
    Refusal::new(format!(
        "{why}, or start the program with flashvm run, which needs no privilege"
    ))
}

/// What is told to processes that join.
pub(crate) struct Door {
    lines: String,
    ready: Ready,
}

impl Door {
    /// `object`: the path of the object that they load.
    pub(super) fn new(object: &Path, address: &RunAddress, ready: Ready) -> Self {
        Self {
            lines: format!("{}\n{address}\n", object.display()),
            ready,
        }
    }

    /// Tells it, and lets go of standard output: its reader sees the end.
    pub(super) fn open(self) -> io::Result<OpenDoor> {
        let mut out = io::stdout();
        out.write_all(self.lines.as_bytes())?;
        out.flush()?;
        let nothing = rustix::fs::open("/dev/null", OFlags::WRONLY, Mode::empty())?;
        rustix::stdio::dup2_stdout(nothing)?;
        self.ready.tell()?;
        Ok(OpenDoor(()))
    }
}

/// Standard input, whose end closes the run to others.
pub(crate) struct OpenDoor(());

impl OpenDoor {
    /// Becomes readable at the end.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdin()
    }

    /// Whether the end has come. Bytes before it mean nothing.
    pub(super) fn is_closed(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let stdin = io::stdin();
        let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&now)) != Ok(1) {
            return false;
        }
        matches!(rustix::io::read(&stdin, &mut [0_u8; 256]), Ok(0) | Err(_))
    }
}
