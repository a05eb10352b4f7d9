//! The ways in which a program's faults come to the pager.

use serde::{Deserialize, Serialize};

/// How the pager gets the program's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// Userfaultfd; the faulting thread resolves its fault itself, in a signal handler.
    Inline,
    /// Userfaultfd; a thread of the pager reads faults from it and resolves them.
    Handler,
    /// Without userfaultfd, by hidden pages; the faulting thread resolves its fault itself, in a signal handler.
    Protect,
}

impl Delivery {
    /// Whether the faulting thread resolves its fault itself. Then the guard sees all system calls of the program, and
    /// the pager hears of changed mappings and of forks from it, not from the kernel.
    #[must_use]
    pub fn is_in_thread(self) -> bool {
        self != Self::Handler
    }
}
