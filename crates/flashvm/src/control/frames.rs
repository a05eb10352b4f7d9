//! Frames that processes of the run share since a fork: each is charged to the budget once.
//!
//! A shared frame has a number, a count of holders, and a bit for each seat that holds it. While it is
//! shared, the run's `granted` counts it and no seat's does. A frame moves from its owner's grant to the run
//! when a fork shares it, and back to the last holder when the others have let go
//! ([`Process::own_frame`]).
//!
//! The count is raised before the bit is set, and the bit cleared before the count is lowered: a kill in
//! between leaks the frame until the run ends, and never counts it too seldom.

use super::process::Process;
use std::sync::atomic::Ordering;

/// A frame that several processes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedFrame(pub u32);

impl Process {
    /// Makes a frame of this process' own a shared frame, of which it is the only holder so far. `None`: there
    /// are no numbers left.
    #[must_use]
    pub fn share_frame(&self) -> Option<SharedFrame> {
        let header = self.region().header();
        let holders = self.region().frame_holders();
        let all = holders.len() as u32;
        let start = header.frame_hint.load(Ordering::Relaxed) % all;
        let frame = (start..all).chain(0..start).find(|&frame| {
            let count = &holders[frame as usize];
            count.load(Ordering::Relaxed) == 0
                && count
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
        header.frame_hint.store(frame + 1, Ordering::Relaxed);
        self.mark_frame(frame);
        let seat = self.seat();
        seat.shares.fetch_add(1, Ordering::Relaxed);
        header.shared.fetch_add(1, Ordering::Relaxed);
        let less_one = |frames: u32| frames.checked_sub(1);
        let _ = seat
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one);
        // A grant that is smaller than what is in use: the budget was overrun before.
        if seat
            .granted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one)
            .is_err()
        {
            header.granted.fetch_add(1, Ordering::Relaxed);
        }
        Some(SharedFrame(frame))
    }

    /// Before a fork: the child holds this frame as well.
    pub fn hold_frame(&self, SharedFrame(frame): SharedFrame) {
        self.region().frame_holders()[frame as usize].fetch_add(1, Ordering::Relaxed);
        self.mark_frame(frame);
        self.seat().shares.fetch_add(1, Ordering::Relaxed);
    }

    /// This process uses the frame no more. The last holder gives it back to the budget.
    pub fn leave_frame(&self, SharedFrame(frame): SharedFrame) {
        if self.unmark_frame(frame) {
            self.seat().shares.fetch_sub(1, Ordering::Relaxed);
            self.drop_frame(frame);
        }
    }

    /// Takes a frame that nobody else holds any more as this process' own, into its grant. Whether nobody does.
    #[must_use]
    pub fn own_frame(&self, SharedFrame(frame): SharedFrame) -> bool {
        let count = &self.region().frame_holders()[frame as usize];
        // Nobody but a holder can make others hold it.
        if count.load(Ordering::Acquire) != 1 || !self.unmark_frame(frame) {
            return false;
        }
        count.store(0, Ordering::Release);
        self.seat().shares.fetch_sub(1, Ordering::Relaxed);
        self.seat().granted.fetch_add(1, Ordering::Relaxed);
        self.region()
            .header()
            .shared
            .fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Moves frames from this process' grant to a child's that is being prepared.
    pub fn pass_frames(&self, child: &Self, frames: u32) {
        let frames = frames.min(self.granted());
        child.seat().granted.fetch_add(frames, Ordering::Relaxed);
        self.seat().granted.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Lets go of all shared frames.
    pub(super) fn leave_all_frames(&self) {
        let high = self.seat().frames_high.load(Ordering::Relaxed);
        let words = &self.region().frames_held(self.index())[..high.div_ceil(64) as usize];
        for (at, word) in (0_u32..).zip(words) {
            let mut held = word.swap(0, Ordering::Relaxed);
            while held != 0 {
                self.drop_frame(at * 64 + held.trailing_zeros());
                held &= held - 1;
            }
        }
        self.seat().frames_high.store(0, Ordering::Relaxed);
        self.seat().shares.store(0, Ordering::Relaxed);
    }

    fn mark_frame(&self, frame: u32) {
        self.seat()
            .frames_high
            .fetch_max(frame + 1, Ordering::Relaxed);
        let word = &self.region().frames_held(self.index())[frame as usize / 64];
        word.fetch_or(1 << (frame % 64), Ordering::Relaxed);
    }

    fn unmark_frame(&self, frame: u32) -> bool {
        let word = &self.region().frames_held(self.index())[frame as usize / 64];
        let bit = 1 << (frame % 64);
        word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    fn drop_frame(&self, frame: u32) {
        let header = self.region().header();
        if self.region().frame_holders()[frame as usize].fetch_sub(1, Ordering::Release) == 1 {
            header.shared.fetch_sub(1, Ordering::Relaxed);
            header.granted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
