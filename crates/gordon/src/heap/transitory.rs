//! Minor and major collections (sections 5.4 and 6.1): new space is promoted into old space, old
//! space is copied into its other half. Forwarding addresses overwrite headers, as DRAM allows.
//! Collections run between updates only, so their roots are the handles and the store list.

use super::state::{Space, State};
use crate::error::Result;
use crate::object::Header;
use crate::region::{Area, Region, WORD};

/// A copying collection into `to`.
struct Copying<'a> {
    region: &'a mut Region,
    from: &'a [Area],
    to: Space,
}

impl Copying<'_> {
    /// The address of an object after the collection.
    fn forward(&mut self, address: u64) -> Result<u64> {
        if address == 0
            || !self
                .region
                .area(address)
                .is_some_and(|area| self.from.contains(&area))
        {
            return Ok(address);
        }
        let word = self.region.load(address);
        if !Header::is_valid(word) {
            // A forwarding address, from this collection, or from the commit into persistent space.
            return Ok(word);
        }
        let words = Header(word).words();
        let copy = self.to.take(self.region, words)?;
        self.region.copy(address, copy, words);
        self.region.store(address, copy);
        Ok(copy)
    }

    fn forward_slot(&mut self, slot: u64) -> Result<()> {
        let target = self.region.load(slot);
        let forwarded = self.forward(target)?;
        if forwarded != target {
            self.region.store(slot, forwarded);
        }
        Ok(())
    }

    /// Follows the pointers of all objects from `scan` on.
    fn scan(&mut self, mut scan: u64) -> Result<()> {
        while scan < self.to.next {
            let header = Header(self.region.load(scan));
            for offset in header.pointer_offsets() {
                self.forward_slot(scan + offset * WORD)?;
            }
            scan += header.words() * WORD;
        }
        Ok(())
    }
}

impl State {
    /// Runs the collections that are due after an uncommitted update.
    pub(crate) fn collect_transitory(&mut self) -> Result<()> {
        if self.new.used(&self.region) > self.limits.new_bytes {
            if self.old.used(&self.region) > self.limits.old_bytes {
                self.major()?;
            } else {
                self.minor()?;
            }
        }
        Ok(())
    }

    /// Promotes live objects of new space into old space.
    pub(crate) fn minor(&mut self) -> Result<()> {
        self.counters.minor += 1;
        let scan = self.old.next;
        self.old = self.copy_transitory(&[Area::New], self.old, scan)?;
        self.empty_new();
        Ok(())
    }

    /// Copies live objects of new and old space into the other half of old space.
    pub(crate) fn major(&mut self) -> Result<()> {
        self.counters.major += 1;
        let from = self.old.area;
        let to = Space::new(from.other(), &self.region);
        self.old = self.copy_transitory(&[Area::New, from], to, to.next)?;
        self.region.zap(from, 0);
        self.empty_new();
        Ok(())
    }

    fn empty_new(&mut self) {
        if self.new.used(&self.region) > self.limits.new_bytes {
            self.region.zap(Area::New, self.limits.new_bytes);
        }
        self.new = Space::new(Area::New, &self.region);
    }

    /// Copies what is alive in `from` to `to`, and returns the end of the copies. After an error the heap has failed:
    /// some headers are forwarding addresses, so nobody may read objects.
    fn copy_transitory(&mut self, from: &[Area], to: Space, scan: u64) -> Result<Space> {
        let copied = self.try_copy(from, to, scan);
        copied.map_err(|error| self.fail(error))
    }

    fn try_copy(&mut self, from: &[Area], to: Space, scan: u64) -> Result<Space> {
        let mut copying = Copying {
            region: &mut self.region,
            from,
            to,
        };
        for address in &mut self.handles.lock().addresses {
            *address = copying.forward(*address)?;
        }
        // Every object in the list counts as live, so that an abort can restore it.
        let mut failed = None;
        self.store_list
            .for_each_address(|address| match copying.forward(*address) {
                Ok(forwarded) => *address = forwarded,
                Err(error) => failed = Some(error),
            });
        if let Some(error) = failed {
            return Err(error);
        }
        for span in self.store_list.spans() {
            for slot in span.slots() {
                copying.forward_slot(slot)?;
            }
        }
        copying.scan(scan)?;
        Ok(copying.to)
    }

    /// After a commit: keeps only objects to which the program's handles refer.
    pub(crate) fn after_commit(&mut self) -> Result<()> {
        let is_transitory =
            |address: &u64| self.region.area(*address).is_some_and(Area::is_transitory);
        let mut held = false;
        let mut handles = self.handles.lock();
        for address in handles
            .addresses
            .iter_mut()
            .filter(|address| is_transitory(address))
        {
            let word = self.region.load(*address);
            if Header::is_valid(word) {
                held = true;
            } else {
                *address = word;
            }
        }
        drop(handles);
        if held {
            return self.major();
        }
        if self.old.used(&self.region) > 0 {
            self.old = Space::new(self.old.area, &self.region);
            self.region.zap(self.old.area, 0);
        }
        self.empty_new();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Error;
    use crate::flash::Model;
    use crate::heap::{Heap, Limits, Options, Tx};

    /// Objects that a collection has left behind have forwarding addresses for headers: to read one would be wild.
    #[test]
    fn a_collection_that_has_no_room_fails_the_heap() {
        let limits = Limits {
            new_bytes: 0,
            old_bytes: u64::MAX,
            ..Limits::default()
        };
        let options = Options {
            limits,
            ..Options::default()
        };
        let heap = Heap::emulated(Model::intel(1), 16, options).expect("a heap");
        let write = |tx: &Tx<'_>| {
            tx.set_root(tx.text("some text"));
            Ok(())
        };
        {
            let mut state = heap.shared.write();
            state.old.next = state.region.start(state.old.area) + state.region.extent() - 8;
        }
        let error = heap.run(write).expect_err("no room in old space");
        assert!(matches!(error, Error::Full { .. }), "{error}");
        let error = heap.view(|_| Ok(())).expect_err("the heap has failed");
        assert!(matches!(error, Error::Failed(_)), "{error}");
        let error = heap.run(write).expect_err("the heap has failed");
        assert!(matches!(error, Error::Failed(_)), "{error}");
    }
}
