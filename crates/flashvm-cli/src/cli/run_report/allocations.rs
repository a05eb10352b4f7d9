//! Which memory waits: large pieces of memory by the code that asked for them, and in which order their pages come back.
//!
//! A piece is what one call of the C library's `malloc`, or of the program, asked the kernel for: an array, mostly. Smaller
//! objects lie in the heap, which nobody asked for at once.

use super::stacks::{Frame, Names, Stack};
use flashvm_core::PAGE_SIZE;
use flashvm_live::ProcessState;
use flashvm_live::control::{Sight, Sighting};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Pieces of a process that are kept, and places in the code of a run.
const PIECES_MAX: usize = 4096;
const SITES_MAX: usize = 1000;
/// Places in the record.
const LISTED_MAX: usize = 20;
/// Pages that are brought in ahead lie between two faults of a program that goes in order.
const NEAR: i64 = 64;

/// Memory that one place in the code asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allocation {
    /// The innermost functions, without those of allocators: who asked, the caller, and so on.
    pub(crate) by: Vec<Frame>,
    /// Bytes of the largest piece, and pieces.
    pub(crate) bytes: u64,
    pub(crate) pieces: u64,
    /// Faults that waited for its pages.
    pub(crate) faults: u64,
    /// Of these, so many came soon after the one before, in ascending order; and so many in steps of the same length.
    pub(crate) in_order: u64,
    pub(crate) in_steps: u64,
    /// Pages of the most frequent of these steps.
    pub(crate) step: i64,
}

impl Allocation {
    /// In which order its pages come back.
    pub(crate) fn order(&self) -> Order {
        match self.faults / 2 {
            half if self.in_order > half => Order::Ascending,
            half if self.in_steps > half => Order::Steps(self.step),
            _ => Order::Random,
        }
    }
}

/// An order of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    /// Equal steps of so many pages.
    Steps(i64),
    Random,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ascending => "in order",
            Self::Steps(_) => "in equal steps",
            Self::Random => "at random",
        })
    }
}

/// The allocations of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allocations {
    /// Faults that waited, of all memory.
    pub(crate) faults: u64,
    /// The most frequent first.
    pub(crate) listed: Vec<Allocation>,
}

/// Pages from a first one on, until `end`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    site: usize,
    /// The page of the last fault, and the step to it.
    last: Option<u64>,
    step: i64,
}

/// The pieces of a process, by first page.
type Pieces = BTreeMap<u64, Piece>;

#[derive(Debug, Default)]
struct Site {
    bytes: u64,
    pieces: u64,
    faults: u64,
    in_order: u64,
    steps: FxHashMap<i64, u64>,
}

/// Collects pieces and faults on them.
#[derive(Default)]
pub(super) struct AllocationCounter {
    processes: FxHashMap<u32, Pieces>,
    sites: Vec<Site>,
    stacks: HashMap<Stack, usize>,
    faults: u64,
}

impl AllocationCounter {
    /// Code at `stack` asked for pages.
    pub(super) fn ask(&mut self, pid: u32, stack: Stack, first: u32, pages: u32) {
        let number = self.stacks.len();
        if number >= SITES_MAX && !self.stacks.contains_key(&stack) {
            return;
        }
        let site = *self.stacks.entry(stack).or_insert(number);
        if site == self.sites.len() {
            self.sites.push(Site::default());
        }
        let of_site = &mut self.sites[site];
        of_site.bytes = of_site.bytes.max(u64::from(pages) * PAGE_SIZE as u64);
        of_site.pieces += 1;
        let (first, end) = (first.into(), u64::from(first) + u64::from(pages));
        let pieces = pieces_of(&mut self.processes, pid);
        cut(pieces, first, end);
        if pieces.len() < PIECES_MAX {
            let (last, step) = (None, 0);
            pieces.insert(
                first,
                Piece {
                    end,
                    site,
                    last,
                    step,
                },
            );
        }
    }

    /// Counts a fault that waits for its page.
    pub(super) fn add(&mut self, seen: &Sighting) {
        if !matches!(seen.sight, Sight::FromFlash | Sight::FromPool) {
            return;
        }
        self.faults += 1;
        let page = u64::from(seen.first.0);
        let pieces = pieces_of(&mut self.processes, seen.pid);
        let found = pieces.range_mut(..=page).next_back();
        let Some((_, piece)) = found.filter(|(_, piece)| page < piece.end) else {
            return;
        };
        let step = piece.last.map(|last| page as i64 - last as i64);
        let before = std::mem::replace(&mut piece.step, step.unwrap_or(0));
        piece.last = Some(page);
        let site = &mut self.sites[piece.site];
        site.faults += 1;
        match step {
            Some(1..=NEAR) => site.in_order += 1,
            Some(step) if step == before && step != 0 => *site.steps.entry(step).or_default() += 1,
            _ => {}
        }
        if site.steps.len() > SITES_MAX {
            site.steps.retain(|_, number| *number > 1);
        }
    }

    /// The allocations, with the names of functions.
    pub(super) fn finish(self, names: &mut Names<'_>) -> Allocations {
        let stacks = self.stacks.into_iter();
        let mut listed: Vec<Allocation> = stacks
            .filter(|&(_, site)| self.sites[site].faults > 0)
            .map(|(stack, site)| {
                let site = &self.sites[site];
                let most = site
                    .steps
                    .iter()
                    .max_by_key(|&(step, number)| (number, -step));
                Allocation {
                    by: askers(&stack, names),
                    bytes: site.bytes,
                    pieces: site.pieces,
                    faults: site.faults,
                    in_order: site.in_order,
                    in_steps: site.steps.values().sum(),
                    step: most.map_or(0, |(step, _)| *step),
                }
            })
            .collect();
        listed.sort_by(|a, b| (b.faults, &a.by).cmp(&(a.faults, &b.by)));
        listed.truncate(LISTED_MAX);
        Allocations {
            faults: self.faults,
            listed,
        }
    }
}

/// The pieces of a process; a forked child begins with its parent's.
fn pieces_of(processes: &mut FxHashMap<u32, Pieces>, pid: u32) -> &mut Pieces {
    if !processes.contains_key(&pid) {
        let parent = ProcessState::of(pid).and_then(|state| processes.get(&state.parent));
        let pieces = parent.cloned().unwrap_or_default();
        processes.insert(pid, pieces);
    }
    processes.entry(pid).or_default()
}

/// Frees a range: pieces that reach into it lose that part.
fn cut(pieces: &mut Pieces, first: u64, end: u64) {
    let before = pieces.range_mut(..first).next_back();
    let behind = before.and_then(|(_, piece)| {
        let behind = (piece.end > end).then_some(*piece);
        piece.end = piece.end.min(first);
        behind
    });
    let inside: Vec<u64> = pieces.range(first..end).map(|(start, _)| *start).collect();
    for start in inside {
        let piece = pieces.remove(&start);
        if let Some(piece) = piece.filter(|piece| piece.end > end) {
            pieces.insert(end, piece);
        }
    }
    if let Some(piece) = behind {
        pieces.insert(end, piece);
    }
}

/// Functions of a stack from the one that asked outwards, at most three.
fn askers(stack: &Stack, names: &mut Names<'_>) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for place in stack.iter().flatten() {
        // Those inlined come last.
        frames.extend(names.of(*place).iter().rev().cloned());
    }
    let own = frames
        .iter()
        .position(|frame| !is_allocator(&frame.function));
    frames.drain(..own.unwrap_or(0));
    frames.dedup();
    frames.truncate(3);
    frames
}

/// Whether a function gets memory for its caller.
fn is_allocator(function: &str) -> bool {
    const EXACT: [&str; 19] = [
        "syscall",
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "valloc",
        "sysmalloc",
        "sysmalloc_mmap",
        "mremap_chunk",
        "brk",
        "sbrk",
        "mmap",
        "mmap64",
        "mremap",
        "checked_request2size",
        "alloc_new_heap",
    ];
    const BEGINS: [&str; 12] = [
        "__libc_",
        "_int_",
        "__mmap",
        "__mremap",
        "__brk",
        "__sbrk",
        "__glibc_",
        "tcache_",
        "operator new",
        "__rust",
        "alloc::",
        "[libc.so",
    ];
    let is_std = function.starts_with('<') && function.contains("alloc::");
    EXACT.contains(&function) || is_std || BEGINS.iter().any(|begin| function.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::PageId;

    fn fault(counter: &mut AllocationCounter, page: u32) {
        counter.add(&Sighting {
            pid: u32::MAX,
            sight: Sight::FromFlash,
            store: false,
            first: PageId(page),
            count: 1,
        });
    }

    /// A stack of one place.
    fn stack(address: u64) -> Stack {
        vec![Some((0, address))]
    }

    /// Pages, pieces, faults, those in order and those in steps, of each site.
    fn figures(counter: &AllocationCounter) -> Vec<(u64, u64, u64, u64, u64)> {
        let sites = counter.sites.iter();
        let figures = sites.map(|site| {
            let steps = site.steps.values().sum();
            (
                site.bytes >> 12,
                site.pieces,
                site.faults,
                site.in_order,
                steps,
            )
        });
        figures.collect()
    }

    #[test]
    fn faults_belong_to_the_piece_that_they_lie_in() {
        let mut counter = AllocationCounter::default();
        counter.ask(u32::MAX, stack(1), 1000, 500);
        counter.ask(u32::MAX, stack(2), 2000, 500);
        for page in [999, 1000, 1001, 1499, 1500, 2000, 2499, 2500] {
            fault(&mut counter, page);
        }
        assert_eq!(counter.faults, 8);
        assert_eq!(figures(&counter), [(500, 1, 3, 1, 0), (500, 1, 2, 0, 0)]);
    }

    #[test]
    fn a_new_piece_replaces_what_was_there() {
        let mut counter = AllocationCounter::default();
        counter.ask(u32::MAX, stack(1), 1000, 1000);
        counter.ask(u32::MAX, stack(2), 1300, 200);
        counter.ask(u32::MAX, stack(2), 1900, 300);
        for page in [1000, 1299, 1300, 1499, 1500, 1899, 1900, 2199] {
            fault(&mut counter, page);
        }
        let faults: Vec<u64> = figures(&counter).iter().map(|site| site.2).collect();
        assert_eq!(faults, [4, 4]);
    }

    #[test]
    fn order_and_steps_are_told_apart() {
        let mut counter = AllocationCounter::default();
        for first in [0, 100_000, 200_000] {
            counter.ask(u32::MAX, stack(first.into()), first, 100_000);
        }
        for n in 0..100 {
            fault(&mut counter, n * 30);
            fault(&mut counter, 100_000 + n * 125);
            fault(&mut counter, 200_000 + n * n * 7919 % 100_000);
        }
        let figures = figures(&counter);
        assert_eq!((figures[0].3, figures[0].4), (99, 0), "in order");
        assert_eq!((figures[1].3, figures[1].4), (0, 98), "in steps");
        assert!(figures[2].3 < 10 && figures[2].4 < 10, "{figures:?}");
    }

    #[test]
    fn allocators_are_not_who_asked() {
        for name in [
            "malloc",
            "__libc_calloc",
            "operator new[](unsigned long)",
            "[libc.so.6]",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in ["main", "mallocate", "PyMem_Grow", "[python3.11]"] {
            assert!(!is_allocator(name), "{name}");
        }
    }
}
