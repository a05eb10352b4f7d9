//! The program's access rights to managed memory, where the kernel's own record of them is not enough: pages that nobody
//! has touched yet have no mapping.

use flashvm_core::{PageId, Run};
use rustix::mm::ProtFlags;
use std::collections::BTreeMap;

/// What the program wants to do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Load from it.
    Load,
    /// Store to it.
    Store,
    /// Execute it.
    Execute,
}

impl Use {
    /// Whether these rights allow it. Every right implies that of loading (x86-64, and Linux on others).
    pub(super) fn is_allowed(self, rights: ProtFlags) -> bool {
        match self {
            Self::Load => !rights.is_empty(),
            Self::Store => rights.contains(ProtFlags::WRITE),
            Self::Execute => rights.contains(ProtFlags::EXEC),
        }
    }
}

/// The rights, by page. A page without an entry is not mapped by the program.
#[derive(Debug, Default)]
pub(super) struct Rights {
    /// By first page: end page (exclusive), and the rights of all pages between. Neighbours differ.
    parts: BTreeMap<u32, (u32, ProtFlags)>,
}

impl Rights {
    /// The rights to a page, and the end of the part that has the same. `None`: the program has not mapped it.
    pub(super) fn get(&self, page: PageId) -> Option<(ProtFlags, PageId)> {
        let (_, &(end, rights)) = self.parts.range(..=page.0).next_back()?;
        (page.0 < end).then_some((rights, PageId(end)))
    }

    /// Whether the program has mapped every page of a run.
    pub(super) fn cover(&self, run: Run) -> bool {
        let mut at = run.first;
        while at < run.end() {
            match self.get(at) {
                Some((_, end)) => at = end,
                None => return false,
            }
        }
        true
    }

    /// The parts of a run that the program has mapped, in order.
    pub(super) fn within(&self, run: Run) -> impl Iterator<Item = (Run, ProtFlags)> {
        let (from, to) = (run.first.0, run.end().0);
        let before = self.parts.range(..from).next_back();
        before
            .into_iter()
            .chain(self.parts.range(from..to))
            .filter_map(move |(&first, &(end, rights))| {
                let (first, end) = (first.max(from), end.min(to));
                (first < end).then(|| (Run::new(PageId(first), end - first), rights))
            })
    }

    /// The parts of a run that the program has not mapped, in order.
    pub(super) fn gaps(&self, run: Run) -> impl Iterator<Item = Run> {
        let end = Run::new(run.end(), 0);
        let mut at = run.first;
        let parts = self.within(run).map(|(part, _)| part);
        parts.chain([end]).filter_map(move |part| {
            let gap = Run::new(at, part.first.0 - at.0);
            at = part.end();
            (gap.count > 0).then_some(gap)
        })
    }

    /// Sets the rights of a run. `None`: the program has unmapped it.
    pub(super) fn set(&mut self, run: Run, rights: Option<ProtFlags>) {
        let (mut from, mut to) = (run.first.0, run.end().0);
        if from == to {
            return;
        }
        self.split(from);
        self.split(to);
        while let Some((&first, _)) = self.parts.range(from..to).next() {
            self.parts.remove(&first);
        }
        let Some(rights) = rights else {
            return;
        };
        if let Some((&first, &(end, before))) = self.parts.range(..from).next_back()
            && end == from
            && before == rights
        {
            from = first;
        }
        if let Some(&(end, behind)) = self.parts.get(&to)
            && behind == rights
        {
            self.parts.remove(&to);
            to = end;
        }
        self.parts.insert(from, (to, rights));
    }

    /// Makes a part begin at a page, if one spans it.
    fn split(&mut self, at: u32) {
        if let Some((_, part)) = self.parts.range_mut(..at).next_back()
            && part.0 > at
        {
            let behind = *part;
            part.0 = at;
            self.parts.insert(at, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u32 = 48;

    fn rights() -> impl Strategy<Value = Option<ProtFlags>> {
        prop_oneof![
            Just(None),
            Just(Some(ProtFlags::empty())),
            Just(Some(ProtFlags::READ)),
            Just(Some(ProtFlags::READ | ProtFlags::WRITE)),
        ]
    }

    proptest! {
        #[test]
        fn like_an_array(steps in prop::collection::vec((0..PAGES, 0..16u32, rights()), 1..60)) {
            let mut parts = Rights::default();
            let mut naive = [None; PAGES as usize];
            for (first, count, rights) in steps {
                let run = Run::new(PageId(first), count.min(PAGES - first));
                parts.set(run, rights);
                naive[first as usize..run.end().0 as usize].fill(rights);
                for page in 0..PAGES {
                    let got = parts.get(PageId(page));
                    prop_assert_eq!(got.map(|(rights, _)| rights), naive[page as usize]);
                    if let Some((rights, end)) = got {
                        // The part is as long as it can be: neighbours differ.
                        let same = naive[page as usize..].iter().take_while(|&&r| r == Some(rights));
                        prop_assert_eq!(end.0, page + same.count() as u32);
                    }
                }
                let whole = naive[first as usize..run.end().0 as usize].iter().all(Option::is_some);
                prop_assert_eq!(parts.cover(run), whole);
                let mut listed = [None; PAGES as usize];
                for (part, rights) in parts.within(run) {
                    for page in part.pages() {
                        prop_assert!(run.pages().any(|p| p == page));
                        prop_assert_eq!(listed[page.0 as usize].replace(rights), None);
                    }
                }
                for page in run.pages() {
                    prop_assert_eq!(listed[page.0 as usize], naive[page.0 as usize]);
                }
                let gaps: Vec<PageId> = parts.gaps(run).flat_map(Run::pages).collect();
                let expected: Vec<PageId> =
                    run.pages().filter(|page| naive[page.0 as usize].is_none()).collect();
                prop_assert_eq!(gaps, expected);
            }
        }
    }

    #[test]
    fn a_right_to_store_or_execute_allows_loads() {
        assert!(Use::Load.is_allowed(ProtFlags::WRITE) && Use::Load.is_allowed(ProtFlags::EXEC));
        assert!(!Use::Load.is_allowed(ProtFlags::empty()));
        assert!(!Use::Store.is_allowed(ProtFlags::READ | ProtFlags::EXEC));
        assert!(!Use::Execute.is_allowed(ProtFlags::READ | ProtFlags::WRITE));
    }
}
