//! `flashvm serve`: a run without a program of its own, for libraries. Processes that run already join it through its [`super::door`].
//!
//! The supervisor goes into the background. Else it would be a child that the program has not made, and a program that
//! waits for all of its children would wait for ever.

use super::args::ServeArgs;
use super::refusal::Refusal;
use super::run::{Subject, begin};
use super::sys::{self, Background};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::parent_id;
use std::process::ExitCode;

/// Makes a run for processes that join. Returns when they can, or when nothing comes of it.
pub(crate) fn serve(args: Box<ServeArgs>) -> Result<ExitCode, Refusal> {
    let starter = name_of(parent_id());
    match sys::go_into_background() {
        Ok(Background::Here(ready)) => begin(args.options, Subject::Joining { starter, ready }),
        Ok(Background::There(code)) => Ok(ExitCode::from(code)),
        Err(error) => Err(Refusal::new(format!(
            "no process for the supervisor: {error}"
        ))),
    }
}

/// The name of a process, for messages.
fn name_of(pid: u32) -> OsString {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    OsString::from_vec(name.trim_ascii_end().to_owned())
}
