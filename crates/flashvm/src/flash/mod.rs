//! The way to flash and back: what lies in which slot is the engine's to decide, the bytes travel here.
//!
//! - `store`: slots in a file or on a device, and their checksums;
//! - `io`: many requests at once, for the pager's threads; `demand`: the one read that a thread waits for;
//! - `read_buffers`: where pages lie when they have come;
//! - `model_client`: the time that a device model asks for;
//! - `file_limit`: the limit on file sizes, which the store must stay below.
//!
//! All build on [`crate::sys`], and `store`, `io` and `demand` on `model_client`.

#[allow(
    unsafe_code,
    reason = "a queue and its buffer belong to one thread from the request to its completion"
)]
pub(crate) mod demand;
pub(crate) mod file_limit;
#[allow(
    unsafe_code,
    reason = "requests name read buffers, or pages in the shadow that cannot change while the request runs"
)]
pub(crate) mod io;
#[allow(unsafe_code, reason = "one pointer to what is never freed")]
pub(crate) mod model_client;
mod read_buffers;
mod store;

pub(crate) use read_buffers::ReadBuffers;
pub(crate) use store::FlashStore;
