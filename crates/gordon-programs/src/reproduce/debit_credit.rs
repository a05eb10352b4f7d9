//! Figure 4: debit-credit, and how much slower the paper's processor was.

use super::measured::{RAW_DISK, Run, Slowdown, System, run};
use super::{OPERATIONS, Results, SUSPEND};
use crate::debit_credit;
use gordon::flash::{Erase, Model};
use gordon::{Limits, Result};
use std::sync::OnceLock;

/// Debit-credit is bound by the processor at 1437 / 67 % transactions a second (section 8.3).
const PROCESSOR_BOUND: f64 = 1437.0 / 0.67;

/// How much slower the paper's processor was: with this slowdown, transactions on flash that takes no time are as many as
/// in the paper. The paper's ran Standard ML on a MIPS R4400 at 250 MHz.
pub(super) fn papers_processor() -> Result<Slowdown> {
    static SLOWDOWN: OnceLock<f64> = OnceLock::new();
    if let Some(&slowdown) = SLOWDOWN.get() {
        return Ok(Slowdown(slowdown));
    }
    let fast = System::Gordon(Model::intel(32).fast());
    // Other programs on the machine make it slower, never faster.
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        fastest = fastest.min(pay(fast, Slowdown::NONE, OPERATIONS)?.processor_ns());
    }
    Ok(Slowdown(
        *SLOWDOWN.get_or_init(|| 1e9 / PROCESSOR_BOUND / fastest),
    ))
}

/// Today's processor and the paper's.
pub(super) fn both_processors() -> Result<[Slowdown; 2]> {
    Ok([Slowdown::NONE, papers_processor()?])
}

fn pay(system: System, slowdown: Slowdown, transactions: u64) -> Result<Run> {
    // A multiplicative walk over the accounts: as good as random, and deterministic.
    run(
        system,
        Limits::default(),
        slowdown,
        transactions,
        debit_credit::found,
        |heap, number| {
            let account = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let account = account as usize % debit_credit::ACCOUNTS;
            debit_credit::transact(heap, account, number as usize % debit_credit::TELLERS, 1)
        },
    )
}

pub(super) fn figure4(transactions: u64) -> Result<Results> {
    type Kind = (&'static str, fn(u64) -> System);
    // Fast flash first: the others are compared with it.
    let kinds: [Kind; 8] = [
        ("fast flash", |ways| {
            System::Gordon(Model::intel(ways).fast())
        }),
        ("flash", |ways| System::Gordon(Model::intel(ways))),
        ("background erase", |ways| {
            System::Gordon(Model::intel(ways).with_erase(SUSPEND))
        }),
        ("free erase", |ways| {
            System::Gordon(Model::intel(ways).with_erase(Erase::Free))
        }),
        ("battery-backed DRAM", |ways| {
            System::Gordon(Model::dram(ways))
        }),
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
    let [today, slow] = both_processors()?;
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    let all = kinds.into_iter().map(|kind| (kind, today));
    let slower = kinds[..4].iter().map(|&kind| (kind, slow));
    let mut fastest = [0.0; 3];
    for ((name, system), slowdown) in all.chain(slower) {
        let mut line = Vec::new();
        for (at, ways) in [8, 16, 32].into_iter().enumerate() {
            let run = pay(system(ways), slowdown, transactions)?;
            if name == "fast flash" {
                fastest[at] = run.per_second();
            }
            let (paper, share) = match (name, ways) {
                ("flash", 32) => ("1437", "67 %"),
                // What the slowdown is made from.
                ("fast flash", 32) => ("2145", "100 %"),
                _ => ("-", "-"),
            };
            rows.push(vec![
                ways.to_string(),
                name.to_owned(),
                slowdown.name(),
                paper.to_owned(),
                format!("{:.0}", run.per_second()),
                share.to_owned(),
                format!("{:.0} %", 100.0 * run.per_second() / fastest[at]),
                format!(
                    "{:.0}",
                    run.bank.bytes_written as f64 / run.operations as f64
                ),
            ]);
            line.push((ways as f64, run.per_second()));
        }
        let processor = if slowdown == Slowdown::NONE {
            ""
        } else {
            ", slower processor"
        };
        lines.push((format!("{name}{processor}"), line));
    }
    Ok(Results {
        title: "Figure 4: debit-credit, transactions a second",
        columns: vec![
            "ways",
            "system",
            "processor",
            "tpsB, paper",
            "tpsB",
            "of fast flash, paper",
            "of fast flash",
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
    fn debit_credit_is_as_fast_as_figure_4() {
        let run = pay(System::Gordon(Model::intel(32)), Slowdown::NONE, 20_000).expect("a bank");
        assert!(run.per_second() >= 1437.0, "{run:?}");
    }
}
