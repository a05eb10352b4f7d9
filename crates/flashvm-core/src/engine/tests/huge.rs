//! Huge pages: filled as a whole or not at all.

use super::*;
use crate::ids::HUGE_PAGES;

/// 128 MiB.
const FRAMES: u32 = 64 * HUGE_PAGES;

fn roomy(frames: u32) -> Rig {
    let config = EngineConfig {
        pages: 2 * FRAMES,
        slots: 2 * FRAMES,
        frames,
        shadow: true,
        protects: true,
        copies_back: false,
        settings: Preset::Modern.settings(),
    };
    let clusters = LocalClusters::new(config.slots / config.settings.cluster_pages);
    let engine = Engine::new(config, clusters).expect("a valid configuration");
    Rig { engine, now: 0 }
}

fn store(rig: &mut Rig, page: u32) -> Vec<Action> {
    rig.tell(Event::Fault {
        page: PageId(page),
        access: Write,
        huge: true,
    })
}

fn filled(rig: &Rig) -> u64 {
    rig.engine.counters().huge_pages
}

#[test]
fn a_store_fills_the_huge_page_around_it() {
    let mut rig = roomy(FRAMES);
    let zero = Action::Zero {
        first: PageId(HUGE_PAGES),
        count: HUGE_PAGES,
        protect: false,
    };
    assert_eq!(store(&mut rig, HUGE_PAGES + 77), [zero]);
    assert_eq!(rig.engine.frames_in_use(), HUGE_PAGES);
    assert_eq!(
        (rig.state(2 * HUGE_PAGES - 1), rig.state(0)),
        (Mapped, Absent)
    );
    let counters = rig.engine.counters();
    assert_eq!((counters.faults_total, counters.faults_zero), (1, 1));
}

#[test]
fn a_load_fills_none_as_its_pages_may_be_protected() {
    let mut rig = roomy(FRAMES);
    rig.tell(Event::Fault {
        page: PageId(0),
        access: Read,
        huge: true,
    });
    assert_eq!((filled(&rig), rig.state(0)), (0, Mapped));
}

#[test]
fn contents_in_one_page_keep_the_others_small() {
    let mut rig = roomy(FRAMES);
    rig.fault(HUGE_PAGES - 1, Write);
    store(&mut rig, 0);
    assert_eq!((filled(&rig), rig.state(0)), (0, Mapped));
    // The next one is free of contents.
    store(&mut rig, HUGE_PAGES);
    assert_eq!(filled(&rig), 1);
}

#[test]
fn a_small_budget_has_none() {
    let mut rig = roomy(16 * HUGE_PAGES);
    store(&mut rig, 0);
    assert_eq!((filled(&rig), rig.state(0)), (0, Mapped));
}

#[test]
fn there_are_none_once_frames_are_short() {
    let mut rig = roomy(FRAMES);
    for page in (0..2 * FRAMES).step_by(HUGE_PAGES as usize) {
        store(&mut rig, page);
        assert!(rig.engine.frames_in_use() <= FRAMES);
        if rig.state(page + 1) == Absent {
            break;
        }
    }
    let most = u64::from(FRAMES / HUGE_PAGES);
    assert!((most / 2..most).contains(&filled(&rig)), "{}", filled(&rig));
}
