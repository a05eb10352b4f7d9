//! Compares the engine's page states with the address space, and ends the process if they contradict.

use super::{ActionContext, Pages, Placement};
use crate::event::Place;
use crate::ids::PageId;
use crate::page::PageState;
use crate::space::{AddressSpace, Executor};

/// Pages whose places are asked for with one call.
const WINDOW: u32 = 64;

/// The pages of a window that are in region and shadow.
struct Window {
    first: PageId,
    region: [bool; WINDOW as usize],
    shadow: [bool; WINDOW as usize],
}

impl Window {
    fn of(page: PageId, space: &impl AddressSpace) -> Self {
        let mut window = Self {
            first: PageId(page.0 / WINDOW * WINDOW),
            region: [false; WINDOW as usize],
            shadow: [false; WINDOW as usize],
        };
        space.held(Place::Region, window.first, &mut window.region);
        if space.has_shadow() {
            space.held(Place::Shadow, window.first, &mut window.shadow);
        }
        window
    }

    /// Whether a page is in the region and in the shadow. `None`: it is not in the window.
    fn places(&self, page: PageId) -> Option<(bool, bool)> {
        let at = page.0.wrapping_sub(self.first.0) as usize;
        Some((*self.region.get(at)?, *self.shadow.get(at)?))
    }
}

/// Lines of a page's history in the message of a pager that cannot continue.
const LINES: usize = 24;

impl<K> Placement<K> {
    /// Compares the engine's page states with the address space. Does nothing while actions are
    /// parked or the program changes its mappings.
    pub fn check<X, E>(
        &self,
        context: &mut ActionContext<'_, X, E>,
        pages: impl Iterator<Item = PageId>,
    ) where
        X: Executor<Kept = K>,
        E: Pages,
    {
        if self.is_parked() || !self.changes.none() {
            return;
        }
        let has_shadow = context.space().has_shadow();
        let mut window: Option<Window> = None;
        for page in pages.filter(|page| !self.resolved_already.contains(page)) {
            let state = context.engine.state(page);
            let known = window.as_ref().and_then(|window| window.places(page));
            let (region, shadow) = known.unwrap_or_else(|| {
                let window = window.insert(Window::of(page, context.space()));
                window.places(page).expect("the window is around the page")
            });
            let right = match state {
                // The page may have been dropped in a way that is not reported.
                PageState::Mapped => !shadow || context.engine.is_stale(page),
                PageState::Overtaken => region && shadow == has_shadow,
                state if state.is_in_shadow() => shadow == has_shadow && region != has_shadow,
                PageState::Stored | PageState::Reading => !region && !shadow,
                // The kernel shows the mark of a poisoned page as it shows a page in swap.
                PageState::Poisoned => !shadow,
                _ => true,
            };
            if !right {
                self.contradiction(context, page, "is not where the engine has it");
            }
        }
    }

    /// A page is where the engine does not have it: nothing tells which copy holds the program's
    /// data, so the process ends.
    pub(super) fn contradiction<X, E>(
        &self,
        context: &mut ActionContext<'_, X, E>,
        page: PageId,
        what: &str,
    ) -> !
    where
        X: Executor<Kept = K>,
        E: Pages,
    {
        let [region, shadow] = [Place::Region, Place::Shadow].map(|place| {
            if context.space().holds(place, page) {
                "present"
            } else {
                "absent"
            }
        });
        let mut why = format!(
            "the page at {:#x} {what} ({:?}; region: {region}, shadow: {shadow}; {} actions are parked). The page's last events, newest first:",
            context.executor.address(page),
            context.engine.state(page),
            self.parked.len()
        );
        for (ago, entry) in self.trace.of(page).take(LINES) {
            why.push_str(&format!("\n  {ago} us ago: {entry}"));
        }
        context.executor.fail(&why)
    }
}
