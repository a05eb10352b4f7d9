//! Dropped pages whose contents the file still has: the kernel frees them without the engine locked.
//!
//! Freeing a page takes the kernel some microseconds, and most pages are dropped by the cleaner. So while the cleaner
//! works ([`Aliased::defer_drops`]), drops are only noted, and it carries them out once it has given up the engine. A page
//! that comes back before that, or meanwhile, waits until its old contents are gone.

use super::Aliased;
use flashvm_core::Run;
use rustix::thread::sched_yield;

/// Most pages that wait to be freed: they take RAM beyond the budget.
const PAGES_MAX: u32 = 64;

/// The drops that are noted.
#[derive(Debug)]
pub(super) struct Dropped {
    /// Whether drops may be noted: somebody will carry them out soon.
    may_wait: bool,
    runs: Vec<Run>,
    /// The run that is being freed.
    busy: Option<Run>,
}

fn overlap(one: Run, other: Run) -> bool {
    one.first < other.end() && other.first < one.end()
}

impl Default for Dropped {
    fn default() -> Self {
        Self {
            may_wait: false,
            runs: Vec::with_capacity(PAGES_MAX as usize),
            busy: None,
        }
    }
}

impl Dropped {
    /// Notes a run. `false`: it has to be freed at once.
    fn note(&mut self, run: Run) -> bool {
        let waiting: u32 = self.all().map(|run| run.count).sum();
        let may = self.may_wait && waiting + run.count <= PAGES_MAX;
        if may {
            self.runs.push(run);
        }
        may
    }

    /// The next run to be freed. `None`: there is none, or another thread is at it.
    fn next(&mut self) -> Option<Run> {
        if self.busy.is_some() {
            return None;
        }
        self.busy = self.runs.pop();
        self.busy
    }

    /// What is not freed yet.
    fn all(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().chain(&self.busy).copied()
    }

    /// Whether pages of a run are not freed yet.
    pub(super) fn has(&self, run: Run) -> bool {
        self.all().any(|other| overlap(run, other))
    }
}

impl Aliased {
    /// Whether drops may be noted from here on. Who allows it calls [`Self::finish_drops`] later; before it sleeps, it
    /// forbids notes and calls that once more.
    pub(crate) fn defer_drops(&self, may_wait: bool) {
        self.dropped.lock().may_wait = may_wait;
    }

    /// Carries out the drops that are noted, unless another thread is at it.
    pub(crate) fn finish_drops(&self) {
        loop {
            let next = self.dropped.lock().next();
            let Some(run) = next else {
                return;
            };
            self.punch(run);
            self.dropped.lock().busy = None;
        }
    }

    /// Pages are in neither place any more: frees their contents, now or soon.
    pub(super) fn free(&self, run: Run) {
        let noted = self.dropped.lock().note(run);
        if !noted {
            self.punch(run);
        }
    }

    /// Pages are about to get contents: waits until the old ones are gone.
    pub(super) fn await_drops(&self, run: Run) {
        while self.dropped.lock().has(run) {
            self.finish_drops();
            sched_yield();
        }
    }
}
