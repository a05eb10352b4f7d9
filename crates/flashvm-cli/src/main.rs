//! The `flashvm` command: runs programs with their memory on flash; observes runs; simulates and measures. Bad input
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
