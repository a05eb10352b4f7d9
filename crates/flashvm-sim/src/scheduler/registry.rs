//! The registry of schedulers: name, constructor and one line of help each.

use super::Scheduler;
use super::anticipatory::Anticipatory;
use super::cfq::Cfq;
use super::deadline::{Deadline, DeadlineTuning};
use super::noop::Noop;
use flashvm_core::Nanos;
use std::fmt;
use std::str::FromStr;

/// A scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerKind {
    /// First come, first served.
    #[default]
    Noop,
    /// Sweeps in batches, reads first.
    Deadline,
    /// A time slice for each process.
    Cfq,
    /// Idles after a read, for one nearby.
    Anticipatory,
}

/// A line of the list.
#[derive(Clone, Copy)]
pub struct SchedulerInfo {
    /// The scheduler.
    pub kind: SchedulerKind,
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    build: fn(Nanos, DeadlineTuning) -> Box<dyn Scheduler>,
}

impl SchedulerKind {
    /// All schedulers.
    pub const ALL: &[SchedulerInfo] = &[
        SchedulerInfo {
            kind: Self::Noop,
            name: "noop",
            help: "first come, first served, adjacent requests merged",
            build: |_, _| Box::new(Noop::default()),
        },
        SchedulerInfo {
            kind: Self::Deadline,
            name: "deadline",
            help: "sweeps in batches, reads before writes",
            build: |_, tuning| Box::new(Deadline::new(tuning)),
        },
        SchedulerInfo {
            kind: Self::Cfq,
            name: "cfq",
            help: "a slice of time for each process, idling for its next read",
            build: |idle, _| Box::new(Cfq::new(idle)),
        },
        SchedulerInfo {
            kind: Self::Anticipatory,
            name: "anticipatory",
            help: "sweeps, idling after a read for one that lies near",
            build: |idle, _| Box::new(Anticipatory::new(idle)),
        },
    ];

    /// Its line in the registry.
    ///
    /// # Panics
    /// If a scheduler is missing from the list: a bug.
    #[must_use]
    pub fn info(self) -> &'static SchedulerInfo {
        let info = Self::ALL.iter().find(|info| info.kind == self);
        info.expect("every scheduler is in the list")
    }

    /// A scheduler without requests. If it leaves the device idle for a process's next request, then for `idle`;
    /// `tuning` is for [`Self::Deadline`].
    #[must_use]
    pub fn build(self, idle: Nanos, tuning: DeadlineTuning) -> Box<dyn Scheduler> {
        (self.info().build)(idle, tuning)
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// An unknown scheduler name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheduler '{name}': known are {known}")]
pub struct UnknownScheduler {
    name: String,
    known: String,
}

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        let found = Self::ALL.iter().find(|info| info.name == name);
        found.map(|info| info.kind).ok_or_else(|| UnknownScheduler {
            name: name.to_owned(),
            known: Vec::from_iter(Self::ALL.iter().map(|info| info.name)).join(", "),
        })
    }
}
