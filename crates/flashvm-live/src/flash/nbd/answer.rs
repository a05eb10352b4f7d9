//! The ends of requests.

use super::trouble::Trouble;
use rustix::io::Errno;

/// The end of a request that the server has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It failed with this error.
    Failed(Errno),
}

/// The answer with an error of the protocol, whose numbers are those of Linux, unless the server says that it is going
/// away. Unknown errors count as `EINVAL`, as the protocol demands.
pub(super) fn failed(error: u32) -> Result<Answer, Trouble> {
    const KNOWN: [Errno; 6] = [
        Errno::PERM,
        Errno::IO,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::OVERFLOW,
        Errno::OPNOTSUPP,
    ];
    let number = |errno: Errno| errno.raw_os_error().unsigned_abs();
    if error == 0 {
        return Err(Trouble::Protocol("an error without a number"));
    }
    if error == number(Errno::SHUTDOWN) {
        return Err(Trouble::Shutdown);
    }
    let known = KNOWN.into_iter().find(|&known| number(known) == error);
    Ok(Answer::Failed(known.unwrap_or(Errno::INVAL)))
}
