//! The pager of a forked child.

use crate::Error;
use crate::chameleon::ForkedFrames;
use crate::control::Process;
use crate::flash::demand::DemandQueues;
use crate::pager::inline::ResolvedCount;
use crate::pager::pool::{Compressor, Inflater};
use crate::pager::synchronous::copied_together;
use crate::pager::workers::Workers;
use crate::pager::{Locked, Pager};
use crate::space::Inherited;
use crate::sys::{descriptors, thread};
use flashvm_core::Run;
use rustix::io::Errno;
use rustix_futex_sync::{Condvar, Mutex};
use std::os::fd::{AsRawFd, RawFd};

impl Pager {
    /// Takes the parent's pager over, in the child.
    ///
    /// # Safety
    /// This process is a forked child, the calling thread is its only one, and nobody uses or drops what
    /// `parent` points to afterwards.
    pub(super) unsafe fn inherit(parent: *const Self) -> Self {
        // SAFETY: `parent` points to a pager that nobody uses or drops afterwards, as the caller guarantees: so its
        // contents move out here, once.
        let old = unsafe { std::ptr::read(parent) };
        thread::forget_all();
        old
    }

    /// Closes the parent's descriptors, except `kept` and those that parent and child share.
    pub(super) fn close_inherited(&mut self, kept: impl Iterator<Item = RawFd>) {
        let mut shared = vec![self.supervisor.as_raw_fd(), self.proc_folder.as_raw_fd()];
        shared.extend(self.store.space().stores.into_iter().flatten());
        let locked = self.locked.get_mut();
        shared.extend(locked.tracer.as_ref().map(|tracer| tracer.file()));
        shared.extend(locked.recorder.as_ref().map(|recorder| recorder.file()));
        if let Some(heap) = &mut self.chameleon {
            shared.extend(heap.recording());
        }
        shared.extend(kept);
        descriptors::close_inherited(&shared);
    }

    /// Makes the child's pager from the inherited one, over `memory`.
    /// [`Self::close_inherited`] has closed the parent's descriptors by number, so their owners are forgotten here.
    pub(super) fn become_child(
        self,
        memory: Inherited,
        process: Process,
        frames: Option<ForkedFrames>,
    ) -> Result<&'static Self, Error> {
        let mut locked = self.locked.into_inner();
        std::mem::forget((self.workers, self.demand));
        let space = self.space.for_child(memory, self.delivery)?;
        let pid = crate::control::own_pid_in(&self.proc_folder)?;
        process.adopt(pid)?;
        let codec = self.settings.engine.compress.codec();
        let chameleon = self.chameleon.zip(frames);
        let chameleon = chameleon.map(|(heap, frames)| heap.for_child(frames, &process, pid));
        locked.become_child(process, pid)?;
        // Before any other thread can take frames for this process.
        process.await_first_frames(&self.supervisor);
        let together = copied_together(&space);
        let compressor = Mutex::new(codec.map(|codec| Compressor::new(codec, together)));
        let child = Self {
            pressure_at_start: self.control.pressure(),
            space,
            store: self.store.for_child(process)?,
            process,
            chameleon: chameleon.transpose()?,
            mappings: self.mappings.for_child(),
            locked: Mutex::new(locked),
            changed: Condvar::new(),
            demand: DemandQueues::new(self.control.budget_frames()),
            resolved_count: ResolvedCount::default(),
            workers: Workers::new().map_err(Error::memory("eventfd"))?,
            compressor,
            inflater: codec.map(|codec| Mutex::new(Inflater::new(codec))),
            ..self
        };
        Ok(child.install())
    }

    /// Registers all managed memory with the child's userfaultfd.
    pub(super) fn register_all(&self) -> Result<(), Errno> {
        for (first, count) in self.mappings.managed() {
            self.space.register(Run::new(first, count))?;
        }
        Ok(())
    }

    /// Write-protects the protected pages again: a fork without fork events loses the protection.
    pub(super) fn protect_all(&self, locked: &Locked) {
        let (engine, has_shadow) = (&locked.engine, self.space.has_shadow());
        self.stop_stores(engine.present_pages().filter(|&page| {
            let state = engine.page_state(page);
            let in_region = state.is_mapped() || !has_shadow;
            let on_its_way_out = !has_shadow && state.is_in_shadow();
            in_region && (engine.is_protected(page) || on_its_way_out)
        }));
    }
}

/// Ends a forked child that cannot have a pager.
pub(super) fn end_child(process_slot: Option<Process>, error: &Error) -> ! {
    let reason = format!("a forked child cannot go on without its pager: {error}");
    if let Some(process_slot) = process_slot {
        process_slot.note_end(&reason);
    }
    crate::sys::message::say(&reason);
    crate::sys::signals::abort()
}
