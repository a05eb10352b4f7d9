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

/// A sync by this thread. If the medium panics in it, the heap has failed: other threads must not wait for its end.
struct FailOnPanic<'a>(&'a Durable);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&Error::Failed("a panic in a sync".to_owned()));
        }
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
            let panics = FailOnPanic(self);
            let synced = match pending {
                Pending::Together(offset, bytes) => self.medium.write_stable(offset, &bytes),
                Pending::Nothing | Pending::Anything => self.medium.sync(),
            };
            drop(panics);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::MemoryMedium;
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Panics in its first sync, once another thread is about to wait for that.
    struct Panics(MemoryMedium, Barrier);

    impl Medium for Panics {
        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }

        fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, bytes)
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write(offset, bytes)
        }

        fn sync(&self) -> io::Result<()> {
            self.1.wait();
            panic!("the sync of a test");
        }

        fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.descriptor()
        }
    }

    #[test]
    fn nobody_waits_for_a_sync_that_panicked() {
        let medium = Arc::new(Panics(MemoryMedium::new(1 << 16).unwrap(), Barrier::new(2)));
        let durable = Arc::new(Durable::new(medium.clone(), 0));
        durable.appended(1);
        let (tell, told) = channel();
        let (syncs, waits) = (Arc::clone(&durable), durable);
        let first = std::thread::spawn(move || syncs.wait(1));
        std::thread::spawn(move || {
            medium.1.wait();
            tell.send(waits.wait(1).map_err(|error| error.to_string()))
        });
        assert!(
            first.join().is_err(),
            "the panic reaches the thread that syncs"
        );
        let waited = told.recv_timeout(Duration::from_secs(20));
        let error = waited.expect("no thread waits for ever").unwrap_err();
        assert!(error.contains("a panic in a sync"), "{error}");
    }
}
