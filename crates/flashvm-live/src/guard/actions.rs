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

impl SignalAction {
    /// Waits until no other thread changes it; then this one does.
    fn begin_change(&self) {
        loop {
            let version = self.version.load(Ordering::Relaxed);
            let begun = self.version.compare_exchange(
                version & !1,
                version | 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if begun.is_ok() {
                return;
            }
            sched_yield();
        }
    }

    fn end_change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
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
        action.begin_change();
        let words = [new.handler, new.flags, new.restorer, new.mask];
        for (word, value) in action.words.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
        action.end_change();
    }

    /// Keeps all actions as they are while `fork` makes a child: its copy of an action that another thread changes would
    /// stay half changed. Returns in the child, too.
    pub(super) fn keep<T>(&self, fork: impl FnOnce() -> T) -> T {
        self.signals.iter().for_each(SignalAction::begin_change);
        let result = fork();
        self.signals.iter().for_each(SignalAction::end_change);
        result
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const SIGNAL: i32 = 10;

    fn all(word: u64) -> KernelAction {
        KernelAction {
            handler: word,
            flags: word,
            restorer: word,
            mask: word,
        }
    }

    /// What a fork would copy while another thread changes an action: never half of a change.
    #[test]
    fn a_kept_action_is_whole() {
        let (actions, stop) = (Actions::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut word = 1;
                while !stop.load(Ordering::Relaxed) {
                    actions.set(SIGNAL, &all(word));
                    word += 1;
                }
            });
            let copy = || {
                actions.keep(|| {
                    let words = &actions.action(SIGNAL).words;
                    [0, 1, 2, 3].map(|i: usize| words[i].load(Ordering::Relaxed))
                })
            };
            let torn = (0..10_000)
                .map(|_| copy())
                .find(|copy| *copy != [copy[0]; 4]);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(torn, None);
        });
        let last = actions.get(SIGNAL);
        assert_eq!(last, all(last.handler));
    }
}
