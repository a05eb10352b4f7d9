//! The programs of the Gordon paper's evaluation (section 7.2), and its tables and figure.
//!
//! - [`editor`]: a crash-resistant text editor; `gordon-editor` runs it in a terminal.
//! - [`groundstation`]: relays packets of aircraft; `gordon-groundstation` runs it over UDP.
//! - [`debit_credit`]: transactions after TPC-B.
//! - [`reproduce`]: Tables 3 to 6 and Figure 4, beside the paper's figures.
#![forbid(unsafe_code)]

pub mod debit_credit;
pub mod editor;
pub mod groundstation;
pub mod reproduce;

use std::io::{self, Write};

/// Writes to standard output. Ignores a reader that has gone away.
///
/// # Errors
/// It cannot be written for another reason.
pub fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
