//! The live system: memory on flash for the process that this library is loaded into.
//!
//! [`start`] reserves one range of addresses, registers it with userfaultfd and resolves the
//! faults there from flash; [`Pager`] then hands out parts of it. The object of
//! `flashvm-preload` puts a program's `malloc` and `mmap` there.
#![deny(unsafe_code)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "what only inline mode uses")
)]

#[allow(
    unsafe_code,
    reason = "frames are read and written where only the program refers to them; the module opens \
              with its argument"
)]
mod chameleon;
pub mod control;
#[allow(
    unsafe_code,
    reason = "requests name memory by address; the contract in `flash::store` says who may touch it, and when"
)]
mod flash;
#[cfg_attr(not(target_arch = "x86_64"), path = "guard/absent.rs")]
#[allow(
    unsafe_code,
    reason = "signal frames and system calls; the module opens with its argument"
)]
pub mod guard;
mod mappings;
#[allow(
    unsafe_code,
    reason = "the pager passes addresses of memory that only the program refers to; each use \
              argues why nothing else refers to it"
)]
mod pager;
pub mod program;
mod record;
mod space;
mod sys;

pub use chameleon::{PageList, RUN_PAGES};
pub use flash::io_submit_is_allowed;
pub use flash::mirror::{MirrorAttendant, MirrorAttending};
pub use flash::nbd::{
    NBD_GREETING, NbdExport, NbdProbe, NbdTrouble, ProbeError, abort_handshake, start_tls,
};
pub use flash::stripe::{UNIT as STRIPE_UNIT, each_of as each_of_stripe, striped};
pub use flash::tier::{CHUNK as TIER_CHUNK, TierMover, TierMoving, tiered};
pub use guard::on_guard_stack;
pub use pager::codec;
pub use pager::{
    ForkHooks, Inheritance, PROBES, Pager, StaticProbe, Statistics, pager, set_fork_hooks, start,
};
pub use program::{count_refused_allocation, end, note_end};
pub use space::{Delivery, Resolution};
pub use sys::discard::StoreKind;
pub use sys::hide::probe as probe_guard_regions;
pub use sys::is_ours as is_pager_descriptor;
pub use sys::mapping_budget::{mappings_allowed, mappings_most};
pub use sys::message::say;
pub use sys::process_state::ProcessState;
pub use sys::raw::syscall as raw_call;
pub use sys::signals::{Uninterrupted, abort};
pub use sys::thread::on_pager_stack;
pub use sys::uffd::{Features, probe as probe_userfaultfd, probe_user_mode};

/// Why the pager of a process could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The control region could not be used.
    #[error(transparent)]
    Control(#[from] control::Error),
    /// The kernel does not give this process a userfaultfd.
    #[error(
        "userfaultfd: {0}; handler mode needs CAP_SYS_PTRACE, see `flashvm doctor` for what to change"
    )]
    Userfaultfd(#[source] rustix::io::Errno),
    /// The kernel's userfaultfd lacks what paging needs.
    #[error("this kernel's userfaultfd lacks what this fault mode needs: see flashvm doctor")]
    KernelTooOld,
    /// The settings of the run make no sense.
    #[error("{0}")]
    Settings(String),
    /// The kernel did not give memory or a descriptor.
    #[error("{what}: {source}")]
    Memory {
        /// What the memory or descriptor was for.
        what: &'static str,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
    /// The server of the flash store cannot be used.
    #[error("the flash store {0}: {1}")]
    Server(String, NbdTrouble),
    /// A thread could not be started.
    #[error("starting the pager's threads: {0}")]
    Threads(#[source] rustix::io::Errno),
    /// The order of `--prefetch-pages` could not be read.
    #[error("the order of pages {path}: {source}")]
    Order {
        /// The file of the order.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The recording could not be written.
    #[error("the recording {path}: {source}")]
    Recording {
        /// The file of the recording.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    fn memory(what: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |source| Self::Memory { what, source }
    }
}
