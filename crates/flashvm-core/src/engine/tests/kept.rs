//! Pages that keep their object in the pool while they are in RAM.

use super::*;
use crate::event::ComparedWith;
use crate::ids::RUN_PAGES_MAX;
use crate::pool::PackedAt;
use crate::settings::{Compression, FirstStore};

/// Every page shrinks to so many bytes.
const BYTES: u16 = 300;

fn compressing(protects: bool, first_store: FirstStore) -> Rig {
    let settings = Settings {
        compress: Compression::Lz4,
        cluster_pages: 64,
        prefetcher: PrefetcherKind::Off,
        first_store,
        ..Preset::Modern.settings()
    };
    let pages = 4096;
    let config = EngineConfig {
        pages,
        slots: pages,
        frames: 256,
        shadow: true,
        protects,
        copies_back: false,
        settings,
    };
    let clusters = LocalClusters::new(pages / 64);
    let engine = Engine::new(config, clusters).expect("a valid configuration");
    Rig { engine, now: 0 }
}

/// Touches a page and carries out what follows. Scanned pages are the same as their copies, or none is. Returns the
/// actions.
fn touch(rig: &mut Rig, page: u32, access: Access, same: bool) -> Vec<Action> {
    let mut all = rig.fault(page, access);
    let mut done = 0;
    loop {
        while done < all.len() {
            let event = match all[done] {
                Action::Scan { io, .. } => Event::Scanned {
                    io,
                    zero: 0,
                    same: if same { u64::MAX } else { 0 },
                    sizes: Sizes::from(vec![BYTES; RUN_PAGES_MAX as usize]),
                },
                Action::Write { io, .. } | Action::WriteBlock { io, .. } => {
                    Event::WriteDone { io, failed: 0 }
                }
                Action::Read { io, .. } | Action::ReadBlock { io, .. } => {
                    Event::ReadDone { io, failed: 0 }
                }
                _ => {
                    done += 1;
                    continue;
                }
            };
            done += 1;
            all.extend(rig.tell(event));
        }
        let event = match rig.engine.deadline() {
            Some(deadline) => {
                rig.now = rig.now.max(deadline.0);
                Event::Tick
            }
            None if rig.engine.wants_reclaim() => Event::Reclaim,
            None => return all,
        };
        all.extend(rig.tell(event));
    }
}

/// Stores to 500 pages; the first is in the pool then, and loaded.
fn loaded(protects: bool) -> Rig {
    let mut rig = compressing(protects, FirstStore::Auto);
    for page in 0..500 {
        touch(&mut rig, page, Write, false);
    }
    let actions = touch(&mut rig, 0, Read, true);
    let inflated = |action: &Action| matches!(action, Action::Inflate { protect: false, .. });
    assert!(actions.iter().any(inflated), "{actions:?}");
    rig
}

/// Touches other pages until page 0 has left. Returns whether its object was made on the way.
fn push_out(rig: &mut Rig, same: bool) -> bool {
    let mut all = Vec::new();
    for page in 1000..3000 {
        all.extend(touch(rig, page, Write, same));
        if rig.state(0) == Stored {
            let Some(PackedAt::Pool(at)) = rig.engine.packed_at(PageId(0)) else {
                panic!("page 0 is not in the pool");
            };
            return all
                .iter()
                .any(|action| matches!(action, Action::Keep { object, .. } if *object == at));
        }
    }
    panic!("page 0 is still {:?}", rig.state(0));
}

#[test]
fn an_unchanged_page_is_not_compressed_again() {
    for protects in [true, false] {
        let mut rig = loaded(protects);
        let copy = rig.engine.compared_with(PageId(0));
        assert!(matches!(copy, Some(ComparedWith::Object(_))), "{copy:?}");
        let before = rig.engine.packed_at(PageId(0));
        assert!(!push_out(&mut rig, true));
        assert_eq!(rig.engine.counters().pages_unchanged, 1);
        // It leaves the pool after what left RAM before it.
        assert_ne!(rig.engine.packed_at(PageId(0)), before);
    }
}

#[test]
fn a_changed_page_is_compressed_again() {
    let mut rig = loaded(true);
    assert!(push_out(&mut rig, false));
    assert_eq!(rig.engine.counters().pages_unchanged, 0);
}

#[test]
fn a_store_keeps_no_object() {
    let mut rig = loaded(true);
    touch(&mut rig, 1, Write, true);
    assert_eq!(rig.engine.packed_at(PageId(1)), None);
    assert_eq!(rig.engine.compared_with(PageId(1)), None);
}

/// Where first stores have to fault, nothing is compared.
#[test]
fn nothing_is_kept_that_cannot_be_compared() {
    let mut rig = compressing(true, FirstStore::Fault);
    for page in 0..500 {
        touch(&mut rig, page, Write, false);
    }
    touch(&mut rig, 0, Read, true);
    assert_eq!(rig.engine.packed_at(PageId(0)), None);
}

/// A kept object does not go to flash: its page may have changed.
#[test]
fn a_block_that_leaves_loses_the_objects_of_pages_in_ram() {
    let mut rig = loaded(true);
    rig.tell(Event::Drain { on: true });
    assert_eq!(rig.engine.packed_at(PageId(0)), None);
    assert_eq!(rig.state(0), Mapped);
}
