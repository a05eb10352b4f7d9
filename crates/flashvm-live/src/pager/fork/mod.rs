//! fork: the child gets a pager of its own over a copy of the page table.
//!
//! Before the fork all requests end and the engine is frozen, so that the child's copy of it is consistent. Slots on
//! flash are shared from then on; clusters know how many processes hold them.
//!
//! The two modes differ in what resolves the child's faults before its pager is there:
//!
//! - `inline_mode`: there are no such faults. The guard makes the fork, and no code of the program runs in the child
//!   before its pager is there.
//! - `handler_mode`: the parent's handler does. The C library makes the fork, and touches the program's memory around
//!   it. `socket` carries the child's userfaultfd and the list of these faults to the child.
//!
//! This file has the steps that both share; `room` sees to frames for the child, `child` makes its pager.

mod child;
mod handler_mode;
mod inline_mode;
mod room;
mod socket;

use super::workers::By;
use super::{Freeze, Locked, Pager};
use crate::control::Process;
use crate::sys::message::say;
use flashvm_core::{Event, PageId};
pub(super) use handler_mode::Fork;
use rustix_futex_sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long to wait for requests to end before looking again.
const QUIET_WAIT: Duration = Duration::from_millis(1);

impl Pager {
    /// Whether budget and store could hold a copy of this process. If not, counts a refused fork.
    #[must_use]
    pub fn can_fork(&self) -> bool {
        let fits = self.has_room_for(self.process.committed());
        if !fits {
            self.count_refused_fork(&crate::control::Error::Commit);
        }
        fits
    }

    /// Counts a fork that is refused for lack of room; reports any other reason to the user.
    fn count_refused_fork(&self, error: &crate::control::Error) {
        match error {
            crate::control::Error::Commit => {
                let stats = self.stats();
                stats.forks_refused.fetch_add(1, Ordering::Relaxed);
            }
            other => {
                let reason = format!("a fork is refused: {other}");
                self.process.note_refusal(&reason);
                say(&reason);
            }
        }
    }

    /// Waits until all requests have ended, and lets no others begin. Returns the engine, locked.
    fn become_quiet(&self) -> MutexGuard<'_, Locked> {
        let mut locked = self.locked.lock();
        while locked.freeze != Freeze::No || !locked.placement.changes.none() {
            locked = self.changed.wait(locked);
        }
        locked.freeze = Freeze::Quiescing;
        self.workers.call_both();
        while !locked.is_quiet() {
            locked = self.changed.wait_timeout(locked, QUIET_WAIT).0;
            self.workers.call_both();
        }
        locked
    }

    /// Right before a fork, with nothing in flight: makes the child's process slot, and shares all frames with it. For
    /// `writable` see [`Self::share_frames`].
    ///
    /// # Errors
    /// The run has no room for the child; the slot is free again then.
    fn prepare_child(
        &self,
        locked: &mut Locked,
        writable: &[PageId],
    ) -> Result<Process, crate::control::Error> {
        let process_slot = self.process.fork()?;
        self.share_frames(locked, Some(&process_slot), writable)
            .inspect_err(|_| process_slot.retire())?;
        Ok(process_slot)
    }

    /// After a fork, in parent and child: tells the engine of the fork, and by `catch_up` of what happened while it was
    /// frozen; then all threads go on. Also after a fork that failed: by then all frames are shared (`share_frames`),
    /// and [`Self::own_abandoned`] takes them back.
    fn resume(&self, mut locked: MutexGuard<'_, Locked>, catch_up: impl FnOnce(&mut Locked)) {
        self.apply(&mut locked, Event::Forked);
        catch_up(&mut locked);
        self.thaw(locked);
    }

    /// Lets all threads go on.
    pub(super) fn thaw(&self, mut locked: MutexGuard<'_, Locked>) {
        locked.freeze = Freeze::No;
        self.hand_over(&mut locked, By::Program);
        drop(locked);
        self.changed.notify_all();
        self.workers.handler.ring();
    }
}

/// Hooks around a fork in inline mode.
#[derive(Clone, Copy, Debug)]
pub struct ForkHooks {
    /// Called before the fork.
    pub before: fn(),
    /// Called after the fork, in parent and child, or after it failed.
    pub after: fn(),
}

struct Hooks(std::sync::OnceLock<ForkHooks>);

impl Hooks {
    fn call(&self, call: impl FnOnce(&ForkHooks)) {
        if let Some(hooks) = self.0.get() {
            call(hooks);
        }
    }
}

static FORK_HOOKS: Hooks = Hooks(std::sync::OnceLock::new());

/// Sets the hooks around forks, once: between them they hold an allocator's lock, so that the child's copy of the
/// allocator is consistent.
pub fn set_fork_hooks(hooks: ForkHooks) {
    let _ = FORK_HOOKS.0.set(hooks);
}
