//! The report for people: the verdict, what would make programs faster, the checks, the ways to deliver faults.

use super::ways::WAYS;
use super::{DoctorReport, Verdict};
use std::io::IsTerminal;

pub(super) fn text(report: &DoctorReport) -> String {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let paint = |verdict: Verdict| {
        let (text, colour) = match verdict {
            Verdict::Good => ("ok", 32),
            Verdict::Limited => ("limited", 33),
            Verdict::Missing => ("missing", 31),
        };
        if colours {
            format!("\x1b[{colour}m{text:<8}\x1b[0m")
        } else {
            format!("{text:<8}")
        }
    };
    let mut text = format!("{}\n{}\n", report.verdict, faster(report));
    for advice in &report.faster {
        text += &format!(
            "  up to {:.1} times: {}\n    -> {}\n",
            advice.times, advice.what, advice.how
        );
    }
    text.push('\n');
    for check in &report.checks {
        let verdict = paint(check.verdict);
        text += &format!("{verdict} {:<28} {}\n", check.name, check.value);
        if let Some(remedy) = &check.remedy {
            text += &format!("{:9}{:<28} -> {remedy}\n", "", "");
        }
    }
    for (here, way) in report.ways.iter().zip(WAYS) {
        let verdict = paint(match here.lacks {
            None => Verdict::Good,
            Some(_) => Verdict::Missing,
        });
        let name = format!("fault mode {}", way.name);
        text += &format!("{verdict} {name:<28} {}\n", way.what);
        if let Some(lacks) = &here.lacks {
            text += &format!("{:9}{:<28} -> {lacks}\n", "", "");
        }
    }
    if report.works {
        text += "\nRun one: flashvm run --ram SIZE -- PROGRAM [ARGS]...\n";
    }
    text
}

/// The line before the advice.
fn faster(report: &DoctorReport) -> String {
    let place = &report.environment;
    match (report.works, report.faster.is_empty()) {
        (true, false) => format!("In {place}. What would make them faster, most first:"),
        (true, true) => format!("In {place}. Nothing that doctor knows would make them faster."),
        (false, _) => format!("In {place}. Below is what is missing."),
    }
}
