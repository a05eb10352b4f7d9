//! `flashvm trace record`: runs a program under Valgrind's lackey and keeps the references that pass the
//! filter.
//!
//! Every process connects to the recorder's socket (Valgrind's `--log-socket`) when it executes a program:
//! lines of different processes never mix, and each process is an address space of its own in the trace. All
//! share the caches, as on one CPU. A child is silent between fork and exec. The program stays in the
//! terminal's foreground group: signals of the terminal reach it directly, and the trace ends with it.

use super::args::RecordArgs;
use super::output::Output;
use super::pipeline::{Pipeline, Wanted};
use crate::cli::outcome::End;
use crate::cli::refusal::Refusal;
use crate::cli::supervise::{go_on, reap};
use crate::cli::sys::{self, Signals};
use crate::cli::units::{Size, count};
use flashvm_live::program::{Refused, locate};
use flashvm_sim::trace::{Granularity, Kind, LackeyLine, Provenance, Reference, SPACE_BITS};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Interval of progress updates.
const LOOK: Duration = Duration::from_millis(250);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes read at a time from one process: the grain of their interleaving.
const TURN_BYTES: usize = 64 * 1024;
/// Longest plausible line of lackey.
const LINE_BYTES_MAX: usize = 4096;

#[derive(Serialize)]
struct RecordReport {
    trace: String,
    references_seen: u64,
    references: u64,
    processes: u64,
    bytes: u64,
}

pub(super) fn record(args: &RecordArgs) -> Result<ExitCode, Refusal> {
    let (name, program_args) = args.program.split_first().expect("clap asks for one");
    let program = locate(name)?;
    let valgrind = locate(OsStr::new("valgrind")).map_err(|refused| match refused {
        Refused::NotFound(_) => {
            Refusal::new("valgrind is not in $PATH: install it (Debian: apt install valgrind)")
        }
        other => other.into(),
    })?;
    let wanted = Wanted {
        caches: (!args.no_filter).then(|| args.caches.options()),
        data: false,
        pages: args.pages,
        skip: 0,
        take: args.references,
    };
    let provenance = Provenance {
        source: source(&args.program),
        steps: wanted.steps(),
        shard_bits: 0,
    };
    let pipeline = Pipeline::new(wanted, Granularity::Bytes)?;
    let output = Output::create(&args.output, pipeline.granularity(), &provenance)?;
    let refuse = |e: std::io::Error| {
        Refusal::new(format!(
            "cannot open a socket for valgrind: {e}: allow loopback connections"
        ))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refuse)?;
    listener.set_nonblocking(true).map_err(refuse)?;
    let address = listener.local_addr().map_err(refuse)?;
    let mut command = Command::new(valgrind);
    command
        .args([
            "-q",
            "--tool=lackey",
            "--trace-mem=yes",
            "--basic-counts=no",
        ])
        .args(["--trace-children=yes", "--child-silent-after-fork=yes"])
        .arg(format!("--log-socket={address}"))
        .arg(&program)
        .args(program_args);
    let cannot = |e: std::io::Error| Refusal::new(format!("valgrind: cannot be started: {e}"));
    let signals = Signals::take(&sys::SUPERVISED).map_err(cannot)?;
    signals.prepare(&mut command);
    let child = command.spawn().map_err(cannot)?;
    let mut recording = Recording {
        listener,
        processes: Vec::new(),
        started: 0,
        pipeline,
        output,
        full: false,
        asked: None,
    };
    let end = recording.run(&signals, Pid::from_child(&child))?;
    let Recording {
        pipeline,
        output,
        started,
        full,
        ..
    } = recording;
    let references = output.references();
    if references == 0 {
        eprintln!(
            "flashvm: {}: nothing was recorded: valgrind saw no reference of {}",
            args.output.display(),
            name.display()
        );
    } else {
        let bytes = output.finish()?;
        let report = RecordReport {
            trace: args.output.display().to_string(),
            references_seen: pipeline.seen(),
            references,
            processes: started,
            bytes,
        };
        if !args.quiet {
            eprintln!("{}", line(&report, args.json));
        }
    }
    Ok(match end {
        // The recorder ended it.
        End::Signalled(_) if full => ExitCode::SUCCESS,
        End::Exited(code) => ExitCode::from(code),
        End::Signalled(signal) => {
            sys::end_by(signal);
            ExitCode::from(128 + signal as u8)
        }
    })
}

fn line(report: &RecordReport, json: bool) -> String {
    if json {
        return serde_json::to_string(report).expect("numbers and a name");
    }
    format!(
        "flashvm: {}: {} of {} references, {} processes, {}",
        report.trace,
        count(report.references),
        count(report.references_seen),
        report.processes,
        Size(report.bytes)
    )
}

/// The program's command line and the recorder.
fn source(program: &[std::ffi::OsString]) -> String {
    let words = program.iter().map(|word| word.to_string_lossy());
    let words = Vec::from_iter(words).join(" ");
    // A provenance has at most 64 KiB.
    let words: String = words.chars().take(1000).collect();
    format!("{words} (valgrind --tool=lackey)")
}

/// One process, from an exec to the next or to its end.
struct TracedProcess {
    lines: TcpStream,
    /// The address bits of its space.
    space: u64,
    /// An incomplete line.
    rest: Vec<u8>,
    /// The process has ended.
    ended: bool,
}

struct Recording {
    listener: TcpListener,
    processes: Vec<TracedProcess>,
    /// Processes so far.
    started: u64,
    pipeline: Pipeline,
    output: Output,
    /// The recording is complete.
    full: bool,
    /// When the program got SIGTERM.
    asked: Option<Instant>,
}

impl Recording {
    /// Records until the program and its children have ended.
    fn run(&mut self, signals: &Signals, program: Pid) -> Result<End, Refusal> {
        let bar = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("recording {msg}, {elapsed}").expect("a valid template"),
        );
        let mut end = None;
        let mut buffer = vec![0; TURN_BYTES];
        loop {
            while let Some(received) = signals.next() {
                match received.number {
                    libc::SIGCHLD => {}
                    libc::SIGCONT => go_on(program, end.is_none()),
                    _ if end.is_some() => return Ok(end.expect("it has ended")),
                    _ if received.from_terminal => {}
                    signal => sys::send(program, signal),
                }
            }
            let running = reap(program, &mut end);
            self.accept()?;
            for at in 0..self.processes.len() {
                self.turn(at, &mut buffer)?;
            }
            self.processes.retain(|process| !process.ended);
            if self.full && end.is_none() {
                self.end(program);
            }
            // Read all further lines: without a reader lackey would write them elsewhere.
            if !running && self.processes.is_empty() {
                bar.finish_and_clear();
                return Ok(end.unwrap_or(End::Exited(1)));
            }
            bar.set_message(format!(
                "{} of {} references, {} processes",
                count(self.output.references()),
                count(self.pipeline.seen()),
                self.started
            ));
            self.wait(signals);
        }
    }

    /// Sends the program SIGTERM, after [`GRACE`] SIGKILL.
    fn end(&mut self, program: Pid) {
        match self.asked {
            None => {
                sys::send(program, libc::SIGTERM);
                self.asked = Some(Instant::now());
            }
            Some(asked) if asked.elapsed() > GRACE => sys::send(program, libc::SIGKILL),
            Some(_) => {}
        }
    }

    fn accept(&mut self) -> Result<(), Refusal> {
        let refuse = |e: std::io::Error| {
            Refusal::new(format!("a process of the program: {e}: record it again"))
        };
        loop {
            match self.listener.accept() {
                Ok((lines, _)) => {
                    lines.set_nonblocking(true).map_err(refuse)?;
                    self.processes.push(TracedProcess {
                        lines,
                        space: self.started << SPACE_BITS,
                        rest: Vec::new(),
                        ended: false,
                    });
                    self.started += 1;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(());
                }
                Err(e) => return Err(refuse(e)),
            }
        }
    }

    /// Reads from one process, at most [`TURN_BYTES`].
    fn turn(&mut self, at: usize, buffer: &mut [u8]) -> Result<(), Refusal> {
        let process = &mut self.processes[at];
        let bytes = match process.lines.read(buffer) {
            Ok(0) => {
                process.ended = true;
                return Ok(());
            }
            Ok(count) => &buffer[..count],
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            // Killed in the middle of a line.
            Err(_) => {
                process.ended = true;
                return Ok(());
            }
        };
        if self.full {
            return Ok(());
        }
        let space = process.space;
        let mut rest = std::mem::take(&mut process.rest);
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
        if !rest.is_empty() {
            rest.extend_from_slice(lines.next().unwrap_or_default());
            if rest.last() != Some(&b'\n') {
                if rest.len() > LINE_BYTES_MAX {
                    rest.clear();
                }
                self.processes[at].rest = rest;
                return Ok(());
            }
            self.line(&rest, space)?;
            rest.clear();
        }
        for line in lines {
            if line.last() == Some(&b'\n') {
                self.line(line, space)?;
            } else {
                rest.extend_from_slice(line);
            }
        }
        self.processes[at].rest = rest;
        Ok(())
    }

    /// Lines other than references are Valgrind's messages.
    #[inline]
    fn line(&mut self, line: &[u8], space: u64) -> Result<(), Refusal> {
        match LackeyLine::of(line) {
            Some(LackeyLine::One(reference)) => self.feed(reference, space),
            Some(LackeyLine::Modify { address, bytes }) => {
                let load = Reference {
                    address,
                    bytes,
                    kind: Kind::Read,
                };
                self.feed(load, space)?;
                let store = Reference {
                    kind: Kind::Write,
                    ..load
                };
                self.feed(store, space)
            }
            Some(LackeyLine::Remark) | None => Ok(()),
        }
    }

    #[inline]
    fn feed(&mut self, reference: Reference, space: u64) -> Result<(), Refusal> {
        if self.full {
            return Ok(());
        }
        let reference = Reference {
            address: reference.address | space,
            ..reference
        };
        self.full = !self.pipeline.feed(reference, &mut self.output)?;
        Ok(())
    }

    /// Sleeps until there is a signal or a line.
    fn wait(&self, signals: &Signals) {
        let signal_fd = signals.fd();
        let mut fds = vec![
            PollFd::from_borrowed_fd(signal_fd, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        fds.extend(
            self.processes
                .iter()
                .map(|process| PollFd::new(&process.lines, PollFlags::IN)),
        );
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.as_nanos() as _,
        };
        // Interrupted or failed: the next round checks everything.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
