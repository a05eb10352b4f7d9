//! The README's tables of options, between markers: the main options, and the presets.
//!
//! `FLASHVM_WRITE_README=1 cargo test --release -p flashvm-cli --bin flashvm readme` writes them; without the
//! variable the test fails if they are stale.

use super::spec::{Fallback, Group, Spec};
use super::table::TABLE;
use flashvm_core::Preset;
use std::path::Path;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
const WRITE: &str = "FLASHVM_WRITE_README";

/// `text` escaped for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn row(cells: &[String]) -> String {
    let cells = cells.iter().map(|text| cell(text));
    format!("| {} |\n", Vec::from_iter(cells).join(" | "))
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: Vec<_> = head.iter().map(|name| (*name).to_owned()).collect();
    let rule = vec!["---".to_owned(); head.len()];
    [head, rule]
        .into_iter()
        .chain(rows)
        .map(|cells| row(&cells))
        .collect()
}

/// The table of the main options and the reports.
fn options() -> String {
    let first = TABLE.iter();
    let first = first.filter(|spec| matches!(spec.group, Group::Run | Group::Report));
    table(
        &["option", "meaning", "default"],
        first.map(|spec| {
            let default = spec.default_text().unwrap_or_default();
            vec![
                format!("`{}`", spec.use_of(spec.value)),
                spec.help.to_owned(),
                default,
            ]
        }),
    )
}

/// The table of the presets' values.
fn presets() -> String {
    let presets = [Preset::Modern, Preset::Flashvm, Preset::Native];
    let rows = TABLE.iter().filter_map(|spec: &Spec| match spec.default {
        Fallback::Preset(of) => {
            let values = presets.map(|preset| of(&preset.settings()));
            let name = [format!("`--{}`", spec.name)];
            Some(name.into_iter().chain(values).collect())
        }
        Fallback::Words(_) | Fallback::None => None,
    });
    table(&["option", "`modern`", "`flashvm`", "`native`"], rows)
}

/// `text` with `inside` between the markers `<!-- name -->` and `<!-- /name -->`.
fn replaced(text: &str, name: &str, inside: &str) -> String {
    let [begin, end] = [format!("<!-- {name} -->\n"), format!("<!-- /{name} -->")];
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some(format!("{before}{begin}{inside}{end}{after}"))
    });
    parts.unwrap_or_else(|| panic!("README.md has no {begin}{end}"))
}

#[test]
fn readme_has_the_tables() {
    let path = Path::new(README);
    let there = std::fs::read_to_string(path).expect("README.md");
    let fresh = replaced(&there, "options", &options());
    let fresh = replaced(&fresh, "presets", &presets());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, fresh).expect("a README that can be written");
    } else {
        assert!(
            there == fresh,
            "README.md is stale: run this test with {WRITE}=1"
        );
    }
}
