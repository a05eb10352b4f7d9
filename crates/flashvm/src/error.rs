//! The error type of the crate: each variant names the problem and the remedy.

use std::io;

/// The result of most operations here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done.
///
/// ```
/// let error = flashvm::Error::NotARun;
/// assert!(error.to_string().contains("flashvm run --ram SIZE -- PROGRAM"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This process has no pager.
    #[error(
        "this process does not run under flashvm: start it with flashvm run --ram SIZE -- PROGRAM"
    )]
    NotARun,
    /// Budget and store together have no room.
    #[error(
        "no room for {bytes} bytes of managed memory: give the run more --ram or a larger --flash-size"
    )]
    NoRoom {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// More would be pinned than the budget allows.
    #[error(
        "{bytes} bytes cannot be pinned beside {pinned} pinned ones: at most (budget - 256 KiB) / 2 can, of {budget} bytes: give the run more --ram, or unpin something"
    )]
    TooManyPins {
        /// Bytes that were to be pinned.
        bytes: usize,
        /// Bytes that this process has pinned.
        pinned: u64,
        /// The RAM of the run.
        budget: u64,
    },
    /// A value cannot be used: which one, why, and what can.
    #[error("{0}")]
    Invalid(String),
    /// The kernel or the pager refused a call.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted.
        what: String,
        /// The answer.
        source: io::Error,
    },
    /// The command `flashvm` is not where [`Run`](crate::Run) looks for it.
    #[error("{0}")]
    CommandNotFound(String),
    /// The command ran nothing: a bad option, no such program, a machine that cannot page.
    #[error("{line}")]
    Refused {
        /// The command's own line, with the remedy.
        line: String,
        /// Its exit code: 2 for bad input, 126 for a program that cannot be executed, 127 for none.
        code: i32,
    },
}

impl Error {
    pub(crate) fn os(what: impl Into<String>, source: io::Error) -> Self {
        Self::Os {
            what: what.into(),
            source,
        }
    }

    /// The answer `source` to a request for memory.
    pub(crate) fn of_mapping(bytes: usize, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSYS) => Self::NotARun,
            Some(libc::ENOMEM) => Self::NoRoom { bytes },
            _ => Self::os(format!("{bytes} bytes of managed memory"), source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_pager_have_their_variants() {
        let of = |errno| Error::of_mapping(7, io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::ENOSYS), Error::NotARun));
        assert!(matches!(of(libc::ENOMEM), Error::NoRoom { bytes: 7 }));
        let other = of(libc::EPERM).to_string();
        assert!(other.starts_with("7 bytes of managed memory: "), "{other}");
    }
}
