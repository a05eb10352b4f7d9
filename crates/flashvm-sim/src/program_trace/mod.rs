//! Program traces: what a real program did to its pages, and how long it computed in between.
//!
//! A [`ProgramTrace`] has the [`Step`]s of a program, which [`crate::Replay`] replays in virtual time: in other memory, on
//! another device. It is recorded live, in so little memory that nearly each return to a page is a fault (`observer`), and
//! kept in a file (`file`).

mod file;
mod observer;

pub use file::Damage;
pub use observer::{ObserveError, Threads, observe};

use crate::replay::{Program, Step, Touch};
use flashvm_core::{Nanos, PageId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What was recorded, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The program.
    pub program: String,
    /// What it did, in a sentence.
    pub what: String,
    /// Its input is that of the paper divided by this.
    pub scale: u32,
    /// The RAM of the recorded run, in bytes. Returns to pages in that much RAM are not seen.
    pub ram_bytes: u64,
}

/// The steps of a program.
///
/// ```
/// use flashvm_core::{Nanos, PageId};
/// use flashvm_sim::program_trace::Origin;
/// use flashvm_sim::{ProgramTrace, Step, Touch};
/// let step = Step { page: PageId(0), touch: Touch::Write, work: Nanos(1_000) };
/// let trace = ProgramTrace::new(vec![step; 3], Origin::default());
/// let mut file = Vec::new();
/// trace.write(&mut file)?;
/// let again = ProgramTrace::read(&file[..])?;
/// assert_eq!(again.steps(0).collect::<Vec<_>>(), [step; 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTrace {
    steps: Arc<[Step]>,
    /// The thread of each step, from 0.
    threads: Arc<[u16]>,
    pages: u32,
    origin: Origin,
}

impl ProgramTrace {
    /// A trace of these steps of one thread. Their pages are numbered from 0.
    #[must_use]
    pub fn new(steps: Vec<Step>, origin: Origin) -> Self {
        Self::of_threads(steps.into_iter().map(|step| (0, step)), origin)
    }

    /// A trace of these steps, each with its thread, numbered from 0.
    #[must_use]
    pub fn of_threads(steps: impl IntoIterator<Item = (u16, Step)>, origin: Origin) -> Self {
        let (threads, steps): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        let pages = steps.iter().map(|step| step.page.0 + 1).max().unwrap_or(0);
        Self {
            steps: steps.into(),
            threads: threads.into(),
            pages,
            origin,
        }
    }

    /// Pages that the program uses.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Its threads.
    #[must_use]
    pub fn threads(&self) -> u16 {
        self.threads.iter().max().map_or(1, |last| last + 1)
    }

    /// Time that it computes, all threads together.
    #[must_use]
    pub fn work(&self) -> Nanos {
        Nanos(self.steps.iter().map(|step| step.work.0).sum())
    }

    /// The program and how it was recorded.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The steps of one thread.
    #[must_use]
    pub fn of_thread(&self, thread: u16) -> Program<'static> {
        let (steps, threads) = (Arc::clone(&self.steps), Arc::clone(&self.threads));
        let own = (0..steps.len()).filter(move |&at| threads[at] == thread);
        Box::new(own.map(move |at| steps[at]))
    }

    /// The steps of all threads in the order of the recording, as those of one, on pages from `base` on.
    #[must_use]
    pub fn steps(&self, base: u32) -> Program<'static> {
        let steps = Arc::clone(&self.steps);
        Box::new((0..steps.len()).map(move |at| Step {
            page: PageId(base + steps[at].page.0),
            ..steps[at]
        }))
    }

    /// `runs` runs, one after the other; each zaps all its memory when it ends.
    #[must_use]
    pub fn runs(&self, runs: u32) -> Program<'static> {
        let (trace, pages) = (self.clone(), self.pages);
        let gone = move || {
            (0..pages).map(|page| Step {
                page: PageId(page),
                touch: Touch::Zap,
                work: Nanos(100),
            })
        };
        Box::new((0..runs).flat_map(move |_| trace.steps(0).chain(gone())))
    }
}
