//! CRAW's Figures 2 to 5 of a trace, as charts and as a table.

use crate::cli::report::{Axis, Chart, Series, Table};
use flashvm_sim::locality::{Locality, Ranks};

/// Points of a curve per doubling of the rank.
const POINTS_AN_OCTAVE: f64 = 12.0;

/// One of the four figures.
pub(crate) struct Figure {
    /// Its number in the paper and in file names.
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    /// Its column's name.
    pub(crate) short: &'static str,
    pub(crate) ranks: fn(&Locality) -> &Ranks,
}

/// The four figures.
pub(crate) const FIGURES: [Figure; 4] = [
    Figure {
        number: 2,
        title: "All references by recency",
        short: "all",
        ranks: |locality| &locality.total,
    },
    Figure {
        number: 3,
        title: "Reads by recency of reads",
        short: "reads",
        ranks: |locality| &locality.read,
    },
    Figure {
        number: 4,
        title: "Writes by recency of writes",
        short: "writes",
        ranks: |locality| &locality.write,
    },
    Figure {
        number: 5,
        title: "Writes by number of past writes",
        short: "writes by frequency",
        ranks: |locality| &locality.write_frequency,
    },
];

/// Ranks with their mean references: single ranks first, then groups of growing width.
pub(crate) fn points(ranks: &Ranks) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut from = 1;
    while from <= ranks.counts.len() {
        let wide = (from as f64 * 2_f64.powf(1.0 / POINTS_AN_OCTAVE)) as usize;
        let to = wide.max(from + 1).min(ranks.counts.len() + 1);
        let sum: u64 = ranks.counts[from - 1..to - 1].iter().sum();
        // A logarithmic axis has no zero.
        if sum > 0 {
            let middle = (from + to - 1) as f64 / 2.0;
            points.push((middle, sum as f64 / (to - from) as f64));
        }
        from = to;
    }
    points
}

/// A figure of one or several traces.
pub(crate) fn chart(figure: &Figure, traces: &[(&str, &Locality)]) -> Chart {
    let series = traces.iter();
    let series = series.map(|(name, locality)| Series::new(name, points((figure.ranks)(locality))));
    Chart {
        name: String::new(),
        title: figure.title.to_owned(),
        x: Axis::logarithmic("rank"),
        y: Axis::logarithmic("references"),
        series: series.collect(),
    }
}

/// Every rank of a trace, with its references in the four figures.
pub(crate) fn table(locality: &Locality) -> Table {
    let mut columns = vec!["rank"];
    columns.extend(FIGURES.iter().map(|figure| figure.short));
    let mut table = Table::new(&columns);
    let curves = FIGURES.map(|figure| &(figure.ranks)(locality).counts);
    let ranks = curves.iter().map(|counts| counts.len()).max().unwrap_or(0);
    for rank in 0..ranks {
        let at = |curve: usize| curves[curve].get(rank).copied().unwrap_or(0).to_string();
        table.row([(rank + 1).to_string(), at(0), at(1), at(2), at(3)]);
    }
    table
}
