//! The life of a run. The supervisor starts the program, passes signals on, stops and continues with the program, and
//! reaps the run's processes. `run` then ends as the program ended.
//!
//! The program stays in the terminal's foreground group with the supervisor, so that job control works. Signals of
//! the terminal reach the program directly; the supervisor passes on only signals that were sent to itself.
//! Processes that outlive the program keep their memory: the supervisor, and with it the store and the control region,
//! lives until the last of them ends.

use super::modelled::{Attendant, Attending};
use super::progress::Progress;
use super::sys::{self, Received, Signals};
use flashvm::control::{Control, ProcessRecord, Reaper, StatsSnapshot};
use flashvm_sim::device::Wear;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest interval between looks at the process slots; the shortest is a tenth of it.
const LOOK: Duration = Duration::from_millis(250);
/// Processes with a record of their own; later ones are summed. Processes that the pager ended get a record up to
/// twice this number.
const RECORDS_MAX: usize = 1000;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Signalled(i32),
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How the program ended.
    pub(crate) end: End,
    /// The records of its processes, by time of their ends.
    pub(crate) records: Records,
    /// Wall time.
    pub(crate) elapsed: Duration,
    /// The device model's wear, if it has any.
    pub(crate) wear: Option<Wear>,
}

/// The records of all processes; bounded, as a run may have very many processes.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// One record for each process, see [`RECORDS_MAX`].
    pub(crate) single: Vec<ProcessRecord>,
    /// The sum of all other records, and their number.
    pub(crate) others: Option<(ProcessRecord, u64)>,
}

impl Records {
    fn extend(&mut self, records: Vec<ProcessRecord>) {
        for record in records {
            self.push(record);
        }
    }

    /// Adds a record. A process leaves a record at each `exec` and at its end: these become one, under its last name.
    fn push(&mut self, record: ProcessRecord) {
        if let Some(before) = self
            .single
            .iter_mut()
            .rfind(|before| before.pid == record.pid)
        {
            before.command = record.command;
            before.ended = record.ended.or(before.ended.take());
            before.refused = before.refused.take().or(record.refused);
            merge(&mut before.stats, &record.stats);
            before.stats.gauges = record.stats.gauges;
        } else if self.single.len() < RECORDS_MAX
            || record.ended.is_some() && self.single.len() < 2 * RECORDS_MAX
        {
            self.single.push(record);
        } else if let Some((sum, number)) = &mut self.others {
            merge(&mut sum.stats, &record.stats);
            *number += 1;
        } else {
            let command = "(others)".to_owned();
            self.others = Some((
                ProcessRecord {
                    pid: 0,
                    command,
                    ended: None,
                    refused: None,
                    ..record
                },
                1,
            ));
        }
    }

    /// All records, the sum last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ProcessRecord> {
        self.single
            .iter()
            .chain(self.others.iter().map(|(record, _)| record))
    }

    /// The number of processes.
    pub(crate) fn processes(&self) -> u64 {
        self.single.len() as u64 + self.others.as_ref().map_or(0, |(_, number)| *number)
    }
}

/// Adds `stats` to `sum`; of `resident_pages_max` the larger one remains.
fn merge(sum: &mut StatsSnapshot, stats: &StatsSnapshot) {
    let resident_pages_max = sum.resident_pages_max.max(stats.resident_pages_max);
    sum.add(stats);
    sum.resident_pages_max = resident_pages_max;
}

/// Starts `command` and waits until all processes of the run have ended.
///
/// # Errors
/// The program could not be started.
pub(crate) fn supervise(
    mut command: Command,
    control: Control,
    device: Option<Attendant>,
    mut progress: Option<Progress>,
) -> std::io::Result<Outcome> {
    let signals = Signals::take(&sys::SUPERVISED)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    signals.prepare(&mut command);
    let device = device.map(Attendant::begin).transpose()?;
    let started = Instant::now();
    let child = command.spawn()?;
    let program = Pid::from_child(&child);

    let mut reaper = Reaper::new(control);
    let mut records = Records::default();
    let mut end = None;
    let mut looked: Option<Instant> = None;
    loop {
        while let Some(received) = signals.next() {
            pass_on(received, program, end.is_none(), &reaper);
        }
        if !reap(program, &mut end) {
            break;
        }
        let now = Instant::now();
        if looked.is_none_or(|looked| now.duration_since(looked) >= LOOK / 10) {
            records.extend(reaper.look(now));
            looked = Some(now);
        }
        if let Some(progress) = &mut progress {
            progress.show(now.duration_since(started), &records, &reaper.alive());
        }
        wait(&signals, &reaper);
    }
    records.extend(reaper.alive());
    if let Some(progress) = &mut progress {
        progress.finish();
    }
    Ok(Outcome {
        end: end.unwrap_or(End::Exited(1)),
        records,
        elapsed: started.elapsed(),
        wear: device.and_then(Attending::end),
    })
}

/// Sleeps until a signal, the end of a process, or the next look.
fn wait(signals: &Signals, reaper: &Reaper) {
    let signal_fd = signals.fd();
    let mut fds = vec![PollFd::from_borrowed_fd(signal_fd, PollFlags::IN)];
    fds.extend(
        reaper
            .pidfds()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
    );
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as _,
    };
    // Interrupted or failed: the next iteration checks everything anyway.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Passes on a signal that was sent to the supervisor alone.
fn pass_on(received: Received, program: Pid, running: bool, reaper: &Reaper) {
    match received.number {
        libc::SIGCHLD => {}
        libc::SIGCONT => go_on(program, running),
        _ if received.from_terminal => {}
        signal if running => sys::send(program, signal),
        // The program has ended: signal the processes that it left behind.
        signal => {
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
    let stat =
        std::fs::read(format!("/proc/{}/stat", program.as_raw_nonzero())).unwrap_or_default();
    let state = stat
        .iter()
        .rposition(|b| *b == b')')
        .and_then(|at| stat.get(at + 2));
    if running && state == Some(&b'T') {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32, command: &str, resident_pages_max: u64) -> ProcessRecord {
        let stats = StatsSnapshot {
            faults_total: 1,
            resident_pages_max,
            ..StatsSnapshot::default()
        };
        ProcessRecord {
            pid,
            command: command.to_owned(),
            stats,
            ended: None,
            refused: None,
        }
    }

    #[test]
    fn a_process_is_one_record_across_exec() {
        let mut records = Records::default();
        records.extend(vec![
            record(7, "sh", 5),
            record(8, "sh", 1),
            record(7, "sort", 3),
        ]);
        assert_eq!(records.processes(), 2);
        let first = records.iter().next().expect("a record");
        assert_eq!((&*first.command, first.stats.faults_total), ("sort", 2));
        assert_eq!(first.stats.resident_pages_max, 5);
    }

    #[test]
    fn very_many_processes_are_summed() {
        let mut records = Records::default();
        let pids = 1..=RECORDS_MAX as u32 + 10;
        records.extend(pids.map(|pid| record(pid, "sh", 1)).collect());
        assert_eq!(records.processes(), RECORDS_MAX as u64 + 10);
        assert_eq!(records.iter().count(), RECORDS_MAX + 1);
        let last = records.iter().last().expect("a record");
        assert_eq!((&*last.command, last.stats.faults_total), ("(others)", 10));
    }
}
