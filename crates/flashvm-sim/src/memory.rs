//! Model memory: the contents of region and shadow, by page, as one number each.
//!
//! It is stricter than a kernel: mapping over a page, and moving or dropping a missing one, panics.

use flashvm_core::{PageId, Place};
use std::collections::HashMap;
use std::sync::Arc;

/// The contents of a page; 0 is a page of zeros.
pub type Version = u64;

/// A page in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its contents.
    pub version: Version,
    /// Write-protected.
    pub protected: bool,
}

/// A frame: its reference count is the number of processes that share it.
type Frame = Arc<()>;

/// The memory of the model. A forked child has a clone, which shares all frames.
#[derive(Clone, Default)]
pub struct Memory {
    region: HashMap<PageId, (Mapped, Frame)>,
    shadow: HashMap<PageId, (Version, Frame)>,
    poisoned: HashMap<PageId, ()>,
}

impl Memory {
    /// The contents of a page that the program reaches without a fault.
    #[must_use]
    pub fn mapped(&self, page: PageId) -> Option<Mapped> {
        self.region.get(&page).map(|&(mapped, _)| mapped)
    }

    /// Whether every touch of the page fails.
    #[must_use]
    pub fn is_poisoned(&self, page: PageId) -> bool {
        self.poisoned.contains_key(&page)
    }

    /// Whether a page shares a frame with another process.
    #[must_use]
    pub fn shares(&self, place: Place, page: PageId) -> bool {
        let frame = match place {
            Place::Region => self.region.get(&page).map(|(_, frame)| frame),
            Place::Shadow => self.shadow.get(&page).map(|(_, frame)| frame),
        };
        frame.is_some_and(|frame| Arc::strong_count(frame) > 1)
    }

    /// Whether a page shares a frame with another process, in the region or the shadow.
    #[must_use]
    pub fn is_shared(&self, page: PageId) -> bool {
        self.shares(Place::Region, page) || self.shares(Place::Shadow, page)
    }

    /// Gives a page in the region a frame of its own.
    pub fn unshare(&mut self, page: PageId) {
        if let Some((_, frame)) = self.region.get_mut(&page) {
            *frame = Frame::default();
        }
    }

    /// Pins a page in the shadow for a write: the kernel first gives a shared page a frame of its own.
    pub fn pin_shadow(&mut self, page: PageId) {
        let (_, frame) = self
            .shadow
            .get_mut(&page)
            .expect("only pages in RAM are pinned");
        if Arc::strong_count(frame) > 1 {
            *frame = Frame::default();
        }
    }

    /// Write-protects every page in the region, as before a fork.
    pub fn protect_all(&mut self) {
        for (mapped, _) in self.region.values_mut() {
            mapped.protected = true;
        }
    }

    /// A copy that shares no frame.
    #[must_use]
    pub fn copied(&self) -> Self {
        let region = self
            .region
            .iter()
            .map(|(&page, &(mapped, _))| (page, (mapped, Frame::default())));
        let shadow = self
            .shadow
            .iter()
            .map(|(&page, &(version, _))| (page, (version, Frame::default())));
        Self {
            region: region.collect(),
            shadow: shadow.collect(),
            poisoned: self.poisoned.clone(),
        }
    }

    /// Frames in use.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.region.len() + self.shadow.len()
    }

    /// The program stores into a mapped page.
    pub fn store(&mut self, page: PageId, version: Version) {
        let (mapped, frame) = self
            .region
            .get_mut(&page)
            .expect("stores need a mapped page");
        assert!(!mapped.protected, "{page:?} is protected");
        assert_eq!(Arc::strong_count(frame), 1, "{page:?} is shared");
        mapped.version = version;
    }

    /// Maps a page that is nowhere in RAM into the region. `stale`: a copy of it may be in the shadow, to be dropped.
    pub fn map(&mut self, page: PageId, version: Version, protected: bool, stale: bool) {
        assert!(
            stale || !self.shadow.contains_key(&page),
            "{page:?} is in the shadow"
        );
        assert!(!self.is_poisoned(page), "{page:?} is poisoned");
        self.map_frame(page, Mapped { version, protected }, Frame::default());
    }

    fn map_frame(&mut self, page: PageId, mapped: Mapped, frame: Frame) {
        let old = self.region.insert(page, (mapped, frame));
        assert_eq!(old, None, "{page:?} mapped over a page");
    }

    /// Maps a page that is nowhere in RAM into the shadow.
    pub fn map_shadow(&mut self, page: PageId, version: Version) {
        assert!(!self.region.contains_key(&page), "{page:?} is mapped");
        let old = self.shadow.insert(page, (version, Frame::default()));
        assert_eq!(old, None, "{page:?} put over a page in the shadow");
    }

    /// Moves a page into the shadow.
    pub fn shadow(&mut self, page: PageId) {
        let mapped = self.region.remove(&page);
        let (mapped, frame) = mapped.unwrap_or_else(|| panic!("{page:?} moved but not mapped"));
        let old = self.shadow.insert(page, (mapped.version, frame));
        assert_eq!(old, None, "{page:?} moved over a page in the shadow");
    }

    /// Write-protects a page in place; without a shadow, this replaces the move.
    pub fn protect(&mut self, page: PageId) {
        let mapped = self.region.get_mut(&page);
        mapped
            .unwrap_or_else(|| panic!("{page:?} protected but not mapped"))
            .0
            .protected = true;
    }

    /// Moves a page from the shadow back into the region.
    pub fn restore(&mut self, page: PageId) {
        let moved = self.shadow.remove(&page);
        let (version, frame) = moved.unwrap_or_else(|| panic!("{page:?} is not in the shadow"));
        let protected = false;
        self.map_frame(page, Mapped { version, protected }, frame);
    }

    /// Copies a page from the shadow into the region; the shadow keeps its own.
    pub fn restore_copy(&mut self, page: PageId, protected: bool) {
        let version = self.in_shadow(page);
        self.map_frame(page, Mapped { version, protected }, Frame::default());
    }

    /// The contents of a page in the shadow.
    #[must_use]
    pub fn in_shadow(&self, page: PageId) -> Version {
        let held = self.shadow.get(&page);
        held.unwrap_or_else(|| panic!("{page:?} is not in the shadow"))
            .0
    }

    /// Whether a page is in the shadow.
    #[must_use]
    pub fn shadow_holds(&self, page: PageId) -> bool {
        self.shadow.contains_key(&page)
    }

    /// Drops a page in the shadow.
    pub fn drop_shadow(&mut self, page: PageId) {
        let old = self.shadow.remove(&page);
        assert!(old.is_some(), "{page:?} dropped but not in the shadow");
    }

    /// Drops a page in the region; without a shadow, this replaces [`Self::drop_shadow`].
    pub fn drop_mapped(&mut self, page: PageId) {
        let old = self.region.remove(&page);
        assert!(old.is_some(), "{page:?} dropped but not mapped");
    }

    /// The program zaps a page.
    pub fn zap(&mut self, page: PageId) {
        self.region.remove(&page);
        self.poisoned.remove(&page);
    }

    /// The program moves a page. The shadow must not hold `to`. A `stale` copy stays in the shadow, to be dropped.
    pub fn relocate(&mut self, from: PageId, to: PageId, stale: bool) {
        assert!(!self.shadow.contains_key(&to), "{to:?} is in the way");
        self.zap(to);
        // The kernel copies a shared page instead of moving it.
        let moved = |frame: Frame| match Arc::strong_count(&frame) {
            1 => frame,
            _ => Frame::default(),
        };
        if let Some((mapped, frame)) = self.region.remove(&from) {
            self.region.insert(to, (mapped, moved(frame)));
        }
        if !stale && let Some((version, frame)) = self.shadow.remove(&from) {
            self.shadow.insert(to, (version, moved(frame)));
        }
        if self.poisoned.remove(&from).is_some() {
            self.poisoned.insert(to, ());
        }
    }

    /// Makes a mapped page writable.
    pub fn unprotect(&mut self, page: PageId) {
        let mapped = self.region.get_mut(&page);
        let (mapped, frame) =
            mapped.unwrap_or_else(|| panic!("{page:?} unprotected but not mapped"));
        mapped.protected = false;
        // The store that follows makes the kernel copy a shared page.
        if Arc::strong_count(frame) > 1 {
            *frame = Frame::default();
        }
    }

    /// Makes every touch of a page fail.
    pub fn poison(&mut self, page: PageId) {
        assert!(!self.region.contains_key(&page), "{page:?} is mapped");
        assert!(
            !self.shadow.contains_key(&page),
            "{page:?} is in the shadow"
        );
        self.poisoned.insert(page, ());
    }
}
