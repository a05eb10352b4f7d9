//! Who runs persistent collections: the commit that finds one due, every commit in slices, or a
//! thread in the background.

use super::options::Collector;
use super::state::State;
use super::{AbortOnPanic, Doing, Shared, Wake};
use crate::error::{Error, Result};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Limit on bytes of immutable data in the log that are not yet stable in place; beyond it they are
/// synced, so that a flip waits for little.
const UNSYNCED: u64 = 1 << 20;

impl Shared {
    /// The collector's share of a commit.
    pub(super) fn after_commit(&self, state: &mut State) -> Result<()> {
        let worked = match self.collector {
            Collector::Beside => {
                state.start_cycle_if_due();
                let work = state.cycle.is_some() || state.is_freeing();
                if work || state.unsynced_bytes > UNSYNCED {
                    self.signal(Wake::Work);
                }
                // Commits may outrun the thread. They do a part of its work before the bank is
                // full, when one of them would have to wait for all of it.
                if work && state.is_nearly_full() {
                    state.slice()
                } else {
                    Ok(())
                }
            }
            Collector::AtCommit => {
                let synced = if state.unsynced_bytes > UNSYNCED {
                    state.sync()
                } else {
                    Ok(())
                };
                synced.and_then(|()| state.slice())
            }
            Collector::Stop => {
                // What a backup copies stays until a commit after it.
                let freed = |state: &mut State| match state.is_freeing() {
                    true => state.give_back(true).map_err(|error| state.fail(error)),
                    false => Ok(()),
                };
                freed(state).and_then(|()| {
                    state.start_cycle_if_due();
                    if state.cycle.is_some() {
                        state.run_to_flip()?;
                    }
                    freed(state)
                })
            }
        };
        match worked {
            // The commit itself succeeded; the next one that finds no room reports that.
            Err(Error::Full { .. } | Error::WornOut { .. }) => Ok(()),
            worked => worked,
        }
    }
}

/// The thread of [`Collector::Beside`].
pub(super) fn collect_beside(shared: &Shared) {
    /// Words of a slice: well under a millisecond.
    const SLICE: u64 = 1 << 14;
    loop {
        let mut wake = shared.wake.lock().unwrap_or_else(PoisonError::into_inner);
        while *wake == Wake::Idle {
            wake = shared
                .woken
                .wait(wake)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if *wake == Wake::Close {
            return;
        }
        drop(wake);
        let mut locked = AbortOnPanic(shared.write(), Doing::Work);
        let begun = Instant::now();
        let state = &mut *locked.0;
        let worked = if state.is_freeing() {
            state.give_back(false)
        } else {
            match state.step(SLICE) {
                Ok(true) if state.store_list.is_empty() => state.flip(),
                worked => worked.map(|_| ()),
            }
        };
        if let Err(error) = worked
            && !matches!(error, Error::Full { .. } | Error::WornOut { .. })
        {
            state.fail(error);
        }
        // A flip waits for an empty store list; the commit that empties it wakes this thread.
        let waits = state.cycle.is_none() || !state.store_list.is_empty();
        let idle = waits && !state.is_freeing();
        let sync = !idle || std::mem::take(&mut state.unsynced_bytes) > 0;
        let (medium, durable) = (Arc::clone(state.bank.medium()), Arc::clone(&state.durable));
        let held = begun.elapsed().as_nanos() as u64;
        state.counters.slice_max_ns = state.counters.slice_max_ns.max(held);
        drop(locked);
        // Makes stable what this slice and earlier commits wrote, so that no commit has to.
        if sync && let Err(error) = medium.sync() {
            durable.fail(&Error::io("syncing the bank", error));
        }
        if idle {
            let mut wake = shared.wake.lock().unwrap_or_else(PoisonError::into_inner);
            if *wake == Wake::Work {
                *wake = Wake::Idle;
            }
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
