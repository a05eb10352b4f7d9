//! Prefetched pages that nobody uses.

use super::*;
use crate::page::Flag;
use crate::prefetch::{Candidate, Kind};

#[test]
fn a_page_stays_on_probation_for_a_sixteenth_of_the_limit() {
    let mut rig = rig(64, settings(), true);
    for page in 0..8 {
        rig.fault(page, Write);
    }
    let page = PageId(3);
    rig.engine.policy.removed(page);
    rig.engine.put_on_probation(page);
    for _ in 0..64 / 16 {
        rig.engine.share.count_eviction();
        assert_eq!(rig.tell(Event::Reclaim), []);
    }
    rig.engine.share.count_eviction();
    assert_eq!(rig.tell(Event::Reclaim), [shadow_of(3)]);
    rig.engine.settle();
    assert_eq!(rig.state(3), Condemned);
}

#[test]
fn a_page_whose_use_is_seen_stays() {
    let mut rig = rig(64, settings(), true);
    rig.fault(3, Write);
    let page = PageId(3);
    rig.engine.policy.removed(page);
    rig.engine.put_on_probation(page);
    rig.tell(Event::Touched { page, access: Read });
    for _ in 0..64 {
        rig.engine.share.count_eviction();
    }
    assert_eq!(rig.tell(Event::Reclaim), []);
    assert_eq!(rig.state(3), Mapped);
}

/// A stream comes near pages that are about to leave.
#[test]
fn pages_ahead_of_a_stream_stay_on_probation() {
    let mut rig = Rig::standby();
    assert_eq!((rig.state(0), rig.state(1)), (Standby, Condemned));
    rig.engine.set_state(PageId(2), Shadowed);
    for page in 0..3 {
        rig.engine.keep(&Candidate {
            page: PageId(page),
            place: Place::Shadow,
            store: false,
            kind: Kind::Stream,
        });
        assert_eq!(rig.state(page), Shadowed);
        assert!(rig.engine.table.has(PageId(page), Flag::Probation));
    }
    rig.engine.check();
    assert_eq!(rig.engine.counters().prefetch_issued, 3);
    // Its use is seen, and it is in the policy's order again.
    rig.fault(0, Read);
    assert_eq!(rig.state(0), Mapped);
    assert!(!rig.engine.table.has(PageId(0), Flag::Probation));
    assert_eq!(rig.engine.counters().prefetch_used, 1);
}

#[test]
fn pages_in_the_region_are_not_touched_by_a_stream() {
    let mut rig = rig(4, settings(), true);
    rig.fault(0, Write);
    rig.engine.keep(&Candidate {
        page: PageId(0),
        place: Place::Shadow,
        store: false,
        kind: Kind::Stream,
    });
    assert_eq!(rig.state(0), Mapped);
    assert_eq!(rig.engine.counters().prefetch_issued, 0);
}
