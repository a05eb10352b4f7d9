//! In a real terminal: tmux draws the screen, and shows afterwards whether the terminal was
//! restored.

use super::support::Folder;
use super::support::children::{self, Bounded as _, wait_until};
use super::{Busy, FLASHVM, PATIENCE, has_program};
use std::fs;
use std::path::PathBuf;

/// A server of tmux with one shell in it.
struct Tmux {
    folder: Folder,
}

impl Tmux {
    /// A shell in a terminal of this size.
    fn start(width: u32, height: u32) -> Self {
        let tmux = Self {
            folder: Folder::new(),
        };
        tmux.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width.to_string(),
            "-y",
            &height.to_string(),
            "env PS1='$ ' TERM=screen /bin/sh",
        ]);
        tmux
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = children::command("tmux")
            .arg("-S")
            .arg("socket")
            .args(args)
            .current_dir(self.folder.path())
            .env_remove("TMUX")
            .output_in_time()
            .expect("tmux");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line into the shell.
    fn line(&self, line: &str) {
        self.keys(&["-l", line]);
        self.keys(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        wait_until(&format!("{what} on the screen"), PATIENCE, || {
            screen = self.screen();
            wanted(&screen)
        });
        screen
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// A file that a line of the shell writes.
    #[track_caller]
    fn written(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        let mut text = String::new();
        wait_until(name, PATIENCE, || {
            text = fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        fs::remove_file(path).expect("a file of the shell");
        text.trim().to_owned()
    }

    /// The settings of the terminal, which screen it shows, and whether it shows a cursor.
    fn state(&self) -> [String; 2] {
        self.line("stty -g >settings");
        let settings = self.written("settings");
        let format = "#{alternate_on} #{cursor_flag}";
        let screen = self.tmux(&["display-message", "-p", format]);
        [settings, screen.trim().to_owned()]
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let ended = children::command("tmux")
            .args(["-S", "socket", "kill-server"])
            .current_dir(self.folder.path())
            .env_remove("TMUX")
            .status_in_time();
        // An error means that the server is gone already.
        drop(ended);
    }
}

/// A run and a terminal, unless the machine lacks something.
fn both(test: &str) -> Option<(Busy, Tmux)> {
    if !has_program(test, "tmux") {
        return None;
    }
    let busy = Busy::start(test, &[])?;
    Some((busy, Tmux::start(80, 24)))
}

#[test]
fn every_key() {
    let Some((busy, tmux)) = both("every_key") else {
        return;
    };
    let before = tmux.state();
    assert_eq!(before[1], "0 1");
    tmux.line(&format!(
        "{FLASHVM} top --interval 0.2 {}; echo $? >code",
        busy.pid()
    ));
    let has_rates = |screen: &str| {
        let row = screen.lines().find(|line| line.contains("run of 1"));
        row.is_some_and(|row| {
            row.split_ascii_whitespace()
                .nth(5)
                .is_some_and(|n| n != "0")
        })
    };
    let screen = tmux.wait("rates", has_rates);
    assert!(
        screen.contains("by FAULT/s") && screen.contains("of 16 MiB"),
        "{screen}"
    );
    assert!(
        screen.contains("python3") && screen.contains("q quit"),
        "{screen}"
    );
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    assert_eq!(screen.lines().count(), 24, "{screen}");

    tmux.keys(&["s"]);
    tmux.wait_for("by MAJOR/s");
    tmux.keys(&["r"]);
    tmux.wait_for("by MAJOR/s, reversed");
    tmux.keys(&["f"]);
    tmux.wait_for("FROZEN");
    tmux.keys(&["Space"]);
    tmux.wait("no longer frozen", |screen| !screen.contains("FROZEN"));
    let chosen = |screen: &str, word: &str| {
        let row = screen.lines().find(|line| line.starts_with('>'));
        row.is_some_and(|row| row.contains(word))
    };
    tmux.wait("the run", |screen| chosen(screen, "run of 1"));
    tmux.keys(&["Down"]);
    tmux.wait("the process", |screen| chosen(screen, "python3"));
    tmux.keys(&["k"]);
    tmux.wait("the run", |screen| chosen(screen, "run of 1"));
    let colored = tmux.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!colors(&colored).is_empty(), "{colored:?}");
    tmux.keys(&["j", "Enter"]);
    let screen = tmux.wait_for(&format!("of run {}: ", busy.pid()));
    for text in ["python3", "from flash", "up to"] {
        assert!(screen.contains(text), "{screen}");
    }
    tmux.keys(&["?"]);
    tmux.wait_for("the runs go on");
    tmux.keys(&["Escape"]);
    tmux.wait("the table", |screen| chosen(screen, "python3"));

    tmux.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    tmux.wait_for("too small");
    tmux.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    tmux.wait("a larger table", |screen| {
        screen.lines().count() == 30 && chosen(screen, "python3")
    });

    tmux.keys(&["q"]);
    assert_eq!(tmux.written("code"), "0");
    assert_eq!(tmux.state(), before);
    busy.stop();
}

#[test]
fn the_terminal_is_given_back() {
    let Some((busy, tmux)) = both("the_terminal_is_given_back") else {
        return;
    };
    let before = tmux.state();
    let start = || {
        // The viewer replaces the shell, and has its process id.
        tmux.line(&format!(
            "/bin/sh -c 'echo $$ >pid; exec {FLASHVM} top'; echo $? >code"
        ));
        tmux.wait_for("COMMAND");
        tmux.written("pid")
    };
    start();
    tmux.keys(&["C-c"]);
    assert_eq!(tmux.written("code"), "0");
    assert_eq!(tmux.state(), before);
    let screen = tmux.screen();
    assert!(!screen.contains("COMMAND"), "{screen}");
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let pid: i32 = start().parse().expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("to send a signal");
        assert_eq!(tmux.written("code"), "0");
        assert_eq!(tmux.state(), before);
    }
    busy.stop();
}

/// The colours that a screen sets: not the default ones, 39 and 49.
fn colors(screen: &str) -> Vec<u32> {
    let styles = screen.split("\u{1b}[").skip(1);
    let styles = styles.filter_map(|rest| rest.split_once('m').map(|(style, _)| style));
    let codes = styles.flat_map(|style| style.split(';'));
    let codes = codes.filter_map(|code| code.parse().ok());
    codes
        .filter(|code| matches!(code, 30..=38 | 40..=48 | 90..=107))
        .collect()
}

#[test]
fn the_run_ends_while_it_is_watched() {
    let Some((busy, tmux)) = both("the_run_ends_while_it_is_watched") else {
        return;
    };
    let before = tmux.state();
    tmux.line(&format!(
        "NO_COLOR=1 {FLASHVM} top --interval 0.2 {}; echo $? >code",
        busy.pid()
    ));
    tmux.wait_for("COMMAND");
    let colored = tmux.tmux(&["capture-pane", "-p", "-e"]);
    assert_eq!(colors(&colored), [0_u32; 0], "{colored:?}");
    busy.stop();
    let screen = tmux.wait_for("ENDED");
    assert!(screen.contains("python3"), "what it did last: {screen}");
    tmux.keys(&["q"]);
    assert_eq!(tmux.written("code"), "0");
    assert_eq!(tmux.state(), before);
}

#[test]
fn a_terminal_too_small() {
    let test = "a_terminal_too_small";
    if !has_program(test, "tmux") {
        return;
    }
    let tmux = Tmux::start(60, 10);
    let before = tmux.state();
    tmux.line(&format!("{FLASHVM} top 2>said; echo $? >code"));
    assert_eq!(tmux.written("code"), "2");
    let said = tmux.written("said");
    assert!(
        said.contains("60 columns and 10 lines") && said.contains("--once"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
    assert_eq!(tmux.state(), before);
}
