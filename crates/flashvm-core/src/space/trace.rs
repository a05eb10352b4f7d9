//! The latest events, actions and answers about pages, for the message of a pager that cannot
//! continue.

use super::{Done, Stop};
use crate::event::{Access, Action, Event, Place};
use crate::ids::{Nanos, PageId};
use crate::page::PageState;
use std::fmt;

/// Entries kept.
const ENTRIES: usize = 4096;

/// An entry about a run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    at: Nanos,
    first: PageId,
    count: u32,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Fault(Access, PageState),
    Stopped(PageState),
    Refused,
    Zapped,
    Relocated,
    Asked(&'static str),
    Copied(Place, Done),
    Shifted(Place, Done),
    Dropped,
}

/// A ring of entries.
#[derive(Debug)]
pub struct Trace {
    entries: Vec<HistoryEntry>,
    next: usize,
    now: Nanos,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            entries: Vec::with_capacity(ENTRIES),
            next: 0,
            now: Nanos(0),
        }
    }
}

impl Trace {
    fn note(&mut self, first: PageId, count: u32, what: What) {
        let entry = HistoryEntry {
            at: self.now,
            first,
            count,
            what,
        };
        if self.entries.len() < ENTRIES {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
        }
        self.next = (self.next + 1) % ENTRIES;
    }

    /// An event is about to be handled, with its page in this state.
    pub fn told(&mut self, now: Nanos, event: &Event, state: impl Fn(PageId) -> PageState) {
        self.now = now;
        match *event {
            Event::Fault { page, access, .. } => {
                self.note(page, 1, What::Fault(access, state(page)))
            }
            Event::WriteProtectFault { page } => self.note(page, 1, What::Stopped(state(page))),
            Event::Refused { page } => self.note(page, 1, What::Refused),
            Event::Zap { first, count } => self.note(first, count, What::Zapped),
            Event::Relocate { from, to, count } => {
                self.note(from, count, What::Relocated);
                self.note(to, count, What::Relocated);
            }
            _ => {}
        }
    }

    /// A memory action is about to be carried out.
    pub(super) fn asked(&mut self, action: &Action, (first, count): (PageId, u32)) {
        let name = match action {
            Action::Zero { .. } => "zero",
            Action::Map { .. } => "map",
            Action::Shadow { .. } => "shadow",
            Action::Restore { .. } => "restore",
            Action::RestoreCopy { .. } => "restore a copy",
            Action::Unprotect { .. } => "unprotect",
            Action::Poison { .. } => "poison",
            // Drops and decompressed pages are noted as they are carried out; a wake changes nothing.
            _ => return,
        };
        self.note(first, count, What::Asked(name));
    }

    pub(super) fn copied(&mut self, place: Place, first: PageId, count: u32, done: Done) {
        self.note(first, count, What::Copied(place, done));
    }

    pub(super) fn shifted(&mut self, to: Place, first: PageId, count: u32, done: Done) {
        self.note(first, count, What::Shifted(to, done));
    }

    pub(super) fn dropped(&mut self, first: PageId, count: u32) {
        self.note(first, count, What::Dropped);
    }

    /// The history of a page, newest first, each entry with its age in microseconds.
    pub fn of(&self, page: PageId) -> impl Iterator<Item = (u64, HistoryEntry)> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        let newest_first = newer.iter().rev().chain(older.iter().rev());
        newest_first
            .filter(move |entry| page.0.wrapping_sub(entry.first.0) < entry.count)
            .map(|entry| (self.now.since(entry.at).0 / 1000, *entry))
    }
}

impl fmt::Display for HistoryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = |done: Done| match done.stop {
            None => "done".to_owned(),
            Some(Stop::Failed(errno)) => format!("error {errno} after {}", done.pages),
            Some(stop) => format!("{stop:?} after {}", done.pages),
        };
        match self.what {
            What::Fault(access, state) => write!(f, "{access:?} fault, {state:?}")?,
            What::Stopped(state) => write!(f, "stopped store, {state:?}")?,
            What::Refused => f.write_str("refused")?,
            What::Zapped => f.write_str("zapped")?,
            What::Relocated => f.write_str("relocated")?,
            What::Asked(action) => f.write_str(action)?,
            What::Copied(place, done) => write!(f, "copy to {place:?}: {}", outcome(done))?,
            What::Shifted(to, done) => write!(f, "move to {to:?}: {}", outcome(done))?,
            What::Dropped => f.write_str("dropped")?,
        }
        if self.count > 1 {
            write!(f, " ({} pages from {})", self.count, self.first.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_and_the_oldest_is_forgotten() {
        let mut trace = Trace::default();
        let fault = |page| Event::Fault {
            page: PageId(page),
            access: Access::Read,
            huge: false,
        };
        for at in 0..ENTRIES as u64 + 10 {
            let page = u32::from(at % 2 == 0);
            trace.told(Nanos(at * 1000), &fault(page), |_| PageState::Stored);
        }
        trace.dropped(PageId(0), 2);
        let lines: Vec<_> = trace.of(PageId(1)).collect();
        assert_eq!(lines.len(), ENTRIES / 2);
        assert_eq!(lines[0].1.to_string(), "dropped (2 pages from 0)");
        assert_eq!(lines[1].0, 1, "microseconds ago");
        assert_eq!(lines[1].1.to_string(), "Read fault, Stored");
        assert!(lines.is_sorted_by_key(|line| line.0));
    }
}
