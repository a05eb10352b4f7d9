//! Children of tests. They get the signals of a fresh login, however the tests were started (`nohup`, a shell's
//! background job), and every wait for them is bounded.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time of a child without a limit of its own: many times what it needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Interval between two looks at a condition.
const STEP: Duration = Duration::from_millis(5);
/// How long to wait for the end of what a child has printed once it has ended.
const DRAIN: Duration = Duration::from_secs(10);
/// The C library's own signals: it lets nobody set their actions.
const INTERNAL: std::ops::RangeInclusive<i32> = 32..=33;

/// A command whose process has all signals at their default actions and none blocked; nothing to read,
/// and pipes for what it prints, unless the test says otherwise.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let defaults = || {
        for signal in (1..=64).filter(|signal| !INTERNAL.contains(signal)) {
            // SAFETY: SIG_DFL is no handler. The actions of SIGKILL and SIGSTOP cannot be set: they are the default.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset fills the set before sigprocmask reads it.
        let done = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
        };
        match done {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec it makes system calls only; it neither allocates nor locks.
    unsafe { command.pre_exec(defaults) };
    command
}

/// Waits until `done`. After `limit` the test fails and says what it waited for.
#[track_caller]
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < limit,
            "waited for {limit:?} in vain: {what}"
        );
        std::thread::sleep(STEP);
    }
}

/// Waits for the end of a child. After `limit` it kills the child, and the test fails and says what it waited for.
#[track_caller]
pub(crate) fn wait_for(what: &str, child: &mut Child, limit: Duration) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if begun.elapsed() > limit {
            let tree = tree(child.id());
            let killed = child.kill();
            panic!("waited for {limit:?} in vain: the end of {what} (killed: {killed:?})\n{tree}");
        }
        std::thread::sleep(STEP);
    }
}

/// What each thread of a process and of its descendants is doing: its state and signal masks, the kernel function that
/// it sleeps in, its system call with arguments.
fn tree(root: u32) -> String {
    let mut tree = vec![root];
    let mut text = String::new();
    while let Some(process) = tree.pop() {
        tree.extend(of(process));
        for task in entries(&format!("/proc/{process}/task")) {
            let at = |file: &str| format!("/proc/{process}/task/{task}/{file}");
            let signals = ["SigPnd", "ShdPnd", "SigBlk"];
            let [own, shared, blocked] = signals.map(|name| field(&at("status"), name));
            let [name, state] = ["Name", "State"].map(|name| field(&at("status"), name));
            let [function, call] = ["wchan", "syscall"].map(|file| read(&at(file)));
            text += &format!(
                "{process}/{task} {name}: {state} in {function}, call {call}, signals pending {own} and {shared}, \
                 blocked {blocked}\n"
            );
        }
    }
    text
}

/// The processes whose parent this is.
pub(crate) fn of(parent: u32) -> Vec<u32> {
    let is_child =
        |other: &u32| field(&format!("/proc/{other}/status"), "PPid") == parent.to_string();
    let processes = entries("/proc").into_iter();
    let processes = processes.filter_map(|name| name.parse().ok());
    processes.filter(is_child).collect()
}

/// The text of a file, trimmed; empty if it cannot be read.
fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The value of a line `name: value` of a file; empty if it has none.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = fields.filter(|field| field.0 == name).map(|field| field.1);
    values.next().unwrap_or_default().trim().to_owned()
}

/// The names of what is in a folder.
fn entries(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// Runs of a [`command`] with a bound on their time.
pub(crate) trait Bounded {
    /// As [`Command::output`].
    fn output_in_time(&mut self) -> std::io::Result<Output>;

    /// As [`Command::status`]; passes on what a child that fails says.
    fn status_in_time(&mut self) -> std::io::Result<ExitStatus>;
}

impl Bounded for Command {
    #[track_caller]
    fn output_in_time(&mut self) -> std::io::Result<Output> {
        let child = self.spawn()?;
        Ok(finish(&format!("{self:?}"), child, PATIENCE))
    }

    #[track_caller]
    fn status_in_time(&mut self) -> std::io::Result<ExitStatus> {
        let output = self.output_in_time()?;
        if !output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.status)
    }
}

/// Waits for the end of a child and of what it prints.
#[track_caller]
pub(crate) fn finish(what: &str, mut child: Child, limit: Duration) -> Output {
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let status = wait_for(what, &mut child, limit);
    let all = |bytes: Option<Receiver<Vec<u8>>>| {
        bytes.map_or_else(Vec::new, |bytes| {
            // A process that outlives the child may hold its pipe.
            let bytes = bytes.recv_timeout(DRAIN);
            bytes.unwrap_or_else(|_| panic!("waited for {DRAIN:?} in vain: the output of {what}"))
        })
    };
    Output {
        status,
        stdout: all(stdout),
        stderr: all(stderr),
    }
}

/// The lines that a child prints, each waited for with a bound.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    /// The lines from a pipe.
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            // An error means that the test has failed: no more lines are wanted.
            let _ = lines.map(|line| sender.send(line)).find(Result::is_err);
        });
        Self(receiver)
    }

    /// The next line, `None` after the last one; `what` says what it is.
    #[track_caller]
    pub(crate) fn next(&self, what: &str) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("waited for {PATIENCE:?} in vain: {what}"),
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error the bytes so far are the result.
        let _ = pipe.read_to_end(&mut bytes);
        // An error means that the test has failed: the bytes are not wanted.
        let _ = sender.send(bytes);
    });
    receiver
}
