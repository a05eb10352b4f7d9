//! The live view, a loop: it draws, then waits for a key, a signal, or the time of the next reading.

use super::Watch;
use super::reading::{Reading, Snapshot};
use super::rows::{RowId, rows};
use super::screen::Screen;
use super::state::{State, wish};
use super::view::{COLUMNS_MIN, LINES_MIN, Scene, draw};
use crate::cli::refusal::Refusal;
use crate::cli::sys::Signals;
use crossterm::event;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest wait for the first reading, so that a long interval does not leave the screen without rates.
const FIRST: Duration = Duration::from_millis(250);

/// Longest wait for the rest of a key, such as an arrow, that has begun to arrive. Not 0: then crossterm would read
/// nothing at all.
const PARSED: Duration = Duration::from_millis(1);

/// Signals that end the viewer.
const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];
/// Signals after which the screen is drawn again: a new size; the shell had the terminal.
const CHANGING: [i32; 2] = [libc::SIGWINCH, libc::SIGCONT];

/// Shows the runs until the user quits.
pub(super) fn live(mut watch: Watch, interval: Duration) -> Result<ExitCode, Refusal> {
    let size = crossterm::terminal::size().unwrap_or((0, 0));
    if size.0 < COLUMNS_MIN || size.1 < LINES_MIN {
        return Err(Refusal::new(format!(
            "top: the terminal has {} columns and {} lines: give it {COLUMNS_MIN} and {LINES_MIN}, or add --once",
            size.0, size.1
        )));
    }
    let broken = |e: io::Error| Refusal::new(format!("top: the terminal: {e}"));
    let signals = [ENDING.as_slice(), CHANGING.as_slice()].concat();
    let signals = Signals::take(&signals).map_err(broken)?;
    let terminal = io::stdout().as_fd().try_clone_to_owned().map_err(broken)?;
    let screen = Screen::take(File::from(terminal)).map_err(broken)?;
    let shown = show(&mut watch, interval, &signals, &screen);
    drop(screen);
    shown.map(|()| ExitCode::SUCCESS).map_err(broken)
}

/// What is on the screen.
struct Shown {
    before: Snapshot,
    reading: Reading,
    notices: Vec<String>,
}

impl Shown {
    fn begin(watch: &mut Watch) -> Self {
        let before = watch.snapshot();
        Self {
            reading: Reading::between(None, &before),
            notices: watch.notices(),
            before,
        }
    }

    fn read(&mut self, watch: &mut Watch) {
        let now = watch.snapshot();
        if watch.ended {
            // The last reading of the run stays on the screen.
            return;
        }
        self.reading = Reading::between(Some(&self.before), &now);
        self.notices = watch.notices();
        self.before = now;
    }

    fn rows(&self, state: &State) -> Vec<RowId> {
        let rows = rows(&self.reading, state.sort, state.reversed);
        rows.iter().map(|row| row.id).collect()
    }
}

fn show(
    watch: &mut Watch,
    interval: Duration,
    signals: &Signals,
    screen: &Screen,
) -> io::Result<()> {
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = watch.chosen.map_or_else(State::default, State::on);
    let mut shown = Shown::begin(watch);
    let mut next = Instant::now() + interval.min(FIRST);
    loop {
        state.follow(&shown.rows(&state));
        let scene = Scene {
            reading: &shown.reading,
            notices: &shown.notices,
            interval: interval.as_secs_f64(),
            ended: watch.ended,
            color,
        };
        terminal.draw(|frame| draw(frame, &scene, &state))?;
        let Some(has_keys) = wait(signals, next)? else {
            return Ok(());
        };
        while let Some(signal) = signals.next() {
            if ENDING.contains(&signal.number) {
                return Ok(());
            }
            if signal.number == libc::SIGCONT {
                screen.set_up()?;
                terminal.clear()?;
            }
        }
        while has_keys && event::poll(PARSED)? {
            let wish = wish(&event::read()?);
            let rows = shown.rows(&state);
            if wish.is_some_and(|wish| !state.fulfil(wish, &rows)) {
                return Ok(());
            }
        }
        if Instant::now() >= next {
            if !state.frozen {
                shown.read(watch);
            }
            next = Instant::now() + interval;
        }
    }
}

/// Sleeps until there is a key or a signal, or until `next`. Returns whether there are keys, `None` if the terminal
/// is gone.
fn wait(signals: &Signals, next: Instant) -> io::Result<Option<bool>> {
    let stdin = io::stdin();
    let (keys, signal_fd) = (stdin.as_fd(), signals.fd());
    let mut fds = [
        PollFd::from_borrowed_fd(keys, PollFlags::IN),
        PollFd::from_borrowed_fd(signal_fd, PollFlags::IN),
    ];
    let left = next.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let seen = fds[0].revents();
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok((!seen.intersects(gone)).then_some(seen.contains(PollFlags::IN)))
}
