//! From the recording of a live engine to the steps of its program.

use crate::replay::{Step, Touch, resolves};
use flashvm_core::record::{Difference, Follower, Step as Recorded};
use flashvm_core::{Access, EngineConfig, Event, Nanos, PageId};
use std::collections::BTreeMap;
use std::io::{self, BufRead};

/// Why a recording has no steps.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line is no step.
    #[error("line {line}: {source}")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The engine decides otherwise: another version recorded it.
    #[error(transparent)]
    Differs(#[from] Difference),
}

/// Whose steps they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Those of one thread, whichever made them: the program goes on when the last of its threads that faulted can.
    Merged,
    /// Each thread's own.
    Apart,
}

/// The steps of the program whose engine was recorded (`flashvm run --record`), as JSON lines, each with its thread. The
/// program computed for `work`, as its run without a pager shows; the times between its faults are scaled to that, for each
/// thread.
///
/// # Errors
/// See [`ObserveError`].
pub fn observe(
    lines: impl BufRead,
    work: Nanos,
    threads: Threads,
) -> Result<Vec<(u16, Step)>, ObserveError> {
    let mut lines = (1..).zip(lines.lines());
    let parse = |line, source| ObserveError::Line { line, source };
    let config: EngineConfig = match lines.next() {
        Some((line, text)) => serde_json::from_str(&text?).map_err(|e| parse(line, e))?,
        None => return Ok(Vec::new()),
    };
    let mut follower = Follower::new(config)?;
    let mut observer = Observer::default();
    for (line, text) in lines {
        let mut step: Recorded = serde_json::from_str(&text?).map_err(|e| parse(line, e))?;
        if threads == Threads::Merged {
            step.thread = 0;
        }
        if let Event::Scanned { io, zero, same, .. } = step.event {
            observer.scanned(follower.io_pages(io), zero, same);
        }
        observer.see(&step);
        follower.step(&step)?;
    }
    Ok(observer.finish(work))
}

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Its number among the program's pages, in the order of their first touches. It moves with the contents.
    number: PageId,
    /// The step that touched it last.
    last: usize,
}

/// A thread of the program.
#[derive(Debug, Default)]
struct Thread {
    /// From 0, in the order of their first faults.
    number: u16,
    /// Its last step.
    last: Option<usize>,
    /// The page that it waits for.
    awaited: Option<PageId>,
    /// When it could go on.
    resumed: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Observer {
    steps: Vec<(u16, Step)>,
    /// By page of managed memory.
    pages: BTreeMap<u32, Page>,
    numbers: u32,
    /// By the kernel's numbers.
    threads: BTreeMap<u32, Thread>,
}

impl Observer {
    fn see(&mut self, step: &Recorded) {
        match step.event {
            Event::Fault { page, access, .. } => {
                let touch = match access {
                    Access::Read => Touch::Read,
                    Access::Write => Touch::Write,
                };
                self.touch(step, page, touch);
            }
            Event::WriteProtectFault { page } => self.touch(step, page, Touch::Write),
            Event::Zap { first, count } => {
                let range = first.0..first.0.saturating_add(count);
                let pages = self.pages.range(range).map(|(_, page)| page.number);
                for page in Vec::from_iter(pages) {
                    self.push(step.thread, page, Touch::Zap);
                }
            }
            Event::Relocate { from, to, count } => {
                let mut moved = self.pages.split_off(&from.0);
                self.pages
                    .append(&mut moved.split_off(&(from.0.saturating_add(count))));
                let moved = moved.into_iter();
                let moved = moved.map(|(page, known)| (page - from.0 + to.0, known));
                self.pages.extend(moved);
            }
            _ => {}
        }
        for thread in self.threads.values_mut() {
            let awaited = thread.awaited;
            let resolved = |action| awaited.is_some_and(|page| resolves(action, page));
            if step.actions.iter().any(resolved) {
                (thread.awaited, thread.resumed) = (None, Some(step.now));
            }
        }
    }

    /// Adds a step of a thread.
    fn push(&mut self, thread: u32, page: PageId, touch: Touch) -> &mut Thread {
        let threads = self.threads.len() as u16;
        let thread = self.threads.entry(thread).or_insert_with(|| Thread {
            number: threads,
            ..Thread::default()
        });
        thread.last = Some(self.steps.len());
        let work = Nanos(0);
        self.steps.push((thread.number, Step { page, touch, work }));
        thread
    }

    fn touch(&mut self, step: &Recorded, page: PageId, touch: Touch) {
        let now = step.now;
        // The thread has computed since its last page came.
        if let Some(thread) = self.threads.get(&step.thread)
            && let (Some(resumed), Some(last)) = (thread.resumed, thread.last)
        {
            let work = &mut self.steps[last].1.work;
            *work = Nanos(work.0 + now.0.saturating_sub(resumed.0));
        }
        let known = self.pages.entry(page.0).or_insert_with(|| {
            self.numbers += 1;
            Page {
                number: PageId(self.numbers - 1),
                last: 0,
            }
        });
        known.last = self.steps.len();
        let number = known.number;
        let thread = self.push(step.thread, number, touch);
        (thread.awaited, thread.resumed) = (Some(page), Some(now));
    }

    /// Pages leave: now it shows what the last touch of each has left. `zero`, `same`: a bit for each page.
    fn scanned(&mut self, pages: &[PageId], zero: u64, same: u64) {
        for (bit, page) in pages.iter().enumerate() {
            let Some(known) = self.pages.get(&page.0) else {
                continue;
            };
            let touch = &mut self.steps[known.last].1.touch;
            let is_zero = zero >> bit & 1 == 1;
            *touch = match *touch {
                Touch::Write if is_zero => Touch::Clear,
                // A page that was mapped for stores as well, because they were expected.
                Touch::Read if !is_zero && same >> bit & 1 == 0 => Touch::Write,
                other => other,
            };
        }
    }

    fn finish(mut self, work: Nanos) -> Vec<(u16, Step)> {
        let work = work.0 as f64 * self.threads.len() as f64;
        let between: u64 = self.steps.iter().map(|(_, step)| step.work.0).sum();
        let factor = work / between.max(1) as f64;
        for (_, step) in &mut self.steps {
            step.work = Nanos((step.work.0 as f64 * factor) as u64);
        }
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::Action;

    fn recorded(now: u64, event: Event, actions: Vec<Action>) -> Recorded {
        Recorded {
            now: Nanos(now),
            thread: 0,
            event,
            clusters: Vec::new(),
            actions,
        }
    }

    fn fault(now: u64, page: u32, access: Access) -> Recorded {
        let page = PageId(page);
        let event = Event::Fault {
            page,
            access,
            huge: false,
        };
        let (first, count, protect) = (page, 1, false);
        let zero = Action::Zero {
            first,
            count,
            protect,
        };
        recorded(now, event, vec![zero])
    }

    fn step(page: u32, touch: Touch, work: u64) -> (u16, Step) {
        let (page, work) = (PageId(page), Nanos(work));
        (0, Step { page, touch, work })
    }

    #[test]
    fn pages_are_numbered_and_times_are_scaled() {
        let mut observer = Observer::default();
        observer.see(&fault(100, 7, Access::Write));
        observer.see(&fault(400, 5, Access::Read));
        observer.see(&fault(500, 7, Access::Write));
        let steps = observer.finish(Nanos(4_000));
        let expected = [
            step(0, Touch::Write, 3_000),
            step(1, Touch::Read, 1_000),
            step(0, Touch::Write, 0),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn waiting_is_no_work() {
        let mut observer = Observer::default();
        let mut waits = fault(100, 7, Access::Write);
        let actions = std::mem::take(&mut waits.actions);
        observer.see(&waits);
        observer.see(&recorded(900, Event::Tick, actions));
        observer.see(&fault(1_000, 5, Access::Read));
        assert_eq!(observer.finish(Nanos(100))[0], step(0, Touch::Write, 100));
    }

    #[test]
    fn threads_compute_beside_each_other() {
        let mut observer = Observer::default();
        for (now, thread, page) in [(0, 70, 1), (100, 80, 2), (300, 70, 3), (400, 80, 1)] {
            let thread = Recorded {
                thread,
                ..fault(now, page, Access::Write)
            };
            observer.see(&thread);
        }
        let steps = observer.finish(Nanos(300));
        let expected = [(0, 0, 300), (1, 1, 300), (0, 2, 0), (1, 0, 0)];
        let expected =
            expected.map(|(thread, page, work)| (thread, step(page, Touch::Write, work).1));
        assert_eq!(steps, expected);
    }

    #[test]
    fn contents_show_when_pages_leave() {
        let mut observer = Observer::default();
        for page in [7, 5, 3, 1] {
            let access = if page == 3 {
                Access::Read
            } else {
                Access::Write
            };
            observer.see(&fault(100, page, access));
        }
        observer.scanned(&[PageId(7), PageId(5), PageId(3), PageId(9)], 0b001, 0b000);
        let touches = observer
            .finish(Nanos(0))
            .into_iter()
            .map(|(_, step)| step.touch);
        let expected = [Touch::Clear, Touch::Write, Touch::Write, Touch::Write];
        assert_eq!(Vec::from_iter(touches), expected);
    }

    #[test]
    fn zapped_and_moved_pages_keep_their_numbers() {
        let mut observer = Observer::default();
        for page in [10, 11, 12] {
            observer.see(&fault(0, page, Access::Write));
        }
        let zap = |first, count| Event::Zap {
            first: PageId(first),
            count,
        };
        observer.see(&recorded(0, zap(0, 11), Vec::new()));
        let (from, to, count) = (PageId(11), PageId(90), 1);
        observer.see(&recorded(
            0,
            Event::Relocate { from, to, count },
            Vec::new(),
        ));
        observer.see(&fault(0, 90, Access::Read));
        observer.see(&fault(0, 11, Access::Read));
        let steps = observer.finish(Nanos(0));
        let pages = Vec::from_iter(steps.iter().map(|(_, step)| step.page.0));
        assert_eq!(pages, [0, 1, 2, 0, 1, 3]);
        assert_eq!(steps[3].1.touch, Touch::Zap);
    }
}
