//! What is true of hidden pages alone: contents through forks and under limits on file sizes, and any sequence of steps
//! against a naive model. The common contract is tested in `space/tests`.

use super::*;
use crate::space::tests::program::{exclude_forks, load, page, run, store};
use crate::sys::message::eprint_line;

mod deferred;
mod forked;
mod fresh;
mod model;
mod steps;

const PAGES: u32 = 2 * CHUNK_PAGES;
const LOAD_STORE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A way to hide pages.
#[derive(Clone, Copy, Debug)]
enum Way {
    Markers,
    /// Access rights, with so many mappings.
    Rights(u32),
}

/// By access rights with more mappings than a test takes, and with so few that pages are withdrawn all the time.
const WAYS: [Way; 3] = [Way::Markers, Way::Rights(1000), Way::Rights(12)];

impl Way {
    /// `None`: this machine has no guard regions; says that a test is skipped.
    fn open(self, test: &str) -> Option<Aliased> {
        let mappings = match self {
            Self::Rights(mappings) => Some(mappings),
            Self::Markers => match hide::probe() {
                Ok(()) => None,
                Err(why) => {
                    eprint_line(&format!("SKIPPED: {test}: no guard regions ({why})"));
                    return None;
                }
            },
        };
        Some(Aliased::open(PAGES, mappings).unwrap())
    }
}

impl Aliased {
    fn at(&self, page: u32) -> usize {
        self.range.at(Place::Region, PageId(page)).get()
    }

    /// What the program's next touch does to a withdrawn page.
    fn touch(&self, page: u32) {
        if self.in_region.get(page) && self.is_withdrawn(PageId(page)) {
            self.reveal(PageId(page)).unwrap();
        }
    }

    /// As [`load`] from a page.
    fn load(&self, page: u32) -> Option<u8> {
        self.touch(page);
        load(self.at(page))
    }

    /// As [`store`] to a page.
    fn store(&self, page: u32, byte: u8) -> bool {
        self.touch(page);
        store(self.at(page), byte)
    }

    fn put(&self, place: Place, at: u32, byte: u8) {
        let copied = self.copy(place, run(at, 1), Source::Bytes(&page(byte)), false);
        assert_eq!(copied, Done::all(1));
    }

    /// The contents in the file.
    fn contents(&self, page: u32) -> [u8; PAGE_SIZE] {
        let mut contents = PageBuffer::new();
        self.read(run(page, 1), &mut contents.0).unwrap();
        contents.0
    }
}
