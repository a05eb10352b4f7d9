//! What is true of hidden pages alone: contents through forks and under limits on file sizes, and any sequence of steps
//! against a naive model. The common contract is tested in `space/tests`.

use super::*;
use crate::space::tests::program::{exclude_forks, load, page, run, store};
use crate::sys::message::eprint_line;

mod forked;
mod model;
mod steps;

const PAGES: u32 = 2 * CHUNK_PAGES;
const LOAD_STORE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Whether this machine hides pages of shared memory; if not, says that a test is skipped.
fn is_available(test: &str) -> bool {
    match hide::probe() {
        Ok(()) => true,
        Err(why) => {
            eprint_line(&format!("SKIPPED: {test}: {}", Error::NoGuardRegions(why)));
            false
        }
    }
}

impl Aliased {
    fn at(&self, page: u32) -> usize {
        self.range.at(Place::Region, PageId(page)).get()
    }

    fn put(&self, place: Place, at: u32, byte: u8) {
        let copied = self.copy(place, run(at, 1), Source::Bytes(&page(byte)), false);
        assert_eq!(copied, Done::all(1));
    }

    /// The contents in the file.
    fn contents(&self, page: u32) -> [u8; PAGE_SIZE] {
        let mut contents = PageBuffer::new();
        self.read(PageId(page), &mut contents).unwrap();
        contents.0
    }
}
