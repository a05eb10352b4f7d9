//! Lines for the user, on standard error at once: not through the C library, whose buffers may be
//! managed memory.

use std::fmt::{self, Write as _};

/// Prints a line about this process.
pub fn say(what: &str) {
    eprint_line(&format!("flashvm: process {}: {what}", std::process::id()));
}

/// Prints a line about the run, in its supervisor.
pub(crate) fn say_of_run(what: &str) {
    eprint_line(&format!("flashvm: {what}"));
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

/// [`say`] for a faulting thread, which has no heap: the line is cut if it is long.
pub(crate) fn say_plainly(what: &dyn fmt::Display) {
    let pid = rustix::process::getpid().as_raw_nonzero();
    let line = Line::of(&format_args!("flashvm: process {pid}: {what}"));
    eprint_line(line.text());
}

/// A line of text without memory of the heap: a faulting thread writes it.
pub(crate) struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    /// The text, cut where it is too long.
    pub(crate) fn of(what: &dyn fmt::Display) -> Self {
        let mut line = Self {
            bytes: [0; 512],
            len: 0,
        };
        // Cut: the error of `write_str`.
        let _ = write!(line, "{what}");
        line
    }

    pub(crate) fn text(&self) -> &str {
        let bytes = &self.bytes[..self.len];
        std::str::from_utf8(bytes).expect("`write_str` cuts between characters")
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = (0..=text.len().min(room))
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .expect("the start is a boundary");
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        match taken == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_between_characters() {
        let long = "ä".repeat(400);
        assert_eq!(Line::of(&long).text(), "ä".repeat(256));
        let odd = format!("x{long}");
        assert_eq!(Line::of(&odd).text(), format!("x{}", "ä".repeat(255)));
        assert_eq!(Line::of(&"short").text(), "short");
    }
}
