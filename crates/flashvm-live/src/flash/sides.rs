//! The sides of a stripe or a tier: requests to one side, which the run can go on without.
//!
//! A side that does not answer in time is given up, with a message: its requests fail at once, so reads are lost pages and
//! writes go to other slots. Processes try it again now and then (`outage`), and know together which sides are away.

use super::nbd::{NbdTrouble, SideError};
use super::outage::{self, Asks};
use super::side::{Half, SideStore};
use super::store::{Failed, Geometry, Part, Span, bytes_of};
use crate::control::{Process, STORES_MAX, SidesState};
use crate::sys::discard::StoreKind;
use crate::sys::message::say_plainly;
use crate::sys::now;
use flashvm_core::Nanos;
use rustix::io::Errno;
use std::fmt;
use std::os::fd::RawFd;

/// Threads of a queue to a store of several sides, at most.
const THREADS_MAX: usize = 16;

/// The sides of a store.
#[derive(Debug)]
pub(super) struct Sides<H = SideStore> {
    pub(super) stores: Box<[H]>,
    pub(super) names: Box<[String]>,
    pub(super) state: SidesState,
    /// Tells the user.
    pub(super) says: fn(&dyn fmt::Display),
}

impl<H: Half> Sides<H> {
    pub(super) fn new(sides: Vec<(String, H)>, state: SidesState) -> Self {
        let (names, stores): (Vec<_>, Vec<_>) = sides.into_iter().unzip();
        Self {
            stores: stores.into(),
            names: names.into(),
            state,
            says: say_plainly,
        }
    }

    /// The geometry of a store of `bytes` bytes on these sides.
    pub(super) fn geometry(&self, bytes: u64) -> Geometry {
        let all = || self.stores.iter().map(Half::geometry);
        let is_file = all().any(|side| side.kind != StoreKind::Device);
        Geometry {
            bytes,
            unit: all().map(|side| side.unit).max().expect("sides"),
            kind: if is_file {
                StoreKind::File
            } else {
                StoreKind::Device
            },
            threads: all()
                .map(|side| side.threads)
                .sum::<usize>()
                .min(THREADS_MAX),
        }
    }

    /// Reads from a side.
    ///
    /// # Safety
    /// As [`super::Store::read`].
    pub(super) unsafe fn read(&self, side: usize, at: u64, to: Part) -> Failed {
        let failed = self.ask(
            side,
            // SAFETY: the caller guarantees for `to` what these calls ask for.
            |store, since, until| unsafe { store.read_until(at, to, since, until) },
            // SAFETY: as above.
            |store, since| unsafe { store.read_patiently(at, to, since) },
        );
        let failed = failed.unwrap_or_else(|| Failed::all(to.len));
        if failed.is_none() {
            self.state.count_read(side);
        }
        failed
    }

    /// Writes to a side.
    ///
    /// # Safety
    /// As [`super::Store::write`].
    pub(super) unsafe fn write(&self, side: usize, at: u64, parts: &[Part]) -> Failed {
        let failed = self.ask(
            side,
            // SAFETY: the caller guarantees for the parts what these calls ask for.
            |store, since, until| unsafe { store.write_until(at, parts, since, until) },
            // SAFETY: as above.
            |store, since| unsafe { store.write_patiently(at, parts, since) },
        );
        let failed = failed.unwrap_or_else(|| Failed::all(bytes_of(parts)));
        if failed.is_none() {
            self.state.count_write(side);
        }
        failed
    }

    /// Makes a request to a side. `None`: the side is away.
    fn ask(
        &self,
        side: usize,
        request: impl Fn(&H, Nanos, Nanos) -> Result<Failed, NbdTrouble>,
        patiently: impl Fn(&H, Nanos) -> Failed,
    ) -> Option<Failed> {
        let (store, now) = (&self.stores[side], now());
        let word = self.state.away(side);
        match outage::asks(word, now) {
            Asks::Never => None,
            Asks::Once { word: next } => {
                if !self.state.change_away(side, word, next) {
                    return None;
                }
                let answer = request(store, now, Nanos(now.0 + outage::TRY.0)).ok()?;
                if self.state.change_away(side, next, 0) {
                    let name = &self.names[side];
                    (self.says)(&format_args!("{name} answers again"));
                }
                Some(answer)
            }
            Asks::Patiently => match request(store, now, store.deadline()) {
                Ok(answer) => Some(answer),
                Err(trouble) if self.give_up(side, trouble) => None,
                // The last side, which has had its time: the process ends.
                Err(_) => Some(patiently(store, now)),
            },
        }
    }

    /// Gives a side up that has not answered in time, unless it is the last. Returns whether it is away.
    fn give_up(&self, side: usize, trouble: NbdTrouble) -> bool {
        let words = (0..self.stores.len()).map(|side| self.state.away(side));
        if !outage::may_give_up(words, side) {
            return false;
        }
        if self.state.change_away(side, 0, outage::away(now())) {
            self.state.count_given_up();
            let name = &self.names[side];
            (self.says)(&format_args!(
                "{name}: {trouble}; the run goes on without the pages that are there"
            ));
        }
        true
    }

    /// Whether a side is away.
    pub(super) fn is_away(&self, side: usize) -> bool {
        self.state.away(side) != 0
    }

    /// [`super::Store::discard`] at a side.
    pub(super) fn discard(&self, side: usize, spans: &[Span]) -> Result<(), Errno> {
        self.command(side, |store| store.discard(spans))
    }

    /// [`super::Store::sync`] of a side.
    pub(super) fn sync(&self, side: usize) -> Result<(), Errno> {
        self.command(side, Half::sync)
    }

    /// Carries a command out, a second time if the first finds a broken connection.
    fn command(
        &self,
        side: usize,
        command: impl Fn(&H) -> Result<(), SideError>,
    ) -> Result<(), Errno> {
        if self.is_away(side) {
            return Err(Errno::IO);
        }
        let once = || command(&self.stores[side]);
        let answer = match once() {
            Err(SideError::Lost(_)) => once(),
            answer => answer,
        };
        answer.map_err(|error| match error {
            SideError::Answered(error) => error,
            SideError::Lost(_) => Errno::IO,
        })
    }
}

impl Sides {
    /// In a forked child.
    pub(super) fn become_child(&mut self, process: Process) {
        for side in &mut self.stores {
            side.become_child(process);
        }
    }

    /// The descriptors of the sides that are files or devices.
    pub(super) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        let mut files = self.stores.iter().filter_map(SideStore::descriptor);
        [(); STORES_MAX].map(|()| files.next())
    }
}
