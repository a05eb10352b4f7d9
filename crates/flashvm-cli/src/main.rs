//! The `flashvm` command: runs a program with its memory on flash, and shows what a machine supports. Bad input
//! ends in one line and an exit code.
#![deny(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::main() {
        Ok(code) => code,
        Err(refusal) => {
            eprintln!("flashvm: {refusal}");
            refusal.leave();
            ExitCode::from(refusal.code())
        }
    }
}
