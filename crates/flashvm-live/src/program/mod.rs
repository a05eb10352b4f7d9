//! Program actions that concern the pager, by either entry point: a symbol of the preloaded object,
//! or a system call that the guard catches.
//!
//! - `mapping`: `mmap` and its family;
//! - `descriptor_kind`: whether reading a descriptor consumes data;
//! - `exec`: child programs, and the run in their environment; `executable`: which programs can be
//!   paged, and how; `image`: what an ELF file says;
//! - `end`: messages when the pager ends a process or refuses it something.

#[allow(
    unsafe_code,
    reason = "the program's descriptors are queried by number"
)]
pub mod descriptor_kind;
mod end;
pub mod exec;
mod executable;
mod image;
#[allow(
    unsafe_code,
    reason = "passes on the program's system calls, which change memory of its own"
)]
pub mod mapping;

#[cfg(target_arch = "x86_64")]
pub(crate) use end::refuse_once;
pub use end::{count_refused_allocation, end, note_end};
pub use executable::{Loading, Refused, check, find, locate, refuse_carried};
pub use image::{Image, Segment};
