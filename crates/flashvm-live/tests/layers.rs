//! Modules of each crate import each other in one direction. For the live system the order is given here; for the other
//! crates there only has to be one.

use std::collections::{BTreeMap, BTreeSet};
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

/// A file without its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source");
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Code without the tests at its end.
fn without_tests(code: &str) -> &str {
    let tests = code.find("#[cfg(test)]\nmod tests {");
    &code[..tests.unwrap_or(code.len())]
}

/// The names that follow `root` in code: `root::name`, and those in `root::{...}`.
fn named<'c>(code: &'c str, root: &str) -> Vec<&'c str> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(root) {
        let inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        if code[..at].ends_with(inside) {
            continue;
        }
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

/// The module path of a file below the folder of its root module.
fn module(inside: &Path) -> Vec<String> {
    let mut path: Vec<_> = inside
        .with_extension("")
        .iter()
        .map(|part| part.to_str().expect("a name").to_owned())
        .collect();
    if matches!(
        path.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        path.pop();
    }
    path
}

/// For each child of the module in `root`, whose path is `prefix`, the children that it imports. Tests may look up.
fn imports(root: &Path, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for path in sources(root) {
        let module = module(path.strip_prefix(root).expect("found there"));
        let is_test = module.iter().any(|part| part == "tests");
        let Some(child) = module.first().filter(|&child| !is_test && child != "bin") else {
            continue;
        };
        let code = code(&path);
        let code = without_tests(&code);
        let mut names = named(code, prefix);
        names.extend(named(code, &"super::".repeat(module.len())));
        let of = found.entry(child.clone()).or_default();
        of.extend(
            names
                .into_iter()
                .filter(|name| name != child)
                .map(str::to_owned),
        );
    }
    let children: BTreeSet<_> = found.keys().cloned().collect();
    for of in found.values_mut() {
        of.retain(|name| children.contains(name));
    }
    found
}

/// Modules that import each other, directly or not: what is left without those that import none of the rest.
fn circle(mut imports: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let lowest: Vec<_> = imports
            .iter()
            .filter(|(_, of)| of.is_empty())
            .map(|(module, _)| module.clone())
            .collect();
        if lowest.is_empty() {
            return imports;
        }
        for module in lowest {
            imports.remove(&module);
            imports.values_mut().for_each(|of| {
                of.remove(&module);
            });
        }
    }
}

#[test]
fn imports_are_found_alone_and_in_lists() {
    let code = "use crate::sys::map;\nuse crate::{pager::{Pins, guard}, control::Process,\n    Error};\ncrate::flash";
    assert_eq!(
        named(code, "crate::"),
        ["sys", "pager", "control", "Error", "flash"]
    );
    let code = "use super::super::swap::free;\nuse super::near;";
    assert_eq!(named(code, "super::super::"), ["swap"]);
}

#[test]
fn a_circle_is_found() {
    let imports = |edges: &[(&str, &str)]| {
        let mut found = BTreeMap::<String, BTreeSet<String>>::new();
        for &(from, to) in edges {
            found.entry(to.to_owned()).or_default();
            found
                .entry(from.to_owned())
                .or_default()
                .insert(to.to_owned());
        }
        found
    };
    let chain = [("a", "b"), ("b", "c"), ("a", "c")];
    assert!(circle(imports(&chain)).is_empty());
    let found = circle(imports(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
    assert!(found.contains_key("b") && found.contains_key("c") && !found.contains_key("d"));
}

#[test]
fn modules_of_each_crate_import_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    for folder in fs::read_dir(crates).expect("the crates") {
        let root = folder.expect("an entry").path().join("src");
        let mut modules = vec![(root.clone(), "crate::")];
        // The command's modules are all below one.
        let cli = root.join("cli");
        if cli.is_dir() {
            modules.push((cli, "crate::cli::"));
        }
        for (root, prefix) in modules {
            let imports = imports(&root, prefix);
            seen += imports.len();
            let circle = circle(imports);
            assert!(circle.is_empty(), "{}: {circle:?}", root.display());
        }
    }
    assert!(seen > 80, "{seen} modules");
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
        let code = code(&path);
        for name in named(&code, "crate::") {
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
