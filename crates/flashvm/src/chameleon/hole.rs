//! The hole: addresses at which nothing is mapped but overlays, and how many mappings the kernel allows.
//!
//! Of what a hole can be made of, no mapping at all costs least (ARCHITECTURE.md has the figures): an
//! overlay that stands alone is one mapping and not two, mapping it splits nothing, and there is no moment
//! in which a touch of a page that is not there would read zeros.
//!
//! So that the kernel puts nothing there, the hole lies where it does not look: below a third of the
//! address space, where it looks last from above and not at all from below. The guard sees all addresses
//! that a program asks for. Overlays never replace what they do not know (`MAP_FIXED_NOREPLACE`).

use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::table::PAGES_MAX;
use rustix::io::Errno;

/// Bytes of the hole.
pub(super) const BYTES: usize = PAGES_MAX as usize * PAGE_SIZE;
/// Where it may begin: free of what programs, their sanitizers and the kernel put where they want it.
const BASES: [usize; 4] = [
    0x1800_0000_0000,
    0x1a00_0000_0000,
    0x1c00_0000_0000,
    0x2000_0000_0000,
];
/// Mappings that are left to the program and to the page pager, as one in so many of all.
const OTHERS_SHARE: u32 = 8;
/// What the kernel allows unless somebody has changed it.
const MAPPINGS_DEFAULT: u32 = 65_530;

/// Finds a place for the hole.
pub(super) fn reserve() -> Result<usize, Errno> {
    BASES
        .into_iter()
        .find(|&base| map::is_vacant(base, BYTES))
        .ok_or(Errno::NOMEM)
}

/// Mappings that the kernel allows this process (`vm.max_map_count`).
#[must_use]
pub fn overlays_allowed() -> u32 {
    // Without the C library, whose files may be managed memory later on.
    let read = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let path = c"/proc/sys/vm/max_map_count";
        let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
        let mut text = [0_u8; 16];
        let len = rustix::io::read(&file, &mut text[..]).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
    };
    read().unwrap_or(MAPPINGS_DEFAULT)
}

/// Mappings of these that overlays may take.
#[must_use]
pub fn overlays_most(allowed: u32) -> u32 {
    allowed - allowed / OTHERS_SHARE
}
