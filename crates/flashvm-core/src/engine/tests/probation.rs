//! Prefetched pages that nobody uses.

use super::*;

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
