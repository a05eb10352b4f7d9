//! What paging costs this process, and what its memory takes now.
#![allow(unsafe_code, reason = "the pager fills a structure by address")]

use crate::preloaded::functions;
use crate::{Error, Result};
use std::io;

/// Counters of this process since it started, and amounts at this moment; `struct flashvm_stats` of `flashvm.h`. Later versions
/// add fields.
// The header in C, which is written from these comments, has no example.
#[cfg_attr(
    doc,
    doc = "```\nlet zeros = flashvm::Stats::default();\nassert_eq!(zeros.faults, 0);\n```"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Stats {
    /// Faults, first stores to write-protected pages left out.
    pub faults: u64,
    /// Of these: read from flash.
    pub major: u64,
    /// Of these: on pages that were compressed in RAM.
    pub pool: u64,
    /// Of these: on pages in RAM, out of the program's reach.
    pub soft: u64,
    /// Of these: first touches.
    pub zero: u64,
    /// Bytes read from flash.
    pub read_bytes: u64,
    /// Bytes written to flash.
    pub written_bytes: u64,
    /// RAM of this process's pages, compressed ones included.
    pub resident_bytes: u64,
    /// The most that it has been.
    pub resident_bytes_max: u64,
    /// Of `resident_bytes`: RAM of compressed pages.
    pub pool_bytes: u64,
    /// Space of this process on flash.
    pub flash_bytes: u64,
    /// RAM that all processes of the run share: `--ram`.
    pub budget_bytes: u64,
    /// Memory that this process has pinned.
    pub locked_bytes: u64,
}

/// The statistics of this process. The call takes no lock and no system call.
///
/// # Errors
/// [`Error::NotARun`].
///
/// ```
/// match flashvm::stats() {
///     Ok(now) => println!("{} faults waited for flash", now.major),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn stats() -> Result<Stats> {
    let mut now = Stats::default();
    // SAFETY: the call writes this many bytes of the structure, which has numbers alone.
    let status = unsafe { (functions()?.stats)((&raw mut now).cast(), size_of::<Stats>()) };
    match status {
        0 => Ok(now),
        _ => Err(match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => Error::NotARun,
            error => Error::os("statistics", error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header's fields, in its order.
    #[test]
    fn the_structure_is_that_of_the_header() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/flashvm.h");
        let header = std::fs::read_to_string(header).expect("the header");
        let (_, fields) = header.split_once("struct flashvm_stats {").expect("it");
        let (fields, _) = fields.split_once('}').expect("its end");
        let fields = fields.lines().filter_map(|line| {
            let (name, _) = line.trim().strip_prefix("uint64_t ")?.split_once(';')?;
            Some(name.to_owned())
        });
        let ours = format!("{:?}", Stats::default());
        let ours = ours.trim_start_matches("Stats { ").split(", ");
        let ours = ours.map(|field| field.split(':').next().unwrap_or(field).to_owned());
        assert_eq!(fields.collect::<Vec<_>>(), ours.collect::<Vec<_>>());
        assert_eq!(size_of::<Stats>(), 13 * 8);
    }
}
