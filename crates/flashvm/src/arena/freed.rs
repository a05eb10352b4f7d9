//! Freed objects of a class: a stack of their addresses in pages of its own, so that freeing a cold object reads nothing from flash.
//!
//! If there is no room for a longer stack, an object holds the address of another one. So a free never fails.
//!
//! Unsafe code: addresses are written to pages that the stack owns, below their end, or to objects that were given up.
#![allow(unsafe_code, reason = "addresses of objects are stored in pages")]

use crate::pages::{PAGE, Pages, Source};
use std::ptr::NonNull;

/// An address, as it is stored.
type Address = NonNull<u8>;

/// The freed objects of one class.
#[derive(Debug)]
pub(super) struct Freed<S: Source> {
    stack: Option<Pages<S>>,
    /// Addresses in the stack.
    count: usize,
    /// The first of the objects that hold addresses.
    linked: Option<Address>,
}

// SAFETY: objects that were freed belong to the arena alone, in any thread.
unsafe impl<S: Source + Send> Send for Freed<S> {}

impl<S: Source> Freed<S> {
    pub(super) fn new() -> Self {
        let (stack, count, linked) = (None, 0, None);
        Self {
            stack,
            count,
            linked,
        }
    }

    /// Bytes mapped for the stack.
    pub(super) fn mapped_bytes(&self) -> usize {
        self.stack.as_ref().map_or(0, Pages::bytes)
    }

    /// Where the next address goes, with room made for it.
    fn end(&mut self, source: S) -> Option<NonNull<Address>> {
        let used = self.count * size_of::<Address>();
        match &mut self.stack {
            None => self.stack = Some(Pages::map(source, PAGE).ok()?),
            Some(stack) if used == stack.bytes() => stack.resize(2 * used).ok()?,
            Some(_) => {}
        }
        let start = self.stack.as_ref()?.start();
        // SAFETY: the stack has room for one more address.
        Some(unsafe { start.add(used) }.cast())
    }

    /// Takes an object.
    ///
    /// # Safety
    /// It is memory of 16 bytes at least, aligned to 16, that nobody uses as long as it is here.
    pub(super) unsafe fn push(&mut self, source: S, object: Address) {
        match self.end(source) {
            Some(end) => {
                // SAFETY: the place is in the stack, and aligned as its pages are.
                unsafe { end.write(object) };
                self.count += 1;
            }
            None => {
                // SAFETY: the caller has given the object up, which has room for an address.
                unsafe { object.cast::<Option<Address>>().write(self.linked) };
                self.linked = Some(object);
            }
        }
    }

    /// Hands an object out.
    pub(super) fn pop(&mut self) -> Option<Address> {
        if let Some(object) = self.linked {
            // SAFETY: `push` has written there, and nobody has used the object since.
            self.linked = unsafe { object.cast::<Option<Address>>().read() };
            return Some(object);
        }
        self.count = self.count.checked_sub(1)?;
        let start = self.stack.as_ref()?.start().cast::<Address>();
        // SAFETY: `push` has written there, and the stack has not become shorter.
        Some(unsafe { start.add(self.count).read() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::testing::Memory;
    use std::collections::BTreeSet;

    /// Objects of 16 bytes in these pages.
    fn objects(pages: &Pages<&Memory>) -> Vec<Address> {
        // SAFETY: the pages have so many bytes.
        let at = |at| unsafe { pages.start().add(16 * at) };
        (0..pages.bytes() / 16).map(at).collect()
    }

    /// More objects than a page has addresses of, with room for the stack, for a part of it, and for none.
    #[test]
    fn all_come_back_once_whatever_room_there_is() {
        for stack_pages in [16, 1, 0] {
            let memory = Memory::new(8 * PAGE);
            let pages = Pages::map(&memory, 8 * PAGE).expect("room");
            memory.limit.set((8 + stack_pages) * PAGE);
            let all = objects(&pages);
            let mut freed = Freed::new();
            for &object in &all {
                // SAFETY: these objects are the test's.
                unsafe { freed.push(&memory, object) };
            }
            assert!(freed.mapped_bytes() <= stack_pages * PAGE);
            let mut found = BTreeSet::new();
            while let Some(object) = freed.pop() {
                assert!(found.insert(object), "twice");
            }
            assert_eq!(found, all.into_iter().collect(), "{stack_pages} pages");
        }
    }

    #[test]
    fn a_free_leaves_the_object_alone_while_the_stack_has_room() {
        let memory = Memory::new(2 * PAGE);
        let pages = Pages::map(&memory, PAGE).expect("room");
        let object = objects(&pages)[0];
        // SAFETY: the object is the test's, and still mapped when it is read.
        let left = unsafe {
            object.write_bytes(7, 16);
            Freed::new().push(&memory, object);
            object.cast::<[u8; 16]>().read()
        };
        assert_eq!(left, [7; 16]);
    }
}
