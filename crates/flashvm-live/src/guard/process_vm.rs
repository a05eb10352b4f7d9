//! `process_vm_readv` and `process_vm_writev`: in pieces, as the kernel ends such a call at the first absent page, and not all
//! memory of a large one can be in RAM at once.

use super::memory::{self, Program};
use super::walk::{IOV_MAX, Memory};
use crate::sys::raw::failed;
use rustix::io::Errno;

/// Bytes of a piece. The pages of both sides are pinned: at most 18, and a process with the fewest frames can pin 20.
const PIECE_BYTES: usize = 32 << 10;

/// A vector of the program: what is left of it.
struct Vector {
    at: usize,
    left: usize,
    part: [usize; 2],
}

impl Vector {
    fn new(at: usize, left: usize) -> Self {
        Self {
            at,
            left,
            part: [0; 2],
        }
    }

    /// The rest of the first part that is not empty; `None` at the end.
    fn part(&mut self) -> Result<Option<[usize; 2]>, Errno> {
        while self.part[1] == 0 {
            if self.left == 0 {
                return Ok(None);
            }
            self.part = memory::read(self.at).ok_or(Errno::FAULT)?;
            self.at += size_of_val(&self.part);
            self.left -= 1;
        }
        Ok(Some(self.part))
    }

    fn skip(&mut self, bytes: usize) {
        self.part[0] += bytes;
        self.part[1] -= bytes;
    }
}

/// How a call ended.
pub(super) struct Ended {
    /// Bytes, or an error.
    pub(super) result: isize,
    /// Memory of another process was absent, or does not exist.
    pub(super) stopped_there: bool,
}

/// Makes a call in pieces by `call`, whose arguments name one part of each side.
pub(super) fn in_pieces(args: &[usize; 6], mut call: impl FnMut(&[usize; 6]) -> isize) -> Ended {
    let [process, local, locals, remote, remotes, flags] = *args;
    let mut done = 0;
    let ended = |result: isize, done: usize| Ended {
        result: if done > 0 { done as isize } else { result },
        stopped_there: result == failed(Errno::FAULT) && !Program.is_own_process(process),
    };
    if flags != 0 || locals > IOV_MAX || remotes > IOV_MAX {
        return ended(call(args), 0);
    }
    let (mut here, mut there) = (Vector::new(local, locals), Vector::new(remote, remotes));
    loop {
        let (from, to) = match (here.part(), there.part()) {
            (Ok(Some(from)), Ok(Some(to))) => (from, to),
            // Also for the errors of the process, if nothing is to be moved.
            (Ok(_), Ok(_)) if done == 0 => return ended(call(args), 0),
            (Ok(_), Ok(_)) => return ended(0, done),
            (Err(error), _) | (_, Err(error)) => return ended(failed(error), done),
        };
        let bytes = from[1].min(to[1]).min(PIECE_BYTES);
        let (one, other) = ([from[0], bytes], [to[0], bytes]);
        let piece = [
            process,
            one.as_ptr() as usize,
            1,
            other.as_ptr() as usize,
            1,
            0,
        ];
        let result = call(&piece);
        if result <= 0 {
            return ended(result, done);
        }
        let moved = (result as usize).min(bytes);
        done += moved;
        if moved < bytes {
            return ended(result, done);
        }
        here.skip(moved);
        there.skip(moved);
    }
}
