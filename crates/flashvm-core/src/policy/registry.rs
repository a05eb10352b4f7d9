//! The registry of replacement policies: name, parameters, constructor and one line of help each.
//! The command line, the documentation, the conformance tests and the sweeps walk it.

use super::arc::Arc;
use super::bplru::Bplru;
use super::car::Car;
use super::cfclock::CfClock;
use super::cflru::Cflru;
use super::clc::Clc;
use super::clock::{Clock, Insert};
use super::craw::{Bits, Craw, Readings, Victim, readings};
use super::fab::Fab;
use super::fifo::Fifo;
use super::lru::Lru;
use super::lru_wsr::LruWsr;
use super::nru::Nru;
use super::opt::Opt;
use super::parameters::{Parameter, Values};
use super::s3_fifo::S3Fifo;
use super::sieve::Sieve;
use super::tenure::Tenured;
use super::two_list::TwoList;
use super::wage::Wage;
use super::{Policy, PolicyContext};
use crate::names::UnknownName;
use std::fmt;
use std::str::FromStr;

type Build = fn(&PolicyContext, Values) -> Box<dyn Policy>;

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct PolicyInfo {
    /// The policy.
    pub kind: PolicyKind,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    pub(super) build: Build,
}

/// Declares the policies: one line each.
macro_rules! policies {
    ($($kind:ident $name:literal $parameters:expr, $help:literal => $build:expr;)*) => {
        /// A replacement policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PolicyKind {
            $(#[doc = $help] $kind,)*
        }

        impl PolicyKind {
            /// All policies.
            pub const ALL: &[PolicyInfo] = &[$(PolicyInfo {
                kind: Self::$kind,
                name: $name,
                help: $help,
                parameters: $parameters,
                build: $build,
            },)*];
        }
    };
}

const INSERT: Parameter = Parameter::Word {
    name: "insert",
    words: &["set", "clear"],
};
const WINDOW: Parameter = Parameter::Share {
    name: "window",
    default: 333_334,
};
const SMALL: Parameter = Parameter::Share {
    name: "small",
    default: 100_000,
};
const RECENT: Parameter = Parameter::Share {
    name: "recent",
    default: 100_000,
};
const INACTIVE_THIRD: Parameter = Parameter::Share {
    name: "inactive",
    default: 333_334,
};
const INACTIVE_EIGHTH: Parameter = Parameter::Share {
    name: "inactive",
    default: 125_000,
};

policies! {
    Opt "opt" &[], "the furthest next reference first: the bound, on traces only (Belady 1966)"
        => |g, _| Box::new(Opt::new(g.pages));
    Fifo "fifo" &[], "first in, first out"
        => |g, _| Box::new(Fifo::new(g.pages));
    Lru "lru" &[], "least recently used first"
        => |g, _| Box::new(Lru::new(g.pages));
    Clock "clock" &[INSERT], "first in, first out with a second chance for referenced pages"
        => |g, [word, ..]| Box::new(Clock::new(g.pages, [Insert::Set, Insert::Clear][word as usize]));
    Nru "nru" &[], "classes by reference and modified bit"
        => |g, _| Box::new(Nru::new(g.pages));
    TwoList "two-list" &[INACTIVE_THIRD], "active and inactive list of Linux 2.6.28, a third inactive"
        => |g, [share, ..]| Box::new(TwoList::new(g.pages, share));
    SegmentedFifo "segmented-fifo" &[INACTIVE_EIGHTH], "the same, an eighth inactive: fewest moves (Turner, Levy 1981)"
        => |g, [share, ..]| Box::new(TwoList::new(g.pages, share));
    Tenure "tenure" &[], "the same, as many inactive as pays; pages in use earn tenure, and are looked at ever more rarely: FlashVM's own"
        => |g, _| Box::new(Tenured::new(g.pages));
    Car "car" &[], "CLOCK with adaptive replacement (Bansal, Modha 2004)"
        => |g, _| Box::new(Car::new(g.pages));
    Arc "arc" &[], "adaptive replacement (Megiddo, Modha 2003)"
        => |g, _| Box::new(Arc::new(g.pages));
    Cflru "cflru" &[WINDOW], "clean pages first in a window at the LRU end (Park and others 2006)"
        => |g, [share, ..]| Box::new(Cflru::new(g.pages, share));
    CfClock "cfclock" &[WINDOW], "clean pages first in a window under the hand (CRAW paper, V.A)"
        => |g, [share, ..]| Box::new(CfClock::new(g.pages, share));
    LruWsr "lru-wsr" &[], "LRU with one more chance for dirty pages (Jung and others 2008)"
        => |g, _| Box::new(LruWsr::new(g.pages));
    Fab "fab" &[], "the flash block with most pages in RAM, as a whole (Jo and others 2006)"
        => |g, _| Box::new(Fab::new(g));
    Bplru "bplru" &[], "the flash block written the longest ago, padded (Kim, Ahn 2008)"
        => |g, _| Box::new(Bplru::new(g));
    Clc "clc" &[RECENT], "the largest flash block that was not just used (Kang and others 2009)"
        => |g, [share, ..]| Box::new(Clc::new(g, share));
    Sieve "sieve" &[], "pages keep their places under a hand (Zhang and others 2024)"
        => |g, _| Box::new(Sieve::new(g.pages));
    S3Fifo "s3-fifo" &[SMALL], "a small queue filters for the main one (Yang and others 2023)"
        => |g, [share, ..]| Box::new(S3Fifo::new(g.pages, share));
    Craw "craw" readings::PARAMETERS, "CLOCK for read and write, with a read and a write bit a page (Lee, Bahn, Shin 2014)"
        => |g, values| Box::new(Craw::new(g, Bits::ReadWrite, Victim::Fullest, Readings::new(values)));
    CrawA "craw-a" readings::PARAMETERS, "the same by reference and modified bits"
        => |g, values| Box::new(Craw::new(g, Bits::ReferenceModified, Victim::Fullest, Readings::new(values)));
    CrawC "craw-c" readings::PARAMETERS, "CRAW whose victims are also chosen by the cost of their eviction: FlashVM's own"
        => |g, values| Box::new(Craw::new(g, Bits::ReadWrite, Victim::Cheapest, Readings::new(values)));
    Wage "wage" &[], "the longest idle for what its return would cost: FlashVM's own"
        => |g, _| Box::new(Wage::new(g));
}

impl PolicyKind {
    /// Its line in the registry.
    #[must_use]
    pub fn info(self) -> &'static PolicyInfo {
        &Self::ALL[self as usize]
    }

    /// Whether it needs the future, and so works on traces only.
    #[must_use]
    pub fn is_offline(self) -> bool {
        self == Self::Opt
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
        let found = Self::ALL.iter().find(|info| info.name == name);
        let known = Self::ALL.iter().map(|info| info.name);
        found
            .map(|info| info.kind)
            .ok_or_else(|| UnknownName::new("policy", name, known))
    }
}
