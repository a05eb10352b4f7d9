//! The SVMP table: the place of each virtual page (paper, 3.3 and 3.6).
//!
//! Three levels of 512 entries over 2^27 pages, eight bytes a page, as in the paper. An entry holds
//! the page's shape (five bits in the paper, four here) and its place: the frame and the location
//! of a copy on flash, if any; or the location on flash and 24 bits of a checksum.

use super::block::BLOCK_SECTORS;
use super::frames::FrameId;
use super::shape::{SECTOR_BYTES, Shape};
use serde::{Deserialize, Serialize};

const LEVEL: usize = 512;

/// Most virtual pages of a table: 512 GiB of addresses.
pub const PAGES_MAX: u32 = (LEVEL * LEVEL * LEVEL) as u32;

/// A shape-shifting virtual memory page: its index among the addresses of the heap, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Svmp(pub u32);

/// A place on flash, in sectors from the start of the store: at most 4 TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location(u64);

impl Location {
    /// A sector of a block.
    #[must_use]
    pub fn new(block: u32, sector: u32) -> Self {
        debug_assert!(sector < BLOCK_SECTORS);
        let at = u64::from(block) * u64::from(BLOCK_SECTORS) + u64::from(sector);
        debug_assert!(at < NO_LOCATION);
        Self(at)
    }

    /// The block.
    #[must_use]
    pub fn block(self) -> u32 {
        (self.0 / u64::from(BLOCK_SECTORS)) as u32
    }

    /// The sector in its block.
    #[must_use]
    pub fn sector(self) -> u32 {
        (self.0 % u64::from(BLOCK_SECTORS)) as u32
    }

    /// Bytes from the start of the store.
    #[must_use]
    pub fn offset(self) -> u64 {
        self.0 * SECTOR_BYTES as u64
    }
}

/// The place of a virtual page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SvmpState {
    /// Nowhere: not allocated.
    Absent,
    /// Allocated, all zeros: never touched, or evicted as zeros.
    Fresh,
    /// In a frame, and mapped: the program reads it without a fault.
    Mapped(FrameId, Option<Location>),
    /// In a frame, unmapped: a touch is a soft fault.
    Unmapped(FrameId, Option<Location>),
    /// In a frame, unmapped, changed, and waiting to be written or being written.
    Condemned(FrameId, Option<Location>),
    /// On its way from flash into a frame.
    Reading(FrameId, Option<Location>),
    /// On flash only, with the low bits of its checksum.
    OnFlash(Location, Check),
    /// Lost: its contents on flash are damaged.
    Lost,
}

/// The part of a checksum that is kept while a page is on flash only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check(u32);

impl Check {
    /// The low 24 bits of a checksum.
    #[must_use]
    pub fn of(checksum: u64) -> Self {
        Self(checksum as u32 & 0xff_ffff)
    }
}

impl From<Check> for u64 {
    fn from(check: Check) -> Self {
        check.0.into()
    }
}

impl SvmpState {
    /// The frame, if the page is in one.
    #[must_use]
    pub fn frame(self) -> Option<FrameId> {
        match self {
            Self::Mapped(frame, _)
            | Self::Unmapped(frame, _)
            | Self::Condemned(frame, _)
            | Self::Reading(frame, _) => Some(frame),
            _ => None,
        }
    }

    /// The location of the copy on flash, which may be out of date.
    #[must_use]
    pub fn location(self) -> Option<Location> {
        match self {
            Self::Mapped(_, location)
            | Self::Unmapped(_, location)
            | Self::Condemned(_, location)
            | Self::Reading(_, location) => location,
            Self::OnFlash(location, _) => Some(location),
            _ => None,
        }
    }

    /// The same place with another location on flash.
    #[must_use]
    pub fn with_location(self, location: Option<Location>) -> Self {
        match self {
            Self::Mapped(frame, _) => Self::Mapped(frame, location),
            Self::Unmapped(frame, _) => Self::Unmapped(frame, location),
            Self::Condemned(frame, _) => Self::Condemned(frame, location),
            Self::Reading(frame, _) => Self::Reading(frame, location),
            Self::OnFlash(_, check) => {
                Self::OnFlash(location.expect("a page on flash has a location"), check)
            }
            place => place,
        }
    }
}

const FRAME_BITS: u32 = 24;
const LOCATION_BITS: u32 = 33;
const NO_LOCATION: u64 = (1 << LOCATION_BITS) - 1;

/// Location in the low bits, then frame or checksum, shape (4 bits), kind (3 bits).
fn pack(shape: Shape, place: SvmpState) -> u64 {
    let (kind, middle, location): (u64, u32, Option<Location>) = match place {
        SvmpState::Absent => return 0,
        SvmpState::Fresh => (1, 0, None),
        SvmpState::Mapped(frame, location) => (2, frame.0, location),
        SvmpState::Unmapped(frame, location) => (3, frame.0, location),
        SvmpState::Condemned(frame, location) => (4, frame.0, location),
        SvmpState::Reading(frame, location) => (5, frame.0, location),
        SvmpState::OnFlash(location, check) => (6, check.0, Some(location)),
        SvmpState::Lost => (7, 0, None),
    };
    let location = location.map_or(NO_LOCATION, |location| location.0);
    debug_assert!(middle < 1 << FRAME_BITS && location <= NO_LOCATION);
    let high = kind << 4 | u64::from(shape.number());
    high << (FRAME_BITS + LOCATION_BITS) | u64::from(middle) << LOCATION_BITS | location
}

fn unpack(entry: u64) -> (Shape, SvmpState) {
    let location = entry & NO_LOCATION;
    let location = (location != NO_LOCATION).then_some(Location(location));
    let middle = (entry >> LOCATION_BITS) as u32 & ((1 << FRAME_BITS) - 1);
    let frame = FrameId(middle);
    let high = entry >> (FRAME_BITS + LOCATION_BITS);
    let place = match high >> 4 {
        0 => return (Shape::WHOLE, SvmpState::Absent),
        1 => SvmpState::Fresh,
        2 => SvmpState::Mapped(frame, location),
        3 => SvmpState::Unmapped(frame, location),
        4 => SvmpState::Condemned(frame, location),
        5 => SvmpState::Reading(frame, location),
        6 => SvmpState::OnFlash(location.expect("packed with one"), Check(middle)),
        _ => SvmpState::Lost,
    };
    let shape = Shape::from_number(high as u8 & 15).expect("packed with one");
    (shape, place)
}

type Leaf = Box<[u64; LEVEL]>;
type Middle = Box<[Option<Leaf>; LEVEL]>;

/// The table.
#[derive(Clone, Debug)]
pub struct Table {
    top: Box<[Option<Middle>; LEVEL]>,
    leaves: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// A table in which every page is absent.
    #[must_use]
    pub fn new() -> Self {
        Self {
            top: Box::new([const { None }; LEVEL]),
            leaves: 0,
        }
    }

    /// Shape and place of a page; the shape of an absent page is arbitrary.
    #[must_use]
    pub fn get(&self, page: Svmp) -> (Shape, SvmpState) {
        let [top, middle, leaf] = levels(page);
        let entry = self.top[top]
            .as_ref()
            .and_then(|middles| middles[middle].as_ref())
            .map_or(0, |entries| entries[leaf]);
        unpack(entry)
    }

    /// Sets shape and place of a page.
    pub fn set(&mut self, page: Svmp, shape: Shape, place: SvmpState) {
        let [top, middle, leaf] = levels(page);
        let middles = self.top[top].get_or_insert_with(|| Box::new([const { None }; LEVEL]));
        let leaves = &mut self.leaves;
        let entries = middles[middle].get_or_insert_with(|| {
            *leaves += 1;
            Box::new([0; LEVEL])
        });
        entries[leaf] = pack(shape, place);
    }

    /// Bytes that the table takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.leaves as usize * size_of::<[u64; LEVEL]>()
    }

    /// All pages that are not absent.
    pub fn pages(&self) -> impl Iterator<Item = (Svmp, Shape, SvmpState)> {
        let middles = self.top.iter().enumerate();
        let middles = middles.filter_map(|(top, middles)| Some((top, middles.as_ref()?)));
        let leaves = middles.flat_map(|(top, middles)| {
            let leaves = middles.iter().enumerate();
            leaves.filter_map(move |(middle, leaf)| Some((top * LEVEL + middle, leaf.as_ref()?)))
        });
        leaves.flat_map(|(leaf, entries)| {
            entries.iter().enumerate().filter_map(move |(at, &entry)| {
                let (shape, place) = unpack(entry);
                let page = Svmp((leaf * LEVEL + at) as u32);
                (place != SvmpState::Absent).then_some((page, shape, place))
            })
        })
    }
}

fn levels(page: Svmp) -> [usize; 3] {
    let page = page.0 as usize;
    [page / LEVEL / LEVEL, page / LEVEL % LEVEL, page % LEVEL]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn place() -> impl Strategy<Value = SvmpState> {
        let frame = (0u32..1 << FRAME_BITS).prop_map(FrameId);
        let location = (0u32..1 << 24, 0u32..BLOCK_SECTORS)
            .prop_map(|(block, sector)| Location::new(block, sector))
            .prop_filter("the last one stands for none", |at| at.0 != NO_LOCATION);
        (
            0u8..8,
            frame,
            prop::option::of(location.clone()),
            location,
            any::<u64>(),
        )
            .prop_map(|(kind, frame, maybe, location, checksum)| match kind {
                0 => SvmpState::Absent,
                1 => SvmpState::Fresh,
                2 => SvmpState::Mapped(frame, maybe),
                3 => SvmpState::Unmapped(frame, maybe),
                4 => SvmpState::Condemned(frame, maybe),
                5 => SvmpState::Reading(frame, maybe),
                6 => SvmpState::OnFlash(location, Check::of(checksum)),
                _ => SvmpState::Lost,
            })
    }

    proptest! {
        #[test]
        fn like_a_map(steps in prop::collection::vec((0u32..PAGES_MAX, 1u8..=15, place()), 1..100)) {
            let (mut table, mut map) = (Table::new(), BTreeMap::new());
            for (page, number, place) in steps {
                let (page, shape) = (Svmp(page), Shape::from_number(number).unwrap());
                table.set(page, shape, place);
                match place {
                    SvmpState::Absent => map.remove(&page),
                    place => map.insert(page, (shape, place)),
                };
                prop_assert_eq!(table.get(page).1, place);
                prop_assert!(place == SvmpState::Absent || table.get(page).0 == shape);
            }
            let all: Vec<_> = table.pages().collect();
            let naive: Vec<_> = map.into_iter().map(|(page, (s, p))| (page, s, p)).collect();
            prop_assert_eq!(all, naive);
        }
    }

    #[test]
    fn eight_bytes_a_page() {
        let mut table = Table::new();
        for page in 0..1 << 16 {
            table.set(Svmp(page), Shape::WHOLE, SvmpState::Fresh);
        }
        assert_eq!(table.bytes(), 8 << 16);
    }
}
