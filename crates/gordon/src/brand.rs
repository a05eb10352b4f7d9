//! The proof that an object does not move: a lifetime that stands for one update or view of one
//! heap.
//!
//! `Heap::update` and `Heap::view` take closures that are generic over `'t`. So a value with `'t`
//! in its type can neither leave the closure nor come from another heap or an earlier closure, and
//! no collection runs until the closure has returned. A pointer with the brand `'t` is therefore
//! the address of an object of this heap that does not move while the pointer exists. The brand is
//! invariant: no lifetime can be turned into another.

/// Invariant in `'t`; neither `Send` nor `Sync`, so that a pointer stays on the thread that holds
/// the heap's lock.
pub(crate) type Brand<'t> = *const fn(&'t ()) -> &'t ();
