//! Requests of the preloaded object to the guard, as a system call that no kernel knows: the guard
//! handles it on a stack that is not managed memory.

/// Number of that system call. The stack of its caller may be managed memory. Arguments: an [`Own`],
/// an address, a length.
pub const OWN_CALL: i64 = 0x464c_5348;

/// The requests of [`OWN_CALL`].
#[derive(Clone, Copy, Debug)]
pub enum Own {
    /// Commit a range against budget and store.
    Commit = 1,
    /// Drop the contents of a range, and its commitment.
    Decommit,
    /// Unmap the mapping that starts at an address.
    Free,
    /// Start the threads of a forked child's pager.
    StartThreads,
    /// Allocate small pages of a size (the length) into the list at an address.
    TakePages,
    /// Free the small pages of the list at an address.
    GivePages,
    /// Map managed memory of a length; the result is its address.
    Map,
}
