//! Brings the sides of a mirror up to date: a thread of the supervisor.
//!
//! It connects to a side that was lost, from time to time. Once that answers, all pages of clusters that processes hold
//! are stale there, and are copied from the other side, as are single pages that a side failed to write or returned
//! wrong. Processes go on meanwhile: a copy begins with clearing the page's bit, and a write that overlaps it sets the bit
//! again ([`crate::control::MirrorState`]).

use super::super::link::Link;
use super::health::{Health, Phase, Side};
use crate::control::{Control, MirrorCounter, MirrorState, SidePlace, UNIT_PAGES};
use crate::sys::message::say_of_run;
use flashvm_core::PAGE_SIZE;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two looks.
const IDLE: Duration = Duration::from_millis(50);
/// Copies that may fail in one pass.
const FAILURES_MAX: u32 = 16;
/// Looks after which pages are copied again that could not be.
const LOOKS_PER_RETRY: u32 = 10;

/// A unit of pages, aligned for direct I/O.
#[repr(align(4096))]
struct Unit([u8; UNIT_PAGES as usize * PAGE_SIZE]);

/// The thread, before it begins.
pub struct MirrorAttendant {
    state: MirrorState,
    names: [String; 2],
    links: [Link; 2],
    spare: Option<Spare>,
    /// When the side that is lost was first seen so.
    lost_since: Option<Instant>,
    bytes: u64,
    buffer: Box<Unit>,
    /// [`MirrorState::marks`] when the last pass began that left nothing to copy.
    marks: Option<u32>,
    looks: u32,
    /// Pages that were copied since the side returned.
    copied: u64,
}

/// A spare that is not in use yet.
struct Spare {
    name: String,
    link: Link,
    /// How long a side has to stay away.
    after: Duration,
}

/// The thread, while it runs.
pub struct MirrorAttending {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl MirrorAttending {
    /// Ends the thread.
    ///
    /// # Panics
    /// If the thread did.
    pub fn end(self) {
        self.over.store(true, Ordering::Release);
        self.thread
            .join()
            .expect("the mirror's thread does not panic");
    }
}

/// The result of a pass over all stale pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// No page of the run was stale.
    Clean,
    /// Some were copied.
    Copied,
    /// A copy failed, or the run is over.
    Cut,
}

impl MirrorAttendant {
    /// For the sides of a run, each with its file if it has one.
    #[must_use]
    pub fn new(control: Control, sides: [(SidePlace, Option<OwnedFd>); 2]) -> Self {
        let names = [0, 1].map(|side: usize| sides[side].0.name.clone());
        let links = sides.map(|(place, file)| Link::of(place, file));
        Self {
            state: control.mirror(),
            names,
            links,
            spare: None,
            lost_since: None,
            bytes: u64::from(control.store_slots()) * PAGE_SIZE as u64,
            buffer: Box::new(Unit([0; UNIT_PAGES as usize * PAGE_SIZE])),
            marks: Some(control.mirror().marks()),
            looks: 0,
            copied: 0,
        }
    }

    /// With a spare for a side that stays away for `after`.
    #[must_use]
    pub fn with_spare(self, spare: Option<(SidePlace, Option<OwnedFd>)>, after: Duration) -> Self {
        let spare = spare.map(|(place, file)| Spare {
            name: place.name.clone(),
            link: Link::of(place, file),
            after,
        });
        Self { spare, ..self }
    }

    /// Starts the thread. It inherits the blocked signals of the calling one.
    ///
    /// # Errors
    /// There is no thread.
    pub fn begin(mut self) -> std::io::Result<MirrorAttending> {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("flashvm-mirror".to_owned())
            .spawn(move || {
                while !until.load(Ordering::Acquire) {
                    self.look(&until);
                    std::thread::sleep(IDLE);
                }
            })?;
        Ok(MirrorAttending { over, thread })
    }

    /// Does what there is to do.
    pub(super) fn look(&mut self, over: &AtomicBool) {
        match self.health().out() {
            Some((side, Phase::Lost)) => {
                self.replace(side);
                self.knock(side);
            }
            _ => self.lost_since = None,
        }
        self.looks = self.looks.wrapping_add(1);
        let marks = self.state.marks();
        let is_returning = matches!(self.health().out(), Some((_, Phase::Returning)));
        if self.marks == Some(marks) && !is_returning {
            return;
        }
        let is_new = self.marks.is_some_and(|seen| seen != marks);
        if !is_new && !is_returning && !self.looks.is_multiple_of(LOOKS_PER_RETRY) {
            return;
        }
        let passes = Side::BOTH.map(|side| self.pass(side, over));
        self.marks = (passes == [Pass::Clean; 2]).then_some(marks);
        if let Some((side, Phase::Returning)) = self.health().out()
            && passes[side.index()] == Pass::Clean
        {
            self.complete(side);
        }
    }

    fn health(&self) -> Health {
        Health::of(self.state.health())
    }

    fn change(&self, change: impl Fn(Health) -> Option<Health>) -> bool {
        let word = self.state.health();
        change(Health::of(word)).is_some_and(|next| self.state.change_health(word, next.word()))
    }

    /// Puts the spare in the place of a lost side, if it has stayed away for long and the spare can be reached.
    fn replace(&mut self, side: Side) {
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        let is_due = |spare: &mut Spare| since.elapsed() >= spare.after;
        let bytes = self.bytes;
        let Some(mut spare) = self.spare.take_if(|spare| is_due(spare)) else {
            return;
        };
        if !spare.link.connect(bytes) {
            self.spare = Some(spare);
            return;
        }
        let name = std::mem::replace(&mut self.names[side.index()], spare.name);
        self.links[side.index()] = spare.link;
        // Before the side returns: processes that see it serve see the spare.
        self.state.use_spare(side.index());
        let spare = &self.names[side.index()];
        say_of_run(&format!("{name} stays away: {spare} takes its place"));
    }

    /// Tries to reach a lost side.
    fn knock(&mut self, side: Side) {
        let link = &mut self.links[side.index()];
        link.disconnect();
        if !link.connect(self.bytes) {
            return;
        }
        // A cluster that is leased later is written before it is read, and writes mark what a lost side lacks.
        for pages in self.state.held() {
            self.state.mark(side.index(), pages);
        }
        self.copied = 0;
        if self.change(|health| health.come_back(side)) {
            let name = &self.names[side.index()];
            say_of_run(&format!("{name} answers again, and is brought up to date"));
        }
    }

    fn complete(&mut self, side: Side) {
        if self.change(|health| health.complete(side)) {
            let (name, pages) = (&self.names[side.index()], self.copied);
            say_of_run(&format!("{name} is up to date again: {pages} pages copied"));
        }
    }

    /// Copies all stale pages of the run to a side.
    fn pass(&mut self, side: Side, over: &AtomicBool) -> Pass {
        let (state, mut pass, mut failures) = (self.state, Pass::Clean, 0);
        for pages in state.held() {
            for unit in pages.start / UNIT_PAGES..pages.end.div_ceil(UNIT_PAGES) {
                let begin = unit * UNIT_PAGES;
                let of_cluster =
                    bits(pages.start.max(begin) - begin..(pages.end - begin).min(UNIT_PAGES));
                let wanted = state.stale(side.index(), unit) & of_cluster;
                if wanted == 0 {
                    continue;
                }
                let is_over = over.load(Ordering::Acquire);
                if is_over || self.health().is_lost(side) || self.health().is_lost(side.other()) {
                    return Pass::Cut;
                }
                match self.copy(side, unit, wanted) {
                    true if pass == Pass::Clean => pass = Pass::Copied,
                    true => {}
                    false => {
                        failures += 1;
                        pass = Pass::Cut;
                    }
                }
                if failures == FAILURES_MAX {
                    return pass;
                }
            }
        }
        pass
    }

    /// Copies pages of a unit to a side, in runs. Pages that the other side lacks stay as they are.
    fn copy(&mut self, side: Side, unit: u32, wanted: u64) -> bool {
        let other = side.other().index();
        let mut left = wanted & !self.state.stale(other, unit);
        let mut is_whole = true;
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (left >> first).trailing_ones();
            let run = bits(first..first + count);
            left &= !run;
            let pages = unit * UNIT_PAGES + first..unit * UNIT_PAGES + first + count;
            self.state.turn_copy(side.index(), unit);
            self.state.clear(side.index(), pages.clone());
            let is_copied = self.copy_run(side, &pages);
            if !is_copied {
                self.state.mark(side.index(), pages.clone());
            }
            self.state.turn_copy(side.index(), unit);
            is_whole &= is_copied;
        }
        is_whole
    }

    fn copy_run(&mut self, side: Side, pages: &Range<u32>) -> bool {
        let at = u64::from(pages.start) * PAGE_SIZE as u64;
        let bytes = &mut self.buffer.0[..pages.len() * PAGE_SIZE];
        let [from, to] = [side.other(), side].map(Side::index);
        let reaches = |link: &mut Link, bytes: u64| link.connect(bytes);
        if !reaches(&mut self.links[from], self.bytes) || !reaches(&mut self.links[to], self.bytes)
        {
            return false;
        }
        if !self.links[from].read(at, bytes) {
            self.links[from].disconnect();
            return false;
        }
        if !self.links[to].write(at, bytes) {
            self.links[to].disconnect();
            return false;
        }
        self.copied += pages.len() as u64;
        self.state
            .count(MirrorCounter::ResyncedBytes, bytes.len() as u64);
        true
    }
}

/// The bits of a unit's pages.
fn bits(pages: Range<u32>) -> u64 {
    match pages.len() as u32 {
        0 => 0,
        count => (u64::MAX >> (u64::BITS - count)) << pages.start,
    }
}
