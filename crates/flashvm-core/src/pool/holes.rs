//! Holes: places of freed objects, which new objects of about the same length fill.
//!
//! Without them every freed byte costs a move of live objects: at 8 % of holes, packing moved 6 objects for each new
//! one. A hole is named by the handle of the freed object. Names are not taken back when a block leaves RAM or is
//! packed: whoever takes a hole checks that it is one still.

use super::object::{GRAIN, Handle, OBJECT_MAX, padded};
use std::collections::VecDeque;

/// Lengths of holes, in grains: one list each.
const LENGTHS: usize = (OBJECT_MAX / GRAIN) as usize + 1;
/// Most names in a list; the oldest is forgotten, and packing finds its hole.
const NAMES_MAX: usize = 256;
/// An object may leave `length / SLACK` of its hole unused.
const SLACK: usize = 16;

/// The known holes, by length.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    lists: Vec<VecDeque<Handle>>,
}

impl Default for Holes {
    fn default() -> Self {
        Self {
            lists: std::iter::repeat_with(|| VecDeque::with_capacity(NAMES_MAX))
                .take(LENGTHS)
                .collect(),
        }
    }
}

fn grains(bytes: u32) -> usize {
    (padded(bytes) / GRAIN) as usize
}

impl Holes {
    /// An object of `room` bytes was freed.
    pub(super) fn add(&mut self, hole: Handle, room: u32) {
        let list = &mut self.lists[grains(room)];
        if list.len() == NAMES_MAX {
            list.pop_front();
        }
        list.push_back(hole);
    }

    /// The last freed hole for an object of `bytes`: the shortest that fits. Forgets names that `is_hole` refuses: it
    /// gets a name and the hole's length in bytes.
    pub(super) fn find(
        &mut self,
        bytes: u32,
        is_hole: impl Fn(Handle, u32) -> bool,
    ) -> Option<Handle> {
        let need = grains(bytes);
        let most = (need + need / SLACK).min(LENGTHS - 1);
        for (length, list) in (need..).zip(&mut self.lists[need..=most]) {
            while let Some(&hole) = list.back() {
                if is_hole(hole, length as u32 * GRAIN) {
                    return Some(hole);
                }
                list.pop_back();
            }
        }
        None
    }
}
