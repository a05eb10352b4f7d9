//! Table 4 and the pauses of section 8.1: the editor.

use super::measured::{RAW_DISK, Run, Slowdown, System, run};
use super::{Results, SUSPEND};
use crate::editor;
use gordon::flash::{Erase, Model};
use gordon::{Heap, Limits, Result};

/// Text to type in the editor: the paper used a manual page.
const TYPED: &str = include_str!("../../../../LICENSE-APACHE");

/// The editor under `system`: types the text again and again.
pub(super) fn edit(system: System, limits: Limits, slowdown: Slowdown, keys: usize) -> Result<Run> {
    let mut typed = std::iter::repeat_with(|| editor::typing(TYPED)).flatten();
    let press = |heap: &Heap, _| match typed.next() {
        Some(key) => editor::press(heap, key),
        None => Ok(()),
    };
    run(system, limits, slowdown, keys as u64, |_| Ok(()), press)
}

/// A system of Table 4: its name, itself, its limits, and the paper's latency in ms and keys a second.
type Entry = (&'static str, System, Limits, &'static str, u32);

pub(super) fn table4(keys: fn(u64) -> usize, processors: &[Slowdown]) -> Result<Results> {
    let gordon = |ways, erase| System::Gordon(Model::intel(ways).with_erase(erase));
    let mut rows = Vec::new();
    for (ways, (latency, rate), (flash_latency, flash_rate), (disk_latency, disk_rate)) in [
        (8, ("2.0", 408), ("2.5", 319), ("47", 20)),
        (16, ("0.9", 734), ("1.6", 513), ("45", 23)),
        (32, ("0.6", 1068), ("1.3", 593), ("36", 28)),
    ] {
        let waiting = "Gordon, erases while the program waits";
        let beside = "Gordon, erases in the background, suspended by writes";
        let free = "Gordon, free erases";
        let alone = "Gordon, no collection";
        let plain = Limits::default();
        // The text does not fill the bank.
        let never = Limits {
            persistent_bytes: Some(u64::MAX),
            ..plain
        };
        let sidney = |erase| System::Sidney(Model::intel(ways).with_erase(erase));
        let disk = System::Sidney(Model::disk(ways, RAW_DISK));
        let flash_row = |name, erase| (name, sidney(erase), plain, flash_latency, flash_rate);
        let entries: [Entry; 7] = [
            (waiting, gordon(ways, Erase::Waiting), plain, latency, rate),
            (beside, gordon(ways, SUSPEND), plain, latency, rate),
            (free, gordon(ways, Erase::Free), plain, latency, rate),
            (alone, gordon(ways, Erase::Waiting), never, latency, rate),
            flash_row(
                "Sidney, log on flash, erases while the program waits",
                Erase::Waiting,
            ),
            flash_row("Sidney, log on flash, free erases", Erase::Free),
            ("Sidney, log on disk", disk, plain, disk_latency, disk_rate),
        ];
        for &slowdown in processors {
            for (name, system, limits, latency, rate) in entries {
                let run = edit(system, limits, slowdown, keys(ways))?;
                let mut row = vec![
                    ways.to_string(),
                    name.to_owned(),
                    slowdown.name(),
                    latency.to_owned(),
                    format!("{:.3}", run.latency_ms()),
                    rate.to_string(),
                    format!("{:.0}", run.per_second()),
                    format!("{:.2}", run.longest_ns / 1e6),
                ];
                row.extend(run.bytes_by_part().map(|bytes| format!("{bytes:.0}")));
                rows.push(row);
            }
        }
    }
    Ok(Results {
        title: "Table 4: the editor",
        columns: vec![
            "ways",
            "system",
            "processor",
            "key ms, paper's commit",
            "key ms",
            "keys/s, paper",
            "keys/s",
            "longest key ms",
            "bytes a key: immutable",
            "log",
            "collections, mini-log",
        ],
        rows,
        lines: Vec::new(),
    })
}

/// Keys for a bank of so many ways: the text four times at 8 ways. The paper typed its text twice, and wrote four times as
/// many bytes a key.
pub(super) fn text_for(ways: u64) -> usize {
    TYPED.len() * ways as usize / 2
}

/// Limits with which such a text is collected many times.
pub(super) fn often(model: Model) -> Limits {
    Limits {
        persistent_bytes: Some(model.segment_bytes()),
        ..Limits::default()
    }
}

pub(super) fn pauses(ways: &[u64], processors: &[Slowdown]) -> Result<Results> {
    let mut rows = Vec::new();
    for &ways in ways {
        let model = Model::intel(ways);
        let free = model.with_erase(Erase::Free);
        for &slowdown in processors {
            for (collector, flash, paper, system) in [
                (
                    "all at once",
                    "erases while the program waits",
                    "4",
                    System::Stopping(model),
                ),
                ("all at once", "free erases", "-", System::Stopping(free)),
                (
                    "all at once",
                    "free erases and writes",
                    "1",
                    System::Stopping(model.fast()),
                ),
                (
                    "in slices",
                    "erases while the program waits",
                    "-",
                    System::Gordon(model),
                ),
                (
                    "in slices",
                    "erases in the background, suspended by writes",
                    "-",
                    System::Gordon(model.with_erase(SUSPEND)),
                ),
                ("in slices", "free erases", "-", System::Gordon(free)),
            ] {
                let run = edit(system, often(model), slowdown, text_for(ways))?;
                let mean = match system {
                    System::Stopping(_) => format!("{:.3}", run.collection_ns() / 1e9),
                    _ => "-".to_owned(),
                };
                rows.push(vec![
                    ways.to_string(),
                    collector.to_owned(),
                    flash.to_owned(),
                    slowdown.name(),
                    run.collections.to_string(),
                    paper.to_owned(),
                    mean,
                    format!("{:.4}", run.longest_ns / 1e9),
                ]);
            }
        }
    }
    Ok(Results {
        title: "Section 8.1: the longest key of the editor, with many collections",
        columns: vec![
            "ways",
            "collection",
            "flash",
            "processor",
            "collections",
            "mean collection s, paper",
            "mean collection s",
            "longest key s",
        ],
        rows,
        lines: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_is_as_fast_as_table_4() {
        // At 8 ways that suffices for a persistent collection.
        let results = table4(|_| 10_000, &[Slowdown::NONE]).expect("banks");
        for row in &results.rows {
            let number = |at: usize| row[at].parse::<f64>().expect("a number");
            assert!(number(4) <= number(3) && number(6) >= number(5), "{row:?}");
            if row[1].starts_with("Gordon") && !row[1].ends_with("waits") {
                assert!(
                    number(7) <= 8.0,
                    "no commit waits longer than 5 ms for the bank, and 3 for the processor: {row:?}"
                );
            }
        }
        // As in the paper: Sidney's log is faster on flash than on disk.
        for rows in results.rows.chunks(7) {
            let rate = |at: usize| rows[at][6].parse::<f64>().expect("a number");
            assert!(rate(4) > 10.0 * rate(6), "{rows:?}");
        }
    }

    #[test]
    fn slices_keep_pauses_below_the_papers() {
        let results = pauses(&[8], &[Slowdown::NONE]).expect("banks");
        for row in &results.rows {
            let number = |at: usize| row[at].parse::<f64>().expect("a number");
            assert!(number(4) >= 2.0, "collections: {row:?}");
            match (row[1].as_str(), row[2].as_str()) {
                // The paper's took 4 s.
                ("all at once", "erases while the program waits") => {
                    assert!((2.0..8.0).contains(&number(6)), "{row:?}");
                }
                ("all at once", _) => {}
                (_, "erases while the program waits") => assert!(number(7) < 0.65, "{row:?}"),
                // For the bank 5 ms; the processor may be busy otherwise.
                _ => assert!(number(7) < 0.05, "{row:?}"),
            }
        }
    }
}
