//! `flashvm heap export`, `backup` and `grow`: a heap as JSON, a copy of it, and more room in it.

use super::{new_file_refusal, open, read, refusal};
use crate::cli::args::{HeapBackupArgs, HeapExportArgs, HeapGrowArgs};
use crate::cli::refusal::Refusal;
use crate::cli::units::Size;
use crate::cli::write_out;
use gordon::Error;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

/// Standard output, which notes why a write failed: a reader that has gone away is no failure.
struct Output {
    out: BufWriter<io::Stdout>,
    failure: Option<io::Error>,
}

impl Output {
    fn note(&mut self, failed: io::Error) -> io::Error {
        let copy = io::Error::new(failed.kind(), failed.to_string());
        self.failure.get_or_insert(failed);
        copy
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| self.note(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| self.note(error))
    }
}

pub(super) fn export(args: &HeapExportArgs) -> Result<ExitCode, Refusal> {
    let mut output = Output {
        out: BufWriter::new(io::stdout()),
        failure: None,
    };
    let written = read(&args.path, |view| {
        if args.root {
            // A value that is no tree is refused before anything is written.
            view.export_root(&mut io::sink())?;
            view.export_root(&mut output)?;
        } else {
            view.export(&mut output)?;
        }
        let flushed = output.flush();
        flushed.map_err(|source| Error::Io {
            what: "writing the export".to_owned(),
            source,
        })
    });
    match (written, output.failure) {
        (Ok(()), _) => Ok(ExitCode::SUCCESS),
        (Err(_), Some(failure)) if failure.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        (Err(_), Some(failure)) => Err(Refusal::new(format!("standard output: {failure}"))),
        (Err(error), None) => Err(refusal(&args.path, &error)),
    }
}

pub(super) fn backup(args: &HeapBackupArgs) -> Result<ExitCode, Refusal> {
    let copied = read(&args.path, |view| {
        let report = view.report()?;
        // The errors of the copy name another path than those of the heap.
        Ok(view.backup(&args.copy).map(|()| report))
    });
    let copied = copied.map_err(|error| refusal(&args.path, &error))?;
    let report = copied.map_err(|error| new_file_refusal(&args.copy, &error))?;
    write_out(&format!(
        "{}: a copy of {} as of its last commit, {} in use\n",
        args.copy.display(),
        args.path.display(),
        Size(report.immutable_bytes + report.mutable_bytes)
    ))
}

pub(super) fn grow(args: &HeapGrowArgs) -> Result<ExitCode, Refusal> {
    let refused = |error: Error| refusal(&args.path, &error);
    let heap = open(&args.path)?;
    let bytes = heap.grow(args.size.0).map_err(refused)?;
    heap.close().map_err(refused)?;
    write_out(&format!("{}: {}\n", args.path.display(), Size(bytes)))
}
