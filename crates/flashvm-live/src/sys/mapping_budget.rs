//! The number of mappings that the kernel allows this process, and the part of them that hidden and small pages may take.

/// The kernel's default.
const DEFAULT: u32 = 65_530;
/// Mappings left to the program and its libraries: all / OTHERS_SHARE.
const OTHERS_SHARE: u32 = 8;

/// Mappings that the kernel allows this process (`vm.max_map_count`).
#[must_use]
pub fn mappings_allowed() -> u32 {
    // Without the C library, whose files may be managed memory later.
    let read = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let path = c"/proc/sys/vm/max_map_count";
        let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
        let mut text = [0_u8; 16];
        let len = rustix::io::read(&file, &mut text[..]).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
    };
    read().unwrap_or(DEFAULT)
}

/// The largest number of mappings for the pager's pages, of `allowed` mappings in all.
#[must_use]
pub fn mappings_most(allowed: u32) -> u32 {
    allowed - allowed / OTHERS_SHARE
}
