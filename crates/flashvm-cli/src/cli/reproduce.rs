//! `flashvm reproduce`: the tables and figures of the papers, measured here, beside theirs.

use super::args::ReproduceArgs;
use super::refusal::Refusal;
use gordon_programs::reproduce::{Name, Results, reproduce as measure};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

/// Measures what was asked for, prints it, and writes it into a folder if there is one.
pub(crate) fn reproduce(args: &ReproduceArgs) -> Result<ExitCode, Refusal> {
    let names: Vec<_> = Name::ALL
        .iter()
        .filter(|(_, name)| args.names.is_empty() || args.names.iter().any(|given| given == name))
        .collect();
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|error| {
            Refusal::new(format!(
                "{}: {error}: give a folder that can be written",
                out.display()
            ))
        })?;
    }
    let share = if args.short { 0.05 } else { 1.0 };
    for (index, (name, text)) in names.iter().enumerate() {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{text} ({} of {}) ", index + 1, names.len());
        }
        let results = measure(*name, share);
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let results = results.map_err(|error| Refusal::new(format!("{text}: {error}")))?;
        print(&results);
        if let Some(out) = &args.out {
            write(out, text, &results)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(results: &Results) {
    let widths: Vec<_> = (results.columns.iter().enumerate())
        .map(|(at, column)| {
            results
                .rows
                .iter()
                .map(|row| row[at].len())
                .fold(column.len(), usize::max)
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<_> = cells
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:>width$}"))
            .collect();
        println!("  {}", cells.join("  "));
    };
    println!("{}", results.title);
    line(&mut results.columns.iter().copied());
    for row in &results.rows {
        line(&mut row.iter().map(String::as_str));
    }
    println!();
}

fn write(out: &Path, name: &str, results: &Results) -> Result<(), Refusal> {
    let files = [("csv", Some(results.csv())), ("svg", results.svg.clone())];
    for (extension, contents) in files {
        let path = out.join(format!("{name}.{extension}"));
        if let Some(contents) = contents {
            std::fs::write(&path, contents)
                .map_err(|error| Refusal::new(format!("{}: {error}", path.display())))?;
        }
    }
    Ok(())
}
