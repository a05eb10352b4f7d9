//! Sides at servers that are late, break, and return.

use super::super::super::nbd::testing::{LATE, Manner, Mishap, TestServer};
use super::super::super::nbd::{CONNECTIONS_MAX, NbdStore, NbdTrouble};
use super::super::super::side::SideStore;
use super::super::super::store::Store;
use super::super::super::testing::{Pages, held};
use super::super::Mirror;
use super::super::attendant::MirrorAttendant;
use super::super::health::{Health, Phase, Side};
use super::{BYTES, PAGE, read, silent, write};
use crate::control::{Control, MirrorState, Process};
use flashvm_core::PAGE_SIZE;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Instant;

/// A mirror of two servers.
fn at_servers(process: Process) -> ([TestServer; 2], Mirror) {
    let servers = [Manner::Whole, Manner::Simple].map(|manner| TestServer::start(BYTES, manner));
    let side = |server: &TestServer| {
        let served = server.side().server.unwrap();
        SideStore::Nbd(NbdStore::of_side(served, BYTES, process, CONNECTIONS_MAX))
    };
    let sides = [side(&servers[0]), side(&servers[1])];
    (servers, silent(sides, process.mirror()))
}

fn attendant(control: Control, servers: &[TestServer; 2]) -> MirrorAttendant {
    let [a, b] = servers;
    MirrorAttendant::new(control, [(a.side(), None), (b.side(), None)])
}

/// Reads page `page` of the run that `from` was written to, and waits so long that a late reply would have come.
fn reads_right(mirror: &Mirror, from: &Pages, page: usize) -> Instant {
    let to = Pages::new(1, 99);
    let begun = Instant::now();
    assert_eq!(read(mirror, page as u64 * PAGE, &to), 0);
    let took = begun.elapsed();
    assert!(to.bytes(0) == from.bytes(page), "page {page}");
    begun + took
}

/// This side is read first. The other one is asked after 90 ms, which a busy machine does not use up.
fn prefer(state: MirrorState, side: Side) {
    state.set_average(side.index(), 30_000_000);
    state.set_average(side.other().index(), 1_000_000_000);
}

#[test]
fn a_late_side_is_not_waited_for_and_its_reply_harms_nothing() {
    let (_, process) = held(BYTES);
    let (servers, mirror) = at_servers(process);
    let from = Pages::new(64, 1);
    assert!(write(&mirror, 0, &from));
    let state = process.mirror();
    // Both sides known, and alike: side A reads this unit.
    state.set_average(0, 100_000);
    state.set_average(1, 100_000);
    servers[0].spoil([Mishap::Late; 3]);
    let begun = Instant::now();
    let to = Pages::new(3, 99);
    for page in 0..3 {
        // Whichever side is asked first by now.
        state.set_average(0, 100_000);
        state.set_average(1, 100_000);
        // SAFETY: the pages live over the call, and this thread alone uses them.
        assert!(unsafe { mirror.read(page as u64 * PAGE, to.page(page)) }.is_none());
    }
    assert!(begun.elapsed() < LATE * 3, "late replies were waited for");
    assert!(state.counters().hedged >= 1);
    assert_eq!(state.counters().reads, [0, 3]);
    sleep(LATE + LATE / 2);
    assert!((0..3).all(|page| to.bytes(page) == from.bytes(page)));
    // The connections that owed replies serve again.
    let made = servers[0].connections();
    state.set_average(1, 10_000_000);
    for page in 0..64 {
        reads_right(&mirror, &from, page);
    }
    assert_eq!(servers[0].connections(), made);
    assert_eq!(state.counters().sides_lost, 0);
}

#[test]
fn a_side_whose_connections_all_owe_replies_is_left_alone() {
    let (_, process) = held(BYTES);
    let (servers, mirror) = at_servers(process);
    let from = Pages::new(64, 1);
    assert!(write(&mirror, 0, &from));
    servers[0].spoil([Mishap::Late; 40]);
    let begun = Instant::now();
    for page in 0..40 {
        process.mirror().set_average(0, 1_000);
        process.mirror().set_average(1, 1_000_000);
        reads_right(&mirror, &from, page);
    }
    assert!(begun.elapsed() < LATE * 10);
    assert!(
        process.mirror().counters().reads[1] >= 24,
        "{:?}",
        process.mirror().counters()
    );
}

#[test]
fn a_side_that_breaks_is_lost_and_returns_with_all_pages() {
    let (control, process) = held(BYTES);
    let (servers, mirror) = at_servers(process);
    let state = process.mirror();
    let mut attendant = attendant(control, &servers);
    let over = AtomicBool::new(false);
    let from = Pages::new(64, 1);
    assert!(write(&mirror, 0, &from));
    attendant.look(&over);
    assert_eq!(state.counters().resynced_bytes, 0, "nothing was stale");
    // It forgets all, as a server in memory does that is killed.
    prefer(state, Side::A);
    servers[0].spoil([Mishap::Closes]);
    reads_right(&mirror, &from, 0);
    assert!(Health::of(state.health()).is_lost(Side::A));
    servers[0].forget();
    let newer = Pages::new(8, 3);
    assert!(write(&mirror, 64 * PAGE, &newer));
    assert_eq!(
        servers[0].bytes()[64 * PAGE_SIZE..][..8],
        [0; 8],
        "it is not written"
    );
    reads_right(&mirror, &from, 5);
    // One look reaches it and copies, the next finds nothing to copy.
    attendant.look(&over);
    assert_eq!(
        Health::of(state.health()).out(),
        Some((Side::A, Phase::Returning))
    );
    attendant.look(&over);
    assert_eq!(Health::of(state.health()).out(), None);
    assert!(servers[0].bytes() == servers[1].bytes());
    assert_eq!(state.counters().resynced_bytes, BYTES);
    assert_eq!(state.counters().sides_lost, 1);
    // Trouble with the other one is no trouble now.
    prefer(state, Side::B);
    servers[1].spoil([Mishap::Closes]);
    for page in 0..64 {
        reads_right(&mirror, &from, page);
    }
    assert!(Health::of(state.health()).is_lost(Side::B));
}

/// Old connections of a side say nothing of it once it has returned.
#[test]
fn a_side_is_not_lost_twice_by_one_loss() {
    let (control, process) = held(BYTES);
    let (servers, mirror) = at_servers(process);
    let state = process.mirror();
    let side = |server: &TestServer| {
        let served = server.side().server.unwrap();
        SideStore::Nbd(NbdStore::of_side(served, BYTES, process, CONNECTIONS_MAX))
    };
    let second = silent(servers.each_ref().map(side), state);
    let from = Pages::new(64, 1);
    // Both processes have connections to both sides.
    assert!(write(&mirror, 0, &from) && write(&second, 0, &from));
    let epoch = Health::of(state.health()).epoch(Side::A);
    mirror.lose(Side::A, epoch, NbdTrouble::Closed);
    let mut attendant = attendant(control, &servers);
    let over = AtomicBool::new(false);
    attendant.look(&over);
    attendant.look(&over);
    assert_eq!(Health::of(state.health()).out(), None);
    second.lose(Side::A, epoch, NbdTrouble::Closed);
    assert_eq!(Health::of(state.health()).out(), None);
    let made = servers[0].connections();
    state.set_average(0, 1_000);
    state.set_average(1, 1_000_000);
    reads_right(&second, &from, 7);
    assert_eq!(
        servers[0].connections(),
        made + 1,
        "a connection of the new epoch"
    );
    assert_eq!(state.counters().sides_lost, 1);
}
