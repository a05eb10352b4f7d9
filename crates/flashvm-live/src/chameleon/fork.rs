//! fork: the used frames are copied to a file for the child, while the engine keeps all pages
//! unmapped that no call has pinned.

use super::{Chameleon, Core, Owner, new_frames};
use crate::Error;
use crate::control::Process;
use crate::sys::descriptors::PagerFd;
use crate::sys::map;
use flashvm_core::chameleon::{FrameId, Request};
use rustix::io::Errno;
use rustix_futex_sync::{Condvar, Mutex};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// The child's copy of the frames.
pub(crate) struct ForkedFrames {
    file: PagerFd,
}

impl ForkedFrames {
    /// Its descriptor, for the child to keep.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Chameleon {
    /// Before a fork: waits for all requests, unmaps all pages that are not pinned, and copies the used frames.
    ///
    /// # Errors
    /// The kernel's error for a second memfd; nothing is frozen then.
    pub(crate) fn prepare_fork(&self, owner: &dyn Owner) -> Result<ForkedFrames, Errno> {
        let (core, _) = self.carry_out(owner, &Request::PrepareFork);
        let engine = &core.engine;
        let copy = || {
            let file = new_frames(engine.frames_most())?;
            let mut frames = engine.frames_in_use().peekable();
            while let Some(first) = frames.next() {
                let mut count = 1;
                while frames.next_if(|frame| frame.0 == first.0 + count).is_some() {
                    count += 1;
                }
                let part = self.places.frames(first, count);
                let offset = self.places.file_offset(first, count);
                // SAFETY: the part lies in the mapping of the frames, which stays.
                unsafe { map::write_all(&file, offset, part.address, part.len)? };
            }
            Ok(ForkedFrames { file })
        };
        let copied = copy();
        drop(core);
        copied.inspect_err(|_| self.resume_parent(owner, false))
    }

    /// The parent continues. `forked` says whether there is a child.
    pub(crate) fn resume_parent(&self, owner: &dyn Owner, forked: bool) {
        drop(self.carry_out(owner, &Request::Resume { forked }));
    }

    /// The child continues, once its pager is there.
    pub(crate) fn resume_child(&self, owner: &dyn Owner) {
        drop(self.carry_out(owner, &Request::BecomeChild));
    }

    /// In the child: the same heap over the child's frames. The parent's descriptors have been
    /// closed by number.
    ///
    /// # Errors
    /// The kernel's error if it cannot map the frames; the error of opening the recording.
    pub(crate) fn for_child(
        self,
        frames: ForkedFrames,
        process: &Process,
        pid: u32,
    ) -> Result<Self, Error> {
        let failed = Error::memory("the heap of small pages");
        let Core {
            mut engine,
            recorder,
        } = self.core.into_inner();
        std::mem::forget(self.frames_file);
        let all = self.places.frames(FrameId(0), self.places.frames_most);
        // SAFETY: the mapping of the frames is this heap's. The child's only thread runs this, so no slice of a frame is
        // in use.
        unsafe { map::map_shared_over(&frames.file, all.address, all.len) }.map_err(failed)?;
        *engine.clusters_mut().inner_mut() = process.clusters();
        let recorder = recorder
            .map(|recorder| recorder.for_child(pid))
            .transpose()?;
        Ok(Self {
            frames_file: frames.file,
            core: Mutex::new(Core { engine, recorder }),
            changed: Condvar::new(),
            writer_called: AtomicU32::new(0),
            target: AtomicU32::new(self.target.load(Ordering::Relaxed)),
            places: self.places,
            settings: self.settings,
            sector_bytes: self.sector_bytes,
        })
    }
}
