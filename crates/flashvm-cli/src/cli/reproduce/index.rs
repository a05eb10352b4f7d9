//! The index page, as Markdown and as HTML.

use super::{Experiment, Suite};
use crate::cli::report::Report;

type Results<'a> = [(&'a Experiment, Report)];

/// As Markdown.
pub(super) fn markdown(suite: &Suite, all: &Results) -> String {
    let mut page = format!("# {}\n\n{}\n", suite.title, suite.introduction);
    for (experiment, report) in all {
        page.push_str(&format!("\n## {}\n", experiment.title));
        for table in &report.tables {
            let line = |cells: &Vec<String>| {
                let cells = cells.iter().map(|cell| cell.replace('|', "\\|"));
                format!("| {} |\n", Vec::from_iter(cells).join(" | "))
            };
            page.push_str(&format!("\n{}", line(&table.columns)));
            page.push_str(&format!("|{}\n", " --- |".repeat(table.columns.len())));
            page.extend(table.rows.iter().map(line));
        }
        for chart in &report.charts {
            let file = chart.file(experiment.name);
            page.push_str(&format!("\n![{}]({file})\n", chart.title));
        }
        if !report.notes.is_empty() {
            page.push('\n');
        }
        page.extend(report.notes.iter().map(|note| format!("- {note}\n")));
    }
    page
}

/// As HTML.
pub(super) fn html(suite: &Suite, all: &Results) -> String {
    let title = escaped(suite.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}\n\
         table{{border-collapse:collapse}}td,th{{border:1px solid #ccc;padding:.2em .6em;\
         text-align:left}}img{{max-width:100%}}</style>\n<h1>{title}</h1>\n"
    );
    for paragraph in suite.introduction.split("\n\n") {
        page.push_str(&format!("<p>{}</p>\n", escaped(paragraph)));
    }
    for (experiment, report) in all {
        page.push_str(&format!("<h2>{}</h2>\n", escaped(experiment.title)));
        for table in &report.tables {
            let row = |cells: &Vec<String>, tag: &str| {
                let cells = cells
                    .iter()
                    .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
                format!("<tr>{}</tr>\n", cells.collect::<String>())
            };
            page.push_str(&format!("<table>\n{}", row(&table.columns, "th")));
            page.extend(table.rows.iter().map(|cells| row(cells, "td")));
            let file = table.file(experiment.name);
            page.push_str(&format!("</table>\n<p><a href=\"{file}\">{file}</a></p>\n"));
        }
        for chart in &report.charts {
            let (file, title) = (chart.file(experiment.name), escaped(&chart.title));
            page.push_str(&format!("<p><img src=\"{file}\" alt=\"{title}\"></p>\n"));
        }
        let notes = report.notes.iter();
        let notes = notes.map(|note| format!("<li>{}</li>\n", escaped(note)));
        page.push_str(&format!("<ul>\n{}</ul>\n", notes.collect::<String>()));
    }
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
