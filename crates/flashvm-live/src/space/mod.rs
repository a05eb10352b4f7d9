//! The address space of a process: the managed range that the program sees, and its shadow.
//!
//! - [`ManagedRange`] translates pages to addresses of the region and the shadow, and back; it reserves both.
//! - [`Backend`] has the operations on the contents of pages; [`flashvm_core::space::AddressSpace`], which a backend
//!   implements too, has those that move, protect and drop pages. Their documentation is the contract: pre- and
//!   postcondition of each operation, partial progress, and the effect of the program's own calls.
//! - [`Userfaultfd`] is a backend of two kinds: with `UFFDIO_MOVE` and a shadow, and without. [`Aliased`] needs no
//!   userfaultfd: it hides pages. [`Space`] is whichever the run has chosen.
//!
//! [`flashvm_core::space::Placement`] decides what an answer of a backend *means*, in code that the simulator runs as
//! well; no code here knows of the engine.
//!
//! # Safety
//!
//! Rust code never references managed memory; only the program does. The code here names it by page, passes
//! addresses to the kernel, and reads contents through raw pointers. So no Rust reference is invalidated when
//! a page comes or goes. [`ManagedRange`] reserves the addresses itself and panics for a page beyond its end,
//! so that safe calls on its pages cannot reach other memory.
#![allow(
    unsafe_code,
    reason = "the kernel is told to change mappings of managed memory; see the argument above"
)]

mod aliased;
mod backend;
mod bits;
mod delivery;
mod live;
mod range;
mod rights;
mod run_set;
mod userfaultfd;

pub(crate) use aliased::{Aliased, ForkedMemory, Touch};
pub(crate) use backend::{Backend, Source};
pub use delivery::Delivery;
pub(crate) use live::{Inherited, Older, Space};
pub(crate) use range::ManagedRange;
pub(crate) use rights::Use;
pub(crate) use userfaultfd::Userfaultfd;

use flashvm_core::space::Stop;
use flashvm_core::{PAGE_SIZE, PageId, Run};
use rustix::io::Errno;

/// The outcome of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The thread can repeat its access.
    Resolved,
    /// The contents are lost: the program gets SIGBUS.
    Lost,
    /// The address is not managed memory: the fault is the program's own.
    NotOurs,
}

/// A page of the pager's own memory that direct I/O can work on.
#[repr(align(4096))]
pub(crate) struct PageBuffer(pub(crate) [u8; PAGE_SIZE]);

impl PageBuffer {
    pub(crate) fn new() -> Self {
        Self([0; PAGE_SIZE])
    }
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    chunks
        .iter()
        .all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|&byte| byte == 0)
}

/// Groups pages, which come in ascending order, into runs of neighbours.
pub(crate) fn runs(pages: impl IntoIterator<Item = PageId>) -> impl Iterator<Item = Run> {
    let mut pages = pages.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut run = Run::one(pages.next()?);
        while pages.next_if_eq(&run.end()).is_some() {
            run.count += 1;
        }
        Some(run)
    })
}

/// Translates the kernel's error for the page at which a call stopped.
fn stop(error: Errno) -> Stop {
    match error {
        Errno::AGAIN => Stop::Again,
        Errno::EXIST => Stop::Exists,
        Errno::NOENT => Stop::Missing,
        Errno::INVAL => Stop::Invalid,
        Errno::BUSY => Stop::Busy,
        Errno::SRCH => Stop::Exiting,
        other => Stop::Failed(other.raw_os_error()),
    }
}

#[cfg(test)]
mod tests;
