//! Heat: what happened to which addresses when, in a bounded number of cells. When there are too many rows or columns,
//! two become one. And cold ranges: what left RAM and was not needed since.

use flashvm_core::PAGE_SIZE;
use flashvm_live::control::{Sight, Sighting};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Rows and columns kept at most.
const ROWS_MAX: usize = 1024;
const COLUMNS_MAX: usize = 240;
/// The first rows have 64 KiB, the first columns 50 ms.
const SHIFT: u32 = 4;
const COLUMN_SECONDS: f64 = 0.05;
/// Cold ranges named at most.
const COLD_MAX: usize = 12;

/// What happened in a column to the pages of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Faults of all kinds, and first stores: the touches that the pager sees.
    #[serde(rename = "t")]
    pub(crate) touched: u32,
    /// Faults that waited for flash or for the pool.
    #[serde(rename = "f")]
    pub(crate) faulted: u32,
    /// Stores that the pager sees.
    #[serde(rename = "w")]
    pub(crate) written: u32,
}

impl Cell {
    fn add(&mut self, other: Self) {
        self.touched += other.touched;
        self.faulted += other.faulted;
        self.written += other.written;
    }
}

/// The pages of a row over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeatRow {
    pub(crate) pid: u32,
    /// Number of the row: its first byte in managed memory is this times the bytes of a row.
    pub(crate) row: u64,
    /// Cells by column, without the empty ones.
    pub(crate) cells: Vec<(usize, Cell)>,
}

/// The heat of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heat {
    pub(crate) row_bytes: u64,
    pub(crate) column_seconds: f64,
    /// By process and address; without rows to which nothing happened.
    pub(crate) rows: Vec<HeatRow>,
    /// Sightings that came too fast to be seen.
    pub(crate) lost: u64,
}

/// Adjacent cold rows: they left RAM, and nothing touched them in the last tenth of the time in which their process was
/// seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColdRange {
    pub(crate) pid: u32,
    /// From the start of managed memory.
    pub(crate) first_byte: u64,
    pub(crate) bytes: u64,
    /// When it was touched last, in seconds of the run.
    pub(crate) touched_at: f64,
}

/// What is cold at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cold {
    /// Bytes of all rows.
    pub(crate) seen_bytes: u64,
    /// Bytes of all cold rows.
    pub(crate) cold_bytes: u64,
    /// The largest ranges, largest first.
    pub(crate) ranges: Vec<ColdRange>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    cells: Vec<Cell>,
    /// When a page was first seen, last touched, and when one last left.
    first_at: f64,
    touched_at: f64,
    left_at: f64,
}

/// Collects sightings.
#[derive(Debug)]
pub(super) struct HeatMap {
    rows: FxHashMap<(u32, u32), Row>,
    /// Pages of a row, as a power of two.
    shift: u32,
    column_seconds: f64,
}

impl Default for HeatMap {
    fn default() -> Self {
        Self {
            rows: FxHashMap::default(),
            shift: SHIFT,
            column_seconds: COLUMN_SECONDS,
        }
    }
}

impl HeatMap {
    /// Adds a sighting at `seconds` of the run. Times never go back.
    pub(super) fn add(&mut self, seen: &Sighting, seconds: f64) {
        while seconds / self.column_seconds >= COLUMNS_MAX as f64 {
            self.halve_columns();
        }
        let column = (seconds / self.column_seconds) as usize;
        let (mut page, mut left) = (seen.first.0, seen.count);
        while left > 0 {
            let row = page >> self.shift;
            let part = ((1 << self.shift) - (page & ((1 << self.shift) - 1))).min(left);
            let entry = self.rows.entry((seen.pid, row)).or_insert_with(|| Row {
                first_at: seconds,
                ..Row::default()
            });
            if seen.sight == Sight::Left {
                entry.left_at = seconds;
            } else {
                entry.touched_at = seconds;
                if entry.cells.len() <= column {
                    entry.cells.resize(column + 1, Cell::default());
                }
                let waits = matches!(
                    seen.sight,
                    Sight::FromFlash | Sight::FromPool | Sight::Waited
                );
                entry.cells[column].add(Cell {
                    touched: part,
                    faulted: if waits { part } else { 0 },
                    written: if seen.store { part } else { 0 },
                });
            }
            left -= part;
            page = page.wrapping_add(part);
        }
        while self.rows.len() > ROWS_MAX {
            self.halve_rows();
        }
    }

    fn halve_columns(&mut self) {
        self.column_seconds *= 2.0;
        for row in self.rows.values_mut() {
            let halves = row.cells.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair[1..].iter().for_each(|&cell| sum.add(cell));
                sum
            });
            row.cells = halves.collect();
        }
    }

    fn halve_rows(&mut self) {
        self.shift += 1;
        for ((pid, number), row) in std::mem::take(&mut self.rows) {
            let into = self.rows.entry((pid, number >> 1)).or_insert_with(|| Row {
                first_at: row.first_at,
                ..Row::default()
            });
            into.first_at = into.first_at.min(row.first_at);
            let columns = into.cells.len().max(row.cells.len());
            into.cells.resize(columns, Cell::default());
            for (to, from) in into.cells.iter_mut().zip(row.cells) {
                to.add(from);
            }
            into.touched_at = into.touched_at.max(row.touched_at);
            into.left_at = into.left_at.max(row.left_at);
        }
    }

    fn row_bytes(&self) -> u64 {
        (PAGE_SIZE as u64) << self.shift
    }

    /// The heat and the cold of all that was added; `lost` sightings are missing.
    pub(super) fn finish(self, lost: u64) -> (Heat, Cold) {
        let row_bytes = self.row_bytes();
        let mut rows = Vec::from_iter(self.rows);
        rows.sort_unstable_by_key(|(place, _)| *place);
        let cold = cold(&rows, row_bytes);
        let rows = rows.into_iter().map(|((pid, row), kept)| HeatRow {
            pid,
            row: row.into(),
            cells: kept
                .cells
                .into_iter()
                .enumerate()
                .filter(|(_, cell)| *cell != Cell::default())
                .collect(),
        });
        let heat = Heat {
            row_bytes,
            column_seconds: self.column_seconds,
            rows: rows.collect(),
            lost,
        };
        (heat, cold)
    }
}

fn cold(rows: &[((u32, u32), Row)], row_bytes: u64) -> Cold {
    // When each process was seen first and last.
    let mut lives: FxHashMap<u32, (f64, f64)> = FxHashMap::default();
    for ((pid, _), row) in rows {
        let life = lives.entry(*pid).or_insert((f64::INFINITY, 0.0));
        life.0 = life.0.min(row.first_at);
        life.1 = life.1.max(row.touched_at.max(row.left_at));
    }
    let mut ranges: Vec<ColdRange> = Vec::new();
    for ((pid, number), row) in rows {
        let (first, last) = lives[pid];
        if row.left_at <= row.touched_at || row.touched_at > last - (last - first) / 10.0 {
            continue;
        }
        let first_byte = u64::from(*number) * row_bytes;
        match ranges.last_mut() {
            Some(last) if last.pid == *pid && last.first_byte + last.bytes == first_byte => {
                last.bytes += row_bytes;
                last.touched_at = last.touched_at.max(row.touched_at);
            }
            _ => ranges.push(ColdRange {
                pid: *pid,
                first_byte,
                bytes: row_bytes,
                touched_at: row.touched_at,
            }),
        }
    }
    let cold_bytes = ranges.iter().map(|range| range.bytes).sum();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.bytes));
    ranges.truncate(COLD_MAX);
    Cold {
        seen_bytes: rows.len() as u64 * row_bytes,
        cold_bytes,
        ranges,
    }
}

impl Heat {
    /// Columns up to the last one with a cell.
    pub(super) fn columns(&self) -> usize {
        let last = self.rows.iter().filter_map(|row| row.cells.last());
        last.map(|(column, _)| column + 1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::PageId;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn sight() -> impl Strategy<Value = Sight> {
        prop_oneof![
            Just(Sight::FromFlash),
            Just(Sight::FromPool),
            Just(Sight::Soft),
            Just(Sight::Zero),
            Just(Sight::Waited),
            Just(Sight::FirstStore),
            Just(Sight::Left),
        ]
    }

    fn sighting() -> impl Strategy<Value = Sighting> {
        // Pages far apart, so that rows have to be merged.
        (1_u32..4, sight(), any::<bool>(), 0_u32..1 << 22, 1_u32..256).prop_map(
            |(pid, sight, store, first, count)| Sighting {
                pid,
                sight,
                store,
                first: PageId(first),
                count,
            },
        )
    }

    proptest! {
        /// Each cell counts what a naive count over its pages and its time gives, whatever was merged.
        #[test]
        fn cells_are_naive_counts(
            seen in prop::collection::vec((sighting(), 0.0_f64..0.5), 1..900),
        ) {
            let mut map = HeatMap::default();
            let mut now = 0.0;
            let mut all = Vec::new();
            for (sighting, later) in seen {
                now += later;
                map.add(&sighting, now);
                all.push((now, sighting));
            }
            prop_assert!(map.rows.len() <= ROWS_MAX);
            let (heat, _) = map.finish(0);
            prop_assert!(heat.columns() <= COLUMNS_MAX);
            let mut naive: HashMap<(u32, u64, usize), Cell> = HashMap::new();
            for (seconds, sighting) in all {
                if sighting.sight == Sight::Left {
                    continue;
                }
                for page in sighting.first.0..sighting.first.0 + sighting.count {
                    let row = u64::from(page) * 4096 / heat.row_bytes;
                    let column = (seconds / heat.column_seconds) as usize;
                    let cell = naive.entry((sighting.pid, row, column)).or_default();
                    let waits = [Sight::FromFlash, Sight::FromPool, Sight::Waited];
                    cell.touched += 1;
                    cell.faulted += u32::from(waits.contains(&sighting.sight));
                    cell.written += u32::from(sighting.store);
                }
            }
            let found: HashMap<_, _> = heat
                .rows
                .iter()
                .flat_map(|row| row.cells.iter().map(|&(column, cell)| ((row.pid, row.row, column), cell)))
                .collect();
            prop_assert_eq!(found, naive);
        }
    }

    #[test]
    fn cold_is_what_left_and_was_not_needed_for_long() {
        let mut map = HeatMap::default();
        let mut add = |sight, first, count, seconds| {
            let sighting = Sighting {
                pid: 5,
                sight,
                store: false,
                first: PageId(first),
                count,
            };
            map.add(&sighting, seconds);
        };
        add(Sight::Zero, 0, 64, 0.1);
        add(Sight::Left, 0, 64, 1.0);
        add(Sight::FromPool, 16, 1, 2.0);
        add(Sight::Zero, 640, 16, 2.9);
        add(Sight::Left, 640, 16, 3.0);
        let (heat, cold) = map.finish(0);
        assert_eq!((heat.row_bytes, heat.rows.len()), (64 << 10, 5));
        assert_eq!((cold.seen_bytes, cold.cold_bytes), (5 << 16, 3 << 16));
        let range = |first_byte, bytes| ColdRange {
            pid: 5,
            first_byte,
            bytes,
            touched_at: 0.1,
        };
        assert_eq!(cold.ranges, [range(2 << 16, 2 << 16), range(0, 1 << 16)]);
    }
}
