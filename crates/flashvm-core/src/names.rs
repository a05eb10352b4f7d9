//! Names of policies, presets and other choices: the answer to an unknown one lists the known ones.

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} '{name}': known are {known}")]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// The name given.
    pub name: String,
    /// The known names.
    pub known: String,
}

impl UnknownName {
    pub(crate) fn new<'a>(
        what: &'static str,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        Self {
            what,
            name: name.to_owned(),
            known: known.collect::<Vec<_>>().join(", "),
        }
    }
}
