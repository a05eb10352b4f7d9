//! What a program does that the pager has part in, whichever way it comes: by a symbol of the preloaded object, or as a
//! system call that the guard catches.
//!
//! - `mapping`: `mmap` and its kin;
//! - `descriptor_kind`: what reading a descriptor takes away;
//! - `exec`: child programs, and the run in their environment; `executable`: which programs can be paged;
//! - `end`: what the program's user is told when the pager ends it, or refuses it something.

#[allow(
    unsafe_code,
    reason = "descriptors of the program's are looked at by number"
)]
pub mod descriptor_kind;
mod end;
pub mod exec;
mod executable;
#[allow(
    unsafe_code,
    reason = "passes on system calls of the program's, of memory that is its own"
)]
pub mod mapping;

pub(crate) use end::refuse;
pub use end::{count_refused_allocation, end, note_end};
pub use executable::{Refused, check, find, locate};
