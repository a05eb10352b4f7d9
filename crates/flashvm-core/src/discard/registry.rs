//! The registry of discard strategies: name, constructor and one line of help each. The command
//! line, the documentation and the conformance tests walk it.

use super::DiscardStrategy;
use super::auto::Auto;
use super::dummy::Dummy;
use super::merged::Merged;
use super::native::Native;
use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Default batch of a merged discard: 100 MB (4.3.2), in slots.
const BATCH_PAGES: u32 = 100_000_000 / 4096;
/// A merged discard holds back at most slots of the store / STORE_SHARE.
const STORE_SHARE: u32 = 8;
/// Largest batch that an option accepts: 1 GiB.
const BATCH_PAGES_MAX: u32 = (1 << 30) / 4096;

/// A discard strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiscardKind {
    /// No discards.
    Off,
    /// Each free cluster by itself, in commands of 128 KiB.
    Native,
    /// Many clusters in one command.
    Merged,
    /// None for clusters that are soon overwritten, otherwise a command each.
    Dummy,
    /// Dummy while t_s is short, otherwise merged.
    Auto,
}

/// A strategy with its batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discard {
    /// The strategy.
    pub kind: DiscardKind,
    /// Slots that a merged discard gathers.
    pub batch_pages: u32,
}

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct DiscardInfo {
    /// The strategy.
    pub kind: DiscardKind,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    build: Option<fn(u32) -> Box<dyn DiscardStrategy>>,
}

impl DiscardKind {
    /// All strategies.
    pub const ALL: &[DiscardInfo] = &[
        DiscardInfo {
            kind: Self::Off,
            name: "off",
            help: "the device is told nothing",
            build: None,
        },
        DiscardInfo {
            kind: Self::Native,
            name: "native",
            help: "each free cluster at once, in commands of 128 KiB (Linux 2.6.28)",
            build: Some(|_| Box::new(Native)),
        },
        DiscardInfo {
            kind: Self::Merged,
            name: "merged",
            help: "many free clusters in one command: merged:SIZE, 100 MB unless said (4.3.2)",
            build: Some(|batch| Box::new(Merged::new(batch))),
        },
        DiscardInfo {
            kind: Self::Dummy,
            name: "dummy",
            help: "none for clusters that are soon overwritten, else one command each (4.3.3)",
            build: Some(|_| Box::new(Dummy::new())),
        },
        DiscardInfo {
            kind: Self::Auto,
            name: "auto",
            help: "none for clusters that are soon overwritten, else merged (4.3.3)",
            build: Some(|batch| Box::new(Auto::new(batch))),
        },
    ];

    /// Its line in the registry.
    ///
    /// # Panics
    /// If the registry lacks a strategy: a bug.
    #[must_use]
    pub fn info(self) -> &'static DiscardInfo {
        let info = Self::ALL.iter().find(|info| info.kind == self);
        info.expect("every strategy is registered")
    }
}

impl Discard {
    /// A strategy with the default batch size.
    #[must_use]
    pub const fn new(kind: DiscardKind) -> Self {
        Self {
            kind,
            batch_pages: BATCH_PAGES,
        }
    }

    /// The strategy for a store of this many slots; `None`: no discards.
    #[must_use]
    pub fn build(&self, slots: u32) -> Option<Box<dyn DiscardStrategy>> {
        let batch = self.batch_pages.min(slots / STORE_SHARE).max(1);
        self.kind.info().build.map(|build| build(batch))
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.info().name)?;
        if self.kind == DiscardKind::Merged && self.batch_pages != BATCH_PAGES {
            write!(f, ":{}", u64::from(self.batch_pages) * 4096)?;
        }
        Ok(())
    }
}

/// Why a text does not name a strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscardError {
    /// No strategy has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The size is malformed or out of range, or this strategy takes none.
    #[error("'{0}': write merged:SIZE with a size of 4K to 1G, such as merged:100M")]
    Batch(String),
}

impl FromStr for Discard {
    type Err = DiscardError;

    /// A registered name, or `merged:SIZE`; `none` is `off`.
    fn from_str(text: &str) -> Result<Self, DiscardError> {
        let (name, size) = match text.split_once(':') {
            Some((name, size)) => (name, Some(size)),
            None => (text, None),
        };
        let name = if name == "none" { "off" } else { name };
        let info = DiscardKind::ALL.iter().find(|info| info.name == name);
        let names = DiscardKind::ALL.iter().map(|info| info.name);
        let kind = info
            .map(|info| info.kind)
            .ok_or_else(|| UnknownName::new("discard strategy", text, names))?;
        let mut discard = Self::new(kind);
        if let Some(size) = size {
            discard.batch_pages = batch_pages(size)
                .filter(|_| kind == DiscardKind::Merged)
                .ok_or_else(|| DiscardError::Batch(text.to_owned()))?;
        }
        Ok(discard)
    }
}

fn batch_pages(size: &str) -> Option<u32> {
    let digits = size.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = size.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    let pages = u32::try_from(bytes / 4096).ok()?;
    (1..=BATCH_PAGES_MAX).contains(&pages).then_some(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_names_parse_and_print() {
        let merged = |pages| Discard {
            kind: DiscardKind::Merged,
            batch_pages: pages,
        };
        assert_eq!("merged:1M".parse(), Ok(merged(256)));
        assert_eq!("merged:8192".parse(), Ok(merged(2)));
        assert_eq!("none".parse(), Ok(Discard::new(DiscardKind::Off)));
        assert_eq!(merged(256).to_string().parse(), Ok(merged(256)));
        for info in DiscardKind::ALL {
            let discard: Discard = info.name.parse().expect("it is registered");
            assert_eq!(discard, Discard::new(info.kind));
            assert_eq!(discard.to_string(), info.name);
        }
        for bad in [
            "merged:",
            "merged:0",
            "merged:2G",
            "merged:1T",
            "native:1M",
            "trim",
        ] {
            let error = bad.parse::<Discard>().expect_err(bad).to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
