//! Handles: references that the program keeps between updates. They are roots of all collections,
//! which update the addresses in the table; the program holds an index.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) addresses: Vec<u64>,
    free: Vec<usize>,
}

/// The handles of one heap. Its lock is taken last: no other lock is taken under it, and no code of
/// the program runs.
#[derive(Debug, Default)]
pub(crate) struct HandleTable(Mutex<Slots>);

impl HandleTable {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slots> {
        // A change by a handle cannot panic half-way; a collection that panics under the lock fails
        // the heap.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reference that outlives updates: see [`Tx::hold`](crate::Tx::hold).
///
/// Its object lives at least until the handle is dropped, but the handle does not make it
/// persistent.
pub struct Handle<P> {
    table: Arc<HandleTable>,
    index: usize,
    target: PhantomData<fn() -> P>,
}

impl<P> std::fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.index).finish()
    }
}

impl<P> Handle<P> {
    pub(crate) fn new(table: &Arc<HandleTable>, address: u64) -> Self {
        let mut slots = table.lock();
        let index = if let Some(index) = slots.free.pop() {
            slots.addresses[index] = address;
            index
        } else {
            slots.addresses.push(address);
            slots.addresses.len() - 1
        };
        drop(slots);
        Self {
            table: Arc::clone(table),
            index,
            target: PhantomData,
        }
    }

    /// The address, if the handle is one of `table`'s.
    pub(crate) fn address(&self, table: &Arc<HandleTable>) -> Option<u64> {
        Arc::ptr_eq(&self.table, table).then(|| self.table.lock().addresses[self.index])
    }
}

impl<P> Drop for Handle<P> {
    fn drop(&mut self) {
        let mut slots = self.table.lock();
        slots.addresses[self.index] = 0;
        slots.free.push(self.index);
    }
}
