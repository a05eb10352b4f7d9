//! What the paper's text leaves open: each reading with its result, on traces that the choice was made on and on
//! others.

use super::programs::{TracedProgram, device, mean, ratios, spec, sweep_of};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Report, Table};
use crate::cli::reproduce::Material;
use flashvm_core::PolicySpec;
use flashvm_sim::sweep::Observation;
use indicatif::ProgressBar;

/// Readings were chosen on these, and are reported on the others.
const CHOSEN_ON: [&str; 3] = ["feh", "freecell", "tar-gzip"];
/// Memory in percent of the footprint: the paper's sizes without 100 %, where policies hardly differ.
pub(super) const PERCENTS: [u32; 12] = [1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90];

/// The parameters, what they mean, what the text says.
const READINGS: [(&str, &str, &str); 16] = [
    ("", "what `craw` does", ""),
    (
        "start=halves",
        "at first R has S/2, W1 and W2 S/4 each, not S/3 each",
        "open",
    ),
    (
        "bits=set",
        "the faulting access sets the page's bit",
        "open",
    ),
    (
        "growth=whole",
        "a hit in R' adds one page, in W1' or W2' eight",
        "open: \"the different cost\"",
    ),
    (
        "growth=both",
        "one and nine pages",
        "open: \"the different cost\"",
    ),
    (
        "growth=equal",
        "one page each",
        "against it: \"the different cost\"",
    ),
    (
        "promote=stay",
        "pages of W1 found written stay there",
        "open",
    ),
    (
        "found=w1",
        "pages of R found written join W1, even with a history",
        "for it",
    ),
    (
        "other-bit=cleared",
        "R's hand clears the write bit of pages in the write area too",
        "for it",
    ),
    (
        "shrink=larger",
        "only the larger of the other areas shrinks",
        "open",
    ),
    (
        "ghosts=each",
        "W1' has S - W1, W2' S - W2 pages",
        "against it: S ghosts suffice",
    ),
    (
        "other-history=forgotten",
        "a fault deletes the histories of both kinds",
        "open",
    ),
    (
        "other-history=hit",
        "a fault counts as a hit in the histories of both kinds",
        "against it",
    ),
    (
        "found=w1,other-bit=cleared",
        "the text to the letter in both",
        "for it",
    ),
    (
        "start=halves,bits=set,growth=whole,promote=stay",
        "the first reading made here",
        "open",
    ),
    (
        "ghosts=each,other-history=hit,found=w1",
        "the three best of the others together",
        "against it",
    ),
];

pub(super) fn table(material: &Material, bar: &ProgressBar) -> Result<Report, Refusal> {
    let programs = material.programs.all(bar)?;
    let own = material.programs.folder().is_some();
    let chosen_on = |program: &&TracedProgram| !own && CHOSEN_ON.contains(&program.name.as_str());
    let mut policies = vec![spec("clock")];
    for policy in ["craw", "craw-a"] {
        policies.extend(READINGS.iter().map(|(reading, ..)| with(policy, reading)));
    }
    let mut means = Vec::new();
    for program in programs {
        bar.set_message(format!("{}: readings", program.name));
        let sizes = sweep_of(program, &policies, &PERCENTS, &device(), Observation::Full)?;
        let ratio = |policy| mean(&ratios(&sizes, policy));
        means.push(Vec::from_iter((0..policies.len()).map(ratio)));
    }
    let cell = |policy: usize, wanted: bool| {
        let of = programs.iter().zip(&means);
        let of = of.filter(|(program, _)| chosen_on(program) == wanted);
        let of = Vec::from_iter(of.map(|(_, means)| means[policy]));
        match of.is_empty() {
            true => String::new(),
            false => format!("{:.3}", mean(&of)),
        }
    };
    let mut table = Table::new(&[
        "reading",
        "meaning",
        "the text",
        "craw, chosen on",
        "craw, held back",
        "craw-a, chosen on",
        "craw-a, held back",
    ]);
    for (at, (reading, meaning, text)) in READINGS.into_iter().enumerate() {
        let (craw, approximate) = (1 + at, 1 + READINGS.len() + at);
        table.row([
            reading.replace(',', ", "),
            meaning.to_owned(),
            text.to_owned(),
            cell(craw, true),
            cell(craw, false),
            cell(approximate, true),
            cell(approximate, false),
        ]);
    }
    let mut by_program = Table::new(&["reading"]);
    by_program.name = "programs".to_owned();
    by_program
        .columns
        .extend(programs.iter().map(|program| program.name.clone()));
    for (at, (reading, ..)) in READINGS.into_iter().enumerate() {
        let mut row = vec![reading.replace(',', ", ")];
        row.extend(means.iter().map(|means| format!("{:.3}", means[1 + at])));
        by_program.rows.push(row);
    }
    Ok(Report {
        tables: vec![table, by_program],
        charts: Vec::new(),
        notes: vec![
            "I/O time over CLOCK's, means over the sizes below 100 % of the footprint and over programs. Each row changes \
             `craw` in the named parameters alone."
                .to_owned(),
            format!(
                "Readings are chosen on {}, and reported on the other traces; `start` was found with all six in view. With \
                 --traces all count as held back.",
                CHOSEN_ON.join(", ")
            ),
        ],
    })
}

/// A policy with parameters.
pub(super) fn with(policy: &str, parameters: &str) -> PolicySpec {
    match parameters {
        "" => spec(policy),
        _ => spec(&format!("{policy}({parameters})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_is_one_of_the_policy() {
        for (reading, ..) in READINGS {
            for policy in ["craw", "craw-a"] {
                assert_eq!(with(policy, reading).info().name, policy);
            }
        }
    }
}
