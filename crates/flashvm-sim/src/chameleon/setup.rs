//! The sizes of a run, the faults in it, and the bug that it is to find.

use flashvm_core::chameleon::Config;

/// Faults to inject, each with a probability per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read of a page or a block that fails.
    pub reads: u32,
    /// A read that returns wrong data.
    pub flips: u32,
    /// A write that fails, and leaves undefined contents.
    pub writes: u32,
    /// A call that maps, or splits a mapping, and is refused.
    pub mappings: u32,
}

/// A bug to inject, in order to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A broken round: a write is reported as done and was not carried out.
    LoseWrite,
    /// Pages stay mapped while their ranges are given to others.
    StayMapped,
    /// A page is mapped twice.
    MapTwice,
    /// A child is created during a round.
    ForkInRound,
    /// Waiting tasks are not told of a change.
    LoseWakeUp,
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The engine.
    pub config: Config,
    /// Threads of the program.
    pub threads: u32,
    /// Operations of each thread.
    pub operations: u32,
    /// Most pages handed out at once.
    pub pages_most: u32,
    /// Mappings that the kernel allows.
    pub mappings_most: u32,
    /// Lower bound of the heap's frames; the page pager's need comes and goes.
    pub frames_fewest: u32,
    /// Most forks of a process and its ancestors.
    pub forks_most: u32,
    /// Faults to be injected.
    pub faults: Faults,
    /// The injected bug.
    pub sabotage: Option<Sabotage>,
}
