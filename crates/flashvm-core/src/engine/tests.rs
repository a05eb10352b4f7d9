//! Single steps in the life of a page: sequences of events, and the exact actions that answer them.

use super::*;
use crate::clusters::LocalClusters;
use crate::event::{Access::*, Place, Sizes};
use crate::page::PageState::*;
use crate::policy::PolicyKind;
use crate::prefetch::PrefetcherKind;
use crate::settings::Preset;

mod congestion;
mod huge;
mod kept;
mod pinned;
mod probation;
mod runs;
mod stale;

const SLOTS: u32 = 64;

struct Rig {
    engine: Engine<LocalClusters>,
    now: u64,
}

/// FIFO, no prefetch, every dirty page written on its own.
fn settings() -> Settings {
    Settings {
        policy: PolicyKind::Fifo.into(),
        prefetcher: PrefetcherKind::Off,
        preclean: 1,
        zero_sharing: false,
        reserve_share: 2,
        ..Preset::Flashvm.settings()
    }
}

fn rig(frames: u32, settings: Settings, shadow: bool) -> Rig {
    let config = EngineConfig {
        pages: 100,
        slots: SLOTS,
        frames,
        shadow,
        protects: true,
        copies_back: false,
        settings,
    };
    let clusters = LocalClusters::new(SLOTS / config.settings.cluster_pages);
    let engine = Engine::new(config, clusters).expect("a valid configuration");
    Rig { engine, now: 0 }
}

impl Rig {
    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.now += 1;
        let mut actions = Vec::new();
        self.engine.handle(Nanos(self.now), &event, &mut actions);
        self.engine.check();
        actions
    }

    fn fault(&mut self, page: u32, access: Access) -> Vec<Action> {
        self.tell(Event::Fault {
            page: PageId(page),
            access,
            huge: false,
        })
    }

    fn state(&self, page: u32) -> PageState {
        self.engine.page_state(PageId(page))
    }

    /// Fills pages until the first of them is in a write in flight.
    fn writing(frames: u32, shadow: bool) -> (Self, IoId) {
        let mut rig = rig(frames, settings(), shadow);
        for page in 0..frames {
            rig.fault(page, Write);
        }
        let moved = rig.tell(Event::Reclaim);
        assert_eq!(moved, [shadow_of(0)]);
        let io = IoId(0);
        let write = Action::Write {
            io,
            slot: SlotId(0),
            count: 1,
        };
        assert!(rig.tell(Event::Reclaim).contains(&write));
        assert_eq!(rig.state(0), Writing);
        (rig, io)
    }

    /// Page 0 stands by, clean; page 1 is leaving.
    fn standby() -> Self {
        let (mut rig, io) = Self::writing(4, true);
        rig.tell(Event::WriteDone { io, failed: 0 });
        assert_eq!(rig.state(0), Standby);
        rig
    }
}

fn shadow_of(page: u32) -> Action {
    Action::Shadow {
        first: PageId(page),
        count: 1,
    }
}

fn drop_of(page: u32) -> Action {
    Action::Drop {
        first: PageId(page),
        count: 1,
    }
}

fn copy_of(page: u32, protect: bool) -> Action {
    Action::RestoreCopy {
        page: PageId(page),
        protect,
    }
}

#[test]
fn a_read_maps_zeros_protected_and_the_first_store_is_reported() {
    let mut rig = rig(4, settings(), true);
    let page = PageId(7);
    let zero = Action::Zero {
        first: page,
        count: 1,
        protect: true,
    };
    assert_eq!(rig.fault(7, Read), [zero]);
    let unprotect = Action::Unprotect { page };
    assert_eq!(rig.tell(Event::WriteProtectFault { page }), [unprotect]);
    // A second thread met the same protection.
    let wake = Action::Wake { page };
    assert_eq!(rig.tell(Event::WriteProtectFault { page }), [wake]);
    assert_eq!(rig.engine.counters().faults_zero, 1);
}

/// CRAW, VI.B.
#[test]
fn a_policy_with_write_bits_is_told_of_a_store_to_a_dirty_page() {
    let page = PageId(0);
    let protected = vec![copy_of(0, true), drop_of(0)];
    let cases = [
        (PolicyKind::Craw, protected, Action::Unprotect { page }),
        (
            PolicyKind::Fifo,
            vec![Action::Restore { page }],
            Action::Wake { page },
        ),
    ];
    for (policy, loaded, stored) in cases {
        let policy = policy.into();
        let mut rig = rig(
            4,
            Settings {
                policy,
                ..settings()
            },
            true,
        );
        for page in 0..4 {
            rig.fault(page, Write);
        }
        rig.tell(Event::Reclaim);
        assert_eq!(rig.state(0), Leaving);
        assert_eq!(rig.fault(0, Read), loaded);
        assert_eq!(rig.tell(Event::WriteProtectFault { page }), [stored]);
    }
}

#[test]
fn a_page_on_standby_is_copied_back_for_a_load_and_keeps_its_slot() {
    let mut rig = Rig::standby();
    assert_eq!(rig.fault(0, Read), [copy_of(0, true), drop_of(0)]);
    assert_eq!(rig.engine.slot_of(PageId(0)), Some(SlotId(0)));
}

#[test]
fn a_page_on_standby_is_moved_back_for_a_store_and_loses_its_slot() {
    let mut rig = Rig::standby();
    let restore = Action::Restore { page: PageId(0) };
    assert_eq!(rig.fault(0, Write), [restore]);
    assert_eq!(rig.engine.slot_of(PageId(0)), None);
}

#[test]
fn frames_come_from_standby_and_evicted_pages_are_read_back() {
    let mut rig = Rig::standby();
    let zero = Action::Zero {
        first: PageId(9),
        count: 1,
        protect: false,
    };
    assert_eq!(rig.fault(9, Write), [drop_of(0), zero]);
    assert_eq!(rig.state(0), Stored);
    // Page 1 is written, and makes room for page 0.
    rig.tell(Event::Reclaim);
    let io = IoId(0);
    rig.tell(Event::WriteDone { io, failed: 0 });
    let read = rig.fault(0, Read);
    let Some(&Action::Read {
        io,
        slot,
        count,
        demand,
    }) = read.last()
    else {
        panic!("{read:?} does not end with a read");
    };
    assert_eq!((slot, count, demand), (SlotId(0), 1, true));
    let map = Action::Map {
        io,
        index: 0,
        first: PageId(0),
        count: 1,
        place: Place::Region,
        protect: true,
    };
    assert_eq!(rig.tell(Event::ReadDone { io, failed: 0 })[0], map);
}

#[test]
fn a_copy_taken_during_a_write_is_clean_without_a_store() {
    for stored in [false, true] {
        let (mut rig, io) = Rig::writing(4, true);
        rig.tell(Event::Limit {
            frames: 8,
            shared: u32::MAX,
        });
        assert_eq!(rig.fault(0, Read), [copy_of(0, true)]);
        assert_eq!(rig.state(0), Overtaken);
        if stored {
            rig.tell(Event::WriteProtectFault { page: PageId(0) });
        }
        assert_eq!(rig.tell(Event::WriteDone { io, failed: 0 }), [drop_of(0)]);
        assert_eq!(rig.state(0), Mapped);
        assert_eq!(rig.engine.slot_of(PageId(0)).is_none(), stored);
    }
}

#[test]
fn a_failed_write_leaves_the_page_dirty_and_its_slot_bad() {
    let (mut rig, io) = Rig::writing(4, true);
    rig.tell(Event::Limit {
        frames: 8,
        shared: u32::MAX,
    });
    rig.fault(0, Read);
    let unprotect = Action::Unprotect { page: PageId(0) };
    let done = rig.tell(Event::WriteDone { io, failed: 1 });
    assert_eq!(done, [unprotect, drop_of(0)]);
    assert_eq!(rig.engine.counters().slots_bad, 1);

    let (mut rig, io) = Rig::writing(4, true);
    rig.tell(Event::WriteDone { io, failed: 1 });
    assert_eq!(rig.state(0), Condemned);
    // Page 1 has waited longer by now.
    let write = |slot| Action::Write {
        io: IoId(0),
        slot: SlotId(slot),
        count: 1,
    };
    assert!(rig.tell(Event::Reclaim).contains(&write(1)));
    rig.tell(Event::WriteDone { io, failed: 0 });
    assert!(rig.tell(Event::Reclaim).contains(&write(2)));
    assert_eq!(rig.state(0), Writing, "another slot is tried");
}

#[test]
fn a_page_of_zeros_is_not_written_and_comes_back_without_a_read() {
    let settings = Settings {
        zero_sharing: true,
        ..settings()
    };
    let mut rig = rig(4, settings, true);
    for page in 0..4 {
        rig.fault(page, Write);
    }
    rig.tell(Event::Reclaim);
    let scan = Action::Scan {
        io: IoId(0),
        count: 1,
        compress: false,
    };
    assert!(rig.tell(Event::Reclaim).contains(&scan));
    let io = IoId(0);
    assert_eq!(
        rig.tell(Event::Scanned {
            io,
            zero: 1,
            same: 0,
            sizes: Sizes::default()
        }),
        []
    );
    rig.fault(9, Read);
    let slot = rig.engine.slot_of(PageId(0)).expect("a zero slot");
    assert!(rig.engine.is_zero_slot(slot));
    rig.tell(Event::Limit {
        frames: 8,
        shared: u32::MAX,
    });
    let zero = Action::Zero {
        first: PageId(0),
        count: 1,
        protect: true,
    };
    assert_eq!(rig.fault(0, Read), [zero]);
    assert_eq!(rig.engine.counters().pages_out, 0);
}

#[test]
fn a_page_zapped_during_a_read_reads_as_zeros() {
    let mut rig = Rig::standby();
    rig.fault(9, Write);
    rig.tell(Event::Limit {
        frames: 8,
        shared: u32::MAX,
    });
    rig.fault(0, Read);
    let zapped = rig.tell(Event::Zap {
        first: PageId(0),
        count: 1,
    });
    assert_eq!(zapped, [Action::Wake { page: PageId(0) }]);
    assert_eq!(rig.state(0), Doomed);
    assert_eq!(rig.fault(0, Read), [], "it waits for the request to end");
    let io = IoId(0);
    let zero = Action::Zero {
        first: PageId(0),
        count: 1,
        protect: true,
    };
    assert_eq!(rig.tell(Event::ReadDone { io, failed: 0 }), [zero]);
}

#[test]
fn an_unreadable_page_is_poisoned_until_it_is_zapped() {
    let mut rig = Rig::standby();
    rig.fault(9, Write);
    rig.tell(Event::Limit {
        frames: 8,
        shared: u32::MAX,
    });
    rig.fault(0, Read);
    let poison = Action::Poison { page: PageId(0) };
    let io = IoId(0);
    assert_eq!(rig.tell(Event::ReadDone { io, failed: 1 }), [poison]);
    assert_eq!(rig.fault(0, Write), [poison]);
    rig.tell(Event::Zap {
        first: PageId(0),
        count: 1,
    });
    assert!(matches!(rig.fault(0, Write)[..], [Action::Zero { .. }]));
}

#[test]
fn without_a_shadow_stores_are_stopped_in_place_and_nothing_is_moved_back() {
    let (mut rig, io) = Rig::writing(4, false);
    let page = PageId(0);
    let unprotect = Action::Unprotect { page };
    assert_eq!(rig.tell(Event::WriteProtectFault { page }), [unprotect]);
    assert_eq!(rig.tell(Event::WriteDone { io, failed: 0 }), []);
    assert_eq!(rig.state(0), Mapped);
    assert_eq!(rig.engine.slot_of(page), None, "the written copy is stale");
}

#[test]
fn a_dirty_page_in_the_shadow_at_a_fork_takes_a_frame_before_it_is_written() {
    let mut rig = rig(4, settings(), true);
    for page in 0..4 {
        rig.fault(page, Write);
    }
    assert_eq!(rig.tell(Event::Reclaim), [shadow_of(0)]);
    rig.tell(Event::Forked);
    let count = |rig: &Rig| (rig.engine.frames_in_use(), rig.engine.pages_shared());
    assert_eq!((rig.state(0), count(&rig)), (Shadowed, (0, 4)));
    let (first, pages) = (PageId(0), 1);
    let leave = Action::Unshare {
        first,
        count: pages,
    };
    let advice = crate::event::Advice::PageOut;
    let left = rig.tell(Event::Advise {
        first,
        count: pages,
        advice,
    });
    assert_eq!((left, count(&rig)), (vec![leave], (1, 3)));
    let (io, slot) = (IoId(0), SlotId(0));
    let write = Action::Write {
        io,
        slot,
        count: pages,
    };
    assert_eq!(rig.tell(Event::Reclaim), [write]);
}

#[test]
fn a_refused_page_stays_as_it_was() {
    let mut rig = rig(4, settings(), true);
    for page in 0..4 {
        rig.fault(page, Read);
    }
    assert_eq!(rig.tell(Event::Reclaim), [shadow_of(0)]);
    rig.tell(Event::Refused { page: PageId(0) });
    assert_eq!(rig.state(0), Mapped);
    assert!(rig.engine.is_protected(PageId(0)));
    assert_eq!(
        rig.tell(Event::Reclaim),
        [shadow_of(1)],
        "others come first"
    );
}

#[test]
fn a_full_store_keeps_dirty_pages_and_says_so() {
    let mut settings = settings();
    settings.preclean = 8;
    let mut rig = rig(80, settings, true);
    for page in 0..80 {
        rig.fault(page, Write);
    }
    rig.tell(Event::Limit {
        frames: 4,
        shared: u32::MAX,
    });
    let mut in_flight = Vec::new();
    for _ in 0..200 {
        if !rig.engine.wants_reclaim() {
            break;
        }
        in_flight.extend(rig.tell(Event::Reclaim));
        while let Some(action) = in_flight.pop() {
            if let Action::Write { io, .. } = action {
                in_flight.extend(rig.tell(Event::WriteDone { io, failed: 0 }));
            }
        }
    }
    assert!(rig.engine.store_full());
    assert!(!rig.engine.wants_reclaim(), "it spins");
    assert_eq!(rig.engine.deadline(), None, "nothing to wait for");
    assert_eq!(rig.engine.frames_in_use(), 80 - SLOTS);
}
