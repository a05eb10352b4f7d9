//! The text form of a policy: `car`, `clock(insert=clear)`, `lru,cfclock(window=0.33)`.

use super::registry::{PolicyInfo, PolicyKind};
use super::window::MILLION;
use super::{Policy, PolicyContext};
use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most parameters that a policy has.
const PARAMETERS_MAX: usize = 9;

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// One of several words; the first is the default.
    Word {
        /// Its name.
        name: &'static str,
        /// The words.
        words: &'static [&'static str],
    },
    /// A share, above zero and at most one.
    Share {
        /// Its name.
        name: &'static str,
        /// The default, in parts per million.
        default: u32,
    },
}

/// The values of a policy's parameters, in the order of [`PolicyInfo::parameters`]: the index of a
/// word, or a share in parts per million.
pub type Values = [u32; PARAMETERS_MAX];

/// A policy with its parameters. Serialised as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PolicySpec {
    kind: PolicyKind,
    values: Values,
}

/// Why a text does not name a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The policy has no such parameter.
    #[error("policy '{policy}' has no parameter '{name}': {known}")]
    NoParameter {
        /// The policy.
        policy: &'static str,
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The value is out of range.
    #[error("policy '{policy}': {name}={value}: write {range}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        name: &'static str,
        /// The given value.
        value: String,
        /// The range.
        range: String,
    },
    /// The text is neither NAME nor NAME(parameter=value).
    #[error("'{0}' is not a policy: write NAME or NAME(parameter=value)")]
    Form(String),
}

impl Parameter {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Word { name, .. } | Self::Share { name, .. } => name,
        }
    }

    /// The values it accepts.
    #[must_use]
    pub fn range(&self) -> String {
        match self {
            Self::Word { name, words } => format!("{name}={}", words.join("|")),
            Self::Share { name, .. } => {
                format!("{name}=SHARE, above 0 and at most 1")
            }
        }
    }

    fn default(&self) -> u32 {
        match self {
            Self::Word { .. } => 0,
            Self::Share { default, .. } => *default,
        }
    }

    fn parse(&self, text: &str) -> Option<u32> {
        match self {
            Self::Word { words, .. } => {
                let found = words.iter().position(|word| *word == text)?;
                u32::try_from(found).ok()
            }
            Self::Share { .. } => {
                let share = text.parse::<f64>().ok()? * f64::from(MILLION);
                let share = share.round();
                // NaN is in no range.
                (1.0..=f64::from(MILLION))
                    .contains(&share)
                    .then_some(share as u32)
            }
        }
    }

    fn show(&self, value: u32) -> String {
        match self {
            Self::Word { words, .. } => words[value as usize].to_owned(),
            Self::Share { .. } => (f64::from(value) / f64::from(MILLION)).to_string(),
        }
    }
}

impl PolicySpec {
    /// A policy with its parameters at their defaults.
    #[must_use]
    pub fn new(kind: PolicyKind) -> Self {
        let mut values = Values::default();
        for (value, parameter) in values.iter_mut().zip(kind.info().parameters) {
            *value = parameter.default();
        }
        Self { kind, values }
    }

    /// The policy.
    #[must_use]
    pub fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Its line in the registry.
    #[must_use]
    pub fn info(&self) -> &'static PolicyInfo {
        self.kind.info()
    }

    /// Builds the policy for pages that are all out of RAM, with `frames` frames.
    #[must_use]
    pub fn build(&self, context: &PolicyContext, frames: u32) -> Box<dyn Policy> {
        let mut policy = (self.info().build)(context, self.values);
        policy.resized(frames);
        policy
    }

    /// Whether loads and stores are alike to this policy ([`Policy::ignores_stores`]).
    #[must_use]
    pub fn ignores_stores(&self) -> bool {
        self.build(&PolicyContext::of_pages(4), 4).ignores_stores()
    }

    /// Parses policies separated by commas.
    ///
    /// # Errors
    /// The first part that is no policy.
    ///
    /// # Example
    /// ```
    /// use flashvm_core::policy::PolicySpec;
    /// let policies = PolicySpec::list("lru,clock(insert=clear),cfclock(window=0.33)").unwrap();
    /// assert_eq!(policies[1].to_string(), "clock(insert=clear)");
    /// ```
    pub fn list(text: &str) -> Result<Vec<Self>, PolicyError> {
        let mut depth = 0;
        let split = |c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            c == ',' && depth <= 0
        };
        let parts: Vec<_> = text.split(split).collect();
        parts.into_iter().map(str::parse).collect()
    }
}

impl From<PolicyKind> for PolicySpec {
    fn from(kind: PolicyKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for PolicySpec {
    /// The name, and the parameters that differ from their defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)?;
        let given = self.info().parameters.iter().zip(self.values);
        let given = given.filter(|(parameter, value)| parameter.default() != *value);
        let given = given.map(|(p, value)| format!("{}={}", p.name(), p.show(value)));
        let given: Vec<_> = given.collect();
        match given.is_empty() {
            true => Ok(()),
            false => write!(f, "({})", given.join(",")),
        }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let text = text.trim();
        let form = || PolicyError::Form(text.to_owned());
        let (name, given) = match text.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').ok_or_else(form)?),
            None => (text, ""),
        };
        let mut spec = Self::new(name.trim().parse()?);
        let info = spec.info();
        for part in given.split(',').filter(|_| !given.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            let (name, value) = (name.trim(), value.trim());
            let parameters = info.parameters.iter().zip(&mut spec.values);
            let mut parameters = parameters.filter(|(parameter, _)| parameter.name() == name);
            let (parameter, to) = parameters.next().ok_or_else(|| PolicyError::NoParameter {
                policy: info.name,
                name: name.to_owned(),
                known: known(info),
            })?;
            *to = parameter.parse(value).ok_or_else(|| PolicyError::Value {
                policy: info.name,
                name: parameter.name(),
                value: value.to_owned(),
                range: parameter.range(),
            })?;
        }
        Ok(spec)
    }
}

fn known(info: &PolicyInfo) -> String {
    let ranges: Vec<_> = info.parameters.iter().map(Parameter::range).collect();
    match ranges.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", ranges.join(" and ")),
    }
}

impl From<PolicySpec> for String {
    fn from(spec: PolicySpec) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for PolicySpec {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_parse_and_print() {
        for info in PolicyKind::ALL {
            let spec = PolicySpec::new(info.kind);
            assert_eq!(spec.to_string(), info.name);
            assert_eq!(info.name.parse(), Ok(spec));
            assert!(info.parameters.len() <= PARAMETERS_MAX, "{}", info.name);
        }
        for text in [
            "clock(insert=clear)",
            "cfclock(window=0.5)",
            "s3-fifo(small=0.25)",
        ] {
            let spec: PolicySpec = text.parse().expect(text);
            assert_eq!(spec.to_string(), text);
        }
        assert_eq!(
            " clock( insert = set ) ".parse(),
            "clock".parse::<PolicySpec>()
        );
    }

    #[test]
    fn errors_name_the_value_and_the_alternatives() {
        for (text, named) in [
            ("lru2", &["'lru2'", "two-list", "craw-a"][..]),
            ("", &["''"]),
            ("clock(insert=maybe)", &["insert=maybe", "set|clear"]),
            ("cfclock(window=0)", &["window=0", "at most 1"]),
            ("cfclock(window=1.5)", &["window=1.5", "at most 1"]),
            ("cfclock(window=NaN)", &["window=NaN"]),
            ("cfclock(width=0.5)", &["'width'", "window=SHARE"]),
            ("fifo(window=1)", &["'window'", "none"]),
            ("clock(insert=set", &["'clock(insert=set'", "NAME("]),
            ("clock(insert)", &["NAME("]),
        ] {
            let line = text.parse::<PolicySpec>().expect_err(text).to_string();
            for name in named {
                assert!(line.contains(name), "{line:?} does not name {name:?}");
            }
            assert!(!line.contains('\n'));
        }
    }
}
