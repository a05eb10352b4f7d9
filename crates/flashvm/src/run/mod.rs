//! Runs of the command: a program with its memory on flash, its exit status and its statistics.

mod locate;

pub use locate::command;

use crate::{Error, Result};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Names the file for the line of a refusal.
const REFUSAL: &str = "FLASHVM_REFUSAL";

/// A program to be run by the command `flashvm`, with its options.
///
/// ```no_run
/// let done = flashvm::Run::new()
///     .ram("2G")
///     .option("compress", "lz4")
///     .run(["sort", "words.txt"])?;
/// assert!(done.status.success());
/// let from_flash = done.totals().map(|totals| &totals["faults"]["major"]);
/// println!("{from_flash:?} faults waited for flash");
/// # Ok::<(), flashvm::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a run does nothing before run"]
pub struct Run {
    options: Vec<OsString>,
    summary: bool,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    stdin: Option<Stdio>,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
}

/// A run that has ended.
///
/// ```no_run
/// let done = flashvm::Run::new().ram("64M").run(["true"])?;
/// assert!(done.status.success() && done.stats.is_some());
/// # Ok::<(), flashvm::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The program's: its exit code, or the signal that has ended it.
    pub status: ExitStatus,
    /// The object of `--stats`: `"processes"`, a list with the figures of each, and `"totals"`. `None` if the command was killed before
    /// it could write them.
    pub stats: Option<Value>,
    /// What the program wrote to standard output, if that was a pipe.
    pub stdout: Vec<u8>,
    /// What the program wrote to standard error, if that was a pipe.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// The figures of all processes together.
    ///
    /// ```no_run
    /// let done = flashvm::Run::new().ram("64M").run(["true"])?;
    /// let totals = done.totals().expect("nobody has killed the command");
    /// assert!(totals["resident_pages_max"].as_u64() <= Some((64 << 20) / 4096));
    /// # Ok::<(), flashvm::Error>(())
    /// ```
    #[must_use]
    pub fn totals(&self) -> Option<&Value> {
        self.stats.as_ref()?.get("totals")
    }
}

impl Run {
    /// A run with the command's own defaults, and without a summary.
    ///
    /// ```
    /// let error = flashvm::Run::new().run([""; 0]).expect_err("no program");
    /// assert!(matches!(error, flashvm::Error::Invalid(_)));
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// RAM for the program and all its children: `"512M"`, bytes, a share of the memory limit such as `"80%"`, or `"auto"`.
    ///
    /// ```
    /// let run = flashvm::Run::new().ram("2G");
    /// # let _ = run;
    /// ```
    pub fn ram(self, size: impl AsRef<OsStr>) -> Self {
        self.option("ram", size)
    }

    /// An option of `flashvm run --help`, without its dashes.
    ///
    /// ```
    /// let run = flashvm::Run::new().option("flash", "/mnt/nvme").option("zero-sharing", "off");
    /// # let _ = run;
    /// ```
    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        self.options.push(word);
        self
    }

    /// An option without a value.
    ///
    /// ```
    /// let run = flashvm::Run::new().flag("encrypt");
    /// # let _ = run;
    /// ```
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(format!("--{name}").into());
        self
    }

    /// Whether the command prints its summary on standard error; it does not unless told so.
    ///
    /// ```
    /// let run = flashvm::Run::new().summary(true);
    /// # let _ = run;
    /// ```
    pub fn summary(mut self, shown: bool) -> Self {
        self.summary = shown;
        self
    }

    /// A variable of the program's environment, beside those of this process.
    ///
    /// ```
    /// let run = flashvm::Run::new().env("LC_ALL", "C");
    /// # let _ = run;
    /// ```
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let owned = |text: &OsStr| text.to_owned();
        let pair = (owned(name.as_ref()), owned(value.as_ref()));
        self.environment.push(pair);
        self
    }

    /// The folder in which the program starts; that of this process by default.
    ///
    /// ```
    /// let run = flashvm::Run::new().current_dir("/tmp");
    /// # let _ = run;
    /// ```
    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    /// The program's standard input; that of this process by default.
    ///
    /// ```
    /// let run = flashvm::Run::new().stdin(std::process::Stdio::null());
    /// # let _ = run;
    /// ```
    pub fn stdin(mut self, from: impl Into<Stdio>) -> Self {
        self.stdin = Some(from.into());
        self
    }

    /// The program's standard output; that of this process by default. [`Stdio::piped`] collects it for [`Finished::stdout`].
    ///
    /// ```
    /// let run = flashvm::Run::new().stdout(std::process::Stdio::piped());
    /// # let _ = run;
    /// ```
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.stdout = Some(to.into());
        self
    }

    /// The standard error of the program and of the command; that of this process by default. [`Stdio::piped`] collects it for
    /// [`Finished::stderr`].
    ///
    /// ```
    /// let run = flashvm::Run::new().stderr(std::process::Stdio::null());
    /// # let _ = run;
    /// ```
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.stderr = Some(to.into());
        self
    }

    /// Runs a program with its arguments, and waits for its end. Nothing ever runs in plain RAM instead.
    ///
    /// # Errors
    /// [`Error::CommandNotFound`]; [`Error::Refused`] if the command ran nothing: a bad option, no such program, a machine that
    /// cannot page; [`Error::Invalid`] without a program, or if it is given the option `stats`; [`Error::Os`].
    ///
    /// ```no_run
    /// use flashvm::{Error, Run};
    /// let error = Run::new().ram("much").run(["true"]).expect_err("no size");
    /// assert!(matches!(error, Error::Refused { code: 2, .. }));
    /// ```
    pub fn run<W: AsRef<OsStr>>(self, program: impl IntoIterator<Item = W>) -> Result<Finished> {
        let folder = tempfile::Builder::new().prefix("flashvm-").tempdir();
        let folder = folder.map_err(|error| Error::os("a temporary folder", error))?;
        let (stats, refusal) = (
            folder.path().join("stats.json"),
            folder.path().join("refusal"),
        );
        let program: Vec<_> = program
            .into_iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        let mut command = self.prepare(&program, &stats, &refusal)?;
        let name = command.get_program().to_owned();
        let failed = |error| Error::os(format!("{}", Path::new(&name).display()), error);
        let child = command.spawn().map_err(failed)?;
        let done = child.wait_with_output().map_err(failed)?;
        if let Ok(line) = std::fs::read(&refusal) {
            return Err(Error::Refused {
                line: String::from_utf8_lossy(&line).trim().to_owned(),
                code: done.status.code().unwrap_or(2),
            });
        }
        Ok(Finished {
            status: done.status,
            stats: read_stats(&stats)?,
            stdout: done.stdout,
            stderr: done.stderr,
        })
    }

    /// The command's line.
    fn prepare(self, program: &[OsString], stats: &Path, refusal: &Path) -> Result<Command> {
        if program.first().is_none_or(|name| name.is_empty()) {
            return Err(Error::Invalid(
                "no program to run: pass one with its arguments, such as [\"sort\", \"words.txt\"]"
                    .to_owned(),
            ));
        }
        let is_stats = |word: &OsString| {
            let word = word.to_string_lossy();
            word == "--stats" || word.starts_with("--stats=")
        };
        if self.options.iter().any(is_stats) {
            return Err(Error::Invalid(
                "option stats: leave it out, the result has the figures as .stats".to_owned(),
            ));
        }
        let mut command = Command::new(command()?);
        command.arg("run").args(&self.options);
        if !self.summary {
            command.arg("--quiet");
        }
        command.arg("--stats").arg(stats).arg("--").args(program);
        command.envs(self.environment).env(REFUSAL, refusal);
        if let Some(folder) = self.folder {
            command.current_dir(folder);
        }
        command.stdin(self.stdin.unwrap_or_else(Stdio::inherit));
        command.stdout(self.stdout.unwrap_or_else(Stdio::inherit));
        command.stderr(self.stderr.unwrap_or_else(Stdio::inherit));
        Ok(command)
    }
}

/// What the command has written; `None`: nothing.
fn read_stats(file: &Path) -> Result<Option<Value>> {
    let Ok(text) = std::fs::read(file) else {
        return Ok(None);
    };
    let stats = serde_json::from_slice(&text);
    stats
        .map(Some)
        .map_err(|error| Error::os("the statistics of the run", error.into()))
}
