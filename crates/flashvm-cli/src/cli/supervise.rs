//! The life of a run. The supervisor starts the program, passes signals on, stops and continues with the program, and
//! reaps the run's processes. `run` then ends as the program ended.
//!
//! The program stays in the terminal's foreground group with the supervisor, so that job control works. Signals of
//! the terminal reach the program directly; the supervisor passes on only signals that were sent to itself.
//! Processes that outlive the program keep their memory: the supervisor, and with it the store and the control region,
//! lives until the last of them ends.

use super::door::{Door, OpenDoor};
use super::metrics::Metrics;
use super::modelled::{Attendant, Attending};
use super::outcome::{End, Outcome, Records};
use super::progress::Progress;
use super::run_report::Watch;
use super::sys::{self, Received, Signals};
use flashvm_live::control::{Control, Reaper};
use flashvm_live::{MirrorAttendant, ProcessState, TierMover};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest interval between looks at the process slots; the shortest is a tenth of it.
const LOOK: Duration = Duration::from_millis(250);

/// Threads of the supervisor that serve the processes of a run, before they begin.
pub(crate) struct Attendants {
    pub(crate) device: Option<Attendant>,
    pub(crate) mirror: Option<MirrorAttendant>,
    pub(crate) tier: Option<TierMover>,
}

/// How processes come into a run.
pub(crate) enum Start {
    /// The supervisor starts the first one.
    Program(Command),
    /// They run already, and join.
    Joining(Door),
}

/// Starts the program, or lets processes join, and waits until all processes of the run have ended.
///
/// # Errors
/// The program could not be started.
pub(crate) fn supervise(
    mut start: Start,
    control: Control,
    attendants: Attendants,
    mut progress: Option<Progress>,
    mut watch: Option<&mut Watch>,
    mut metrics: Option<Metrics>,
) -> std::io::Result<Outcome> {
    let signals = Signals::take(&sys::SUPERVISED)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    if let Start::Program(command) = &mut start {
        signals.prepare(command);
    }
    let device = attendants.device.map(Attendant::begin).transpose()?;
    let mirror = attendants.mirror.map(MirrorAttendant::begin).transpose()?;
    let tier = attendants.tier.map(TierMover::begin).transpose()?;
    metrics.as_mut().map_or(Ok(()), Metrics::begin)?;
    let started = Instant::now();
    let (program, mut door) = match start {
        Start::Program(mut command) => (Some(Pid::from_child(&command.spawn()?)), None),
        Start::Joining(door) => (None, Some(door.open()?)),
    };

    let mut reaper = Reaper::new(control);
    let mut records = Records::default();
    let mut end = None;
    let mut looked: Option<Instant> = None;
    loop {
        while let Some(received) = signals.next() {
            pass_on(received, program.filter(|_| end.is_none()), &reaper);
        }
        let is_over = match program {
            Some(program) => !reap(program, &mut end),
            None => door.is_none() && reaper.alive().is_empty(),
        };
        if is_over {
            break;
        }
        let now = Instant::now();
        // Before the reaper frees process slots: the journal names processes by them.
        if let Some(watch) = &mut watch {
            watch.look(now.duration_since(started), &records, || reaper.alive());
        }
        if looked.is_none_or(|looked| now.duration_since(looked) >= LOOK / 10) {
            records.extend(reaper.look(now));
            looked = Some(now);
        }
        if let Some(progress) = &mut progress {
            progress.show(now.duration_since(started), &records, &reaper.alive());
        }
        if let Some(metrics) = &mut metrics {
            metrics.look(now.duration_since(started), &records, || reaper.alive());
        }
        // The journal of a report is full soon.
        let every = if watch.is_some() { LOOK / 10 } else { LOOK };
        wait(&signals, &reaper, door.as_ref(), every);
        if door.as_ref().is_some_and(OpenDoor::is_closed) {
            // Whoever has joined before is seen by this look.
            records.extend(reaper.look(Instant::now()));
            door = None;
            end = Some(End::Exited(0));
        }
    }
    records.extend(reaper.remaining());
    if let Some(progress) = &mut progress {
        progress.finish();
    }
    if let Some(metrics) = &mut metrics {
        metrics.finish(&records);
    }
    if let Some(mirror) = mirror {
        mirror.end();
    }
    if let Some(tier) = tier {
        tier.end();
    }
    Ok(Outcome {
        end: end.unwrap_or(End::Exited(1)),
        records,
        elapsed: started.elapsed(),
        wear: device.and_then(Attending::end),
    })
}

/// Sleeps until a signal, the end of a process, or the next look.
fn wait(signals: &Signals, reaper: &Reaper, door: Option<&OpenDoor>, every: Duration) {
    let signal_fd = signals.fd();
    let mut fds = vec![PollFd::from_borrowed_fd(signal_fd, PollFlags::IN)];
    fds.extend(door.map(|door| PollFd::from_borrowed_fd(door.fd(), PollFlags::IN)));
    fds.extend(
        reaper
            .pidfds()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
    );
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: every.as_nanos() as _,
    };
    // Interrupted or failed: the next iteration checks everything anyway.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Passes on a signal that was sent to the supervisor alone. `program` is one that runs.
fn pass_on(received: Received, program: Option<Pid>, reaper: &Reaper) {
    match (received.number, program) {
        (libc::SIGCHLD, _) | (libc::SIGCONT, None) => {}
        (libc::SIGCONT, Some(program)) => go_on(program, true),
        _ if received.from_terminal => {}
        (signal, Some(program)) => sys::send(program, signal),
        // The program has ended, or there is none: signal the processes that are left.
        (signal, None) => {
            for record in reaper.alive() {
                if let Some(pid) = i32::try_from(record.pid).ok().and_then(Pid::from_raw) {
                    sys::send(pid, signal);
                }
            }
        }
    }
}

/// Continues the program if it is still stopped. A shell's SIGCONT reaches the whole group, so it usually is not.
pub(super) fn go_on(program: Pid, running: bool) {
    let pid = program.as_raw_nonzero().get().unsigned_abs();
    let is_stopped = ProcessState::of(pid).is_some_and(|state| state.letter == b'T');
    if running && is_stopped {
        sys::send(program, libc::SIGCONT);
    }
}

/// Reaps processes that have ended; `end` gets the program's. When the program stops, so does this process. False: no
/// child is left.
pub(super) fn reap(program: Pid, end: &mut Option<End>) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == program => {
                if status.stopped() {
                    sys::send(rustix::process::getpid(), libc::SIGSTOP);
                    go_on(program, true);
                } else if let Some(signal) = status.terminating_signal() {
                    *end = Some(End::Signalled(signal));
                } else if let Some(code) = status.exit_status() {
                    *end = Some(End::Exited(code as u8));
                }
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
