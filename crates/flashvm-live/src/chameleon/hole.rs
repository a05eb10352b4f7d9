//! The hole: addresses at which only overlays are mapped.
//!
//! No mapping at all is the cheapest hole (docs/performance.md has the figures): an isolated
//! overlay is one mapping instead of two, mapping it splits nothing, and at no moment does a touch
//! of an absent page read zeros.
//!
//! The hole lies where the kernel does not place mappings: in the lowest third of the address space.
//! The kernel's search from the top gets there last; its search from below starts above it. The
//! guard sees all addresses that a program requests. An overlay never replaces a foreign mapping
//! (`MAP_FIXED_NOREPLACE`).

use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::table::PAGES_MAX;
use rustix::io::Errno;

/// Bytes of the hole.
pub(super) const BYTES: usize = PAGES_MAX as usize * PAGE_SIZE;
/// Candidate addresses: not used by programs, their sanitizers or the kernel at fixed places.
const BASES: [usize; 4] = [
    0x1800_0000_0000,
    0x1a00_0000_0000,
    0x1c00_0000_0000,
    0x2000_0000_0000,
];

/// Finds a place for the hole.
pub(super) fn reserve() -> Result<usize, Errno> {
    BASES
        .into_iter()
        .find(|&base| map::is_vacant(base, BYTES))
        .ok_or(Errno::NOMEM)
}
