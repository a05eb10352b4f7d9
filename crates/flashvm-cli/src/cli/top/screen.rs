//! The terminal while it is ours: raw, with the alternate screen, without a cursor. Its former state is restored when
//! the viewer returns or panics; the message of a panic goes to the normal screen.

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io;
use std::sync::{Mutex, Once, PoisonError};

/// The terminal's former state, as long as the terminal is ours.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

struct Taken {
    terminal: File,
    before: Termios,
}

/// Gives the terminal back when dropped.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: File,
}

impl Screen {
    /// Takes a terminal: saves its state and sets it up.
    pub(super) fn take(terminal: File) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        let before = tcgetattr(&terminal)?;
        let taken = Taken {
            terminal: terminal.try_clone()?,
            before,
        };
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        let screen = Self { terminal };
        screen.set_up()?;
        Ok(screen)
    }

    /// Makes the terminal ours: at the start, and again after the shell had it.
    pub(super) fn set_up(&self) -> io::Result<()> {
        let mut raw = tcgetattr(&self.terminal)?;
        raw.make_raw();
        tcsetattr(&self.terminal, OptionalActions::Now, &raw)?;
        execute!(&self.terminal, EnterAlternateScreen, Hide)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal, if it is ours; a second call does nothing.
fn give_back() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Taken { terminal, before }) = taken {
        // Errors mean that the terminal is gone: nothing is left to restore.
        let _ = execute!(&terminal, LeaveAlternateScreen, Show);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::LocalModes;
    use std::io::Read as _;

    /// Whether the terminal is in its normal state: it reads whole lines, echoes, and sends signals.
    fn state(terminal: &File) -> bool {
        let modes = tcgetattr(terminal).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    #[test]
    fn a_terminal_is_given_back_also_by_a_panic() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let other = openpt(flags | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
        grantpt(&other).expect("access");
        unlockpt(&other).expect("access");
        let name = ptsname(&other, Vec::new()).expect("a name");
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let terminal = rustix::fs::open(&name, flags, rustix::fs::Mode::empty());
        let terminal = File::from(terminal.expect("the terminal"));
        assert!(state(&terminal));

        let screen = Screen::take(terminal.try_clone().expect("a copy")).expect("a terminal");
        assert!(!state(&terminal));
        drop(screen);
        assert!(state(&terminal));

        let copy = terminal.try_clone().expect("a copy");
        let panicked = std::panic::catch_unwind(|| {
            let _screen = Screen::take(copy).expect("a terminal");
            panic!("on purpose, to see what becomes of the terminal");
        });
        assert!(panicked.is_err() && state(&terminal));

        let (enter, leave) = ("\u{1b}[?1049h\u{1b}[?25l", "\u{1b}[?1049l\u{1b}[?25h");
        let expected = [enter, leave, enter, leave].concat();
        // The kernel passes output on in its own time: one read may return only a part.
        let mut written = vec![0; expected.len()];
        File::from(other)
            .read_exact(&mut written)
            .expect("what was written");
        assert_eq!(String::from_utf8_lossy(&written), expected);
    }
}
