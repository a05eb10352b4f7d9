//! The flash interface of Table 2 against a naive model: a map of addresses to bytes.

use gordon::Error;
use gordon::flash::{Erase, Flash, Medium, MemoryMedium, Model};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEGMENTS: u64 = 6;
/// Places at which the steps allocate: more than there are segments.
const PLACES: u64 = 8;

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        place: u64,
        num: u64,
    },
    Free {
        place: u64,
    },
    Erase {
        place: u64,
        num: u64,
    },
    /// These bytes, from `within` on; with `clears`, ANDed with the old contents.
    Write {
        place: u64,
        within: u64,
        bytes: Vec<u8>,
        clears: bool,
    },
    Misplace {
        offset: u64,
    },
    Pass {
        ns: u64,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0..PLACES;
    prop_oneof![
        4 => (place.clone(), 0..4_u64).prop_map(|(place, num)| Step::Alloc { place, num }),
        2 => place.clone().prop_map(|place| Step::Free { place }),
        2 => (place.clone(), 1..3_u64).prop_map(|(place, num)| Step::Erase { place, num }),
        8 => (place, 0..1_u64 << 16, prop::collection::vec(any::<u8>(), 0..300), any::<bool>())
            .prop_map(|(place, within, bytes, clears)| Step::Write { place, within, bytes, clears }),
        1 => any::<u64>().prop_map(|offset| Step::Misplace { offset }),
        1 => (0..2_000_000_000_u64).prop_map(|ns| Step::Pass { ns }),
        1 => Just(Step::Reopen),
    ]
}

/// A model of a bank: its buffers, and the bytes of the segments at their places.
#[derive(Default)]
struct Naive {
    /// First place and length of each buffer.
    buffers: BTreeMap<u64, u64>,
    segments: BTreeMap<u64, Vec<u8>>,
}

impl Naive {
    fn has(&self, places: std::ops::Range<u64>) -> bool {
        places
            .into_iter()
            .all(|place| self.segments.contains_key(&place))
    }
}

fn check(model: Model, steps: &[Step]) {
    let segment = model.segment_bytes();
    let mut medium = None;
    let make = |length| {
        let made: Arc<dyn Medium> = Arc::new(MemoryMedium::new(length)?);
        medium = Some(Arc::clone(&made));
        Ok(made)
    };
    let mut flash = Flash::create_in(make, model, SEGMENTS).expect("a bank");
    let medium = medium.expect("was made");
    let base = flash.addresses().start;
    let at = |place: u64| base + place * segment;
    let mut naive = Naive::default();
    let mut key = None;
    for step in steps {
        match step {
            Step::Alloc { place, num } => {
                let taken = (*place..place + num).any(|place| naive.has(place..place + 1));
                let free = SEGMENTS - naive.segments.len() as u64;
                match flash.alloc(*num, at(*place)) {
                    Ok(given) => {
                        assert!(!taken && *num <= free, "{step:?}");
                        assert!(key.is_none_or(|key| key == given), "one key for all");
                        key = Some(given);
                        if *num > 0 {
                            naive.buffers.insert(*place, *num);
                        }
                        for place in *place..place + num {
                            naive.segments.insert(place, vec![0xFF; segment as usize]);
                        }
                    }
                    Err(Error::Overlap(address)) => {
                        assert!(
                            taken
                                && naive.has(
                                    (address - base) / segment..(address - base) / segment + 1
                                )
                        );
                    }
                    Err(Error::Full { .. }) => assert!(*num > free),
                    Err(error) => panic!("{step:?}: {error}"),
                }
            }
            Step::Free { place } => match flash.free(at(*place)) {
                Ok(()) => {
                    let num = naive.buffers.remove(place).expect("a buffer begins there");
                    for place in *place..place + num {
                        naive.segments.remove(&place);
                    }
                }
                Err(Error::NotAllocated(address)) => {
                    assert!(address == at(*place) && !naive.buffers.contains_key(place));
                }
                Err(error) => panic!("{step:?}: {error}"),
            },
            Step::Erase { place, num } => match flash.erase(at(*place), *num) {
                Ok(()) => {
                    for place in *place..place + num {
                        naive
                            .segments
                            .get_mut(&place)
                            .expect("allocated")
                            .fill(0xFF);
                    }
                }
                Err(Error::NotAllocated(_)) => assert!(!naive.has(*place..place + num)),
                Err(error) => panic!("{step:?}: {error}"),
            },
            Step::Write {
                place,
                within,
                bytes,
                clears,
            } => {
                let start = place * segment + within;
                let cell = |at: u64| {
                    let segment_of = naive.segments.get(&(at / segment));
                    segment_of.map(|bytes| bytes[(at % segment) as usize])
                };
                let places = (start..).take(bytes.len());
                let old: Option<Vec<u8>> = places.map(cell).collect();
                let mut bytes = bytes.clone();
                if let (true, Some(old)) = (*clears, &old) {
                    bytes.iter_mut().zip(old).for_each(|(new, old)| *new &= old);
                }
                match flash.write(base + start, &bytes) {
                    Ok(()) => {
                        let old = old.expect("all allocated");
                        for (at, (new, old)) in (start..).zip(bytes.iter().zip(old)) {
                            assert_eq!(new & !old, 0, "a bit was set without an erase");
                            let segment_of = naive.segments.get_mut(&(at / segment));
                            segment_of.expect("allocated")[(at % segment) as usize] = *new;
                        }
                    }
                    Err(Error::WriteOnce { address }) => {
                        let old = old.expect("all allocated");
                        let first = bytes
                            .iter()
                            .zip(&old)
                            .position(|(new, old)| new & !old != 0);
                        assert_eq!(Some((address - base - start) as usize), first);
                    }
                    Err(Error::NotAllocated(address)) => {
                        assert!(cell(address - base).is_none());
                    }
                    Err(error) => panic!("{step:?}: {error}"),
                }
            }
            Step::Misplace { offset } => {
                let end = flash.addresses().end;
                let address = base.wrapping_add(*offset);
                let inside = address % segment == base % segment && (base..end).contains(&address);
                if !inside {
                    let refused = flash.alloc(1, address);
                    assert!(
                        matches!(refused, Err(Error::BadAddress { .. })),
                        "{refused:?}"
                    );
                }
            }
            Step::Pass { ns } => flash.pass(*ns).expect("memory"),
            Step::Reopen => {
                drop(flash);
                flash = Flash::open_on(Arc::clone(&medium), model).expect("a bank");
                assert!(matches!(flash.bytes(base, 1), Err(Error::NotAllocated(_))));
                let Some(key) = key else { continue };
                assert!(matches!(
                    flash.recover(key ^ 1),
                    Err(Error::WrongKey { .. })
                ));
                let ranges = flash.recover(key).expect("the key");
                let found = ranges
                    .iter()
                    .map(|range| (range.end - range.start) / segment);
                assert_eq!(found.sum::<u64>(), naive.segments.len() as u64);
            }
        }
        for place in 0..PLACES + 4 {
            let seen = flash.bytes(at(place), segment as usize);
            match (naive.segments.get(&place), seen) {
                (Some(expected), Ok(found)) => {
                    assert!(expected == found, "place {place} after {step:?}");
                }
                (None, Err(Error::NotAllocated(_))) => {}
                (expected, found) => panic!("{:?} {:?}", expected.is_some(), found.is_ok()),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn erases_that_wait(steps in prop::collection::vec(step(), 1..60)) {
        check(Model::intel(1), &steps);
    }

    #[test]
    fn erases_in_the_background(steps in prop::collection::vec(step(), 1..60)) {
        check(Model::intel(1).with_erase(Erase::Background { suspend_ns: Some(0) }), &steps);
    }
}

#[test]
fn wear_is_spread_and_worn_segments_are_retired() {
    let model = Model {
        endurance: 5,
        ..Model::intel(1)
    };
    let mut flash = Flash::emulated(model, SEGMENTS).expect("a bank");
    let at = flash.addresses().start;
    flash.alloc(1, at).expect("erased segments");
    let error = loop {
        let erases = flash.segments().iter().map(|segment| segment.erases);
        let (least, most) = (erases.clone().min(), erases.max());
        assert!(
            most.zip(least)
                .is_some_and(|(most, least)| most - least <= 1)
        );
        if let Err(error) = flash.erase(at, 1) {
            break error;
        }
    };
    assert!(
        matches!(
            error,
            Error::WornOut {
                retired: SEGMENTS,
                ..
            }
        ),
        "{error}"
    );
    // The segment had no replacement: it is gone, and both calls say so.
    assert!(matches!(flash.bytes(at, 1), Err(Error::NotAllocated(_))));
    assert!(matches!(flash.free(at), Err(Error::NotAllocated(_))));
}

#[test]
fn a_bank_on_a_file_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank");
    let model = Model::intel(1).fast();
    drop(Flash::create(&path, model, 2).expect("a bank"));
    let error = Flash::open(&path, Model::intel(2).fast()).expect_err("other segments");
    assert!(error.to_string().contains("131072"), "{error}");
    let error = gordon::Heap::open(&path, gordon::Options::default()).expect_err("no heap");
    assert!(
        error.to_string().contains("a bank of flash buffers"),
        "{error}"
    );
    assert!(matches!(
        Flash::create(&path, model, 1 << 40),
        Err(Error::TooLarge { .. })
    ));
}
