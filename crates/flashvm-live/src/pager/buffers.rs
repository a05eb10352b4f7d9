//! Read buffers: they are part of the frames that a process has of the budget.

use super::{Locked, Pager};
use crate::flash::ReadBuffers;

/// Read buffers of a process: budget / `SHARE`, but at least min(budget / `SHARE_OF_SMALL`, `WORDS_OF_SMALL`), in
/// 1..=`WORDS_MAX` words of 64 pages. Programs that do not stream need the frames (`docs/performance.md`).
const SHARE: u32 = 128;
const SHARE_OF_SMALL: u32 = 32;
const WORDS_OF_SMALL: u32 = 2;
const WORDS_MAX: u32 = 64;

impl Pager {
    /// Read buffers, made when the first page comes back from flash.
    pub(super) fn buffers<'a>(&self, locked: &'a mut Locked) -> &'a mut ReadBuffers {
        if locked.buffers.is_none() {
            let buffers = ReadBuffers::new(words_of(self.control.budget_frames()) as usize)
                .unwrap_or_else(|error| self.die(&format!("no memory for read buffers: {error}")));
            locked.buffers = Some(buffers);
        }
        locked.buffers.as_mut().expect("just made")
    }

    /// Pages of all buffers so far: the read buffers, and the buffers of demand queues.
    pub(super) fn buffer_pages(&self, locked: &Locked) -> u32 {
        locked.buffers.as_ref().map_or(0, ReadBuffers::pages) + self.demand.pages()
    }
}

/// Words of read buffers of one process, in a run with `budget_frames` frames.
fn words_of(budget_frames: u32) -> u32 {
    let words = |share| budget_frames / share / ReadBuffers::RUN;
    words(SHARE)
        .max(words(SHARE_OF_SMALL).min(WORDS_OF_SMALL))
        .clamp(1, WORDS_MAX)
}

/// Pages of read buffers of one process, in a run with `budget_frames` frames.
pub(super) fn pages_of_run(budget_frames: u32) -> u32 {
    words_of(budget_frames) * ReadBuffers::RUN
}
