//! The registry of prefetchers: name, constructor and one line of help each. The command line, the
//! documentation and the conformance tests walk it.

use super::Prefetcher;
use super::contiguous::{Begin, Contiguous};
use super::modern::Modern;
use super::native::Native;
use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefetcherKind {
    /// No prefetching.
    Off,
    /// The aligned window of Linux 2.6.28.
    Native,
    /// Contiguous over free and bad slots, and by stride: FlashVM.
    Contiguous,
    /// As [`Self::Contiguous`], from the begin of the target's aligned block on.
    Around,
    /// Several streams with growing windows.
    Modern,
}

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct PrefetcherInfo {
    /// The prefetcher.
    pub kind: PrefetcherKind,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// The constructor, with the arguments of [`PrefetcherKind::build`].
    build: fn(u32, u32) -> Option<Box<dyn Prefetcher>>,
}

impl PrefetcherKind {
    /// All prefetchers.
    pub const ALL: &[PrefetcherInfo] = &[
        PrefetcherInfo {
            kind: Self::Off,
            name: "off",
            help: "nothing is read ahead",
            build: |_, _| None,
        },
        PrefetcherInfo {
            kind: Self::Native,
            name: "native",
            help: "the aligned window around the target, ended by free or bad slots (Linux 2.6.28)",
            build: |readahead, stride| Some(Box::new(Native::new(readahead, stride))),
        },
        PrefetcherInfo {
            kind: Self::Contiguous,
            name: "contiguous",
            help: "contiguous on flash over free and bad slots, then two stride pages (FlashVM)",
            build: |readahead, stride| {
                Some(Box::new(Contiguous::new(Begin::Target, readahead, stride)))
            },
        },
        PrefetcherInfo {
            kind: Self::Around,
            name: "around",
            help: "as contiguous, from the begin of the target's aligned window on (FlashVM, another reading)",
            build: |readahead, stride| {
                Some(Box::new(Contiguous::new(Begin::Block, readahead, stride)))
            },
        },
        PrefetcherInfo {
            kind: Self::Modern,
            name: "modern",
            help: "several streams of any stride, with windows that grow while they hit",
            build: |readahead, _| Some(Box::new(Modern::new(readahead))),
        },
    ];

    /// Its line in the registry.
    ///
    /// # Panics
    /// If the registry lacks a prefetcher: a bug.
    #[must_use]
    pub fn info(self) -> &'static PrefetcherInfo {
        let info = Self::ALL.iter().find(|info| info.kind == self);
        info.expect("every prefetcher is in the list")
    }

    /// A prefetcher that reads up to `readahead` pages around a fault, and with [`PrefetcherKind::Native`],
    /// [`PrefetcherKind::Contiguous`] and [`PrefetcherKind::Around`] up to `stride` stride pages; `None` for [`PrefetcherKind::Off`].
    #[must_use]
    pub fn build(self, readahead: u32, stride: u32) -> Option<Box<dyn Prefetcher>> {
        (self.info().build)(readahead, stride)
    }
}

impl fmt::Display for PrefetcherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

impl FromStr for PrefetcherKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let names = || Self::ALL.iter().map(|info| info.name);
        Self::ALL
            .iter()
            .find(|info| info.name == name)
            .map(|info| info.kind)
            .ok_or_else(|| UnknownName::new("prefetcher", name, names()))
    }
}
