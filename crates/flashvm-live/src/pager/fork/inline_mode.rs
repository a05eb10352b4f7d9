//! fork in inline mode: the guard makes the fork, and the child has its pager before any code of the program runs in
//! it.

use super::FORK_HOOKS;
use super::child::end_child;
use crate::Error;
use crate::chameleon::ForkedFrames;
use crate::control::Process;
use crate::pager::workers::Crew;
use crate::pager::{Freeze, Pager};
use crate::space::Inherited;
use rustix::io::Errno;

impl Pager {
    /// Forks in inline mode, by calling `clone`, which returns twice. Returns the kernel's result. The child has no
    /// threads of its pager until [`Pager::start_threads`].
    pub(crate) fn fork_inline(&'static self, clone: impl FnOnce() -> isize) -> isize {
        let (frames, mut locked) = match self.quiet_with_room(|| self.become_quiet()) {
            Ok(quiet) => quiet,
            Err(source) => {
                let mut locked = self.lock();
                locked.grant.forget_fork();
                self.forget_drain(&mut locked);
                drop(locked);
                let what = "a copy of the small pages";
                self.count_refused_fork(&crate::control::Error::Os { what, source });
                return -(Errno::NOMEM.raw_os_error() as isize);
            }
        };
        let pinned = Self::pinned_pages(&locked);
        let process_slot = match self.prepare_child(&mut locked, &pinned) {
            Ok(process_slot) => process_slot,
            Err(error) => {
                locked.grant.forget_fork();
                self.forget_drain(&mut locked);
                self.thaw(locked);
                self.resume_heap(frames, false);
                self.count_refused_fork(&error);
                return -(Errno::NOMEM.raw_os_error() as isize);
            }
        };
        locked.freeze = Freeze::Frozen;
        drop(locked);
        let memory = self.space.prepare_fork(&pinned);
        FORK_HOOKS.call(|hooks| (hooks.before)());
        let result = match memory {
            Ok(_) => clone(),
            Err(_) => -(Errno::NOMEM.raw_os_error() as isize),
        };
        FORK_HOOKS.call(|hooks| (hooks.after)());
        if result != 0 {
            let resumed = self.space.resume();
            resumed
                .unwrap_or_else(|e| self.die(&format!("pages cannot be shown after a fork: {e}")));
            self.resume(self.locked.lock(), |locked| {
                self.own_pages(locked, pinned.into_iter());
            });
            self.resume_heap(frames, result > 0);
            if result < 0 {
                process_slot.retire();
            }
            if let Err(source) = memory {
                let what = "a copy of the pages";
                self.count_refused_fork(&crate::control::Error::Os { what, source });
            }
            return result;
        }
        let memory = memory.expect("the fork was made");
        // SAFETY: the child has one thread, this one, and nobody uses `self` there from here on.
        let old = unsafe { Self::inherit(self) };
        if let Err(error) = old.go_on_as_child(memory, process_slot, frames) {
            end_child(Some(process_slot), &error)
        }
        0
    }

    /// In the parent: the heap of small pages goes on. `forked`: there is a child.
    pub(super) fn resume_heap(&self, frames: Option<ForkedFrames>, forked: bool) {
        if let (Some(heap), Some(frames)) = (&self.chameleon, frames) {
            heap.resume_parent(self, forked);
            // The child has its own copy of the descriptor by now.
            drop(frames);
        }
    }

    fn go_on_as_child(
        mut self,
        memory: Inherited,
        process_slot: Process,
        frames: Option<ForkedFrames>,
    ) -> Result<(), Error> {
        let frames_file = frames.iter().map(ForkedFrames::descriptor);
        self.close_inherited(frames_file.chain(memory.descriptor()));
        let pager = self.become_child(memory, process_slot, frames)?;
        if let Some(heap) = &pager.chameleon {
            heap.resume_child(pager);
        }
        // Without fork events, the kernel forgets registrations and protections at a fork.
        pager.register_all().map_err(Error::Userfaultfd)?;
        let mut locked = pager.locked.lock();
        // The child's threads start once the C library works again. Until then the child may fork.
        locked.crew = Crew::Absent;
        pager.resume(locked, |locked| {
            pager.unlock_all(locked);
            pager.protect_all(locked);
        });
        Ok(())
    }
}
