//! Values that are one of a few words, as enums.

use flashvm_core::{ConfigError, PolicyKind, PolicySpec};
use flashvm_live::control::{DecisionLevel, Select};
use std::fmt;
use std::str::FromStr;

/// Makes an enum with a word for each value.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident is a $what:literal: $($(#[$of:meta])* $value:ident $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$of])* $value,)*
        }

        impl $name {
            /// All values with their words.
            pub(crate) const ALL: [(Self, &'static str); [$($word),*].len()] = [$((Self::$value, $word)),*];
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|(_, word)| *word == text);
                found.map(|(value, _)| *value).ok_or_else(|| {
                    let known = Self::ALL.map(|(_, word)| word).join(", ");
                    format!("unknown {} '{text}': known are {known}", $what)
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$value => $word,)* })
            }
        }
    };
}

choice! {
    /// The thread that resolves page faults.
    FaultMode is a "fault mode":
    /// The faulting thread where that works, else the pager's.
    Auto "auto",
    /// The faulting thread.
    Inline "inline",
    /// A thread of the pager.
    Handler "handler",
    /// The faulting thread, without userfaultfd.
    Protect "protect",
}

choice! {
    /// Which of the program's memory is managed.
    WhichMemory is a "selection":
    /// All.
    All "all",
    /// What it asks for by name.
    Api "api",
}

choice! {
    /// The program's `malloc`.
    WhoseMalloc is a "malloc":
    /// Its own.
    Own "own",
    /// mimalloc.
    Mimalloc "mimalloc",
}

choice! {
    /// Where the program gets huge pages: the kernel's words.
    WhereHuge is a "use of huge pages":
    /// In every mapping.
    Always "always",
    /// Where it asks for them.
    Madvise "madvise",
    /// Nowhere.
    Never "never",
}

choice! {
    /// Which of its decisions a process's pager keeps.
    WhichDecisions is a "level of decisions":
    /// Nothing.
    Off "off",
    /// What makes programs fail.
    Error "error",
    /// And requests that failed.
    Warn "warn",
    /// And the life of the process.
    Info "info",
    /// And requests to flash.
    Debug "debug",
    /// And every fault.
    Trace "trace",
}

impl WhichDecisions {
    /// The level, for the settings.
    pub(super) fn level(self) -> DecisionLevel {
        match self {
            Self::Off => DecisionLevel::Off,
            Self::Error => DecisionLevel::Error,
            Self::Warn => DecisionLevel::Warn,
            Self::Info => DecisionLevel::Info,
            Self::Debug => DecisionLevel::Debug,
            Self::Trace => DecisionLevel::Trace,
        }
    }
}

impl WhichMemory {
    /// The selection, for the settings.
    pub(super) fn select(self) -> Select {
        match self {
            Self::All => Select::All,
            Self::Api => Select::Api,
        }
    }
}

choice! {
    /// The size of the smallest pages.
    Granularity is a "granularity":
    /// 512 bytes: small objects lie in a heap of small pages.
    Small "512",
    /// 4 KiB: no heap of small pages.
    Whole "4096",
}

/// A peer of Chameleon, as a mode of its heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Pages of 4 KiB in a log.
    LogSwap,
    /// A page buffer of N percent of RAM; the rest of RAM caches objects, which the program reaches by faults.
    SsdAlloc(u32),
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "log-swap" {
            return Ok(Self::LogSwap);
        }
        let percent = text.strip_prefix("ssdalloc:").and_then(|n| n.parse().ok());
        let percent = percent.filter(|percent| (1..=90).contains(percent));
        percent.map(Self::SsdAlloc).ok_or_else(|| {
            format!("unknown peer '{text}': known are log-swap, ssdalloc:N with N from 1 to 90")
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogSwap => f.write_str("log-swap"),
            Self::SsdAlloc(percent) => write!(f, "ssdalloc:{percent}"),
        }
    }
}

/// A policy that a live pager can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LivePolicy(pub(crate) PolicySpec);

impl LivePolicy {
    /// The names of all policies that are not offline.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let live = PolicyKind::ALL.iter();
        let live = live.filter(|info| !info.kind.is_offline());
        live.map(|info| info.name)
    }
}

impl FromStr for LivePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let policy: PolicySpec = text.parse().map_err(|e| format!("{e}"))?;
        match policy.kind().is_offline() {
            true => Err(ConfigError::Offline(policy).to_string()),
            false => Ok(Self(policy)),
        }
    }
}

impl fmt::Display for LivePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
