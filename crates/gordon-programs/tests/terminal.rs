//! The editor under its real conditions: in a pseudo-terminal, with a screen that is read back.

#[path = "../../flashvm-cli/tests/support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;

use children::Bounded as _;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Terminal {
    master: File,
    slave: OwnedFd,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    editor: Child,
}

impl Terminal {
    /// Starts the editor on a heap, in a session of its own with this terminal.
    fn start(heap: &Path, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master)
            .and_then(|()| unlockpt(&master))
            .expect("ours");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
            .expect("its other side");
        let side = || Stdio::from(slave.try_clone().expect("a descriptor"));
        resize(&master, rows, columns);
        let editor = children::command("setsid")
            .arg("--ctty")
            .arg(env!("CARGO_BIN_EXE_gordon-editor"))
            .arg(heap)
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("setsid of util-linux");
        let master = File::from(master);
        let mut reader = master.try_clone().expect("a descriptor");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            master,
            slave,
            output,
            parser: vt100::Parser::new(rows.max(1), columns.max(1), 0),
            editor,
        }
    }

    fn keys(&mut self, keys: &str) {
        self.master
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    /// Waits until the screen satisfies `good`.
    #[track_caller]
    fn shows(&mut self, what: &str, mut good: impl FnMut(&vt100::Screen) -> bool) {
        let begun = Instant::now();
        while !good(self.parser.screen()) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!(
                        "no {what} on the screen:\n{}",
                        self.parser.screen().contents()
                    )
                }
            }
        }
    }

    /// Waits until these lines are at the top of the screen, with the cursor there.
    #[track_caller]
    fn shows_text(&mut self, lines: &[&str], cursor: (u16, u16)) {
        let columns = self.parser.screen().size().1;
        self.shows(&format!("{lines:?}"), |screen| {
            let rows: Vec<_> = screen.rows(0, columns).collect();
            let is_text = (0..rows.len() - 1)
                .all(|row| rows[row].trim_end() == lines.get(row).copied().unwrap_or(""));
            is_text && screen.cursor_position() == cursor && !screen.hide_cursor()
        });
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.parser.screen_mut().set_size(rows, columns);
        resize(&self.master, rows, columns);
    }

    /// Waits for the end of the editor.
    fn end(&mut self) -> ExitStatus {
        children::wait_for("the editor", &mut self.editor, PATIENCE)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.editor.kill();
        let _ = self.editor.wait();
    }
}

fn resize(terminal: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test")
}

#[test]
fn typing_undoing_and_going_on_after_a_kill() {
    let folder = folder();
    let heap = folder.path().join("heap");
    let mut terminal = Terminal::start(&heap, 10, 60);
    terminal.shows("status", |screen| screen.contents().contains("0 keys"));
    terminal.keys("hello w\u{f6}rld\rsecond lin\u{7f}ne");
    terminal.shows_text(&["hello w\u{f6}rld", "second line"], (1, 11));
    // Two keys, both undone; then up and to the start of the line, for two characters of two
    // columns each.
    terminal.keys("!?\u{1a}\u{1a}\u{1b}[A\u{1b}[H");
    terminal.shows_text(&["hello w\u{f6}rld", "second line"], (0, 0));
    terminal.keys("\u{65e5}\u{672c}");
    let lines = ["\u{65e5}\u{672c}hello w\u{f6}rld", "second line"];
    terminal.shows_text(&lines, (0, 4));
    let screen = terminal.parser.screen().contents();

    for _ in 0..3 {
        terminal.editor.kill().expect("alive until now");
        children::wait_for("the editor", &mut terminal.editor, PATIENCE);
        terminal = Terminal::start(&heap, 10, 60);
        terminal.shows_text(&lines, (0, 4));
        assert_eq!(
            terminal.parser.screen().contents(),
            screen,
            "exactly as it was"
        );
    }
    terminal.keys("\u{1a}\u{1a}\u{1a}");
    terminal.shows_text(&["hello w\u{f6}rld", "second line"], (0, 11));

    let is_raw = |terminal: &Terminal| {
        let modes = tcgetattr(&terminal.slave).expect("a terminal").local_modes;
        !modes.contains(LocalModes::ICANON)
    };
    assert!(is_raw(&terminal) && terminal.parser.screen().alternate_screen());
    terminal.keys("\u{11}");
    assert!(terminal.end().success());
    terminal.shows("end", |screen| !screen.alternate_screen());
    assert!(!is_raw(&terminal), "the terminal is as it was");
}

#[test]
fn sizes_of_all_kinds() {
    let folder = folder();
    let heap = folder.path().join("heap");
    let mut terminal = Terminal::start(&heap, 8, 40);
    terminal.shows("status", |screen| screen.contents().contains("0 keys"));
    terminal.keys("0123456789abcdefghij\rnext");
    terminal.shows_text(&["0123456789abcdefghij", "next"], (1, 4));
    // A line longer than the screen shows the part around the cursor.
    terminal.keys("\u{1b}[A\u{1b}[F");
    terminal.resize(5, 11);
    terminal.shows_text(&["abcdefghij", ""], (0, 10));
    for (rows, columns) in [(1, 1), (2, 2), (1, 40), (40, 1), (3, 200)] {
        terminal.resize(rows, columns);
        terminal.keys("+\u{1a}");
    }
    terminal.resize(8, 40);
    terminal.shows_text(&["0123456789abcdefghij", "next"], (0, 20));
    terminal.keys("\u{11}");
    assert!(terminal.end().success());

    // No size at all.
    let mut terminal = Terminal::start(&heap, 0, 0);
    terminal.parser.screen_mut().set_size(24, 80);
    terminal.shows_text(&["0123456789abcdefghij", "next"], (0, 20));
    terminal.keys("\u{11}");
    assert!(terminal.end().success());
}

#[test]
fn a_terminal_that_goes_away() {
    let folder = folder();
    let heap = folder.path().join("heap");
    let mut terminal = Terminal::start(&heap, 8, 40);
    terminal.shows("status", |screen| screen.contents().contains("0 keys"));
    terminal.keys("kept");
    terminal.shows_text(&["kept"], (0, 4));
    // Closing the terminal would not hang up, as the reading thread has a descriptor of it: send
    // the kernel's signal.
    let hang_up = children::command("kill")
        .args(["-HUP", &terminal.editor.id().to_string()])
        .status_in_time()
        .expect("kill");
    assert!(hang_up.success());
    terminal.end();
    let mut terminal = Terminal::start(&heap, 8, 40);
    terminal.shows_text(&["kept"], (0, 4));
}

#[test]
fn no_terminal_and_no_heap() {
    let folder = folder();
    let heap = folder.path().join("heap");
    for arguments in [&[][..], &["--text"]] {
        let output = children::command(env!("CARGO_BIN_EXE_gordon-editor"))
            .args(arguments)
            .arg(&heap)
            .output_in_time()
            .expect("the editor");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(
            line.starts_with("gordon-editor: ") && line.matches('\n').count() == 1,
            "{line:?}"
        );
        assert!(!heap.exists(), "nothing is left behind");
    }
}
