//! Which benches run: words on the command line select those whose names contain one of them.

/// Whether a bench is to run. Without words on the command line all are.
pub(crate) fn is_selected(name: &str) -> bool {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}
