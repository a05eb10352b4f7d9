//! A naive model: for each page who has mapped it, where it is, and its contents.

use super::*;

/// A page as it should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// The program has mapped managed memory here; otherwise the addresses are the kernel's.
    pub(super) managed: bool,
    pub(super) rights: ProtFlags,
    pub(super) in_region: bool,
    pub(super) in_shadow: bool,
    /// Of a managed page: the first byte, and each of the others.
    pub(super) bytes: (u8, u8),
    /// Of the kernel's memory: the first byte. The others are zeros.
    pub(super) kernel: u8,
}

/// All pages.
pub(super) struct Model(pub(super) Vec<Page>);

impl Model {
    pub(super) fn new() -> Self {
        let unmapped = Page {
            managed: false,
            rights: ProtFlags::empty(),
            in_region: false,
            in_shadow: false,
            bytes: (0, 0),
            kernel: 0,
        };
        Self(vec![unmapped; PAGES as usize])
    }

    pub(super) fn of(&mut self, run: Run) -> &mut [Page] {
        &mut self.0[run.first.0 as usize..run.end().0 as usize]
    }
}

impl Page {
    pub(super) fn is_in(&self, place: Place) -> bool {
        match place {
            Place::Region => self.in_region,
            Place::Shadow => self.in_shadow,
        }
    }

    pub(super) fn set(&mut self, place: Place, there: bool) {
        match place {
            Place::Region => self.in_region = there,
            Place::Shadow => self.in_shadow = there,
        }
    }

    /// The kernel's memory, or none that can be touched, takes the place of a managed page.
    pub(super) fn leave(&mut self, rights: ProtFlags) {
        self.managed = false;
        self.rights = rights;
        self.in_region = false;
        self.kernel = 0;
    }

    /// First and last byte of a load by the program. `None`: a fault.
    fn loaded(&self) -> Option<(u8, u8)> {
        let there = self.in_region || !self.managed;
        let bytes = if self.managed {
            self.bytes
        } else {
            (self.kernel, 0)
        };
        (there && self.rights.contains(ProtFlags::READ)).then_some(bytes)
    }

    pub(super) fn can_be_stored_to(&self) -> bool {
        (self.in_region || !self.managed) && self.rights.contains(ProtFlags::WRITE)
    }

    fn judged(&self, right: ProtFlags) -> Touch {
        match self.managed && self.rights.contains(right) {
            true if self.in_region => Touch::Again,
            true => Touch::Absent,
            false => Touch::Forbidden,
        }
    }

    /// Compares a page of the address space with this one.
    pub(super) fn check(&self, space: &Aliased, page: u32) {
        let at = space.at(page);
        space.touch(page);
        let loaded = load(at).map(|first| (first, load(at + PAGE_SIZE - 1).unwrap()));
        assert_eq!(loaded, self.loaded(), "loads from page {page}");
        // Stores what is there already, if it is allowed to.
        let first = loaded.map_or(0, |(first, _)| first);
        assert_eq!(
            store(at, first),
            self.can_be_stored_to(),
            "stores to page {page}"
        );
        if space.dropped.lock().has(run(page, 1)) {
            // Dropped, and not freed yet. Here nobody waits for that.
            return assert!(!self.in_region && !self.in_shadow);
        }
        let contents = space.contents(page);
        // Loads have seen what is in private memory. The file has nothing of it.
        let is_private = space.is_private(PageId(page));
        let is_there = self.in_shadow || self.in_region && !is_private;
        let (first, rest) = if is_there { self.bytes } else { (0, 0) };
        assert_eq!(contents[0], first, "contents of page {page}");
        assert!(contents[1..] == [rest; PAGE_SIZE - 1], "page {page}");
    }

    /// Compares what the address space knows of a page with this one.
    pub(super) fn check_state(&self, space: &Aliased, page: u32) {
        let pages = space;
        let held = [Place::Region, Place::Shadow].map(|place| pages.holds(place, PageId(page)));
        assert_eq!(held, [self.in_region, self.in_shadow], "page {page}");
        let rights = pages
            .mapping(PageId(page))
            .map(|mapping| mapping.protection);
        let expected = self.managed.then_some(self.rights.bits());
        assert_eq!(rights, expected, "rights to page {page}");
        for (wanted, right) in [
            (Use::Load, ProtFlags::READ),
            (Use::Store, ProtFlags::WRITE),
            (Use::Execute, ProtFlags::EXEC),
        ] {
            let judged = match space.judge(PageId(page), wanted) {
                Touch::Withdrawn => Touch::Again,
                judged => judged,
            };
            assert_eq!(judged, self.judged(right));
        }
    }
}
