//! Pages whose moves are refused, as calls in flight have pinned them: others leave in their place.

use super::*;
use crate::ids::RUN_PAGES_MAX;
use crate::settings::Compression;

#[test]
fn refused_pages_stand_back_until_others_have_left() {
    // FAB proposes the largest block: one whose pages all refuse must not keep the others.
    let settings = Settings {
        policy: PolicyKind::Fab.into(),
        ..settings()
    };
    let mut rig = rig(40, settings, true);
    let pinned = 0..32;
    for page in pinned.clone().chain(32..40) {
        rig.fault(page, Read);
    }
    let mut actions = rig.fault(40, Read);
    for _ in 0..200 {
        for action in std::mem::take(&mut actions) {
            if let Action::Shadow { first, count } = action {
                for page in (first.0..first.0 + count).filter(|page| pinned.contains(page)) {
                    rig.tell(Event::Refused { page: PageId(page) });
                }
            }
        }
        if let Some(deadline) = rig.engine.deadline() {
            rig.now = rig.now.max(deadline.0);
            actions = rig.tell(Event::Tick);
        }
    }
    assert_eq!(rig.engine.pending_faults(), 0, "it waits for pinned pages");
    assert!(pinned.into_iter().all(|page| rig.state(page) == Mapped));
}

/// Tells an event; refuses moves of pages in `pinned`, before any other event.
fn tell_pinned(rig: &mut Rig, event: Event, pinned: &std::ops::Range<u32>) -> Vec<Action> {
    let actions = rig.tell(event);
    for action in &actions {
        if let Action::Shadow { first, count } = *action {
            for page in (first.0..first.0 + count).filter(|page| pinned.contains(page)) {
                rig.tell(Event::Refused { page: PageId(page) });
            }
        }
    }
    actions
}

/// Stores to a page and carries out what follows. Every page shrinks to 1000 bytes.
fn store_pinned(rig: &mut Rig, page: u32, pinned: &std::ops::Range<u32>) {
    let (page, access) = (PageId(page), Write);
    let fault = Event::Fault {
        page,
        access,
        huge: false,
    };
    let mut actions = tell_pinned(rig, fault, pinned);
    for _ in 0..1000 {
        for action in std::mem::take(&mut actions) {
            let event = match action {
                Action::Scan { io, .. } => {
                    let sizes = Sizes::from(vec![1000; RUN_PAGES_MAX as usize]);
                    Event::Scanned {
                        io,
                        zero: 0,
                        same: 0,
                        sizes,
                    }
                }
                Action::Write { io, .. } | Action::WriteBlock { io, .. } => {
                    Event::WriteDone { io, failed: 0 }
                }
                Action::Read { io, .. } | Action::ReadBlock { io, .. } => {
                    Event::ReadDone { io, failed: 0 }
                }
                _ => continue,
            };
            actions.extend(tell_pinned(rig, event, pinned));
        }
        if !actions.is_empty() {
            continue;
        }
        let event = match rig.engine.deadline() {
            Some(deadline) => {
                rig.now = rig.now.max(deadline.0);
                Event::Tick
            }
            None if rig.engine.wants_reclaim() => Event::Reclaim,
            None => return,
        };
        actions = tell_pinned(rig, event, pinned);
    }
}

#[test]
fn the_pool_yields_its_frames_when_all_other_pages_are_pinned() {
    let settings = Settings {
        compress: Compression::Lz4,
        cluster_pages: 64,
        ..Preset::Modern.settings()
    };
    let (pages, frames) = (4096, 128);
    let config = EngineConfig {
        pages,
        slots: pages,
        frames,
        shadow: true,
        protects: true,
        copies_back: false,
        settings,
    };
    let clusters = LocalClusters::new(pages / 64);
    let engine = Engine::new(config, clusters).expect("a valid configuration");
    let mut rig = Rig { engine, now: 0 };
    for page in 0..500 {
        store_pinned(&mut rig, page, &(0..0));
    }
    let pool = rig.engine.pool.frames();
    assert!(pool > 16, "the pool has {pool} frames");
    let pinned = 1000..1000 + frames - 8;
    for page in pinned.clone() {
        store_pinned(&mut rig, page, &pinned);
    }
    assert_eq!(rig.engine.pending_faults(), 0, "it waits for pinned pages");
    assert!(pinned.into_iter().all(|page| rig.state(page) == Mapped));
}
