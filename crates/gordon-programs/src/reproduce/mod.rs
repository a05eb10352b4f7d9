//! The paper's Tables 3 to 6 and Figure 4, its pauses and lifetimes, measured on emulated banks with the paper's timing.
//!
//! Time = modelled time of the bank + slowdown * processor time of the program. So the bank is the paper's. With a slowdown
//! of 1 the processor is today's: where the paper was bound by its processor these figures are better, where it was bound by
//! flash they compare. The other slowdown (`debit_credit`) makes one figure of the paper come out; all others test it.

mod debit_credit;
mod editor;
mod groundstation;
mod measured;

use debit_credit::{both_processors, figure4};
use editor::{pauses, table4, text_for};
use gordon::flash::{Erase, Model};
use gordon::{Result, bandwidths};
use groundstation::{lifetimes, table5, table6};

/// Operations of a run, unless the paper gives their number.
const OPERATIONS: u64 = 100_000;

/// The tables and the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Write and erase performance by parallelism.
    Table3,
    /// Commit latency and keystrokes of the editor.
    Table4,
    /// The longest commit of the editor, by collector (section 8.1).
    Pauses,
    /// Erase efficiency by heap size.
    Table5,
    /// Erase bandwidth and lifetime of the groundstation.
    Table6,
    /// Lifetimes of the editor and of a real groundstation (sections 8.1 and 8.2).
    Lifetimes,
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
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Runs one of them.
///
/// # Errors
/// There is not enough memory for the banks.
pub fn reproduce(name: Name) -> Result<Results> {
    match name {
        Name::Table3 => table3(),
        Name::Table4 => table4(text_for, &both_processors()?),
        Name::Pauses => pauses(&[8, 16, 32], &both_processors()?),
        Name::Table5 => table5(OPERATIONS),
        Name::Table6 => table6(OPERATIONS),
        Name::Lifetimes => lifetimes(OPERATIONS),
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

/// Erases in the background, suspended by writes. The suspension itself is free, as the paper gives
/// no figure.
const SUSPEND: Erase = Erase::Background {
    suspend_ns: Some(0),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bank_has_the_papers_bandwidths() {
        for row in table3().expect("banks").rows {
            assert_eq!((&row[2], &row[4]), (&row[3], &row[5]), "{} ways", row[0]);
        }
    }
}
