//! Tables 5 and 6, and lifetimes: the groundstation, and the editor's wear.

use super::Results;
use super::debit_credit::{both_processors, papers_processor};
use super::editor::{edit, often, text_for};
use super::measured::{Run, Slowdown, System, run};
use crate::groundstation;
use gordon::flash::{BLOCKS, Erase, Model};
use gordon::{Limits, Result};

/// The groundstation with five packets of so many bytes in its queue.
fn relay(
    model: Model,
    limits: Limits,
    slowdown: Slowdown,
    bytes: usize,
    packets: u64,
) -> Result<Run> {
    let packet = vec![0x5A; bytes];
    run(
        System::Gordon(model),
        limits,
        slowdown,
        packets,
        |_| Ok(()),
        |heap, number| groundstation::receive(heap, &packet, number.saturating_sub(5)).map(|_| ()),
    )
}

/// Bytes of a packet in the paper's benchmark.
const PACKET: usize = 1000;

/// Days until every block of a bank has reached its endurance (section 8.2).
fn days(model: Model, erased_kib_per_s: f64) -> f64 {
    let erasable = f64::from(model.endurance) * (model.segment_bytes() * BLOCKS) as f64 / 1024.0;
    erasable / erased_kib_per_s / 86_400.0
}

pub(super) fn table5(packets: u64) -> Result<Results> {
    let mut rows = Vec::new();
    for (segments, paper) in [(1, "53%"), (2, "65%"), (3, "73%"), (4, "88%")] {
        let model = Model::intel(4).with_erase(Erase::Free);
        let bytes = Some(segments * model.segment_bytes());
        let mut row = vec![segments.to_string(), paper.to_owned()];
        for whole_segments in [false, true] {
            let limits = Limits {
                persistent_bytes: bytes,
                log_bytes: bytes,
                whole_segments,
                ..Limits::default()
            };
            let run = relay(model, limits, Slowdown::NONE, PACKET, packets)?;
            let erased = run.bank.erases * run.segment;
            let efficiency = run.bank.erased_bytes_written as f64 / erased as f64;
            row.push(format!("{:.1}%", 100.0 * efficiency));
            row.push(run.bank.erases.to_string());
        }
        rows.push(row);
    }
    Ok(Results {
        title: "Table 5: erase efficiency of the groundstation, 4 ways",
        columns: vec![
            "limit, segments",
            "paper",
            "limit counts new bytes",
            "erases, new bytes",
            "limit on a boundary",
            "erases, boundary",
        ],
        rows,
        lines: Vec::new(),
    })
}

pub(super) fn table6(packets: u64) -> Result<Results> {
    let paper = [
        (4, "210.3", "414.6", 228),
        (8, "357.7", "584.2", 324),
        (16, "540.8", "789.6", 480),
    ];
    let mut rows = Vec::new();
    for (ways, demand, free, lifetime) in paper {
        for slowdown in both_processors()? {
            let model = Model::intel(ways);
            let relay = |model| relay(model, Limits::default(), slowdown, PACKET, packets);
            let waiting = relay(model)?;
            let freely = relay(model.with_erase(Erase::Free))?;
            rows.push(vec![
                ways.to_string(),
                slowdown.name(),
                demand.to_owned(),
                format!("{:.1}", waiting.erased_kib_per_s()),
                free.to_owned(),
                format!("{:.1}", freely.erased_kib_per_s()),
                lifetime.to_string(),
                format!("{:.0}", days(model, freely.erased_kib_per_s())),
                if ways == 4 { "159" } else { "-" }.to_owned(),
                format!("{:.0}", waiting.per_second()),
                format!("{:.0}", freely.per_second()),
            ]);
        }
    }
    Ok(Results {
        title: "Table 6: the groundstation, packets of 1000 bytes",
        columns: vec![
            "ways",
            "processor",
            "erase KB/s, paper",
            "erase KB/s",
            "free erase KB/s, paper",
            "free erase KB/s",
            "lifetime days, paper",
            "lifetime days",
            "packets/s, paper",
            "packets/s",
            "packets/s, free erase",
        ],
        rows,
        lines: Vec::new(),
    })
}

pub(super) fn lifetimes(packets: u64) -> Result<Results> {
    let slow = papers_processor()?;
    let chips = Model::intel(8).with_erase(Erase::Free);
    let typing = edit(System::Gordon(chips), often(chips), slow, text_for(8))?;
    let station = Model::intel(4).with_erase(Erase::Free);
    let small = relay(station, Limits::default(), slow, 100, 10 * packets)?;
    let large = relay(station, Limits::default(), slow, PACKET, packets)?;
    let at_once = "editor, 8 ways, as fast as it goes";
    let as_typed = "editor, 8 ways, at the paper's 408 keys a second";
    let by_hand = "editor, 8 ways, 20 keys a second";
    let of_1000 = "groundstation, 4 ways, 15 packets of 1000 bytes a second";
    let of_100 = "groundstation, 4 ways, 15 packets of 100 bytes a second";
    // What it is, the paper's years, and the operations a second of a run.
    let rows = [
        (at_once, "1.1", chips, &typing, typing.per_second()),
        (as_typed, "1.1", chips, &typing, 408.0),
        (by_hand, "20", chips, &typing, 20.0),
        (of_1000, "-", station, &large, 15.0),
        (of_100, "more than 80", station, &small, 15.0),
    ];
    let row = |(what, paper, model, run, rate): (&str, &str, Model, &Run, f64)| {
        let years = days(model, run.erased_kib() * rate) / 365.25;
        vec![what.to_owned(), paper.to_owned(), format!("{years:.1}")]
    };
    Ok(Results {
        title: "Sections 8.1 and 8.2: lifetimes, with erases in the background",
        columns: vec!["what", "years, paper", "years"],
        rows: rows.into_iter().map(row).collect(),
        lines: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_counts_new_bytes_gives_table_5() {
        for row in table5(20_000).expect("banks").rows {
            let percent = |at: usize| {
                row[at]
                    .trim_end_matches('%')
                    .parse::<f64>()
                    .expect("a number")
            };
            assert!((percent(1) - percent(2)).abs() < 8.0, "{row:?}");
            assert!(percent(4) > 96.0, "{row:?}");
        }
    }

    #[test]
    fn the_groundstation_is_as_fast_as_section_8_2() {
        let run = relay(
            Model::intel(4),
            Limits::default(),
            Slowdown::NONE,
            PACKET,
            20_000,
        )
        .expect("a bank");
        assert!(run.per_second() >= 159.0, "{run:?}");
    }
}
