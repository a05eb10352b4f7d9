//! What a process is told when the pager ends it or refuses it something: a line on standard error
//! at once, and the same in the control region, for the summary of the run.

use crate::pager::pager;

/// Ends the process by SIGABRT: the pager cannot go on, and the program must not read wrong data.
pub fn end(reason: &str) -> ! {
    note_end(reason);
    say(reason);
    crate::sys::signals::abort()
}

/// Notes for the summary why the process ends. Who has said so already only needs this.
pub fn note_end(reason: &str) {
    if let Some(pager) = pager() {
        pager.process().note_end(reason);
    }
}

/// Says that a system call is refused, and why.
pub(crate) fn refuse(reason: &str) {
    if let Some(pager) = pager() {
        pager.process().note_refusal(reason);
    }
    say(reason);
}

/// Counts an allocation that was refused because budget and store had no room for it.
pub fn count_refused_allocation() {
    if let Some(pager) = pager() {
        pager.count_refused_allocation();
    }
}

/// Tells the user something about this process.
pub(crate) fn say(what: &str) {
    eprint_line(&format!("flashvm: process {}: {what}", std::process::id()));
}

/// Writes a line to standard error, without the C library's or std's buffers.
pub(crate) fn eprint_line(line: &str) {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let mut bytes = [0u8; 512];
        let len = rest.len().min(bytes.len() - 1);
        bytes[..len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
        let end = len + usize::from(rest.is_empty());
        bytes[len] = b'\n';
        // Standard error may be closed; then there is nobody to tell.
        let _ = rustix::io::write(rustix::stdio::stderr(), &bytes[..end]);
    }
}
