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
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for higher in &LAYERS[layer + 1..] {
                assert!(
                    !line.contains(&format!("crate::{higher}::")),
                    "{} uses {higher}, which is above it: {line}",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 50, "{seen} files");
}
