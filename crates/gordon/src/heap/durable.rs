//! When a commit is stable: group commit. Commits append under the heap's lock and wait here, outside
//! of it. The first to wait syncs for all that have appended; those that come meanwhile share the
//! next sync.

use crate::error::{Error, Result};
use crate::flash::Medium;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Progress {
    syncing: bool,
    failure: Option<String>,
}

/// What is stable.
pub(crate) struct Durable {
    medium: Arc<dyn Medium>,
    progress: Mutex<Progress>,
    changed: Condvar,
    appended: AtomicU64,
    stable: AtomicU64,
    syncs: AtomicU64,
}

impl std::fmt::Debug for Durable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durable")
            .field("stable", &self.stable())
            .finish_non_exhaustive()
    }
}

impl Durable {
    /// All up to `sequence` is stable.
    pub(crate) fn new(medium: Arc<dyn Medium>, sequence: u64) -> Self {
        Self {
            medium,
            progress: Mutex::default(),
            changed: Condvar::new(),
            appended: AtomicU64::new(sequence),
            stable: AtomicU64::new(sequence),
            syncs: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Two fields that are set one at a time: a panic leaves nothing half done.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest state that is known to be stable.
    pub(crate) fn stable(&self) -> u64 {
        self.stable.load(Ordering::Acquire)
    }

    /// Syncs for commits.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// `sequence` has been written. Called under the heap's lock.
    pub(crate) fn appended(&self, sequence: u64) {
        self.appended.store(sequence, Ordering::Release);
    }

    /// Why the heap has failed, if it has.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    pub(crate) fn fail(&self, error: &Error) {
        self.lock().failure.get_or_insert_with(|| error.to_string());
        self.changed.notify_all();
    }

    /// Returns when `sequence` is stable.
    pub(crate) fn wait(&self, sequence: u64) -> Result<()> {
        let mut progress = self.lock();
        loop {
            if let Some(why) = &progress.failure {
                return Err(Error::Failed(why.clone()));
            }
            if self.stable() >= sequence {
                return Ok(());
            }
            if progress.syncing {
                progress = self
                    .changed
                    .wait(progress)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            progress.syncing = true;
            drop(progress);
            let target = self.appended.load(Ordering::Acquire);
            let synced = self.medium.sync();
            self.syncs.fetch_add(1, Ordering::Relaxed);
            progress = self.lock();
            progress.syncing = false;
            match synced {
                Ok(()) => {
                    self.stable.fetch_max(target, Ordering::AcqRel);
                }
                Err(error) => {
                    progress
                        .failure
                        .get_or_insert_with(|| format!("syncing the bank: {error}"));
                }
            }
            self.changed.notify_all();
        }
    }
}
