//! Programs, as streams of page references.

use flashvm_core::{Access, Nanos, PageId};

/// One reference of a program, and the work that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The page.
    pub page: PageId,
    /// The access.
    pub touch: Touch,
    /// Computing until the next reference.
    pub work: Nanos,
}

/// The effect of a reference on its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A load.
    Read,
    /// A store of other bytes than zeros.
    Write,
    /// Stores that leave the page full of zeros.
    Clear,
    /// The page is zapped (`munmap`, `MADV_DONTNEED`): it reads as zeros.
    Zap,
}

impl Touch {
    pub(super) fn access(self) -> Access {
        match self {
            Self::Read | Self::Zap => Access::Read,
            Self::Write | Self::Clear => Access::Write,
        }
    }
}

/// A program: its references in order.
pub type Program<'a> = Box<dyn Iterator<Item = Step> + 'a>;
