//! Results as tables, charts and notes, and the files that they are written to.
//!
//! - `chart`: a chart as SVG.

mod chart;

use super::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// The results of one experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) tables: Vec<Table>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) notes: Vec<String>,
}

/// A table of texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Appended to the experiment's name, where it has several.
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// Appended to the experiment's name, where it has several.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) logarithmic: bool,
    /// Names of the values 0, 1, 2, ...: the chart has bars then.
    pub(crate) places: Vec<String>,
}

/// Points of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// The paper's own figures.
    pub(crate) paper: bool,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            name: String::new(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.columns.len(), "a cell for every column");
        self.rows.push(cells.into());
    }

    pub(crate) fn file(&self, experiment: &str) -> String {
        file(experiment, &self.name, "csv")
    }

    /// As CSV (RFC 4180).
    pub(crate) fn csv(&self) -> String {
        let cell = |cell: &String| match cell.contains([',', '"', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let line = |cells: &Vec<String>| Vec::from_iter(cells.iter().map(cell)).join(",") + "\r\n";
        let rows = self.rows.iter().map(line);
        line(&self.columns) + &rows.collect::<String>()
    }

    /// As aligned columns, for a terminal.
    pub(crate) fn text(&self) -> String {
        let all = || std::iter::once(&self.columns).chain(&self.rows);
        let width = |at: usize| {
            all()
                .map(|cells| cells[at].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths);
            let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
            format!("  {}", Vec::from_iter(cells).join("  "))
                .trim_end()
                .to_owned()
                + "\n"
        };
        all().map(line).collect()
    }
}

impl Chart {
    pub(crate) fn file(&self, experiment: &str) -> String {
        file(experiment, &self.name, "svg")
    }
}

impl Axis {
    pub(crate) fn linear(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            logarithmic: false,
            places: Vec::new(),
        }
    }

    pub(crate) fn logarithmic(label: &str) -> Self {
        Self {
            logarithmic: true,
            ..Self::linear(label)
        }
    }

    pub(crate) fn places(names: &[&str]) -> Self {
        Self {
            places: names.iter().map(|&name| name.to_owned()).collect(),
            ..Self::linear("")
        }
    }
}

impl Series {
    pub(crate) fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            points,
            paper: false,
        }
    }

    pub(crate) fn paper(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self {
            paper: true,
            ..Self::new(name, points)
        }
    }
}

impl Report {
    /// For a terminal.
    pub(crate) fn text(&self, title: &str) -> String {
        let mut text = format!("{title}\n\n");
        for table in &self.tables {
            text.push_str(&table.text());
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("  - {note}\n"));
        }
        text + "\n"
    }
}

fn file(experiment: &str, name: &str, ending: &str) -> String {
    match name {
        "" => format!("{experiment}.{ending}"),
        name => format!("{experiment}-{name}.{ending}"),
    }
}

/// Draws a chart into a file.
pub(crate) fn write_chart(file: &Path, chart: &Chart) -> Result<(), Refusal> {
    let svg = chart::svg(chart).map_err(|e| cannot(file, &e))?;
    write_whole(file, svg.as_bytes())
}

/// Writes a file atomically.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let file = tempfile::Builder::new()
        .prefix(".flashvm-")
        .permissions(permissions)
        .tempfile_in(folder);
    let mut file = file.map_err(|e| cannot(folder, &e))?;
    file.write_all(bytes).map_err(|e| cannot(path, &e))?;
    file.persist(path).map_err(|e| cannot(path, &e.error))?;
    Ok(())
}

/// The refusal of a place for results.
pub(crate) fn cannot(path: &Path, why: &dyn Display) -> Refusal {
    Refusal::new(format!(
        "{}: {why}: name a folder that can be written with --out",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        let mut table = Table::new(&["a", "b"]);
        table.row(["1,5".to_owned(), "say \"x\"".to_owned()]);
        assert_eq!(table.csv(), "a,b\r\n\"1,5\",\"say \"\"x\"\"\"\r\n");
        assert_eq!(table.text(), "  a    b\n  1,5  say \"x\"\n");
    }
}
