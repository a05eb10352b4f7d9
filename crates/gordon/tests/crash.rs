//! Power cuts: at every write and every sync of a random workload, a random image of those that the
//! cut could leave recovers to exactly the state before or after the commit in flight.
//!
//! A failure prints its seed and the operation: `GORDON_SEED=n cargo test -p gordon --test crash`
//! runs that seed alone, `GORDON_SEEDS=n` sets how many are run.

mod common;

use common::medium::{Op, Part, Recorder, image};
use common::{Change, Plain, Rng, found, open_once_vacant, small_options};
use gordon::flash::{Medium, MemoryMedium, Model};
use gordon::{Collector, Heap, Options, sidney};
use std::cell::Cell;
use std::sync::Arc;

const SEGMENT: u64 = 64 << 10;

/// The kind of test.
#[derive(Clone, Copy)]
enum How {
    Gordon(System, Collector),
    Sidney,
}

/// Flash whose segments have the size of the others.
const FLASH: Model = Model::intel(1);

/// The tested system.
#[derive(Clone, Copy, PartialEq)]
enum System {
    Gordon,
    /// On flash that ANDs.
    Emulated,
    /// With a log of this many bytes, and a data segment behind it.
    Sidney {
        log: u64,
    },
}

impl System {
    fn options(self, collector: Collector) -> Options {
        Options {
            model: (self == Self::Emulated).then_some(FLASH),
            ..small_options(collector)
        }
    }

    fn open(self, medium: &Arc<Recorder>, options: Options) -> gordon::Result<Heap> {
        open_once_vacant(|| match self {
            Self::Gordon | Self::Emulated => {
                Heap::open_on(Arc::clone(medium) as Arc<dyn Medium>, options)
            }
            Self::Sidney { log } => {
                let end = medium.length().expect("a length");
                let part = |range| {
                    let whole = Arc::clone(medium);
                    Arc::new(Part { whole, range })
                };
                sidney::open_on(part(0..log), part(log..end), None, options)
            }
        })
    }
}

/// The result of a workload.
struct Run {
    system: System,
    base: Vec<u8>,
    ops: Vec<Op>,
    /// Operations done when each commit began and when it had returned, and the state after it.
    commits: Vec<(usize, usize, Option<Plain>)>,
}

fn contents(medium: &dyn Medium) -> Vec<u8> {
    let mut bytes = vec![0; medium.length().expect("a length") as usize];
    medium.read(0, &mut bytes).expect("readable");
    bytes
}

/// A heap on a recording medium.
fn recorded(options: Options) -> (Heap, Arc<Recorder>) {
    let mut recorder = None;
    let heap = Heap::create_in(
        |length| {
            let made = Recorder::new(MemoryMedium::new(length)?);
            recorder = Some(Arc::clone(&made));
            Ok(made as Arc<dyn Medium>)
        },
        24 * SEGMENT,
        SEGMENT,
        options,
    )
    .expect("a heap");
    (heap, recorder.expect("was made"))
}

/// The same on recoverable virtual memory: two disks in one recorder.
fn recorded_sidney(options: Options) -> (Heap, Arc<Recorder>, System) {
    const SEGMENTS: u64 = 12;
    let most = SEGMENTS * SEGMENT * 3 + (1 << 17);
    let recorder = Recorder::new(MemoryMedium::new(most).expect("memory"));
    let part = |range| {
        let whole = Arc::clone(&recorder);
        Ok(Arc::new(Part { whole, range }) as Arc<dyn Medium>)
    };
    let log = Cell::new(0);
    let make_log = |length| {
        log.set(length);
        part(0..length)
    };
    let make_segment = |length| part(log.get()..log.get() + length);
    let size = SEGMENTS * SEGMENT;
    let heap = sidney::create_in(make_log, make_segment, size, SEGMENT, None, options);
    let system = System::Sidney { log: log.get() };
    (heap.expect("a heap"), recorder, system)
}

/// Runs `commits` commits of random changes, with aborts and collections between them.
fn run(seed: u64, commits: usize, changes: usize, how: How) -> Run {
    let mut rng = Rng(seed);
    let in_place = seed % 4 >= 2;
    let limits = |mut options: Options| {
        if in_place {
            // The log is full before persistent space is.
            options.limits.persistent_bytes = Some(400 << 10);
        }
        options
    };
    let (heap, recorder, system) = match how {
        How::Gordon(system, collector) => {
            let (heap, recorder) = recorded(limits(system.options(collector)));
            (heap, recorder, system)
        }
        How::Sidney => recorded_sidney(limits(small_options(Collector::Stop))),
    };
    recorder.ops.lock().expect("ops").clear();
    let base = contents(&*recorder);

    let mut states = vec![(0, 0, None)];
    let mut plain = Plain::default();
    let begun = recorder.count();
    heap.update(|tx| {
        found(tx);
        Ok(())
    })
    .expect("a commit");
    states.push((begun, recorder.count(), Some(plain.clone())));
    for _ in 1..commits {
        let begun = recorder.count();
        let mut next = plain.clone();
        heap.run(|tx| {
            for _ in 0..=rng.below(changes) {
                let change = match rng.below(20) {
                    1.. if in_place => {
                        Change::Bytes(0, (0..77).map(|_| rng.next() as u8).collect())
                    }
                    _ => Change::random(&mut rng),
                };
                next.apply(tx, &change);
            }
            Ok(())
        })
        .expect("changes");
        match rng.below(if in_place { 3000 } else { 300 }) {
            0..9 => heap.abort().expect("an abort"),
            9 => {
                heap.collect().expect("a collection");
                heap.abort().expect("an abort");
            }
            what => {
                if what == 10 {
                    heap.collect().expect("a collection");
                }
                heap.commit().expect("a commit");
                plain = next;
                states.push((begun, recorder.count(), Some(plain.clone())));
            }
        }
    }
    assert_eq!(
        Plain::of(&heap).as_ref(),
        Some(&plain),
        "seed {seed}: the live heap"
    );
    let ops = recorder.ops.lock().expect("ops").clone();
    let counters = heap.counters();
    let collected = if in_place {
        counters.truncations
    } else {
        counters.persistent
    };
    assert!(
        commits < 300 || (collected > 1 && (in_place || counters.minor > 1)),
        "collections: {counters:?}"
    );
    Run {
        system,
        base,
        ops,
        commits: states,
    }
}

impl Run {
    /// What is in the heap of an image that is opened with trust in what was stable. Sidney has no such way.
    #[allow(unsafe_code, reason = "opens a heap unchecked")]
    fn opened_trusted(&self, image: &[u8]) -> Option<gordon::Result<Option<Plain>>> {
        if matches!(self.system, System::Sidney { .. }) {
            return None;
        }
        let medium = Recorder::new(MemoryMedium::from_bytes(image).expect("memory"));
        let options = self.system.options(Collector::AtCommit);
        let open = || {
            let medium = Arc::clone(&medium) as Arc<dyn Medium>;
            // SAFETY: all that is in the image was written by the library, and what it declares stable is complete.
            unsafe { Heap::open_trusted_on(medium, options) }
        };
        Some(open_once_vacant(open).map(|heap| Plain::of(&heap)))
    }

    /// Cuts the power before operation `cut`, and checks the recovered state.
    fn cut(&self, seed: u64, cut: usize, rng: &mut Rng) {
        let image = image(&self.base, &self.ops, cut, rng);
        let trusted = self.opened_trusted(&image).map(|opened| {
            opened.unwrap_or_else(|error| panic!("seed {seed}, cut {cut}, trusted: {error}"))
        });
        let medium = Recorder::new(MemoryMedium::from_bytes(&image).expect("memory"));
        let options = self.system.options(Collector::AtCommit);
        let heap = self
            .system
            .open(&medium, options)
            .unwrap_or_else(|error| panic!("seed {seed}, cut before operation {cut}: {error}"));
        let found = Plain::of(&heap);
        if let Some(trusted) = trusted {
            assert_eq!(
                trusted, found,
                "seed {seed}, cut before operation {cut}: trusted"
            );
        }
        let returned = self
            .commits
            .iter()
            .rposition(|(_, end, _)| *end <= cut)
            .expect("the first");
        let before = &self.commits[returned].2;
        let after = self
            .commits
            .get(returned + 1)
            .filter(|(begun, ..)| *begun <= cut);
        let expected = found == *before || after.is_some_and(|(.., state)| found == *state);
        assert!(
            expected,
            "seed {seed}, cut before operation {cut}: neither before nor after"
        );

        // The heap takes another commit, and a cut during that recovers too.
        let Some(mut plain) = found else { return };
        let begun = plain.clone();
        heap.update(|tx| {
            plain.apply(tx, &Change::random(rng));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("seed {seed}, after the cut before {cut}: {error}"));
        let ops = medium.ops.lock().expect("ops").clone();
        drop(heap);
        let again = rng.below(ops.len() + 1);
        let image = common::medium::image(&image, &ops, again, rng);
        let medium = Recorder::new(MemoryMedium::from_bytes(&image).expect("memory"));
        let heap = self
            .system
            .open(&medium, options)
            .unwrap_or_else(|error| panic!("seed {seed}, cuts before {cut} and {again}: {error}"));
        let found = Plain::of(&heap).expect("a world");
        let expected = found == plain || (again < ops.len() && found == begun);
        assert!(
            expected,
            "seed {seed}, cuts before {cut} and {again}: neither before nor after"
        );
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    match number("GORDON_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GORDON_SEEDS").unwrap_or(12),
    }
}

/// Cuts the power before every operation of a run.
fn cut_everywhere(seed: u64, run: &Run) -> usize {
    let mut rng = Rng(seed ^ 0xC0FFEE);
    for cut in 0..=run.ops.len() {
        run.cut(seed, cut, &mut rng);
    }
    run.ops.len() + 1
}

/// Cuts the power before every operation of short runs, with either collector.
fn cut_short_runs(system: System) {
    let mut cuts = 0;
    for seed in seeds() {
        let collector = if seed % 2 == 0 {
            Collector::AtCommit
        } else {
            Collector::Stop
        };
        cuts += cut_everywhere(seed, &run(seed, 60, 24, How::Gordon(system, collector)));
    }
    println!("{cuts} cuts");
}

#[test]
fn every_write_and_sync_of_short_runs() {
    cut_short_runs(System::Gordon);
}

#[test]
fn every_write_and_sync_on_flash_that_ands() {
    cut_short_runs(System::Emulated);
}

#[test]
fn every_write_and_sync_of_sidney() {
    let mut cuts = 0;
    for seed in seeds() {
        cuts += cut_everywhere(seed, &run(seed, 60, 24, How::Sidney));
    }
    println!("{cuts} cuts");
}

#[test]
fn samples_of_long_runs_of_sidney() {
    for seed in 200..204 {
        let run = run(seed, 1000, 8, How::Sidney);
        let mut rng = Rng(seed);
        for _ in 0..200 {
            let cut = rng.below(run.ops.len() + 1);
            run.cut(seed, cut, &mut rng);
        }
    }
}

#[test]
fn samples_of_long_runs() {
    // Long enough for the mini-log to change halves: 1024 entries fit into one.
    for seed in 101..103 {
        let run = run(
            seed,
            2000,
            8,
            How::Gordon(System::Gordon, Collector::AtCommit),
        );
        let mut rng = Rng(seed);
        for _ in 0..400 {
            let cut = rng.below(run.ops.len() + 1);
            run.cut(seed, cut, &mut rng);
        }
    }
}

#[test]
fn a_failed_write_or_sync_ends_the_heap_and_keeps_the_last_commit() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let (heap, recorder) = recorded(small_options(Collector::AtCommit));
        heap.update(|tx| {
            found(tx);
            Ok(())
        })
        .expect("a commit");
        *recorder.fails_from.lock().expect("a number") = recorder.count() + rng.below(150);
        let mut plain = Plain::default();
        let (before, after) = loop {
            let before = plain.clone();
            let committed = heap.update(|tx| {
                for _ in 0..8 {
                    plain.apply(tx, &Change::random(&mut rng));
                }
                Ok(())
            });
            if committed.is_err() {
                break (before, plain);
            }
        };
        let refused = heap.update(|_| Ok(())).expect_err("a failed heap refuses");
        assert!(matches!(refused, gordon::Error::Failed(_)), "{refused}");
        drop(heap);
        let medium =
            Recorder::new(MemoryMedium::from_bytes(&contents(&*recorder)).expect("memory"));
        let heap = System::Gordon
            .open(&medium, small_options(Collector::AtCommit))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found = Plain::of(&heap).expect("a world");
        assert!(
            found == before || found == after,
            "seed {seed}: neither before nor after"
        );
    }
}
