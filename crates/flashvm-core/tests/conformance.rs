//! The promises that every registered policy, prefetcher and discard strategy keeps, whatever it
//! decides.

use flashvm_core::discard::Fate;
use flashvm_core::policy::{Costs, Parameter, Policy, PolicyContext, PolicySpec, Proposal};
use flashvm_core::prefetch::{Candidate, Demand, SlotView, View, Whereabouts};
use flashvm_core::{
    Access, Discard, DiscardKind, Nanos, PageId, PolicyKind, PrefetcherKind, Preset, SlotId,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const PAGES: u32 = 64;
const FRAMES: u32 = 24;

/// One event of a policy.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u32, Option<Access>),
    Touch(u32, Access),
    Dirty(u32),
    Clean(u32),
    Remove(u32),
    Cool(u32),
    Propose,
    Want(u32),
    Resize(u32),
    Relocate(u32, u32),
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Read), Just(Access::Write)]
}

fn step() -> impl Strategy<Value = Step> {
    let page = 0..PAGES;
    prop_oneof![
        4 => (page.clone(), prop::option::of(access())).prop_map(|(p, by)| Step::Insert(p, by)),
        4 => (page.clone(), access()).prop_map(|(p, a)| Step::Touch(p, a)),
        1 => page.clone().prop_map(Step::Dirty),
        1 => page.clone().prop_map(Step::Clean),
        1 => page.clone().prop_map(Step::Remove),
        1 => page.clone().prop_map(Step::Cool),
        6 => Just(Step::Propose),
        2 => page.clone().prop_map(Step::Want),
        1 => (1..2 * FRAMES).prop_map(Step::Resize),
        1 => (page.clone(), page).prop_map(|(a, b)| Step::Relocate(a, b)),
    ]
}

/// Proposals up to the next eviction; a policy must not propose for ever.
fn next_victim(
    policy: &mut dyn Policy,
    resident: &BTreeSet<u32>,
    proposals: &mut Vec<Proposal>,
) -> Option<u32> {
    for _ in 0..=4 * PAGES {
        let proposal = policy.propose();
        proposals.extend(proposal);
        match proposal {
            None => return None,
            Some(Proposal::Unreference(page)) => {
                assert!(resident.contains(&page.0), "{page:?} is not in RAM");
            }
            Some(Proposal::Evict(page)) => return Some(page.0),
        }
    }
    panic!("no eviction in {} proposals", 4 * PAGES);
}

/// Every policy with default parameters, and with every other word of each parameter.
fn specs() -> Vec<PolicySpec> {
    let mut specs = Vec::new();
    for info in PolicyKind::ALL {
        specs.push(PolicySpec::new(info.kind));
        for parameter in info.parameters {
            let Parameter::Word { name, words } = parameter else {
                continue;
            };
            let text = words[1..]
                .iter()
                .map(|word| format!("{}({name}={word})", info.name));
            specs.extend(text.map(|text| text.parse::<PolicySpec>().expect("a policy")));
        }
    }
    specs
}

/// Runs the steps; returns all proposals.
fn run_policy(kind: PolicySpec, steps: &[Step]) -> Vec<Proposal> {
    let context = PolicyContext::of_pages(PAGES);
    let mut policy = kind.build(&context, FRAMES);
    // Pages in the policy's order, and pages proposed for eviction that are neither back nor removed.
    let (mut ordered, mut proposed) = (BTreeSet::new(), BTreeSet::new());
    let mut proposals = Vec::new();
    for &step in steps {
        match step {
            Step::Insert(page, by) if !ordered.contains(&page) && !proposed.contains(&page) => {
                policy.inserted(PageId(page), by);
                ordered.insert(page);
            }
            Step::Touch(page, access) if ordered.contains(&page) || proposed.contains(&page) => {
                policy.touched(PageId(page), access);
                proposed.remove(&page);
                ordered.insert(page);
            }
            Step::Want(page) if !ordered.contains(&page) && !proposed.contains(&page) => {
                policy.wanted(PageId(page), Access::Read, Costs::NAND.read);
            }
            Step::Resize(frames) => policy.resized(frames),
            Step::Dirty(page) if ordered.contains(&page) => policy.dirtied(PageId(page)),
            Step::Clean(page) if ordered.contains(&page) => policy.cleaned(PageId(page)),
            Step::Remove(page) => {
                policy.removed(PageId(page));
                ordered.remove(&page);
                proposed.remove(&page);
            }
            Step::Cool(page) if ordered.contains(&page) => policy.cooled(PageId(page)),
            Step::Propose => {
                let victim = next_victim(&mut *policy, &ordered, &mut proposals);
                assert_eq!(victim.is_none(), ordered.is_empty(), "{kind}");
                if let Some(page) = victim {
                    assert!(
                        ordered.remove(&page),
                        "{kind} proposed {page}, not in its order"
                    );
                    proposed.insert(page);
                }
            }
            Step::Relocate(from, to)
                if ordered.contains(&from) && !ordered.contains(&to) && !proposed.contains(&to) =>
            {
                policy.relocated(PageId(from), PageId(to));
                ordered.remove(&from);
                ordered.insert(to);
            }
            _ => {}
        }
    }
    while let Some(page) = next_victim(&mut *policy, &ordered, &mut proposals) {
        assert!(ordered.remove(&page), "{kind} proposed {page} twice");
    }
    assert!(ordered.is_empty(), "{kind} lost {ordered:?}");
    proposals
}

/// Pages and slots in any state.
struct AnyView {
    pages: Vec<Whereabouts>,
    slots: Vec<SlotView>,
    room: u32,
}

impl View for AnyView {
    fn page(&self, page: PageId) -> Whereabouts {
        let found = self.pages.get(page.0 as usize);
        found.copied().unwrap_or(Whereabouts::Outside)
    }

    fn slot(&self, slot: SlotId) -> SlotView {
        let found = self.slots.get(slot.0 as usize);
        found.copied().unwrap_or(SlotView::Outside)
    }

    fn room(&self) -> u32 {
        self.room
    }

    fn at_ease(&self) -> bool {
        true
    }
}

/// One page and one slot for each kind: page `i` is resident, of zeros, absent or in slot `i`; slot `i` is
/// bad, free or the page's.
fn any_view(kinds: &[u8], room: u32) -> AnyView {
    let numbered = || (0..).zip(kinds);
    AnyView {
        pages: numbered()
            .map(|(i, kind)| match kind {
                0 => Whereabouts::Resident,
                1 => Whereabouts::Zero,
                2 => Whereabouts::Absent,
                _ => Whereabouts::Flash(SlotId(i)),
            })
            .collect(),
        slots: numbered()
            .map(|(i, kind)| match kind {
                1 => SlotView::Bad,
                2 => SlotView::Free,
                _ => SlotView::Page(PageId(i)),
            })
            .collect(),
        room,
    }
}

proptest! {
    #[test]
    fn policies_lose_no_page_and_propose_none_twice(
        steps in prop::collection::vec(step(), 0..300)
    ) {
        for spec in specs() {
            let proposals = run_policy(spec, &steps);
            prop_assert_eq!(proposals, run_policy(spec, &steps), "{}", spec);
        }
    }

    #[test]
    fn prefetchers_stay_within_bounds(
        kinds in prop::collection::vec(0..6_u8, 1..300),
        walks in prop::collection::vec((0..300_u32, 1..9_u32, 1..40_u32, any::<bool>(), access()), 1..10),
        room in 0..100_u32,
    ) {
        for info in PrefetcherKind::ALL {
            let mut settings = Preset::Modern.settings();
            settings.prefetcher = info.kind;
            let Some(mut prefetcher) = info.kind.build(settings.readahead, settings.stride) else {
                continue;
            };
            let view = any_view(&kinds, room);
            let steps = |walk: &(u32, u32, u32, bool, Access)| {
                let (first, stride, count, hit, access) = *walk;
                (0..count).map(move |i| (first + i * stride, hit, access))
            };
            for (page, hit, access) in walks.iter().flat_map(steps) {
                let page = PageId(page % view.pages.len() as u32);
                let from = if hit { Whereabouts::Resident } else { view.page(page) };
                let mut out: Vec<Candidate> = Vec::new();
                prefetcher.demand(&Demand { page, access, from, hit }, &view, &mut out);
                let _ = prefetcher.passed();
                let most = settings.readahead.max(room) + settings.stride;
                prop_assert!(out.len() <= most as usize, "{}: {}", info.name, out.len());
                prop_assert!(out.iter().all(|c| c.page != page), "{}", info.name);
                if let Some(candidate) = out.first() {
                    prefetcher.wasted(candidate.page);
                }
            }
        }
    }
}

/// Each prefetcher follows a program that goes through pages on flash one after the other.
#[test]
fn prefetchers_follow_a_stream() {
    let view = any_view(&[3; 300], 100);
    for info in PrefetcherKind::ALL {
        let mut settings = Preset::Modern.settings();
        settings.prefetcher = info.kind;
        let Some(mut prefetcher) = info.kind.build(settings.readahead, settings.stride) else {
            assert_eq!(info.kind, PrefetcherKind::Off);
            continue;
        };
        let mut out: Vec<Candidate> = Vec::new();
        for page in (0..100).map(PageId) {
            let (access, from, hit) = (Access::Read, view.page(page), false);
            prefetcher.demand(
                &Demand {
                    page,
                    access,
                    from,
                    hit,
                },
                &view,
                &mut out,
            );
        }
        let next = PageId(100);
        assert!(out.iter().any(|c| c.page == next), "{}: {out:?}", info.name);
    }
}

proptest! {
    /// Held clusters are due before they exceed a batch, or an eighth of the store; no more is due
    /// than is held; with nothing held nothing is due.
    #[test]
    fn discard_strategies_hold_back_no_more_than_their_batch(
        steps in prop::collection::vec((0..3_u8, 0..200_000_000_u64), 1..300),
        batch_pages in 1..2000_u32,
        cluster in 1..9_u32,
    ) {
        const SLOTS: u32 = 1 << 14;
        let cluster = 1 << cluster;
        for info in DiscardKind::ALL {
            let discard = Discard { kind: info.kind, batch_pages };
            let Some(mut strategy) = discard.build(SLOTS) else {
                prop_assert_eq!(info.kind, DiscardKind::Off);
                continue;
            };
            let (mut held, mut now) = (0, Nanos(0));
            for &(step, time) in &steps {
                now = now.plus(Nanos(time));
                match step {
                    0 => strategy.scanned(now),
                    1 => {
                        if strategy.freed(now) == Fate::Held {
                            held += cluster;
                        }
                    }
                    _ => strategy.ended(Nanos(time)),
                }
                prop_assert_eq!(strategy.due(0), None, "{}", info.name);
                while let Some(due) = strategy.due(held) {
                    prop_assert!(due.slots > 0 && due.slots_per_command > 0, "{}", info.name);
                    prop_assert!(due.slots <= held, "{}", info.name);
                    held -= due.slots.next_multiple_of(cluster).min(held);
                }
                prop_assert!(held < batch_pages.min(SLOTS / 8) + cluster, "{}", info.name);
            }
        }
    }
}

#[test]
fn names_are_unique_and_parse_and_errors_list_them() {
    for info in PolicyKind::ALL {
        assert_eq!(info.name.parse(), Ok(info.kind));
        assert_eq!(info.kind.to_string(), info.name);
        assert!(!info.help.is_empty());
    }
    for info in PrefetcherKind::ALL {
        assert_eq!(info.name.parse(), Ok(info.kind));
        assert_eq!(info.kind.to_string(), info.name);
        assert!(!info.help.is_empty());
    }
    for (preset, name) in Preset::ALL {
        assert_eq!(name.parse(), Ok(preset));
        assert_eq!(preset.to_string(), name);
    }
    let error = "lru2".parse::<PolicyKind>().expect_err("there is none");
    let text = error.to_string();
    assert!(
        text.contains("'lru2'") && text.contains("two-list"),
        "{text}"
    );
}
