//! Verification: every object of persistent space has a valid header and ends where the next
//! begins, every pointer is the address of an object, every string is UTF-8, the root has the types that it says. Done at every open,
//! since later reads in place are not checked.

use super::ROOT;
use super::state::State;
use crate::error::{Error, Result};
use crate::object::{Header, Kind};
use crate::region::{Area, Region, WORD};

/// The contents of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Immutable objects.
    pub immutable_objects: u64,
    /// Mutable objects.
    pub mutable_objects: u64,
    /// Pointers that are not null.
    pub pointers: u64,
}

/// The starts of objects in an area: a bit for each word.
struct Starts {
    area: Area,
    first: u64,
    bits: Vec<u64>,
}

impl Starts {
    fn new(region: &Region, area: Area, end: u64) -> Self {
        let first = region.start(area);
        let words = (end - first) / WORD;
        Self {
            area,
            first,
            bits: vec![0; words.div_ceil(64) as usize],
        }
    }

    fn set(&mut self, address: u64) {
        let word = (address - self.first) / WORD;
        self.bits[(word / 64) as usize] |= 1 << (word % 64);
    }

    fn has(&self, address: u64) -> bool {
        let word = (address - self.first) / WORD;
        address.is_multiple_of(WORD)
            && self
                .bits
                .get((word / 64) as usize)
                .is_some_and(|bits| bits >> (word % 64) & 1 == 1)
    }
}

/// Checks all of persistent space.
pub(crate) fn verify(heap: &State) -> Result<Census> {
    let region = &heap.region;
    let mut census = Census::default();
    let mut immutable = Starts::new(region, heap.immutable.area, heap.immutable.next);
    let mut mutable = Starts::new(region, heap.mutable.area, heap.mutable.next);
    walk_all(heap, |address| {
        if region.area(address) == Some(mutable.area) {
            mutable.set(address);
        } else {
            immutable.set(address);
        }
        if Header(region.load(address)).is_mutable() {
            census.mutable_objects += 1;
        } else {
            census.immutable_objects += 1;
        }
        Ok(())
    })?;
    verify_root(heap)?;
    let mut pointers = 0;
    walk_all(heap, |address| {
        for offset in Header(region.load(address)).pointer_offsets() {
            let target = region.load(address + offset * WORD);
            let known = match region.area(target) {
                _ if target == 0 => continue,
                Some(area) if area == immutable.area => immutable.has(target),
                Some(area) if area == mutable.area => mutable.has(target),
                _ => false,
            };
            if !known {
                return Err(Error::corrupted(format!(
                    "the object at {address:#x} points to {target:#x}, where no object is"
                )));
            }
            pointers += 1;
        }
        Ok(())
    })?;
    census.pointers = pointers;
    heap.check_root()?;
    Ok(census)
}

/// Checks that mutable space begins with the root.
pub(crate) fn verify_root(heap: &State) -> Result<()> {
    if heap.region.load(heap.root()) == ROOT.0 {
        return Ok(());
    }
    Err(Error::corrupted(
        "mutable space does not begin with the root",
    ))
}

/// Calls `visit` for each object of persistent space.
fn walk_all(heap: &State, mut visit: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let region = &heap.region;
    // Objects may extend across adjacent extents.
    let mut extents = heap.extents.iter().peekable();
    while let Some(first) = extents.next() {
        let mut end = first.start + first.bytes;
        while let Some(next) = extents.next_if(|next| next.start == end) {
            end += next.bytes;
        }
        let is_right = |header: Header| !header.is_mutable();
        walk(region, first.start, end, is_right, &mut visit)?;
    }
    let start = region.start(heap.mutable.area);
    let is_right = |header| heap.is_kept_in_dram(header);
    walk(region, start, heap.mutable.next, is_right, &mut visit)
}

/// Calls `visit` for each object from `at` to `end`.
fn walk(
    region: &Region,
    mut at: u64,
    end: u64,
    is_right: impl Fn(Header) -> bool,
    visit: &mut impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    while at < end {
        let header = Header(region.load(at));
        let fits =
            Header::is_valid(header.0) && is_right(header) && header.words() <= (end - at) / WORD;
        if !fits {
            return Err(Error::corrupted(format!("no object begins at {at:#x}")));
        }
        let text = header.kind() == Kind::Text;
        if text && std::str::from_utf8(region.bytes(at + WORD, header.length())).is_err() {
            return Err(Error::corrupted(format!(
                "the string at {at:#x} is not UTF-8"
            )));
        }
        visit(at)?;
        at += header.words() * WORD;
    }
    Ok(())
}
