//! Documents name what exists: every link, every path and every `file.rs: function` of each Markdown file. Tables that a
//! mark takes from a CSV file are those of the file (`eval/tables.py` fills them).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders at the root: a word in code quotes that begins with one is a path.
const ROOTS: [&str; 9] = [
    "crates/",
    "docs/",
    "eval/",
    "examples/",
    "fuzz/",
    "python/",
    "tests/",
    "traces/",
    ".ci/",
];
/// Extensions of files that documents name.
const EXTENSIONS: [&str; 6] = [".rs", ".md", ".c", ".py", ".sh", ".toml"];
/// Keywords of the items that `file.rs: item` can name.
const ITEMS: [&str; 6] = ["fn", "struct", "enum", "trait", "const", "static"];

/// The files of a repository.
struct Repository {
    root: PathBuf,
    /// Relative to the root, with `/`.
    files: BTreeSet<String>,
}

impl Repository {
    fn open() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().expect("the repository");
        let mut files = BTreeSet::new();
        collect(&root, "", &mut files);
        Self { root, files }
    }

    /// The files that a path may mean: the one at this path, or any whose path ends with it.
    fn find(&self, path: &str) -> Vec<&String> {
        let end = format!("/{path}");
        let means = |file: &&String| *file == path || file.ends_with(&end);
        self.files.iter().filter(means).collect()
    }

    /// Whether a path from the root is a file or a folder.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let is_it = |file: &String| file == path || file.starts_with(&folder);
        self.files.iter().any(is_it)
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.root.join(file)).expect("a text")
    }

    /// All references in a document that lead nowhere.
    fn broken(&self, document: &str, text: &str) -> Vec<String> {
        let mut broken = Vec::new();
        let mut in_fence = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
            } else if !in_fence {
                let links = links(line).filter(|link| !self.links_to(document, link));
                broken.extend(links.map(str::to_owned));
                self.check_words(line, &mut broken);
            }
        }
        broken
    }

    /// Whether a link leads to a file or folder, and to a heading in it.
    fn links_to(&self, document: &str, link: &str) -> bool {
        if link.contains("://") {
            return true;
        }
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => document.to_owned(),
            _ => resolve(document, path),
        };
        let has_heading = || {
            let text = self.text(&target);
            text.lines().any(|line| anchor(line) == heading)
        };
        self.has(&target) && (heading.is_empty() || has_heading())
    }

    /// Checks the words in code quotes of a line. An identifier after `file.rs: item` and a comma is another
    /// item of that file.
    fn check_words(&self, line: &str, broken: &mut Vec<String>) {
        let parts: Vec<&str> = line.split('`').collect();
        let mut sources: Vec<String> = Vec::new();
        for at in (1..parts.len()).step_by(2) {
            let (between, word) = (parts[at - 1], parts[at]);
            if let Some((file, item)) = word.split_once(": ")
                && file.ends_with(".rs")
            {
                let files = self.find(file).into_iter();
                sources = files.map(|file| self.text(file)).collect();
                if !sources.iter().any(|source| defines(source, item)) {
                    broken.push(word.to_owned());
                }
                continue;
            }
            if between == ", " && !sources.is_empty() && is_identifier(word) {
                if !sources.iter().any(|source| defines(source, word)) {
                    broken.push(word.to_owned());
                }
                continue;
            }
            sources.clear();
            let is_from_root = ROOTS.iter().any(|root| word.starts_with(root));
            let is_pattern = word.contains(['*', ' ', '<', '{']);
            let exists = || self.has(word) || !self.find(word).is_empty();
            if (is_from_root && !is_pattern || is_path(word)) && !exists() {
                broken.push(word.to_owned());
            }
        }
    }
}

/// Collects files, without the folders of builds, fuzzing and version control.
fn collect(root: &Path, folder: &str, files: &mut BTreeSet<String>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if matches!(&name[..], "target" | ".git" | "artifacts" | "corpus") {
            continue;
        }
        let path = match folder {
            "" => name,
            _ => format!("{folder}/{name}"),
        };
        if entry.file_type().expect("a type").is_dir() {
            collect(root, &path, files);
        } else {
            files.insert(path);
        }
    }
}

/// Whether a word looks like the path of a file that documents name. A word in capitals is a placeholder.
fn is_path(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let has_extension = EXTENSIONS.iter().any(|extension| word.ends_with(extension));
    let stem = word.rsplit_once('.').map_or(word, |(stem, _)| stem);
    let is_placeholder = !stem.contains(|c: char| c.is_ascii_lowercase());
    let is_nested = word.contains('/') || word.ends_with(".rs");
    has_extension
        && is_nested
        && !is_placeholder
        && !word.starts_with('/')
        && word.chars().all(plain)
}

/// Whether a source defines an item.
fn defines(source: &str, item: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    ITEMS.iter().any(|kind| {
        let head = format!("{kind} {item}");
        source
            .match_indices(&head)
            .any(|(at, _)| is_end(&source[at + head.len()..]))
    })
}

/// The targets of a line's links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1);
    targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

fn is_identifier(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !word.is_empty() && word.chars().all(plain)
}

/// A link's path from the root.
fn resolve(document: &str, link: &str) -> String {
    let folder = Path::new(document).parent().expect("a file");
    let mut parts: Vec<&str> = Vec::new();
    let path = folder.join(link);
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(name) => parts.push(name.to_str().expect("UTF-8")),
            _ => {}
        }
    }
    parts.join("/")
}

/// The anchor that a heading gets; empty for any other line.
fn anchor(line: &str) -> String {
    let title = line.trim_start_matches('#');
    if title.len() == line.len() {
        return String::new();
    }
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    title.trim().chars().filter_map(kept).collect()
}

#[test]
fn documents_name_what_exists() {
    let repository = Repository::open();
    let is_document = |file: &&String| file.ends_with(".md");
    let documents: Vec<_> = repository.files.iter().filter(is_document).collect();
    assert!(documents.len() > 10, "found only {documents:?}");
    let broken: Vec<_> = documents
        .iter()
        .flat_map(|document| {
            let broken = repository.broken(document, &repository.text(document));
            broken
                .into_iter()
                .map(move |what| format!("{document}: {what}"))
        })
        .collect();
    assert!(
        broken.is_empty(),
        "these lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn broken_references_are_found() {
    let repository = Repository::open();
    let broken = |text: &str| repository.broken("docs/design/engine.md", text);
    for good in [
        "[a](../../README.md), [b](../terms.md#terms), [c](https://example.org)",
        "`crates/flashvm-core/src/page.rs` and `page.rs: may_become`, `crates/flashvm-core`",
        "`FILE.toml`, `--flash PATH`, `/proc/self/mem`",
        "```text\n`nowhere.rs`\n```",
    ] {
        assert_eq!(broken(good), [""; 0], "{good}");
    }
    for bad in [
        "[a](README.md)",
        "[a](../terms.md#no-such-heading)",
        "`crates/flashvm-core/src/nothing.rs`",
        "`crates/nothing`",
        "`nowhere.rs`",
        "`page.rs: no_such_function`",
        "`page.rs: may_becom`",
        "`page.rs: may_become`, `no_such_function`",
    ] {
        assert_eq!(broken(bad).len(), 1, "{bad}");
    }
}

/// The cells of a CSV file (RFC 4180).
fn cells(csv: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let (mut cells, mut quoted) = (vec![String::new()], false);
        let mut characters = line.chars().peekable();
        while let Some(c) = characters.next() {
            let cell = cells.last_mut().expect("a cell");
            match c {
                '"' if quoted && characters.peek() == Some(&'"') => {
                    cell.extend(characters.next());
                }
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                _ => cell.push(c),
            }
        }
        cells
    };
    csv.lines().map(row).collect()
}

/// The table that a mark asks for: `<!-- table: FILE.csv columns=1,2 where=COLUMN:VALUE,VALUE -->`.
fn marked(repository: &Repository, document: &str, mark: &str) -> Vec<Vec<String>> {
    let (file, rest) = mark.split_once(' ').unwrap_or((mark, ""));
    let mut rows = cells(&repository.text(&resolve(document, file)));
    if let Some((_, filter)) = rest.split_once("where=") {
        let (column, values) = filter.split_once(':').expect("a column and values");
        let at = rows[0].iter().position(|name| name == column);
        let at = at.expect("a column of the file");
        let head = rows.remove(0);
        rows.retain(|row| values.split(',').any(|value| row[at] == value));
        rows.insert(0, head);
    }
    let columns = rest.strip_prefix("columns=").map(|rest| {
        let numbers = rest.split(' ').next().expect("numbers").split(',');
        Vec::from_iter(numbers.map(|number| number.parse::<usize>().expect("a number") - 1))
    });
    let columns = columns.unwrap_or((0..rows[0].len()).collect());
    let row = |row: Vec<String>| columns.iter().map(|&at| row[at].clone()).collect();
    rows.into_iter().map(row).collect()
}

/// The marks of a document whose table differs from the file's.
fn differing(repository: &Repository, document: &str, text: &str) -> (usize, Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut count, mut different) = (0, Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let mark = line.strip_prefix("<!-- table: ");
        let Some(mark) = mark.and_then(|mark| mark.strip_suffix(" -->")) else {
            continue;
        };
        count += 1;
        let table = lines[at + 1..].iter().skip_while(|line| line.is_empty());
        let table = table.take_while(|line| line.starts_with('|'));
        let row = |line: &&str| {
            let inner = line
                .strip_prefix("| ")
                .and_then(|line| line.strip_suffix(" |"));
            Vec::from_iter(inner.unwrap_or(line).split(" | ").map(str::to_owned))
        };
        let mut found: Vec<Vec<String>> = table.map(row).collect();
        if found.len() > 1 {
            // The line below the head.
            found.remove(1);
        }
        if found != marked(repository, document, mark) {
            different.push(format!("{document}: {mark}"));
        }
    }
    (count, different)
}

#[test]
fn tables_are_those_of_their_files() {
    let repository = Repository::open();
    let documents = repository.files.iter().filter(|file| file.ends_with(".md"));
    let (mut count, mut different) = (0, Vec::new());
    for document in documents {
        let (marks, differ) = differing(&repository, document, &repository.text(document));
        count += marks;
        different.extend(differ);
    }
    assert!(count > 10, "{count} tables");
    assert!(
        different.is_empty(),
        "eval/tables.py fills these:\n{}",
        different.join("\n")
    );
}

#[test]
fn a_changed_figure_in_a_table_is_found() {
    let repository = Repository::open();
    let document = "docs/reproduction/craw.md";
    let text = repository.text(document);
    assert_eq!(differing(&repository, document, &text).1, [""; 0]);
    let at = text.find("<!-- table: craw/craw-c.csv").expect("the table");
    let figure = at + text[at..].find("0.").expect("a figure") + 2;
    let digit = if &text[figure..=figure] == "9" {
        "8"
    } else {
        "9"
    };
    let changed = format!("{}{digit}{}", &text[..figure], &text[figure + 1..]);
    assert_eq!(differing(&repository, document, &changed).1.len(), 1);
}
