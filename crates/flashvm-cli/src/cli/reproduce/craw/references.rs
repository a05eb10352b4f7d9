//! Table 2 and Figures 2 to 5: the locality of the traces.

use super::programs::TracedProgram;
use crate::cli::refusal::Refusal;
use crate::cli::report::{Report, Table};
use crate::cli::reproduce::Material;
use crate::cli::trace::figures::{self, Figure};
use crate::cli::units::count;
use flashvm_sim::locality::Ranks;
use indicatif::ProgressBar;

pub(super) fn table_2(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "program",
        "paper",
        "footprint KiB",
        "references",
        "instruction",
        "data read",
        "data write",
        "writes",
        "paper says",
    ]);
    let programs = material.programs.all(bar)?;
    for program in programs {
        let counts = program.locality.counts();
        let says = match program.paper {
            "xmms" | "gqview" => "more writes than reads",
            "gedit" | "freecell" => "reads dominate",
            _ => "",
        };
        table.row([
            program.name.clone(),
            program.paper.to_owned(),
            count(program.locality.pages() * 4),
            count(counts.all()),
            count(counts.instructions),
            count(counts.reads),
            count(counts.writes),
            percent(counts.writes, counts.all()),
            says.to_owned(),
        ]);
    }
    let mut sources = Table::new(&["program", "recorded", "steps"]);
    sources.name = "sources".to_owned();
    for program in programs {
        sources.row([
            program.name.clone(),
            program.provenance.source.clone(),
            program.provenance.steps.join("; "),
        ]);
    }
    Ok(Report {
        tables: vec![table, sources],
        charts: Vec::new(),
        notes: vec![
            "The paper's Table 2 is a picture whose numbers are not in its text; what the text says of the four programs that it \
             looks at closely (section V.B) stands in the last column."
                .to_owned(),
        ],
    })
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Figures 2 to 5.
pub(super) fn ranks(
    material: &Material,
    bar: &ProgressBar,
    figure: &Figure,
) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let all: Vec<_> = programs
        .iter()
        .map(|program| (program.name.as_str(), &program.locality))
        .collect();
    let notes = match figure.number {
        2 | 3 => {
            "The paper: a more recently referenced page is likelier to be referenced again, even more so for \
             reads."
        }
        4 => {
            "The paper: in some ranges of ranks a more recently written page is less likely to be written again \
             (ranking inversion), clearly for xmms and gqview."
        }
        _ => {
            "The paper: the pages written most get most writes, without inversion; the best ranks get more than \
             by recency."
        }
    };
    let note = "Inverted: share of the ranked references in octaves of ranks whose mean exceeds that of an \
                octave of better rank. Top tenth: share at the best tenth of the ranks.";
    Ok(Report {
        tables: vec![summary(programs, figure), means(programs, figure)],
        charts: vec![figures::chart(figure, &all)],
        notes: vec![notes.to_owned(), note.to_owned()],
    })
}

/// Whether frequency predicts writes better than recency; a run of writes to one page counts once on the right.
pub(super) fn frequency(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "program",
        "writes",
        "top tenth by recency",
        "by frequency",
        "paper",
        "runs",
        "a run's writes",
        "runs' top tenth by recency",
        "runs by frequency",
    ]);
    for program in material.programs.all(bar)? {
        let locality = &program.locality;
        let tenth = |ranks: &Ranks| percent(within_top_tenth(ranks), ranks.ranked());
        let (write, run) = (&locality.write, &locality.run);
        let writes = write.first + write.ranked();
        let runs = run.first + run.ranked();
        table.row([
            program.name.clone(),
            count(writes),
            tenth(write),
            tenth(&locality.write_frequency),
            "more by frequency".to_owned(),
            count(runs),
            format!("{:.1}", writes as f64 / runs.max(1) as f64),
            tenth(run),
            tenth(&locality.run_by_frequency),
        ]);
    }
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "A run: writes to one page with no write to another between.".to_owned(),
            "The paper: by frequency the best ranks have more writes than by recency, without inversion (section III.B)."
                .to_owned(),
        ],
    })
}

/// Each program's share of references at good and at inverted ranks.
fn summary(programs: &[TracedProgram], figure: &Figure) -> Table {
    let mut table = Table::new(&[
        "program",
        "first",
        "ranked",
        "rank 1",
        "top tenth",
        "inverted",
    ]);
    for program in programs {
        let ranks = (figure.ranks)(&program.locality);
        let ranked = ranks.ranked();
        let first = ranks.counts.first().copied().unwrap_or(0);
        table.row([
            program.name.clone(),
            count(ranks.first),
            count(ranked),
            percent(first, ranked),
            percent(within_top_tenth(ranks), ranked),
            format!("{:.1} %", ranks.inverted_percent()),
        ]);
    }
    table
}

fn within_top_tenth(ranks: &Ranks) -> u64 {
    let top = (ranks.first as usize).div_ceil(10).min(ranks.counts.len());
    ranks.counts[..top].iter().sum()
}

/// Mean references per rank, by octaves of ranks.
fn means(programs: &[TracedProgram], figure: &Figure) -> Table {
    let octaves = programs
        .iter()
        .map(|program| (figure.ranks)(&program.locality).octaves());
    let octaves: Vec<_> = octaves.collect();
    let mut columns = vec!["ranks"];
    columns.extend(programs.iter().map(|program| program.name.as_str()));
    let mut table = Table::new(&columns);
    table.name = "octaves".to_owned();
    for at in 0..octaves.iter().map(Vec::len).max().unwrap_or(0) {
        let from = 1_u64 << at;
        let mut row = vec![format!("{from} to {}", 2 * from - 1)];
        let mean = |octave: &Vec<_>| octave.get(at).map_or(String::new(), mean_of);
        row.extend(octaves.iter().map(mean));
        table.rows.push(row);
    }
    table
}

fn mean_of(octave: &flashvm_sim::locality::Octave) -> String {
    format!("{:.1}", octave.mean())
}
