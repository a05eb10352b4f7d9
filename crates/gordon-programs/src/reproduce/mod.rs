//! The paper's Tables 3 to 6 and Figure 4, measured on emulated banks with the paper's timing.
//!
//! Time is modelled time of the bank plus the real time of the program. So the bank is the paper's
//! and the processor is today's: where the paper was bound by its processor these figures are
//! better, where it was bound by flash they compare.

mod measured;

use crate::{debit_credit, editor, groundstation};
use gordon::flash::{BLOCKS, Erase, Model};
use gordon::{Heap, Limits, Result, bandwidths};
use measured::{RAW_DISK, Run, System, run};

/// Text to type in the editor, twice: the paper used a manual page.
const TYPED: &str = include_str!("../../../../LICENSE-APACHE");

/// Operations of a run, unless the paper gives their number.
const OPERATIONS: u64 = 100_000;

/// The tables and the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Write and erase performance by parallelism.
    Table3,
    /// Commit latency and keystrokes of the editor.
    Table4,
    /// Erase efficiency by heap size.
    Table5,
    /// Erase bandwidth and lifetime of the groundstation.
    Table6,
    /// Debit-credit transactions a second.
    Figure4,
}

/// A table of results, and the lines of its chart if there is one.
#[derive(Clone, Debug)]
pub struct Results {
    /// Its title.
    pub title: &'static str,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// Rows, of as many cells.
    pub rows: Vec<Vec<String>>,
    /// Lines of a chart: a name, and values by ways.
    pub lines: Vec<(&'static str, Vec<(f64, f64)>)>,
}

/// Runs one of them.
///
/// # Errors
/// There is not enough memory for the banks.
pub fn reproduce(name: Name) -> Result<Results> {
    match name {
        Name::Table3 => table3(),
        Name::Table4 => table4(2 * TYPED.len()),
        Name::Table5 => table5(OPERATIONS),
        Name::Table6 => table6(OPERATIONS),
        Name::Figure4 => figure4(OPERATIONS),
    }
}

fn table3() -> Result<Results> {
    let paper = [
        (1, 163, 107),
        (4, 651, 427),
        (8, 1302, 853),
        (16, 2604, 1707),
        (32, 5208, 3413),
    ];
    let mut rows = Vec::new();
    for (ways, write, erase) in paper {
        let measured = bandwidths(Model::intel(ways))?;
        rows.push(vec![
            ways.to_string(),
            (Model::intel(ways).segment_bytes() >> 10).to_string(),
            write.to_string(),
            format!("{:.0}", measured.write_bytes_per_s / 1024.0),
            erase.to_string(),
            format!("{:.0}", measured.erase_bytes_per_s / 1024.0),
        ]);
    }
    Ok(Results {
        title: "Table 3: write and erase bandwidth, KB/s",
        columns: vec![
            "ways",
            "segment KB",
            "write, paper",
            "write",
            "erase, paper",
            "erase",
        ],
        rows,
        lines: Vec::new(),
    })
}

/// The editor under `system`.
fn edit(system: System, keys: usize) -> Result<Run> {
    let mut typed = editor::typing(TYPED).chain(editor::typing(TYPED));
    let press = |heap: &Heap, _| match typed.next() {
        Some(key) => editor::press(heap, key),
        None => Ok(()),
    };
    run(system, Limits::default(), keys as u64, |_| Ok(()), press)
}

/// Erases in the background, suspended by writes. The suspension itself is free, as the paper gives
/// no figure.
const SUSPEND: Erase = Erase::Background {
    suspend_ns: Some(0),
};

/// A column of Table 4: its name, the system, and the paper's latency in ms and keys a second.
type Column = (&'static str, System, &'static str, u32);

fn table4(keys: usize) -> Result<Results> {
    let gordon = |ways, erase| System::Gordon(Model::intel(ways).with_erase(erase));
    let mut rows = Vec::new();
    for (ways, (latency, rate), (flash_latency, flash_rate), (disk_latency, disk_rate)) in [
        (8, ("2.0", 408), ("2.5", 319), ("47", 20)),
        (16, ("0.9", 734), ("1.6", 513), ("45", 23)),
        (32, ("0.6", 1068), ("1.3", 593), ("36", 28)),
    ] {
        let waiting = "Gordon, erases while the program waits";
        let beside = "Gordon, erases in the background, suspended by writes";
        let columns: [Column; 6] = [
            (waiting, gordon(ways, Erase::Waiting), latency, rate),
            (beside, gordon(ways, SUSPEND), latency, rate),
            (
                "Gordon, free erases",
                gordon(ways, Erase::Free),
                latency,
                rate,
            ),
            (
                "Sidney, log on flash, erases while the program waits",
                System::Sidney(Model::intel(ways)),
                flash_latency,
                flash_rate,
            ),
            (
                "Sidney, log on flash, free erases",
                System::Sidney(Model::intel(ways).with_erase(Erase::Free)),
                flash_latency,
                flash_rate,
            ),
            (
                "Sidney, log on disk",
                System::Sidney(Model::disk(ways, RAW_DISK)),
                disk_latency,
                disk_rate,
            ),
        ];
        for (name, system, latency, rate) in columns {
            let run = edit(system, keys)?;
            rows.push(vec![
                ways.to_string(),
                name.to_owned(),
                latency.to_owned(),
                format!("{:.3}", run.latency_ms()),
                rate.to_string(),
                format!("{:.0}", run.per_second()),
                format!("{:.2}", run.longest_ns as f64 / 1e6),
                format!(
                    "{:.0}",
                    run.bank.bytes_written as f64 / run.operations as f64
                ),
            ]);
        }
    }
    Ok(Results {
        title: "Table 4: the editor",
        columns: vec![
            "ways",
            "system",
            "commit ms, paper",
            "commit ms",
            "keys/s, paper",
            "keys/s",
            "longest commit ms",
            "bytes a key",
        ],
        rows,
        lines: Vec::new(),
    })
}

/// The groundstation with five packets in its queue.
fn relay(model: Model, limits: Limits, packets: u64) -> Result<Run> {
    let packet = [0x5A; 1000];
    run(
        System::Gordon(model),
        limits,
        packets,
        |_| Ok(()),
        |heap, number| groundstation::receive(heap, &packet, number.saturating_sub(5)).map(|_| ()),
    )
}

fn table5(packets: u64) -> Result<Results> {
    let mut rows = Vec::new();
    for (segments, paper) in [(1, "53%"), (2, "65%"), (3, "73%"), (4, "88%")] {
        let model = Model::intel(4).with_erase(Erase::Free);
        let bytes = Some(segments * model.segment_bytes());
        let limits = Limits {
            persistent_bytes: bytes,
            log_bytes: bytes,
            ..Limits::default()
        };
        let run = relay(model, limits, packets)?;
        let erased = run.bank.erases * run.segment;
        rows.push(vec![
            segments.to_string(),
            paper.to_owned(),
            format!(
                "{:.1}%",
                100.0 * run.bank.erased_bytes_written as f64 / erased as f64
            ),
            run.bank.erases.to_string(),
        ]);
    }
    Ok(Results {
        title: "Table 5: erase efficiency of the groundstation, 4 ways",
        columns: vec!["heap, segments", "paper", "efficiency", "erases"],
        rows,
        lines: Vec::new(),
    })
}

fn table6(packets: u64) -> Result<Results> {
    let paper = [
        (4, "210.3", "414.6", 228),
        (8, "357.7", "584.2", 324),
        (16, "540.8", "789.6", 480),
    ];
    let mut rows = Vec::new();
    for (ways, demand, free, lifetime) in paper {
        let model = Model::intel(ways);
        let waiting = relay(model, Limits::default(), packets)?;
        let freely = relay(model.with_erase(Erase::Free), Limits::default(), packets)?;
        let suspended = relay(model.with_erase(SUSPEND), Limits::default(), packets)?;
        // Every block of the bank, up to its endurance (section 8.2).
        let erasable =
            f64::from(model.endurance) * (model.segment_bytes() * BLOCKS) as f64 / 1024.0;
        let days = |kib_per_s: f64| erasable / kib_per_s / 86_400.0;
        let per_packet = freely.bank.erases as f64 * freely.segment as f64 / packets as f64;
        // 15 packets a second, as a groundstation has.
        let years = days(per_packet * 15.0 / 1024.0) / 365.25;
        rows.push(vec![
            ways.to_string(),
            demand.to_owned(),
            format!("{:.1}", waiting.erased_kib_per_s()),
            free.to_owned(),
            format!("{:.1}", freely.erased_kib_per_s()),
            lifetime.to_string(),
            format!("{:.0}", days(freely.erased_kib_per_s())),
            if ways == 4 { "159" } else { "-" }.to_owned(),
            format!("{:.0}", waiting.per_second()),
            format!("{:.0}", suspended.per_second()),
            format!("{:.0}", freely.per_second()),
            format!("{years:.0}"),
        ]);
    }
    Ok(Results {
        title: "Table 6: the groundstation, packets of 1000 bytes",
        columns: vec![
            "ways",
            "erase KB/s, paper",
            "erase KB/s",
            "free erase KB/s, paper",
            "free erase KB/s",
            "lifetime days, paper",
            "lifetime days",
            "packets/s, paper",
            "packets/s",
            "packets/s, background erase",
            "packets/s, free erase",
            "years at 15 packets/s",
        ],
        rows,
        lines: Vec::new(),
    })
}

fn pay(system: System, transactions: u64) -> Result<Run> {
    // A multiplicative walk over the accounts: as good as random, and deterministic.
    run(
        system,
        Limits::default(),
        transactions,
        debit_credit::found,
        |heap, number| {
            let account = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let account = account as usize % debit_credit::ACCOUNTS;
            debit_credit::transact(heap, account, number as usize % debit_credit::TELLERS, 1)
        },
    )
}

fn figure4(transactions: u64) -> Result<Results> {
    type Kind = (&'static str, fn(u64) -> System);
    let gordon: [Kind; 5] = [
        ("flash", |ways| System::Gordon(Model::intel(ways))),
        ("background erase", |ways| {
            System::Gordon(Model::intel(ways).with_erase(SUSPEND))
        }),
        ("free erase", |ways| {
            System::Gordon(Model::intel(ways).with_erase(Erase::Free))
        }),
        ("fast flash", |ways| {
            System::Gordon(Model::intel(ways).fast())
        }),
        ("battery-backed DRAM", |ways| {
            System::Gordon(Model::dram(ways))
        }),
    ];
    let sidney: [Kind; 3] = [
        ("Sidney, log on flash", |ways| {
            System::Sidney(Model::intel(ways))
        }),
        ("Sidney, free erase", |ways| {
            System::Sidney(Model::intel(ways).with_erase(Erase::Free))
        }),
        ("Sidney, log on disk", |ways| {
            System::Sidney(Model::disk(ways, RAW_DISK))
        }),
    ];
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (name, system) in gordon.into_iter().chain(sidney) {
        let mut line = Vec::new();
        for ways in [8, 16, 32] {
            let run = pay(system(ways), transactions)?;
            let paper = if (name, ways) == ("flash", 32) {
                "1437"
            } else {
                "-"
            };
            rows.push(vec![
                ways.to_string(),
                name.to_owned(),
                paper.to_owned(),
                format!("{:.0}", run.per_second()),
                format!(
                    "{:.0}",
                    run.bank.bytes_written as f64 / run.operations as f64
                ),
            ]);
            line.push((ways as f64, run.per_second()));
        }
        lines.push((name, line));
    }
    Ok(Results {
        title: "Figure 4: debit-credit, transactions a second",
        columns: vec![
            "ways",
            "system",
            "tpsB, paper",
            "tpsB",
            "bytes a transaction",
        ],
        rows,
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bank_has_the_papers_bandwidths() {
        for row in table3().expect("banks").rows {
            assert_eq!((&row[2], &row[4]), (&row[3], &row[5]), "{} ways", row[0]);
        }
    }

    #[test]
    fn the_editor_is_as_fast_as_table_4() {
        // At 8 ways that suffices for a persistent collection.
        let results = table4(10_000).expect("banks");
        for row in &results.rows {
            let number = |at: usize| row[at].parse::<f64>().expect("a number");
            assert!(number(3) <= number(2) && number(5) >= number(4), "{row:?}");
            if row[1].starts_with("Gordon") && !row[1].ends_with("waits") {
                assert!(
                    number(6) <= 5.0,
                    "no commit waits longer than 5 ms: {row:?}"
                );
            }
        }
        // As in the paper: Sidney's log is faster on flash than on disk.
        for rows in results.rows.chunks(6) {
            let rate = |at: usize| rows[at][5].parse::<f64>().expect("a number");
            assert!(rate(3) > 10.0 * rate(5), "{rows:?}");
        }
    }

    #[test]
    fn the_groundstation_is_as_fast_as_section_8_2() {
        let run = relay(Model::intel(4), Limits::default(), 20_000).expect("a bank");
        assert!(run.per_second() >= 159.0, "{run:?}");
    }

    #[test]
    fn debit_credit_is_as_fast_as_figure_4() {
        let run = pay(System::Gordon(Model::intel(32)), 20_000).expect("a bank");
        assert!(run.per_second() >= 1437.0, "{run:?}");
    }
}
