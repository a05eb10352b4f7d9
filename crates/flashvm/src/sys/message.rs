//! Lines for the user, on standard error at once: not through the C library, whose buffers may be
//! managed memory.

/// Prints a line about this process.
pub fn say(what: &str) {
    eprint_line(&format!("flashvm: process {}: {what}", std::process::id()));
}

/// Writes a line to standard error.
pub(crate) fn eprint_line(line: &str) {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let mut bytes = [0u8; 512];
        let len = rest.len().min(bytes.len() - 1);
        bytes[..len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
        let end = len + usize::from(rest.is_empty());
        bytes[len] = b'\n';
        // Standard error may be closed: then the line is lost.
        let _ = rustix::io::write(rustix::stdio::stderr(), &bytes[..end]);
    }
}
