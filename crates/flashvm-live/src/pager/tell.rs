//! What onlookers learn of each event and its actions: probes, the kept decisions, and the journal of a report. Here alone, since
//! all decisions pass through [`Pager::apply`](super::Pager::apply).

use super::journal::FaultKinds;
use super::{Locked, Pager, probes};
use crate::control::Sight;
use flashvm_core::pool::BLOCK_SLOTS;
use flashvm_core::{Access, Action, Event, IoId, PageId};
use tracing::{debug, info, trace, warn};

impl Pager {
    /// Tells what the engine has just decided. `before`: its counts of faults before the event.
    pub(super) fn tell(
        &self,
        locked: &Locked,
        before: FaultKinds,
        event: &Event,
        actions: &[Action],
    ) {
        self.tell_event(locked, before, event);
        for action in actions {
            self.tell_action(locked, action);
        }
    }

    fn tell_event(&self, locked: &Locked, before: FaultKinds, event: &Event) {
        match *event {
            Event::Fault { page, access, .. } => {
                let kind = before.kind(FaultKinds::of(locked));
                let store = access == Access::Write;
                probes::fault(self.address(page), kind, store);
                trace!(page = page.0, ?access, ?kind, "fault");
                self.see(kind, store, page, 1);
            }
            Event::WriteProtectFault { page } => {
                trace!("{event:?}");
                self.see(Sight::FirstStore, true, page, 1);
            }
            Event::ReadDone { io, failed } => {
                probes::read_done(io, failed);
                keep_done(event, io, failed);
            }
            Event::WriteDone { io, failed } => {
                probes::write_done(io, failed);
                keep_done(event, io, failed);
            }
            Event::Discarded { refused: true } => warn!("the device refuses discards"),
            Event::WriteLimit { used } if used >= 100 => warn!("the write limit holds writes back"),
            Event::Refused { page } => debug!(page = page.0, "pinned or shared: it stays"),
            Event::Limit { frames, shared } => {
                let shared = Some(shared).filter(|&shared| shared < u32::MAX);
                debug!(frames, shared, "limit");
            }
            Event::Drain { on: true } => info!("the pool is written out for a fork"),
            Event::Forked => info!("forked"),
            Event::Zap { first, count } => debug!(first = first.0, count, "zapped"),
            Event::Relocate { from, to, count } => {
                debug!(from = from.0, to = to.0, count, "relocated");
            }
            Event::Advise {
                first,
                count,
                advice,
            } => {
                debug!(first = first.0, count, ?advice, "advised");
            }
            Event::Scanned { io, zero, same, .. } => {
                let (zero, same) = (zero.count_ones(), same.count_ones());
                trace!(io = io.0, zero, same, "scanned");
            }
            _ => trace!("{event:?}"),
        }
    }

    fn tell_action(&self, locked: &Locked, action: &Action) {
        match *action {
            Action::Drop { first, count } => {
                // The shadow also drops its copy of a page that is mapped again.
                if !locked.engine.page_state(first).is_mapped() {
                    probes::evict(self.address(first), count);
                    self.see(Sight::Left, false, first, count);
                }
                trace!("{action:?}");
            }
            Action::Read {
                io,
                slot,
                count,
                demand,
            } => {
                probes::read(io, slot, count, demand);
                debug!(io = io.0, slot = slot.0, count, demand, "read");
            }
            Action::ReadBlock { io, slot, .. } => {
                probes::read(io, slot, BLOCK_SLOTS, false);
                debug!(io = io.0, slot = slot.0, "read a block");
            }
            Action::Write { io, slot, count } => {
                probes::write(io, slot, count);
                debug!(io = io.0, slot = slot.0, count, "write");
            }
            Action::WriteBlock { io, slot, .. } => {
                probes::write(io, slot, BLOCK_SLOTS);
                debug!(io = io.0, slot = slot.0, "write a block");
            }
            Action::Discard { ranges, slots } => debug!(ranges, slots, "discard"),
            _ => trace!("{action:?}"),
        }
    }

    /// Notes it in the journal of a report, if there will be one.
    fn see(&self, sight: Sight, store: bool, first: PageId, pages: u32) {
        if self.settings.report {
            self.process.see(sight, store, first, pages);
        }
    }
}

fn keep_done(event: &Event, io: IoId, failed: u64) {
    match failed {
        0 => trace!("{event:?}"),
        _ => warn!(io = io.0, pages = failed.count_ones(), "the store failed"),
    }
}
