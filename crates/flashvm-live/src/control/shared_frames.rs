//! Frames that processes of the run share since a fork: each is charged to the budget once.
//!
//! A shared frame has a number, a count of holders, and a bit in each process slot that holds it.
//! While the frame is shared, the run's `granted` counts it, and no process slot's `granted` does. A
//! fork moves a frame from its owner's grant to the run; [`Process::own_frame`] moves it back to the
//! last holder once the others have left.
//!
//! The run's `granted` counts a frame throughout; a process slot's `granted` counts it only while the
//! slot's bit is clear. So a kill leaks the frame until the run ends, and nothing counts it twice.

use super::holders::Holdings;
use super::process::Process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A frame that several processes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedFrame(pub u32);

impl Process {
    /// Turns a frame of this process into a shared frame, with this process as its only holder.
    /// `None`: no number is free.
    #[must_use]
    pub fn share_frame(&self) -> Option<SharedFrame> {
        let (header, slot) = (self.region().header(), self.slot());
        let frames = self.frames();
        let all = frames.holders.len() as u32;
        let start = header.frame_hint.load(Ordering::Relaxed) % all;
        let frame = frames.claim((start..all).chain(0..start))?;
        header.frame_hint.store(frame + 1, Ordering::Relaxed);
        let less_one = |frames: u32| frames.checked_sub(1);
        let take_from = |account: &AtomicU32| {
            account.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one)
        };
        if take_from(&slot.used).is_err() {
            // This process has not yet published its use of the frame.
            header.used.fetch_add(1, Ordering::Relaxed);
        }
        if take_from(&slot.granted).is_err() {
            // An earlier overrun: this process uses more frames than it was granted.
            header.granted.fetch_add(1, Ordering::Relaxed);
        }
        slot.shares.fetch_add(1, Ordering::Relaxed);
        frames.mark(frame);
        Some(SharedFrame(frame))
    }

    /// Before a fork, on the child's process slot: the child also holds this frame.
    pub fn hold_frame(&self, SharedFrame(frame): SharedFrame) {
        self.slot().shares.fetch_add(1, Ordering::Relaxed);
        self.frames().join(frame);
    }

    /// This process holds the frame no longer. The last holder returns it to the budget.
    pub fn leave_frame(&self, SharedFrame(frame): SharedFrame) {
        let Some(last) = self.frames().leave(frame) else {
            return;
        };
        self.slot().shares.fetch_sub(1, Ordering::Relaxed);
        if last {
            let header = self.region().header();
            self.no_longer_used(1);
            header.granted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Moves a frame into this process's grant if no other process holds it; returns whether it did.
    #[must_use]
    pub fn own_frame(&self, SharedFrame(frame): SharedFrame) -> bool {
        let frames = self.frames();
        // The only holder cannot get company: only a holder adds holders, in a fork.
        if !frames.is_sole(frame) || !frames.unmark(frame) {
            return false;
        }
        frames.put_back(frame);
        let slot = self.slot();
        slot.shares.fetch_sub(1, Ordering::Relaxed);
        slot.granted.fetch_add(1, Ordering::Relaxed);
        slot.used.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Moves frames from this process's grant to that of a child in preparation.
    pub fn pass_frames(&self, child: &Self, frames: u32) {
        let frames = frames.min(self.granted());
        self.slot().granted.fetch_sub(frames, Ordering::Relaxed);
        child.slot().granted.fetch_add(frames, Ordering::Relaxed);
    }

    /// Leaves all shared frames.
    pub(super) fn leave_all_frames(&self) {
        for frame in self.frames().held() {
            self.leave_frame(SharedFrame(frame));
        }
        self.slot().frames_high.store(0, Ordering::Relaxed);
        self.slot().shares.store(0, Ordering::Relaxed);
    }

    fn frames(&self) -> Holdings {
        let slot = self.slot();
        Holdings {
            holders: self.region().frame_holders(),
            bits: self.region().frames_held(self.index()),
            high: &slot.frames_high,
        }
    }
}
