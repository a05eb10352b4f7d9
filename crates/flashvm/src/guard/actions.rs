//! The program's action for each signal, as `sigaction` sets and returns it.
//!
//! Signal handlers read the table, so it has no lock: a version that is odd during a change tells a reader to retry.

use rustix::thread::sched_yield;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Signals are numbered 1 to this.
pub(super) const SIGNALS: usize = 64;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelAction {
    pub(super) handler: u64,
    pub(super) flags: u64,
    pub(super) restorer: u64,
    pub(super) mask: u64,
}

impl KernelAction {
    pub(super) fn is_handler(&self) -> bool {
        self.handler > libc::SIG_IGN as u64
    }
}

/// The program's action for each signal.
#[derive(Debug)]
pub(crate) struct Actions {
    signals: [SignalAction; SIGNALS],
}

#[derive(Debug)]
struct SignalAction {
    /// Odd while a thread changes the rest.
    version: AtomicU64,
    words: [AtomicU64; 4],
}

impl Actions {
    const fn new() -> Self {
        Self {
            signals: [const {
                SignalAction {
                    version: AtomicU64::new(0),
                    words: [const { AtomicU64::new(0) }; 4],
                }
            }; SIGNALS],
        }
    }

    fn action(&self, signal: i32) -> &SignalAction {
        &self.signals[signal as usize - 1]
    }

    /// The action for a signal.
    pub(super) fn get(&self, signal: i32) -> KernelAction {
        let action = self.action(signal);
        loop {
            let version = action.version.load(Ordering::Acquire);
            let [handler, flags, restorer, mask] =
                [0, 1, 2, 3].map(|i: usize| action.words[i].load(Ordering::Acquire));
            if version.is_multiple_of(2) && action.version.load(Ordering::Acquire) == version {
                return KernelAction {
                    handler,
                    flags,
                    restorer,
                    mask,
                };
            }
            sched_yield();
        }
    }

    pub(super) fn set(&self, signal: i32, new: &KernelAction) {
        let action = self.action(signal);
        let version = loop {
            let version = action.version.load(Ordering::Relaxed);
            if version.is_multiple_of(2)
                && action
                    .version
                    .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                break version;
            }
            sched_yield();
        };
        let words = [new.handler, new.flags, new.restorer, new.mask];
        for (word, value) in action.words.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
        action.version.store(version + 2, Ordering::Release);
    }

    /// Copies all actions from another table.
    fn copy_from(&self, other: &Self) {
        for signal in 1..=SIGNALS as i32 {
            self.set(signal, &other.get(signal));
        }
    }

    /// Resets the handlers, as `CLONE_CLEAR_SIGHAND` does.
    pub(super) fn clear_handlers(&self) {
        for signal in 1..=SIGNALS as i32 {
            if self.get(signal).is_handler() {
                self.set(signal, &KernelAction::default());
            }
        }
    }
}

/// The actions of this process.
pub(super) static ACTIONS: Actions = Actions::new();

/// The table that a thread uses.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// That of the process.
    Process,
    /// That of a child that shares our memory, but not our actions, and of the threads that the child makes.
    Child(Arc<Actions>),
}

impl Table {
    /// A table with the same actions, for a child that changes its own.
    pub(super) fn copy(&self) -> Self {
        let copy = Actions::new();
        copy.copy_from(self);
        Self::Child(Arc::new(copy))
    }
}

impl Deref for Table {
    type Target = Actions;

    fn deref(&self) -> &Actions {
        match self {
            Self::Process => &ACTIONS,
            Self::Child(actions) => actions,
        }
    }
}
