//! Frames and their fine-grained free lists (paper, 3.2).
//!
//! Pages divide a frame among themselves. Each free range is on the free list of its shape and of
//! no other. A request takes the smallest sufficient range and splits it; a freed range is joined
//! with its buddy while that is free. With four sizes, each operation takes a bounded number of
//! steps.
//!
//! Each sector has twelve bytes: either of the page that begins there (its owner, and the checksum
//! of its copy on flash), or the links of the free range that begins there; never both.

use super::shape::{SECTORS, Shape, shapes_of};
use serde::{Deserialize, Serialize};

/// A frame: its index of the heap, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrameId(pub u32);

/// No range.
const NIL: u32 = u32::MAX;

/// A free list: first in, first out, so that ranges are allocated in the order of their frames.
#[derive(Clone, Copy, Debug)]
struct FreeList {
    first: u32,
    last: u32,
    len: u32,
}

/// The pages in each frame.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Eight for each frame: owner and the two halves of the checksum, or the links to the previous
    /// and the next range.
    sectors: Vec<[u32; 3]>,
    /// By frame: the set of shapes of the pages in it.
    pages: Vec<u16>,
    /// By frame: the set of its free ranges.
    free: Vec<u16>,
    /// By shape.
    lists: [FreeList; 16],
    /// Frames that have ever been of the heap.
    high: u32,
    /// Frames below `high` that have left the heap.
    gone: Vec<u32>,
    /// Sectors occupied by pages.
    used_sectors: u32,
}

impl Frames {
    /// A heap without frames that can grow to `most` frames.
    ///
    /// # Panics
    /// With more than 2^24 frames (64 GiB).
    #[must_use]
    pub fn new(most: u32) -> Self {
        assert!(most <= 1 << 24, "{most} frames: the table has 24 bits");
        let empty = FreeList {
            first: NIL,
            last: NIL,
            len: 0,
        };
        Self {
            sectors: vec![[0; 3]; (most * SECTORS) as usize],
            pages: vec![0; most as usize],
            free: vec![0; most as usize],
            lists: [empty; 16],
            high: 0,
            gone: Vec::new(),
            used_sectors: 0,
        }
    }

    /// Most frames that the heap can have.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Frames of the heap.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.high - self.gone.len() as u32
    }

    /// Whether the heap has no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sectors occupied by pages.
    #[must_use]
    pub fn used_sectors(&self) -> u32 {
        self.used_sectors
    }

    /// Adds a free frame to the heap; `None` if the heap has all it may have.
    pub fn grow(&mut self) -> Option<FrameId> {
        let frame = match self.gone.pop() {
            Some(frame) => frame,
            None if self.high < self.most() => {
                self.high += 1;
                self.high - 1
            }
            None => return None,
        };
        self.push(FrameId(frame), Shape::WHOLE);
        Some(FrameId(frame))
    }

    /// Removes a wholly free frame from the heap, if there is one.
    pub fn shrink(&mut self) -> Option<FrameId> {
        let node = self.lists[Shape::WHOLE.number() as usize].last;
        (node != NIL).then(|| {
            let frame = FrameId(node / SECTORS);
            self.unlink(frame, Shape::WHOLE);
            self.gone.push(frame.0);
            frame
        })
    }

    /// Frames that have ever been of the heap.
    #[must_use]
    pub fn high(&self) -> u32 {
        self.high
    }

    /// Bytes of what is kept of the frames that have ever been of the heap.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let each = SECTORS as usize * size_of::<[u32; 3]>() + 2 * size_of::<u16>();
        self.high as usize * each + self.gone.capacity() * size_of::<u32>()
    }

    /// All frames that have ever been of the heap; those that have left it are empty.
    pub fn all(&self) -> impl Iterator<Item = FrameId> + use<> {
        (0..self.high).map(FrameId)
    }

    /// Frames that are wholly free.
    #[must_use]
    pub fn free_frames(&self) -> u32 {
        self.lists[1].len
    }

    /// Free ranges that can hold a page of this shape.
    #[must_use]
    pub fn available(&self, shape: Shape) -> u32 {
        let lens = shape.and_holders();
        lens.map(|shape| self.lists[shape.number() as usize].len)
            .sum()
    }

    /// Takes a range for a page, from the smallest free range that can hold it.
    pub fn take(&mut self, shape: Shape) -> Option<FrameId> {
        let from = shape
            .and_holders()
            .find(|holder| self.lists[holder.number() as usize].len > 0)?;
        let frame = FrameId(self.lists[from.number() as usize].first / SECTORS);
        self.split(frame, from, shape);
        Some(frame)
    }

    /// Takes a range for the first of `pages` pages that are to lie in frames side by side: the first of a run of free ranges that
    /// is just long enough, or else of a longer one, or of the longest. Looks at the first free ranges, the smallest first. For
    /// one page like [`Self::take`].
    pub fn take_run(&mut self, shape: Shape, pages: u32) -> Option<FrameId> {
        if pages == 1 {
            return self.take(shape);
        }
        let (mut best, mut room) = (None, 0);
        let mut looks = RUN_LOOKS;
        for holder in shape.and_holders() {
            let mut at = self.lists[holder.number() as usize].first;
            while at != NIL && looks > 0 && room != pages {
                let frame = FrameId(at / SECTORS);
                let begins = frame.0 == 0 || self.free_from(FrameId(frame.0 - 1), shape, 1) == 0;
                if begins {
                    let free = self.free_from(frame, shape, pages + 1);
                    if free == pages || free > room && room < pages {
                        (best, room) = (Some(frame), free);
                    }
                }
                at = self.sectors[at as usize][1];
                looks -= 1;
            }
            if room >= pages {
                break;
            }
        }
        match best {
            Some(frame) => self.take_at(frame, shape).then_some(frame),
            None => self.take(shape),
        }
    }

    /// Frames from this one on, up to `most`, in which a range is free.
    #[must_use]
    pub fn free_from(&self, first: FrameId, shape: Shape, most: u32) -> u32 {
        let frames = self.free.iter().skip(first.0 as usize).take(most as usize);
        let bits = shape
            .and_holders()
            .fold(0, |bits, holder| bits | holder.bit());
        frames.take_while(|&&free| free & bits != 0).count() as u32
    }

    /// Takes a range in this frame, if it is free.
    pub fn take_at(&mut self, frame: FrameId, shape: Shape) -> bool {
        let Some(&free) = self.free.get(frame.0 as usize) else {
            return false;
        };
        let from = shape.and_holders().find(|holder| free & holder.bit() != 0);
        if let Some(from) = from {
            self.split(frame, from, shape);
        }
        from.is_some()
    }

    /// Like `take_at`, but splits a whole frame only if no divided frame has room.
    pub fn take_beside(&mut self, frame: FrameId, shape: Shape) -> bool {
        let whole = self
            .free
            .get(frame.0 as usize)
            .is_some_and(|free| free & Shape::WHOLE.bit() != 0);
        let other = whole && self.available(shape) > self.free_frames();
        !other && self.take_at(frame, shape)
    }

    fn split(&mut self, frame: FrameId, from: Shape, to: Shape) {
        self.unlink(frame, from);
        let mut at = to;
        while at != from {
            self.push(
                frame,
                at.buddy().expect("not the whole: something holds it"),
            );
            at = at.parent().expect("as above");
        }
        self.pages[frame.0 as usize] |= to.bit();
        self.used_sectors += to.sectors();
        self.sectors[node(frame, to)] = [0; 3];
    }

    /// Frees the range of a page.
    ///
    /// # Panics
    /// If no page of this shape lies there.
    pub fn release(&mut self, frame: FrameId, shape: Shape) {
        let pages = &mut self.pages[frame.0 as usize];
        assert!(*pages & shape.bit() != 0, "no page {shape:?} in {frame:?}");
        *pages &= !shape.bit();
        self.used_sectors -= shape.sectors();
        let mut at = shape;
        while let (Some(buddy), Some(parent)) = (at.buddy(), at.parent())
            && self.free[frame.0 as usize] & buddy.bit() != 0
        {
            self.unlink(frame, buddy);
            at = parent;
        }
        self.push(frame, at);
    }

    /// Whether a page of this shape lies here.
    #[must_use]
    pub fn has(&self, frame: FrameId, shape: Shape) -> bool {
        self.pages[frame.0 as usize] & shape.bit() != 0
    }

    /// Whether no page overlaps a range.
    #[must_use]
    pub fn is_free(&self, frame: FrameId, range: Shape) -> bool {
        self.pages[frame.0 as usize] & range.overlapping() == 0
    }

    /// The pages that overlap a range: one that contains it, or those inside it.
    pub fn pages_in(&self, frame: FrameId, range: Shape) -> impl Iterator<Item = Shape> + use<> {
        shapes_of(self.pages[frame.0 as usize] & range.overlapping())
    }

    /// The frames in which a page overlaps a range.
    pub(super) fn occupied(&self, range: Shape) -> impl Iterator<Item = FrameId> {
        self.all().filter(move |&frame| !self.is_free(frame, range))
    }

    /// The virtual page that lies here.
    #[must_use]
    pub fn owner(&self, frame: FrameId, shape: Shape) -> u32 {
        debug_assert!(self.has(frame, shape));
        self.sectors[node(frame, shape)][0]
    }

    /// Sets the owner of the page that lies here.
    pub fn set_owner(&mut self, frame: FrameId, shape: Shape, owner: u32) {
        debug_assert!(self.has(frame, shape));
        self.sectors[node(frame, shape)][0] = owner;
    }

    /// Checksum of the copy on flash of the page that lies here.
    #[must_use]
    pub fn check(&self, frame: FrameId, shape: Shape) -> u64 {
        debug_assert!(self.has(frame, shape));
        let [_, low, high] = self.sectors[node(frame, shape)];
        u64::from(low) | u64::from(high) << 32
    }

    /// Sets the checksum of the copy on flash of the page that lies here.
    pub fn set_check(&mut self, frame: FrameId, shape: Shape, check: u64) {
        debug_assert!(self.has(frame, shape));
        let sector = &mut self.sectors[node(frame, shape)];
        (sector[1], sector[2]) = (check as u32, (check >> 32) as u32);
    }

    /// Appends a range to its free list.
    fn push(&mut self, frame: FrameId, shape: Shape) {
        let here = node(frame, shape);
        let list = &mut self.lists[shape.number() as usize];
        let last = std::mem::replace(&mut list.last, here as u32);
        list.len += 1;
        match last {
            NIL => list.first = here as u32,
            last => self.sectors[last as usize][1] = here as u32,
        }
        self.sectors[here] = [last, NIL, 0];
        self.free[frame.0 as usize] |= shape.bit();
    }

    /// Removes a range from its free list.
    fn unlink(&mut self, frame: FrameId, shape: Shape) {
        debug_assert!(self.free[frame.0 as usize] & shape.bit() != 0);
        let [before, after, _] = self.sectors[node(frame, shape)];
        let list = &mut self.lists[shape.number() as usize];
        list.len -= 1;
        match before {
            NIL => list.first = after,
            before => self.sectors[before as usize][1] = after,
        }
        match after {
            NIL => self.lists[shape.number() as usize].last = before,
            after => self.sectors[after as usize][0] = before,
        }
        self.free[frame.0 as usize] &= !shape.bit();
    }
}

/// Free ranges at which [`Frames::take_run`] looks.
const RUN_LOOKS: u32 = 256;

/// The index of a range's entry.
fn node(frame: FrameId, shape: Shape) -> usize {
    (frame.0 * SECTORS + shape.first_sector()) as usize
}

#[cfg(test)]
mod tests;
