//! Modules of the live system import each other in one direction.

use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest: each imports only those before it.
const LAYERS: [&str; 10] = [
    "sys",
    "space",
    "control",
    "flash",
    "mappings",
    "record",
    "chameleon",
    "pager",
    "program",
    "guard",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .collect()
}

/// The modules that code names: `crate::name`, and the names in `crate::{...}`.
fn imported(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, root) in code.match_indices("crate::") {
        let rest = &code[at + root.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(name(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                '{' => depth += 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    names.push(name(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn name(code: &str) -> &str {
    let ends = |c: char| !c.is_alphanumeric() && c != '_';
    &code[..code.find(ends).unwrap_or(code.len())]
}

#[test]
fn imports_are_found_alone_and_in_lists() {
    let code = "use crate::sys::map;\nuse crate::{pager::{Pins, guard}, control::Process,\n    Error};\ncrate::flash";
    assert_eq!(
        imported(code),
        ["sys", "pager", "control", "Error", "flash"]
    );
}

#[test]
fn modules_import_lower_ones_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for path in sources(&root) {
        let inside = path.strip_prefix(&root).expect("found there");
        let module = inside.components().next().expect("a name");
        let Some(layer) = LAYERS.iter().position(|name| module.as_os_str() == *name) else {
            assert_eq!(inside, Path::new("lib.rs"), "a module without a layer");
            continue;
        };
        seen += 1;
        let text = fs::read_to_string(&path).expect("a source");
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        for name in imported(&code) {
            let higher = &LAYERS[layer + 1..];
            assert!(
                !higher.contains(&name),
                "{} uses {name}, which is above it",
                path.display()
            );
        }
    }
    assert!(seen > 50, "{seen} files");
}
