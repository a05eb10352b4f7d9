//! The order in which each process waited for pages from flash or the pool (`--save-pages`).

use crate::cli::outcome::Outcome;
use flashvm_core::PageId;
use flashvm_live::control::{FOLLOWED_MAX, Sight, Sighting};
use rustc_hash::FxHashMap;

/// The order of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderOfProcess {
    /// Its program.
    pub(crate) program: String,
    pub(crate) pages: Vec<PageId>,
    /// Pages beyond the most that are kept.
    pub(crate) left_out: u64,
}

/// Collects the pages by process.
#[derive(Debug, Default)]
pub(super) struct WaitedPages {
    processes: FxHashMap<u32, (Vec<PageId>, u64)>,
}

impl WaitedPages {
    /// Adds a fault that waited for flash or the pool, or would have without prefetching.
    pub(super) fn add(&mut self, seen: &Sighting) {
        if !matches!(
            seen.sight,
            Sight::FromFlash | Sight::Ahead | Sight::FromPool
        ) {
            return;
        }
        let (pages, left_out) = self.processes.entry(seen.pid).or_default();
        match pages.len() < FOLLOWED_MAX {
            true => pages.push(seen.first),
            false => *left_out += 1,
        }
    }

    /// The order of the process that waited most.
    pub(super) fn finish(self, outcome: &Outcome) -> Option<OrderOfProcess> {
        let orders = self.processes.into_iter();
        let (pid, (pages, left_out)) =
            orders.max_by_key(|(pid, (pages, left_out))| (pages.len() as u64 + left_out, *pid))?;
        let record = outcome.records.iter().find(|record| record.pid == pid)?;
        Some(OrderOfProcess {
            program: record.command.clone(),
            pages,
            left_out,
        })
    }
}
