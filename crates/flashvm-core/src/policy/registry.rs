//! The one list of replacement policies: names, constructors, one line of help each. The command
//! line, the documentation and the conformance tests walk it.

use super::Policy;
use super::clock::{Clock, Insert};
use super::fifo::Fifo;
use super::two_list::TwoList;
use crate::settings::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A replacement policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// First in, first out.
    Fifo,
    /// CLOCK, reference bit set at insertion.
    Clock,
    /// CLOCK, reference bit clear at insertion.
    ClockClear,
    /// Active and inactive list of Linux 2.6.28.
    TwoList,
    /// Two lists with a small inactive share.
    SegmentedFifo,
}

/// A line of the list.
#[derive(Clone, Copy)]
pub struct PolicyInfo {
    /// The policy.
    pub kind: PolicyKind,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    build: fn(u32) -> Box<dyn Policy>,
}

impl PolicyKind {
    /// Every policy there is.
    pub const ALL: &[PolicyInfo] = &[
        PolicyInfo {
            kind: Self::Fifo,
            name: "fifo",
            help: "first in, first out",
            build: |pages| Box::new(Fifo::new(pages)),
        },
        PolicyInfo {
            kind: Self::Clock,
            name: "clock",
            help: "first in, first out with a second chance for referenced pages",
            build: |pages| Box::new(Clock::new(pages, Insert::Set)),
        },
        PolicyInfo {
            kind: Self::ClockClear,
            name: "clock-clear",
            help: "clock in which the access that brings a page in does not count as a reference",
            build: |pages| Box::new(Clock::new(pages, Insert::Clear)),
        },
        PolicyInfo {
            kind: Self::TwoList,
            name: "two-list",
            help: "active and inactive list of Linux 2.6.28, a third inactive",
            build: |pages| Box::new(TwoList::new(pages, 3)),
        },
        PolicyInfo {
            kind: Self::SegmentedFifo,
            name: "segmented-fifo",
            help: "active and inactive list, an eighth inactive: fewest moves (Turner, Levy 1981)",
            build: |pages| Box::new(TwoList::new(pages, 8)),
        },
    ];

    /// Its line in the list.
    ///
    /// # Panics
    /// If a policy is missing from the list: a bug.
    #[must_use]
    pub fn info(self) -> &'static PolicyInfo {
        let info = Self::ALL.iter().find(|info| info.kind == self);
        info.expect("every policy is in the list")
    }

    /// A policy for pages `0..pages`, all out of RAM.
    #[must_use]
    pub fn build(self, pages: u32) -> Box<dyn Policy> {
        (self.info().build)(pages)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let names = || Self::ALL.iter().map(|info| info.name);
        Self::ALL
            .iter()
            .find(|info| info.name == name)
            .map(|info| info.kind)
            .ok_or_else(|| UnknownName::new("policy", name, names()))
    }
}
