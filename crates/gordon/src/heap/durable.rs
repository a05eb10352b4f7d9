//! Group commit: when a commit is stable. Commits append under the heap's lock and wait here,
//! outside of it. The first to wait syncs for all that have appended; commits that arrive during
//! this sync share the next one. If their bytes are contiguous, at the end of the log, one
//! synchronous write replaces the sync, and waits for no other writes.

use crate::error::{Error, Result};
use crate::flash::Medium;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Progress {
    syncing: bool,
    appended: u64,
    pending: Pending,
    failure: Option<String>,
}

/// The writes since the start of the last sync.
#[derive(Debug, Default)]
enum Pending {
    #[default]
    Nothing,
    /// These bytes, from this offset on: once they are stable, everything is.
    Together(u64, Vec<u8>),
    Anything,
}

impl Pending {
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Self::Nothing => *self = Self::Together(offset, bytes.to_vec()),
            Self::Together(start, written) if *start + written.len() as u64 == offset => {
                written.extend_from_slice(bytes);
            }
            Self::Together(..) | Self::Anything => *self = Self::Anything,
        }
    }
}

/// The progress of stability.
pub(crate) struct Durable {
    medium: Arc<dyn Medium>,
    progress: Mutex<Progress>,
    changed: Condvar,
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
    /// Everything up to `sequence` is stable.
    pub(crate) fn new(medium: Arc<dyn Medium>, sequence: u64) -> Self {
        Self {
            medium,
            progress: Mutex::new(Progress {
                appended: sequence,
                ..Progress::default()
            }),
            changed: Condvar::new(),
            stable: AtomicU64::new(sequence),
            syncs: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Nothing can panic between two changes under this lock: a poisoned lock is consistent.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest state that is known to be stable.
    pub(crate) fn stable(&self) -> u64 {
        self.stable.load(Ordering::Acquire)
    }

    /// Number of syncs for commits.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// `sequence` has been written. Called under the heap's lock.
    pub(crate) fn appended(&self, sequence: u64) {
        let mut progress = self.lock();
        progress.appended = sequence;
        progress.pending = Pending::Anything;
    }

    /// `sequence` has been written, and is stable as soon as `bytes` at `offset` are.
    pub(crate) fn appended_at(&self, sequence: u64, offset: u64, bytes: &[u8]) {
        let mut progress = self.lock();
        progress.appended = sequence;
        progress.pending.add(offset, bytes);
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
        assert!(
            sequence <= progress.appended,
            "state {sequence} has been written"
        );
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
            let target = progress.appended;
            let pending = std::mem::take(&mut progress.pending);
            drop(progress);
            let synced = match pending {
                Pending::Together(offset, bytes) => self.medium.write_stable(offset, &bytes),
                Pending::Nothing | Pending::Anything => self.medium.sync(),
            };
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
