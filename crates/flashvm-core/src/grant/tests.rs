//! Several processes against a naive account of the run's budget.

use super::*;
use proptest::prelude::*;

const LEAST: u32 = 64;
const RESERVE: Reserve = Reserve {
    least: LEAST,
    read_buffers: 16,
};
/// Frames with which a child begins, without stores and small pages.
const FOR_CHILD: u32 = LEAST + TRANSIT_PAGES_MAX + RESERVE.read_buffers;

/// The run's account: what is free, and what each process holds, uses and wants.
struct Account {
    budget: u32,
    free: u32,
    held: Vec<u32>,
    used: Vec<u32>,
    wanting: Vec<bool>,
    pressure: Vec<bool>,
}

/// The account, as one process sees it.
struct Seen<'a>(&'a Account, usize);

impl Budget for Seen<'_> {
    fn held(&self) -> u32 {
        self.0.held[self.1]
    }

    /// An equal share, or all that the others leave, whichever is more.
    fn share(&self) -> u32 {
        let Self(run, me) = *self;
        let others: Vec<usize> = (0..run.held.len())
            .filter(|&i| i != me && (run.used[i] > 0 || run.wanting[i]))
            .collect();
        let equal = run.budget / (others.len() as u32 + 1);
        let claim = |&i: &usize| match run.wanting[i] {
            true => run.used[i].max(equal),
            false => run.used[i],
        };
        let claimed: u32 = others.iter().map(claim).sum();
        equal.max(run.budget.saturating_sub(claimed)).max(LEAST)
    }

    fn allowance(&self) -> u32 {
        self.share()
    }

    fn sharing(&self) -> Sharing {
        Sharing::new(1, 2)
    }

    fn others_want(&self) -> bool {
        (0..self.0.held.len()).any(|i| i != self.1 && self.0.wanting[i])
    }

    fn free(&self) -> u32 {
        self.0.free
    }
}

/// A process: its grant, and what its pages and small pages really use.
struct Process {
    grant: Grant,
    own: u32,
    limit: u32,
    /// Pages that the program would like to have in RAM.
    hunger: u32,
    stored: bool,
    small: u32,
    /// Frames kept back for a fork.
    room: u32,
}

impl Process {
    fn usage(&self) -> Usage {
        Usage {
            own: self.own,
            shared: 0,
            stored: self.stored,
        }
    }
}

struct Family {
    account: Account,
    processes: Vec<Process>,
    now: Nanos,
}

impl Family {
    fn new(count: usize, budget: u32) -> Self {
        let process = || Process {
            grant: Grant::new(RESERVE),
            own: 0,
            limit: 0,
            hunger: 0,
            stored: false,
            small: 0,
            room: 0,
        };
        let mut family = Self {
            account: Account {
                budget,
                free: budget - LEAST * count as u32,
                held: vec![LEAST; count],
                used: vec![0; count],
                wanting: vec![false; count],
                pressure: vec![false; count],
            },
            processes: (0..count).map(|_| process()).collect(),
            now: Nanos(0),
        };
        (0..count).for_each(|i| family.look(i));
        family
    }

    fn take(&mut self, i: usize, to: u32) {
        let account = &mut self.account;
        let more = to.saturating_sub(account.held[i]).min(account.free);
        account.free -= more;
        account.held[i] += more;
    }

    fn give_back(&mut self, i: usize, to: u32) {
        let account = &mut self.account;
        let less = account.held[i].saturating_sub(to);
        account.free += less;
        account.held[i] -= less;
    }

    /// What the executor does after each event.
    fn look(&mut self, i: usize) {
        self.now = Nanos(self.now.0 + 1_000_000);
        let usage = self.processes[i].usage();
        let look = self.processes[i]
            .grant
            .look(&Seen(&self.account, i), &usage);
        let most = match look {
            Look::Keep(held) => {
                self.account.wanting[i] = false;
                held
            }
            Look::GiveBack { to, most } => {
                self.give_back(i, to);
                most
            }
            Look::Take(to) => {
                self.take(i, to);
                let short = self.account.held[i] < to;
                self.account.wanting[i] = short;
                if short && self.processes[i].grant.presses(self.now) {
                    self.account.pressure.fill(true);
                }
                self.account.held[i]
            }
        };
        let seen = Seen(&self.account, i);
        if self.processes[i].grant.offers(&seen, self.now) {
            self.account.pressure.fill(true);
        }
        let process = &mut self.processes[i];
        let seen = Seen(&self.account, i);
        if let Some(limits) = process.grant.limits(&seen, &usage, most) {
            process.limit = limits.frames;
        }
        assert!(process.limit >= LEAST / 2);
        let promised = process.limit + process.grant.small();
        assert!(
            process.limit == LEAST / 2 || promised <= self.account.held[i],
            "{promised} frames promised of {}",
            self.account.held[i]
        );
        self.account.used[i] = process.own + process.small;
        self.check();
    }

    fn check(&self) {
        let held: u32 = self.account.held.iter().sum();
        assert_eq!(held + self.account.free, self.account.budget);
        for (process, &held) in self.processes.iter().zip(&self.account.held) {
            assert_eq!(process.small, process.grant.small());
            let used = process.own + process.small;
            // An engine gets its least limit even if small pages leave fewer frames.
            assert!(used <= held + LEAST / 2, "{used} in use of {held}");
        }
    }

    /// The engine reclaims down to its limit, and its pages grow up to it.
    fn page(&mut self, i: usize) {
        let process = &mut self.processes[i];
        process.own = process.hunger.min(process.limit);
        process.stored |= process.own < process.hunger;
        self.look(i);
    }

    fn heed_pressure(&mut self, i: usize) {
        if std::mem::take(&mut self.account.pressure[i]) {
            let process = &self.processes[i];
            let keeps = process.grant.keeps_under_pressure(&process.usage());
            self.give_back(i, keeps);
            self.look(i);
        }
    }

    fn borrow(&mut self, i: usize, more: u32) -> u32 {
        let usage = self.processes[i].usage();
        let grant = &self.processes[i].grant;
        let to = grant.wanted_for_small(&Seen(&self.account, i), &usage, more);
        self.take(i, to);
        let process = &mut self.processes[i];
        let got = process
            .grant
            .take_for_small(&Seen(&self.account, i), &usage, more);
        process.small += got;
        assert!(got <= more);
        assert!(
            got == 0 || usage.own + process.small <= self.account.held[i],
            "frames that are not held were lent"
        );
        self.look(i);
        got
    }

    fn return_small(&mut self, i: usize, frames: u32) {
        let process = &mut self.processes[i];
        let frames = frames.min(process.small);
        process.small -= frames;
        process.grant.give_from_small(frames);
        self.look(i);
    }

    /// All processes act in turn until nothing changes any more.
    fn settle(&mut self) {
        for _ in 0..200 {
            for i in 0..self.processes.len() {
                self.heed_pressure(i);
                self.page(i);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Hunger(usize, u32),
    Page(usize),
    Heed(usize),
    Borrow(usize, u32),
    Return(usize, u32),
    Fork(usize, u32),
    Forked(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..4usize;
    prop_oneof![
        (who(), 0..3000u32).prop_map(|(i, pages)| Step::Hunger(i, pages)),
        who().prop_map(Step::Page),
        who().prop_map(Step::Page),
        who().prop_map(Step::Heed),
        (who(), 1..400u32).prop_map(|(i, more)| Step::Borrow(i, more)),
        (who(), 1..400u32).prop_map(|(i, frames)| Step::Return(i, frames)),
        (who(), 0..100u32).prop_map(|(i, stores)| Step::Fork(i, stores)),
        who().prop_map(Step::Forked),
    ]
}

proptest! {
    /// No process uses frames that it does not hold; held and free frames add up to the budget; in the end every
    /// process that wants frames has its share.
    #[test]
    fn the_account_adds_up(
        count in 1..4usize,
        budget in 1024..4096u32,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut family = Family::new(count, budget);
        for step in steps {
            match step {
                Step::Hunger(i, pages) => family.processes[i % count].hunger = pages,
                Step::Page(i) => family.page(i % count),
                Step::Heed(i) => family.heed_pressure(i % count),
                Step::Borrow(i, more) => {
                    family.borrow(i % count, more);
                }
                Step::Return(i, frames) => family.return_small(i % count, frames),
                Step::Fork(i, stores) => {
                    let process = &mut family.processes[i % count];
                    process.grant.plan_fork(ForkStores { parent: stores, child: stores });
                    process.room = LEAST + stores + FOR_CHILD + process.small + stores;
                    family.look(i % count);
                }
                Step::Forked(i) => {
                    let (account, process) = (&family.account, &mut family.processes[i % count]);
                    let usage = process.usage();
                    let seen = Seen(account, i % count);
                    let ready = process.grant.has_fork_room(&seen, &usage);
                    let passed = process.grant.begin_fork(&seen, &usage, ForkStores::default());
                    let needed = (FOR_CHILD + process.small).min(std::mem::take(&mut process.room));
                    prop_assert!(passed <= needed);
                    prop_assert!(!ready || passed == needed, "{} of {}", passed, needed);
                    family.look(i % count);
                }
            }
        }
        for i in 0..count {
            family.processes[i].grant.forget_fork();
            family.return_small(i, u32::MAX);
        }
        family.settle();
        // Each process keeps some frames beyond its use, which no other can have.
        let equal = budget / count as u32 - SPARE * count as u32 - RESERVE.read_buffers;
        for (i, process) in family.processes.iter().enumerate() {
            let held = family.account.held[i];
            let needed = process.hunger.min(equal);
            prop_assert!(
                process.own >= needed,
                "process {}: {} pages in RAM of {}, {} of {} frames held",
                i, process.own, process.hunger, held, budget
            );
        }
    }
}

/// A process that could not have all it wanted sleeps. What it claims and does not use is not lost to the others.
#[test]
fn a_process_that_sleeps_claims_only_what_it_uses() {
    let mut family = Family::new(2, 4096);
    family.processes[0].hunger = 10_000;
    family.settle();
    family.processes[1].hunger = 300;
    family.page(1);
    assert!(family.account.wanting[1], "no frame is free");
    // It hears of its own request before the other has given anything back.
    family.heed_pressure(1);
    family.account.pressure[1] = false;
    for _ in 0..200 {
        family.page(0);
        family.heed_pressure(1);
    }
    let own = family.processes[0].own;
    assert!(own > 3600, "{own}");
}

/// Two processes that want everything have half each. When one wants little again, it gives up the rest.
#[test]
fn an_idle_process_gives_up_what_it_does_not_use() {
    let mut family = Family::new(2, 2048);
    family.processes[0].hunger = 10_000;
    family.settle();
    assert!(
        family.processes[0].own > 1800,
        "{}",
        family.processes[0].own
    );
    family.processes[1].hunger = 10_000;
    family.settle();
    let [first, second] = [0, 1].map(|i| family.processes[i].own);
    assert!(first.abs_diff(second) < 2 * STEP, "{first} and {second}");
    family.processes[0].hunger = 10;
    family.settle();
    assert!(
        family.processes[1].own > 1800,
        "{}",
        family.processes[1].own
    );
    assert!(family.account.held[0] <= LEAST + SPARE);
}

/// The heap has its half in the end, although the pages want all: frames due to it are reclaimed.
#[test]
fn small_pages_get_their_half() {
    let mut family = Family::new(1, 2048);
    family.processes[0].hunger = 10_000;
    family.settle();
    let mut small = 0;
    for _ in 0..20 {
        small += family.borrow(0, 200);
        family.page(0);
    }
    assert!((1000..=1024).contains(&small), "{small}");
    // When the pages want little, the heap gets almost all.
    family.processes[0].hunger = 50;
    family.page(0);
    for _ in 0..20 {
        small += family.borrow(0, 200);
    }
    assert!(small > 1800, "{small}");
    let usage = family.processes[0].usage();
    let target = family.processes[0].grant.small_target(&usage, 512);
    assert!(target < small, "with fewer frames it gives some back");
}

/// A budget in which no process gives anything up.
struct Fixed {
    held: u32,
    share: u32,
    allowance: u32,
    others_want: bool,
}

impl Budget for Fixed {
    fn held(&self) -> u32 {
        self.held
    }
    fn share(&self) -> u32 {
        self.share
    }
    fn allowance(&self) -> u32 {
        self.allowance
    }
    fn sharing(&self) -> Sharing {
        Sharing::new(1, 2)
    }
    fn others_want(&self) -> bool {
        self.others_want
    }

    fn free(&self) -> u32 {
        0
    }
}

/// Two processes share most of the budget and fork at once: their shared pages leave until there is room, since
/// neither has anything else to give.
#[test]
fn shared_pages_leave_for_a_fork() {
    let run = Fixed {
        held: 150,
        share: 408,
        allowance: 1088,
        others_want: true,
    };
    let mut usage = Usage {
        own: 2,
        shared: 1360,
        stored: true,
    };
    let mut grant = Grant::new(RESERVE);
    grant.plan_fork(ForkStores::default());
    assert!(grant.may_have_fork_room(&run));
    let Look::Take(to) = grant.look(&run, &usage) else {
        panic!("it lacks frames");
    };
    assert_eq!(to, grant.in_use(&usage), "all that the fork needs, at once");
    for _ in 0..usage.shared {
        let limits = grant.limits(&run, &usage, run.held).unwrap_or(grant.told);
        // The engine lets LEAST / 2 pages stay, own and shared ones beyond their limit.
        let leave =
            (usage.own + usage.shared.saturating_sub(limits.shared)).saturating_sub(limits.frames);
        if leave == 0 {
            break;
        }
        usage.shared -= leave;
    }
    assert!(usage.shared <= LEAST / 2, "{} are left", usage.shared);
    assert!(!grant.has_fork_room(&run, &usage), "this run gives nothing");
    let more = Fixed {
        held: grant.in_use(&usage),
        ..run
    };
    assert!(grant.has_fork_room(&more, &usage));
}

/// A fork that copies all pages pages out until parent and child fit, and the child gets a frame for each of its pages.
#[test]
fn pages_leave_until_they_fit_twice() {
    let run = Fixed {
        held: 1000,
        share: 1000,
        allowance: 1000,
        others_want: false,
    };
    let mut usage = Usage {
        own: 900,
        shared: 0,
        stored: true,
    };
    let mut grant = Grant::new(RESERVE);
    let stores = |grant: &Grant, usage: &Usage| ForkStores {
        parent: 0,
        child: grant.copied_in_fork(&run, usage),
    };
    loop {
        grant.plan_fork(stores(&grant, &usage));
        let limits = grant.limits(&run, &usage, run.held).unwrap_or(grant.told);
        if usage.own <= limits.frames {
            break;
        }
        assert!(!grant.has_fork_room(&run, &usage));
        usage.own -= 1;
    }
    assert!(grant.has_fork_room(&run, &usage));
    let others = LEAST + FOR_CHILD + RESERVE.read_buffers;
    assert_eq!(
        usage.own,
        (run.allowance - others) / 2,
        "no page leaves in vain"
    );
    let stores = stores(&grant, &usage);
    let for_child = grant.begin_fork(&run, &usage, stores);
    assert_eq!(for_child, usage.own + FOR_CHILD);
    assert!(usage.own + for_child + LEAST <= run.allowance);
    usage.own = LEAST / 2;
    assert!(!grant.can_shrink(&usage));
}

/// Shared pages are limited only while another process wants frames: by twice the excess over the allowance.
#[test]
fn shared_frames_give_way() {
    let run = |others_want| Fixed {
        held: 1000,
        share: 1000,
        allowance: 1100,
        others_want,
    };
    let usage = Usage {
        own: 500,
        shared: 400,
        stored: true,
    };
    let mut grant = Grant::new(RESERVE);
    let alone = grant.limits(&run(false), &usage, 1000);
    let sharing = TRANSIT_PAGES_MAX + UNNOTICED_PAGES;
    let frames = 1000 - RESERVE.read_buffers - sharing;
    let shared = u32::MAX;
    assert_eq!(alone, Some(Limits { frames, shared }));
    // 1000 + 400 / 2 exceeds 1100 by 100.
    let pressed = grant.limits(&run(true), &usage, 1000);
    let shared = 200;
    assert_eq!(pressed, Some(Limits { frames, shared }));
    let again = grant.limits(&run(true), &usage, 1000);
    assert_eq!(again, None, "the engine knows");
    let owned = grant.owns(7);
    assert_eq!(owned.frames, frames + 7);
}

/// Others are asked at most every two milliseconds.
#[test]
fn pressing_is_rare() {
    let mut grant = Grant::new(RESERVE);
    let times = [1, 2, 3, 4, 5, 6, 7].map(|ms| grant.presses(Nanos(ms * 1_000_000)));
    assert_eq!(times, [false, true, false, true, false, true, false]);
}
