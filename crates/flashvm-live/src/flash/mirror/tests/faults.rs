//! Faults in all operations of sides in memory.

use super::super::super::checked::Checked;
use super::super::super::memory::MemoryStore;
use super::super::super::nbd::{NbdTrouble, PendingRead, PendingWrite, SideError};
use super::super::super::side::{Begun, Half, Outcome};
use super::super::super::store::{Failed, Geometry, Part, Span, Store, bytes_of};
use super::super::super::testing::{Pages, held};
use super::super::Mirror;
use super::super::health::{Health, Phase, Side};
use super::{BYTES, PAGE, PAGES, read, silent, write};
use crate::control::MirrorState;
use flashvm_core::Nanos;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What goes wrong in an operation of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It answers with an error.
    Error,
    /// It does not answer, and forgets what it has.
    Lost,
    /// A bit of what it holds flips, before the operation.
    Flip,
}

/// Which operations of a side go wrong.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// None.
    Good,
    /// The one with this number.
    At(u32, Fault),
    /// Those that a seed chooses: one of so many.
    OneOf(u64, u64),
}

/// A side in memory that fails as planned.
struct FaultySide {
    store: MemoryStore,
    plan: Plan,
    operations: AtomicU32,
    /// It does not answer before its epoch changes.
    is_away: AtomicBool,
    epoch: AtomicU32,
}

impl FaultySide {
    fn new(plan: Plan) -> Self {
        Self {
            store: MemoryStore::new(BYTES),
            plan,
            operations: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
        }
    }

    fn fault(&self, at: u64) -> Option<Fault> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        if self.is_away.load(Ordering::Relaxed) {
            return Some(Fault::Lost);
        }
        let fault = match self.plan {
            Plan::Good => None,
            Plan::At(planned, fault) => (planned == number).then_some(fault),
            Plan::OneOf(many, seed) => {
                let dice = xxh3_64_with_seed(&number.to_ne_bytes(), seed);
                let faults = [Fault::Error, Fault::Lost, Fault::Flip, Fault::Flip];
                dice.is_multiple_of(many)
                    .then(|| faults[(dice / many % 4) as usize])
            }
        };
        match fault {
            Some(Fault::Flip) => self.store.flip(at),
            Some(Fault::Lost) => {
                self.is_away.store(true, Ordering::Relaxed);
                self.store.discard(&[Span { at: 0, len: BYTES }]).unwrap();
            }
            _ => {}
        }
        fault
    }

    fn outcome(&self, at: u64, request: impl FnOnce() -> Failed) -> Outcome {
        match self.fault(at) {
            Some(Fault::Error) => Outcome::Failed,
            Some(Fault::Lost) => Outcome::Lost(NbdTrouble::Closed),
            Some(Fault::Flip) | None => {
                assert!(request().is_none());
                Outcome::Done
            }
        }
    }

    /// The last side, which the mirror waits for.
    fn patiently(&self, at: u64, len: usize, request: impl Fn() -> Failed) -> Failed {
        loop {
            match self.outcome(at, &request) {
                Outcome::Lost(_) => self.is_away.store(false, Ordering::Relaxed),
                outcome => return Failed::unless(outcome == Outcome::Done, len),
            }
        }
    }

    fn command(&self) -> Result<(), SideError> {
        match self.outcome(0, || Failed::NONE) {
            Outcome::Done => Ok(()),
            Outcome::Failed => Err(SideError::Answered(rustix::io::Errno::IO)),
            Outcome::Lost(trouble) => Err(SideError::Lost(trouble)),
        }
    }
}

impl Half for FaultySide {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    fn set_epoch(&self, epoch: u32) {
        if self.epoch.swap(epoch, Ordering::Relaxed) != epoch {
            self.is_away.store(false, Ordering::Relaxed);
        }
    }

    unsafe fn begin_read(&self, at: u64, to: Part, _: Nanos, _: bool) -> Begun<PendingRead<'_>> {
        // SAFETY: the caller guarantees what this call asks for.
        Begun::Ended(self.outcome(at, || unsafe { self.store.read(at, to) }))
    }

    unsafe fn read_patiently(&self, at: u64, to: Part, _: Nanos) -> Failed {
        // SAFETY: the caller guarantees what this call asks for.
        self.patiently(at, to.len, || unsafe { self.store.read(at, to) })
    }

    unsafe fn begin_write(
        &self,
        at: u64,
        parts: &[Part],
        _: Nanos,
        _: &dyn Fn() -> bool,
    ) -> Begun<PendingWrite<'_>> {
        // SAFETY: the caller guarantees what this call asks for.
        Begun::Ended(self.outcome(at, || unsafe { self.store.write(at, parts) }))
    }

    unsafe fn write_patiently(&self, at: u64, parts: &[Part], _: Nanos) -> Failed {
        let len = bytes_of(parts);
        // SAFETY: the caller guarantees what this call asks for.
        self.patiently(at, len, || unsafe { self.store.write(at, parts) })
    }

    fn discard(&self, spans: &[Span]) -> Result<(), SideError> {
        self.command()?;
        self.store.discard(spans).map_err(SideError::Answered)
    }

    fn sync(&self) -> Result<(), SideError> {
        self.command()
    }
}

type Faulty = Checked<Mirror<FaultySide>>;

fn faulty(plans: [Plan; 2]) -> (Faulty, MirrorState) {
    let state = held(BYTES).0.mirror();
    let mirror = silent(plans.map(FaultySide::new), state);
    (Checked::new(mirror).unwrap(), state)
}

/// Brings sides up to date, as the attendant does.
fn copy_all(mirror: &Mirror<FaultySide>, state: MirrorState) {
    let word = state.health();
    if let Some((side, Phase::Lost)) = Health::of(word).out() {
        state.mark(side.index(), 0..PAGES);
        let back = Health::of(word).come_back(side).unwrap();
        assert!(state.change_health(word, back.word()));
    }
    let page = Pages::new(1, 0);
    for side in Side::BOTH {
        for number in 0..PAGES {
            let pages = number..number + 1;
            let [from, to] = [side.other(), side].map(Side::index);
            if state.any_stale(to, pages.clone()) && !state.any_stale(from, pages.clone()) {
                assert_eq!(
                    read(&mirror.sides[from].store, u64::from(number) * PAGE, &page),
                    0
                );
                assert!(write(
                    &mirror.sides[to].store,
                    u64::from(number) * PAGE,
                    &page
                ));
                state.clear(to, pages);
            }
        }
    }
    let word = state.health();
    if let Some((side, _)) = Health::of(word).out() {
        let whole = Health::of(word).complete(side).unwrap();
        assert!(state.change_health(word, whole.word()));
    }
}

/// A short workload: writes, reads, discards and flushes, by `seed`. Each page that is read has to be right, or, if
/// `may_lose`, lost. Returns the number of pages that were.
fn work(store: &Faulty, state: MirrorState, seed: u64, steps: u64, may_lose: bool) -> u32 {
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    let mut lost = 0;
    for step in 0..steps {
        let dice = xxh3_64_with_seed(&step.to_ne_bytes(), seed);
        let (place, count) = (dice / 16 % 56, 1 + dice / 1024 % 8);
        match dice % 16 {
            0 => {
                let _ = store.discard(&[Span {
                    at: place * PAGE,
                    len: count * PAGE,
                }]);
                written.retain(|page, _| !(place..place + count).contains(page));
            }
            1 => {
                let _ = store.sync();
            }
            2 => copy_all(&store.below, state),
            3..8 => {
                let pages = Pages::new(count as usize, step + 1);
                let done = write(store, place * PAGE, &pages);
                assert!(done || may_lose, "seed {seed}, step {step}: a write failed");
                for page in 0..count {
                    match done {
                        true => written.insert(place + page, (step + 1) << 8 | page),
                        false => written.remove(&(place + page)),
                    };
                }
            }
            _ => {
                let to = Pages::new(count as usize, 0);
                let failed = read(store, place * PAGE, &to);
                for page in 0..count {
                    let Some(tag) = written.get(&(place + page)) else {
                        continue;
                    };
                    if failed & 1 << page != 0 {
                        assert!(
                            may_lose,
                            "seed {seed}, step {step}: page {} is lost",
                            place + page
                        );
                        lost += 1;
                        written.remove(&(place + page));
                        continue;
                    }
                    let right = Pages::new((tag % 256) as usize + 1, tag >> 8);
                    let right = right.bytes((tag % 256) as usize);
                    assert!(
                        to.bytes(page as usize) == right,
                        "seed {seed}, step {step}: wrong data"
                    );
                }
            }
        }
    }
    lost
}

/// One fault of each kind in each operation of one side: nothing is lost, as the other side is good.
#[test]
fn a_fault_in_any_operation_of_one_side_loses_nothing() {
    const STEPS: u64 = 60;
    let seed = 20_261_126;
    for side in Side::BOTH {
        for fault in [Fault::Error, Fault::Lost, Fault::Flip] {
            let mut number = 0;
            loop {
                let mut plans = [Plan::Good; 2];
                plans[side.index()] = Plan::At(number, fault);
                let (store, state) = faulty(plans);
                work(&store, state, seed, STEPS, false);
                let made = store.below.sides[side.index()]
                    .operations
                    .load(Ordering::Relaxed);
                if made <= number {
                    break;
                }
                number += 1;
            }
            assert!(number > 10, "{side:?} had {number} operations");
        }
    }
}

/// Many faults of one side, of all kinds.
#[test]
fn a_side_may_fail_again_and_again() {
    let mut of_all = [0; 3];
    for seed in 0..40 {
        let mut plans = [Plan::Good; 2];
        plans[(seed % 2) as usize] = Plan::OneOf(5, seed);
        let (store, state) = faulty(plans);
        work(&store, state, seed, 400, false);
        let counters = state.counters();
        let seen = [counters.failed_over, counters.mended, counters.sides_lost];
        assert_ne!(seen, [0; 3], "seed {seed}");
        of_all = [0, 1, 2].map(|at: usize| of_all[at] + seen[at]);
    }
    assert!(of_all.into_iter().all(|seen| seen > 0), "{of_all:?}");
}

/// Faults of both sides may lose pages, and never give wrong ones.
#[test]
fn faults_of_both_sides_never_give_wrong_data() {
    let mut lost = 0;
    for seed in 0..40 {
        let (store, state) = faulty([Plan::OneOf(7, seed), Plan::OneOf(11, !seed)]);
        lost += work(&store, state, seed, 400, true);
    }
    assert!(lost > 0, "faults of both sides at one page");
}

#[test]
fn a_wrong_page_is_read_from_the_other_side_and_mended() {
    let (store, state) = faulty([Plan::Good; 2]);
    let (from, to) = (Pages::new(4, 1), Pages::new(4, 2));
    assert!(write(&store, 0, &from));
    store.below.sides[0].store.flip(0);
    store.below.sides[1].store.flip(PAGE);
    for _ in 0..2 {
        assert_eq!(read(&store, 0, &to), 0);
        assert!((0..4).all(|page| to.bytes(page) == from.bytes(page)));
    }
    assert_eq!(state.counters().mended, 2);
    assert!(state.any_stale(0, 0..1) && state.any_stale(1, 1..2));
    copy_all(&store.below, state);
    for side in &store.below.sides {
        assert_eq!(read(&side.store, 0, &to), 0);
        assert!((0..4).all(|page| to.bytes(page) == from.bytes(page)));
    }
}

#[test]
fn pages_that_no_side_has_alone_are_read_one_by_one() {
    let (store, state) = faulty([Plan::Good; 2]);
    let (from, to) = (Pages::new(8, 1), Pages::new(8, 2));
    assert!(write(&store, 0, &from));
    state.mark(0, 0..3);
    state.mark(1, 5..6);
    assert_eq!(read(&store, 0, &to), 0);
    assert!((0..8).all(|page| to.bytes(page) == from.bytes(page)));
    state.mark(1, 1..2);
    assert_eq!(read(&store, 0, &to), 0b10, "the page that both lack");
    assert!(write(&store, 0, &from));
    assert!(!state.any_stale(0, 0..8) && !state.any_stale(1, 0..8));
}
