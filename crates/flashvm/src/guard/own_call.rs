//! What the preloaded object asks of the guard: as a system call that no kernel knows, so that it is
//! answered on a stack that is not managed memory.

/// A call that the pager's own code makes where its caller's stack may be managed memory.
/// Arguments: an [`Own`], an address, a length.
pub const OWN_CALL: i64 = 0x464c_5348;

/// What [`OWN_CALL`] can ask for.
#[derive(Clone, Copy, Debug)]
pub enum Own {
    /// Count a range against budget and store.
    Commit = 1,
    /// Give a range's contents and promise up.
    Decommit,
    /// Unmap the mapping that starts at an address.
    Free,
    /// Start the threads of a forked child's pager.
    StartThreads,
    /// Take small pages of a size (the length) into the list at an address.
    TakePages,
    /// Give the small pages of the list at an address back.
    GivePages,
}
