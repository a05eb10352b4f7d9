//! The flash interface (section 4): segments of a bank, mapped at addresses of the program's choice
//! and kept under a persistent key.
//!
//! - [`Flash`]: Table 2 for programs. The heap uses the bank below it.
//! - [`Medium`]: the storage below a bank: a file, a block device or memory.
//! - [`Model`]: the paper's timing of chips, DRAM and disks.

mod bank;
mod identity;
mod interface;
mod medium;
mod model;
mod pool;
mod table;

pub(crate) use bank::Bank;
pub use bank::BankCounters;
pub use identity::{FORMAT, Holds, Identity};
pub(crate) use identity::{MAX_SEGMENT, MIN_SEGMENT, PAGE};
pub use interface::Flash;
pub use medium::{FileMedium, Medium, MemoryMedium};
pub use model::{BLOCK, BLOCKS, Erase, Model};
pub(crate) use table::Table;
pub use table::{Segment, SegmentState};

use crate::error::Result;
use std::os::fd::BorrowedFd;

/// Addresses at which segments can be mapped.
pub(crate) trait Addresses {
    /// Whether `length` bytes may be mapped at `address`.
    fn accepts(&self, address: u64, length: u64) -> bool;
    /// Maps `length` bytes of `medium` from `offset` on at `address`, read-only.
    fn map(&mut self, address: u64, medium: BorrowedFd<'_>, offset: u64, length: u64)
    -> Result<()>;
}
