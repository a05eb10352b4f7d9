//! fork: the frames are copied for the child.
//!
//! Overlays are shared mappings, and the parent's other threads run on beside a fork. So before it
//! everything is lifted, in one call: nobody can store to any page, and whoever touches one waits. The
//! frames in use are copied to a file of the child's. Parent and child then bring their pages back by
//! faults, without I/O. Blocks on flash that hold pages of both are written by neither; both give up the
//! empty ones.

use super::{Chameleon, Counters, new_pool};
use crate::control::Process;
use crate::pager::Pager;
use crate::sys::{descriptors, map};
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::Shape;
use rustix::io::Errno;
use rustix_futex_sync::{Condvar, Mutex};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// The child's copy of the frames.
pub(crate) struct ForkedFrames {
    file: OwnedFd,
}

impl ForkedFrames {
    /// Its descriptor, for the child to keep.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// In the parent: the child has it now, or there is none.
    pub(crate) fn close(self) {
        descriptors::release(self.file);
    }
}

impl Chameleon {
    /// Before a fork: lets everything under way end, lifts all pages and copies the frames in use.
    ///
    /// # Errors
    /// What the kernel says to a second memfd; nothing is frozen then.
    pub(crate) fn prepare_fork(&self, pager: &Pager) -> Result<ForkedFrames, Errno> {
        let mut core = self.lock();
        core.frozen = true;
        while core.writing || core.reads > 0 {
            core = self.await_end(core);
        }
        self.lift_all(&mut core, pager);
        let copy = || {
            let file = new_pool(core.frames.most())?;
            let mut frames = core
                .frames
                .all()
                .filter(|&frame| !core.frames.is_free(frame, Shape::WHOLE))
                .peekable();
            while let Some(first) = frames.next() {
                let mut count = 1;
                while frames.next_if(|frame| frame.0 == first.0 + count).is_some() {
                    count += 1;
                }
                let (at, len) = (first.0 as usize * PAGE_SIZE, count as usize * PAGE_SIZE);
                map::write_all(&file, at as u64, self.pool + at, len)?;
            }
            Ok(file)
        };
        match copy() {
            Ok(file) => Ok(ForkedFrames { file }),
            Err(error) => {
                core.frozen = false;
                drop(core);
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    /// In the parent: goes on. `forked` says whether there is a child.
    pub(crate) fn resume_parent(&self, forked: bool) {
        let mut core = self.core.lock();
        if forked {
            let super::Core {
                flash, clusters, ..
            } = &mut *core;
            flash.forked(clusters);
        }
        core.frozen = false;
        drop(core);
        self.changed.notify_all();
    }

    /// In the child: the same heap over its own frames. The parent's descriptors have been closed by
    /// number.
    pub(crate) fn for_child(self, frames: ForkedFrames, process: &Process) -> Result<Self, Errno> {
        let mut core = self.core.into_inner();
        assert!(
            !core.writing && core.reads == 0,
            "nothing is under way in a fork"
        );
        std::mem::forget(self.frames_file);
        map::map_shared_over(
            &frames.file,
            self.pool,
            core.frames.most() as usize * PAGE_SIZE,
        )?;
        core.clusters = process.clusters();
        let super::Core {
            flash, clusters, ..
        } = &mut core;
        flash.forked(clusters);
        flash.reset_counters();
        core.counters = Counters::default();
        core.overlays.most_seen = 0;
        core.pins.clear();
        core.frozen = false;
        core.waiters = 0;
        Ok(Self {
            frames_file: frames.file,
            core: Mutex::new(core),
            changed: Condvar::new(),
            writer_called: AtomicU32::new(0),
            target: AtomicU32::new(self.target.load(Ordering::Relaxed)),
            base: self.base,
            pool: self.pool,
            buffers: self.buffers,
            settings: self.settings,
            sector_bytes: self.sector_bytes,
        })
    }
}
