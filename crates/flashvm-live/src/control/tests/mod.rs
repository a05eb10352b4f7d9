//! The control region against a naive model, under two threads, and with processes that die.

mod life;
mod observer;

use super::process::State;
use super::*;
use crate::space::Delivery;
use flashvm_core::grant::Sharing;
use flashvm_core::{ClusterId, ClusterSource, PolicyKind, Preset};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(ram_bytes: u64, flash_bytes: u64) -> RunSettings {
    let engine = Preset::Flashvm.settings();
    RunSettings::new(ram_bytes, flash_bytes, engine, Delivery::Inline)
}

fn control(ram_bytes: u64, flash_bytes: u64) -> Control {
    Control::create(&settings(ram_bytes, flash_bytes))
        .unwrap()
        .0
}

/// What a process should hold, in the simplest form.
#[derive(Clone, Default)]
struct Model {
    clusters: BTreeSet<u32>,
    committed: u64,
    used: u32,
    wanting: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Register,
    Lease(usize),
    Release(usize, usize),
    Fork(usize, bool),
    Retire(usize),
    Commit(usize, u64),
    Uncommit(usize, u64),
    Use(usize, u32, bool),
    Exec(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0_usize..8;
    prop_oneof![
        1 => Just(Op::Register),
        8 => who.clone().prop_map(Op::Lease),
        4 => (who.clone(), 0_usize..100).prop_map(|(p, n)| Op::Release(p, n)),
        2 => (who.clone(), any::<bool>()).prop_map(|(p, ok)| Op::Fork(p, ok)),
        1 => who.clone().prop_map(Op::Retire),
        4 => (who.clone(), 0_u64..1500).prop_map(|(p, n)| Op::Commit(p, n)),
        2 => (who.clone(), 0_u64..1500).prop_map(|(p, n)| Op::Uncommit(p, n)),
        4 => (who.clone(), 0_u32..600, any::<bool>()).prop_map(|(p, n, w)| Op::Use(p, n, w)),
        1 => who.prop_map(Op::Exec),
    ]
}

proptest! {
    /// Processes take and return frames: together they hold at most the budget, apart from the
    /// minimum that each process gets, and every excess is counted.
    #[test]
    fn grants_stay_within_the_budget(
        processes in 1_usize..24,
        steps in prop::collection::vec((0_usize..24, 0_u32..1500, any::<bool>()), 1..150),
    ) {
        let control = control(4 * MIB, 4 * MIB);
        let budget = control.budget_frames();
        let live: Vec<Process> = (1..=processes as u32)
            .map(|pid| control.register(1_000_000 + pid, "test").unwrap())
            .collect();
        let mut held = vec![0; processes];
        for (who, frames, grow) in steps {
            let (process, held) = (&live[who % processes], &mut held[who % processes]);
            let before = *held;
            if grow {
                *held = process.grow(frames);
                prop_assert!(*held >= before && *held <= before.max(frames));
                prop_assert!(*held >= frames.min(LIMIT_FRAMES_MIN));
            } else {
                process.shrink(frames);
                *held = before.min(frames);
            }
            prop_assert_eq!(process.granted(), *held);
        }
        let sum: u32 = held.iter().sum();
        let least: u32 = held.iter().map(|&held| held.min(LIMIT_FRAMES_MIN)).sum();
        prop_assert!(sum <= budget + least, "{sum} of {budget}");
        let overruns: u64 = live
            .iter()
            .map(|process| process.stats().budget_overruns.load(Ordering::Relaxed))
            .sum();
        prop_assert!(sum <= budget || overruns > 0, "{sum} of {budget}, not counted as an overrun");
    }
}

#[test]
fn using_more_than_held_is_counted() {
    let control = control(4 * MIB, 4 * MIB);
    let process = control.register(1_000_001, "test").unwrap();
    let overruns = || process.stats().budget_overruns.load(Ordering::Relaxed);
    let held = process.grow(100);
    process.set_used(held);
    assert_eq!(overruns(), 0);
    process.set_used(held + 1);
    assert_eq!(overruns(), 1);
    process.set_used(held + 1);
    assert_eq!(overruns(), 1, "counted once, until it grows again");
    process.set_wanting(true);
    let other = control.register(1_000_002, "other").unwrap();
    assert!(other.others_want() && !process.others_want());
}

/// Frames of the budget that are granted.
fn granted(control: &Control) -> u32 {
    control.region.header().granted.load(Ordering::Relaxed)
}

/// A frame in the model: the processes that hold it.
type Holders = BTreeSet<usize>;

proptest! {
    /// Processes fork, store, evict and end: each frame counts once, whoever holds it, and the
    /// run's account equals that of a naive model.
    #[test]
    fn frames_shared_after_a_fork_count_once(
        steps in prop::collection::vec((0_u32..5, 0_usize..1000, 0_usize..1000), 1..150),
    ) {
        let control = control(4 * MIB, 4 * MIB);
        let root = control.register(1_000_001, "test").unwrap();
        root.grow(300);
        // By process: the frames that it shares.
        let mut live: Vec<Option<(Process, Vec<SharedFrame>)>> = vec![Some((root, Vec::new()))];
        let mut frames: BTreeMap<u32, Holders> = BTreeMap::new();
        let mut own: BTreeMap<usize, u32> = BTreeMap::from([(0, root.granted())]);
        // By process: how many of its own frames it uses, which are those that it took back.
        let mut used: BTreeMap<usize, u32> = BTreeMap::new();
        for (what, who, which) in steps {
            let at = who % live.len();
            let next = live.len();
            let Some((process, shared)) = &mut live[at] else { continue };
            match what {
                // Half of its own frames become shared, and a child holds all shared frames of its
                // parent.
                0 => {
                    for _ in 0..own[&at] / 2 {
                        let frame = process.share_frame().unwrap();
                        used.entry(at).and_modify(|used| *used = used.saturating_sub(1));
                        prop_assert!(frames.insert(frame.0, Holders::from([at])).is_none());
                        shared.push(frame);
                    }
                    *own.get_mut(&at).unwrap() -= own[&at] / 2;
                    let child = process.fork().unwrap();
                    for frame in &*shared {
                        child.hold_frame(*frame);
                        frames.get_mut(&frame.0).unwrap().insert(next);
                    }
                    child.adopt(1_000_001 + next as u32).unwrap();
                    own.insert(next, 0);
                    let shared = shared.clone();
                    live.push(Some((child, shared)));
                }
                1 if !shared.is_empty() => {
                    let frame = shared.swap_remove(which % shared.len());
                    process.leave_frame(frame);
                    let holders = frames.get_mut(&frame.0).unwrap();
                    holders.remove(&at);
                    if holders.is_empty() {
                        frames.remove(&frame.0);
                    }
                }
                2 if !shared.is_empty() => {
                    let place = which % shared.len();
                    let alone = frames[&shared[place].0] == Holders::from([at]);
                    prop_assert_eq!(process.own_frame(shared[place]), alone);
                    if alone {
                        frames.remove(&shared.swap_remove(place).0);
                        *own.get_mut(&at).unwrap() += 1;
                        *used.entry(at).or_default() += 1;
                    }
                }
                3 => {
                    process.shrink(which as u32);
                    let own = own.get_mut(&at).unwrap();
                    *own = (*own).min(which as u32);
                }
                4 if live.iter().flatten().count() > 1 => {
                    live[at].take().unwrap().0.retire();
                    own.remove(&at);
                    used.remove(&at);
                    frames.retain(|_, holders| {
                        holders.remove(&at);
                        !holders.is_empty()
                    });
                }
                _ => {}
            }
            let (granted, shared) = (granted(&control), frames.len() as u32);
            prop_assert_eq!(control.used_frames(), shared + used.values().sum::<u32>());
            prop_assert_eq!(granted, own.values().sum::<u32>() + shared);
            let holders: u32 = frames.values().map(|holders| holders.len() as u32).sum();
            let sharing = Sharing::new(shared.into(), holders.into());
            for (at, (process, shared)) in live.iter().enumerate().filter_map(|(at, live)| {
                live.as_ref().map(|live| (at, live))
            }) {
                prop_assert_eq!(process.granted(), own[&at]);
                prop_assert_eq!(process.shares() as usize, shared.len());
                prop_assert_eq!(process.sharing(), sharing);
            }
        }
        for (process, _) in live.into_iter().flatten() {
            process.retire();
        }
        prop_assert_eq!((granted(&control), control.used_frames()), (0, 0));
    }
}

/// The documented limit, computed from the model.
fn limit(budget: u32, models: &[(Process, u32, Model)], me: usize) -> u32 {
    let others: Vec<&Model> = models
        .iter()
        .enumerate()
        .filter(|(at, (_, _, model))| *at != me && (model.used > 0 || model.wanting))
        .map(|(_, (_, _, model))| model)
        .collect();
    let share = budget / (others.len() as u32 + 1);
    let claims: u32 = others
        .iter()
        .map(|m| if m.wanting { m.used.max(share) } else { m.used })
        .sum();
    share
        .max(budget.saturating_sub(claims))
        .max(LIMIT_FRAMES_MIN)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..120)) {
        const CLUSTERS: u32 = 70;
        let control = control(4 * MIB, u64::from(CLUSTERS) * 128 * 1024);
        let commit_max = 1024 + u64::from(CLUSTERS) * 32 - u64::from(CLUSTERS) * 32 / 50;
        let mut live: Vec<(Process, u32, Model)> = Vec::new();
        let mut next_pid = 1_000_000;
        for op in ops {
            let count = live.len();
            let committed: u64 = live.iter().map(|(_, _, m)| m.committed).sum();
            match op {
                Op::Register => {
                    next_pid += 1;
                    let process = control.register(next_pid, "test").unwrap();
                    live.push((process, next_pid, Model::default()));
                }
                _ if count == 0 => {}
                Op::Lease(p) => {
                    let held: BTreeSet<u32> =
                        live.iter().flat_map(|(_, _, m)| m.clusters.iter().copied()).collect();
                    let (process, _, model) = &mut live[p % count];
                    match process.clusters().lease() {
                        Some(ClusterId(cluster)) => {
                            prop_assert!(!held.contains(&cluster) && cluster < CLUSTERS);
                            model.clusters.insert(cluster);
                        }
                        None => prop_assert_eq!(held.len() as u32, CLUSTERS),
                    }
                }
                Op::Release(p, n) => {
                    let (process, _, model) = &mut live[p % count];
                    if !model.clusters.is_empty() {
                        let nth = n % model.clusters.len();
                        let cluster = *model.clusters.iter().nth(nth).unwrap();
                        model.clusters.remove(&cluster);
                        process.clusters().release(ClusterId(cluster));
                    }
                }
                Op::Fork(p, succeeds) => {
                    let (process, _, model) = &live[p % count];
                    let mut model = Model { used: 0, wanting: false, ..model.clone() };
                    match process.fork() {
                        Ok(child) => {
                            prop_assert!(committed + model.committed <= commit_max);
                            if succeeds {
                                next_pid += 1;
                                child.adopt(next_pid).unwrap();
                                model.committed = child.committed();
                                live.push((child, next_pid, model));
                            } else {
                                child.retire();
                            }
                        }
                        Err(Error::Commit) => {
                            prop_assert!(committed + model.committed > commit_max);
                        }
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Op::Retire(p) => live.swap_remove(p % count).0.retire(),
                Op::Commit(p, n) => {
                    let (process, _, model) = &mut live[p % count];
                    let fits = process.commit(n);
                    prop_assert_eq!(fits, committed + n <= commit_max);
                    model.committed += if fits { n } else { 0 };
                }
                Op::Uncommit(p, n) => {
                    let (process, _, model) = &mut live[p % count];
                    let n = n.min(model.committed);
                    process.uncommit(n);
                    model.committed -= n;
                }
                Op::Use(p, used, wanting) => {
                    let (process, _, model) = &mut live[p % count];
                    (model.used, model.wanting) = (used, wanting);
                    process.set_used(used);
                    process.set_wanting(wanting);
                }
                Op::Exec(p) => {
                    let (process, pid, model) = &mut live[p % count];
                    *process = control.register(*pid, "after exec").unwrap();
                    *model = Model::default();
                }
            }
            let committed: u64 = live.iter().map(|(_, _, m)| m.committed).sum();
            prop_assert_eq!(control.committed_pages(), (committed, commit_max));
            for (at, (process, _, model)) in live.iter().enumerate() {
                prop_assert_eq!(process.limit(), limit(1024, &live, at));
                for cluster in &model.clusters {
                    let holders =
                        live.iter().filter(|(_, _, m)| m.clusters.contains(cluster)).count();
                    prop_assert_eq!(process.clusters().shared(ClusterId(*cluster)), holders > 1);
                }
            }
        }
        for (process, _, _) in live {
            process.retire();
        }
        let process = control.register(1, "last").unwrap();
        let all: BTreeSet<u32> =
            std::iter::from_fn(|| process.clusters().lease()).map(|c| c.0).collect();
        prop_assert_eq!(all.len() as u32, CLUSTERS);
    }
}

#[test]
fn two_threads_never_lease_the_same_cluster() {
    const CLUSTERS: usize = 40;
    let control = control(4 * MIB, CLUSTERS as u64 * 128 * 1024);
    let taken: [AtomicBool; CLUSTERS] = [const { AtomicBool::new(false) }; CLUSTERS];
    std::thread::scope(|scope| {
        for pid in [11, 12] {
            let taken = &taken;
            scope.spawn(move || {
                let mut process = control.register(pid, "stress").unwrap();
                let mut held = Vec::new();
                let mut random = pid;
                for round in 0..100_000_u32 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if random >> 31 == 0 {
                        if let Some(cluster) = process.clusters().lease() {
                            assert!(!taken[cluster.0 as usize].swap(true, Ordering::SeqCst));
                            held.push(cluster);
                        }
                    } else if !held.is_empty() {
                        let cluster = held.swap_remove(random as usize % held.len());
                        taken[cluster.0 as usize].store(false, Ordering::SeqCst);
                        process.clusters().release(cluster);
                    }
                    if round % 64 == 0 && process.commit(10) {
                        process.uncommit(10);
                    }
                    if round % 5000 == 0 {
                        let child = process.fork().unwrap();
                        child.retire();
                        for cluster in held.drain(..) {
                            taken[cluster.0 as usize].store(false, Ordering::SeqCst);
                            process.clusters().release(cluster);
                        }
                        process = control.register(pid, "stress").unwrap();
                    }
                }
                for cluster in held {
                    taken[cluster.0 as usize].store(false, Ordering::SeqCst);
                }
                process.retire();
            });
        }
    });
    let process = control.register(13, "last").unwrap();
    assert_eq!(
        std::iter::from_fn(|| process.clusters().lease()).count(),
        CLUSTERS
    );
    assert_eq!(control.committed_pages().0, 0);
}

#[test]
fn settings_survive_the_region() {
    let mut settings = settings(64 * MIB, 1 << 30);
    settings.engine.policy = PolicyKind::Clock.into();
    settings.inject = Some(Inject {
        flip_ppm: 3,
        ..Inject::default()
    });
    let (_, fd) = Control::create(&settings).unwrap();
    let other = Control::attach(fd.as_fd()).unwrap();
    assert_eq!(other.settings().unwrap(), settings);
    assert_eq!(other.budget_frames(), 16 << 10);
    assert_eq!(other.store_slots(), 256 << 10);
    assert!(
        rustix::fs::ftruncate(&fd, 4096).is_err(),
        "the region is sealed"
    );
}

#[test]
fn foreign_memory_is_refused() {
    let fd = rustix::fs::memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 64 << 20).unwrap();
    assert!(matches!(Control::attach(fd.as_fd()), Err(Error::Foreign)));
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    assert!(matches!(Control::attach(fd.as_fd()), Err(Error::Foreign)));
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(Control::attach(file.as_fd()), Err(Error::Foreign)));
}
