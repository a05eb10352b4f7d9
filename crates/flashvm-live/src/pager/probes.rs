//! Static probes (USDT) for bpftrace, perf, SystemTap and gdb, under the provider `flashvm`. A probe that nobody looks at
//! is one `nop`. docs/probes.md lists them with their arguments.
//!
//! Each probe is a function of its own, so one place in the object, however often it is called.
#![allow(
    unsafe_code,
    reason = "the macro places a `nop` and a note in the object"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "inside the macro: its assembly reads registers, and changes nothing"
)]

use crate::control::Sight;
use flashvm_core::{IoId, Nanos, SlotId};
use probe::probe;

/// A static probe, as [`PROBES`] lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticProbe {
    /// Its name, under the provider `flashvm`.
    pub name: &'static str,
    /// The names of its arguments, each a number.
    pub arguments: &'static [&'static str],
    /// What has happened.
    pub meaning: &'static str,
}

/// Defines a function for each probe, and lists them all.
macro_rules! probes {
    ($($(#[doc = $meaning:literal])* $name:ident($($argument:ident: $kind:ty = $value:expr),*);)*) => {
        $(
            $(#[doc = $meaning])*
            #[inline(never)]
            pub(super) fn $name($($argument: $kind),*) {
                probe!(flashvm, $name, $($value),*);
            }
        )*

        /// The static probes (USDT) in the object that programs load. A probe that nobody looks at is one `nop`.
        pub const PROBES: &[StaticProbe] = &[
            $(StaticProbe {
                name: stringify!($name),
                arguments: &[$(stringify!($argument)),*],
                meaning: concat!($($meaning),*).trim_ascii_start(),
            },)*
        ];
    };
}

probes! {
    /// a fault is decided on; kind: 1 from flash, 2 from the pool, 3 soft, 4 zeros, 5 page under way, 8 brought in ahead
    fault(address: usize = address, kind: Sight = kind as u64, store: bool = store);
    /// a thread has its page; ns: how long it waited
    resolved(address: usize = address, ns: Nanos = ns.0);
    /// pages have left RAM, to the pool or to flash
    evict(address: usize = address, pages: u32 = pages);
    /// a read is queued; slot: place on flash, in pages; demand: a thread waits for it
    read(io: IoId = io.0, slot: SlotId = slot.0, pages: u32 = pages, demand: bool = demand);
    /// a read has ended; failed: a bit for each page
    read_done(io: IoId = io.0, failed: u64 = failed);
    /// a write is queued; slot: place on flash, in pages
    write(io: IoId = io.0, slot: SlotId = slot.0, pages: u32 = pages);
    /// a write has ended; failed: a bit for each page
    write_done(io: IoId = io.0, failed: u64 = failed);
}
