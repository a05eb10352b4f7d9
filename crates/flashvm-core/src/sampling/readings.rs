//! How the FlashVM paper's text on page sampling (4.2.1, 5.3.2) is read where it leaves a choice. The first word of each is
//! what the engine does; `docs/reproduction/flashvm.md` has the writes that each saves.

use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a skipped page goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Skipped {
    /// To the young end of the inactive list: "skips over".
    #[default]
    Inactive,
    /// To the active list, where Linux puts pages that cannot be reclaimed.
    Active,
    /// It stays the oldest page: the next scan meets it again.
    Kept,
}

/// What a draw decides on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    /// One dirty page.
    #[default]
    Page,
    /// All dirty pages of a scan: it reclaims only clean ones.
    Scan,
}

/// What happens to one in N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Share {
    /// It is skipped: "skipping 1 in 100 dirty pages".
    #[default]
    Skip,
    /// It is written, and all others are skipped: it is the sample.
    Write,
}

/// Whether adaptive sampling skips pages while frames are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// No.
    #[default]
    No,
    /// Yes.
    Too,
}

/// What the adaptive probability follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rate {
    /// The time since n pages were written, over the average of t_n: none "unless n pages have been swapped out".
    #[default]
    Since,
    /// The last t_n, over its average.
    Interval,
}

/// A reading, as text: the words that differ from the first ones, `skipped=active,unit=scan`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Readings {
    pub(crate) skipped: Skipped,
    pub(crate) unit: Unit,
    pub(crate) share: Share,
    pub(crate) pressed: Pressed,
    pub(crate) rate: Rate,
}

/// The choices and their words.
const CHOICES: [(&str, &[&str]); 5] = [
    ("skipped", &["inactive", "active", "kept"]),
    ("unit", &["page", "scan"]),
    ("share", &["skip", "write"]),
    ("pressed", &["no", "too"]),
    ("rate", &["since", "interval"]),
];

impl Readings {
    fn words(self) -> [usize; 5] {
        [
            self.skipped as usize,
            self.unit as usize,
            self.share as usize,
            self.pressed as usize,
            self.rate as usize,
        ]
    }

    fn new([skipped, unit, share, pressed, rate]: [usize; 5]) -> Self {
        Self {
            skipped: [Skipped::Inactive, Skipped::Active, Skipped::Kept][skipped],
            unit: [Unit::Page, Unit::Scan][unit],
            share: [Share::Skip, Share::Write][share],
            pressed: [Pressed::No, Pressed::Too][pressed],
            rate: [Rate::Since, Rate::Interval][rate],
        }
    }
}

impl fmt::Display for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = CHOICES.iter().zip(self.words());
        let given = given.filter(|(_, word)| *word > 0);
        let given = given.map(|((name, words), word)| format!("{name}={}", words[word]));
        f.write_str(&Vec::from_iter(given).join(","))
    }
}

impl FromStr for Readings {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let known = || {
            let known = CHOICES.map(|(name, words)| format!("{name}={}", words.join("|")));
            UnknownName::new(
                "reading of page sampling",
                text,
                known.iter().map(String::as_str),
            )
        };
        let mut chosen = [0; 5];
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (name, word) = part.split_once('=').ok_or_else(known)?;
            let choice = CHOICES.iter().position(|(known, _)| *known == name);
            let choice = choice.ok_or_else(known)?;
            let found = CHOICES[choice].1.iter().position(|known| *known == word);
            chosen[choice] = found.ok_or_else(known)?;
        }
        Ok(Self::new(chosen))
    }
}

impl From<Readings> for String {
    fn from(readings: Readings) -> Self {
        readings.to_string()
    }
}

impl TryFrom<String> for Readings {
    type Error = UnknownName;

    fn try_from(text: String) -> Result<Self, UnknownName> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_parse_and_print() {
        for (name, words) in CHOICES {
            for (place, word) in words.iter().enumerate() {
                let text = format!("{name}={word}");
                let readings: Readings = text.parse().expect("a known word");
                let shown = if place == 0 { String::new() } else { text };
                assert_eq!(readings.to_string(), shown);
            }
        }
        let both = "skipped=kept,rate=interval";
        assert_eq!(both.parse::<Readings>().expect(both).to_string(), both);
        for bad in ["skipped", "skipped=away", "page=unit", ","] {
            bad.parse::<Readings>().expect_err(bad);
        }
    }
}
