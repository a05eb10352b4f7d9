//! What the threads of a heap share: its state under one lock, and the collector's bell. A thread that is inside an
//! operation cannot begin another; one that panics there undoes its changes before it releases the lock.

use super::options::Collector;
use super::state::State;
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What the threads of a heap share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: u64,
    pub(super) state: RwLock<State>,
    pub(super) collector: Collector,
    /// Set when there is work for the collector, or the heap is closed.
    pub(super) wake: Mutex<Wake>,
    pub(super) woken: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Wake {
    #[default]
    Idle,
    Work,
    Close,
}

impl Shared {
    pub(super) fn new(state: State, collector: Collector) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: RwLock::new(state),
            collector,
            wake: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        // An update that panics is undone before its lock is released (`AbortOnPanic`).
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn signal(&self, what: Wake) {
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if *wake != Wake::Close {
            *wake = what;
        }
        drop(wake);
        self.woken.notify_all();
    }
}

thread_local! {
    /// Heaps that this thread has locked.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Notes that this thread is inside an operation of a heap.
pub(super) struct Inside;

impl Inside {
    /// Whether this thread is.
    pub(super) fn is_entered(id: u64) -> bool {
        INSIDE.with_borrow(|inside| inside.contains(&id))
    }

    pub(super) fn enter(id: u64, what: &'static str) -> Result<Self> {
        INSIDE.with_borrow_mut(|inside| {
            if inside.contains(&id) {
                return Err(Error::Nested(what));
            }
            inside.push(id);
            Ok(Self)
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|inside| inside.pop());
    }
}

/// The activity of a thread that holds the heap's lock.
#[derive(PartialEq, Eq)]
pub(super) enum Doing {
    /// Running the program's closure: undone if it panics.
    Change,
    /// Committing or collecting: a panic there is a bug, and the heap must not continue.
    Work,
}

/// The lock of an update, with what to do if it panics.
pub(super) struct AbortOnPanic<'a>(pub(super) RwLockWriteGuard<'a, State>, pub(super) Doing);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            match self.1 {
                Doing::Change => self.0.abort(),
                Doing::Work => {
                    self.0.fail(Error::Failed(
                        "a panic in a commit or a collection".to_owned(),
                    ));
                }
            }
        }
    }
}
