//! Guesses: neighbours of a fault outside of streams, in the address space and on flash.
//!
//! Used guesses earn credit for more. Random accesses soon earn none; then one guess is tried every
//! `TRIAL_INTERVAL` faults.

use super::super::{Candidate, Kind, View, Whereabouts};
use crate::event::Place;
use crate::ids::PageId;

/// Maximum credit. A guess costs `COST`, a used guess earns `REWARD`: guesses go on where 4 of 5 are
/// used.
const CREDIT_MAX: i32 = 256;
const CREDIT_FIRST: i32 = 64;
const REWARD: i32 = 5;
const COST: i32 = 4;
/// Pages guessed at a fault: credit / CREDIT_PER_PAGE.
const CREDIT_PER_PAGE: i32 = 32;
/// Faults outside of streams between two trials when there is no credit.
const TRIAL_INTERVAL: u32 = 256;

/// The credit of guesses.
pub(super) struct Guesses {
    credit: i32,
    faults_without: u32,
}

impl Guesses {
    pub(super) fn new() -> Self {
        Self {
            credit: CREDIT_FIRST,
            faults_without: 0,
        }
    }

    /// A guessed page was used.
    pub(super) fn used(&mut self) {
        self.credit = (self.credit + REWARD).min(CREDIT_MAX);
    }

    /// Proposes neighbours in the address space that are also neighbours on flash.
    pub(super) fn propose(
        &mut self,
        page: PageId,
        mut slot: u32,
        view: &dyn View,
        out: &mut Vec<Candidate>,
    ) {
        let mut pages = self.credit / CREDIT_PER_PAGE;
        if pages <= 0 {
            self.faults_without += 1;
            if self.faults_without < TRIAL_INTERVAL {
                return;
            }
            self.faults_without = 0;
            pages = 1;
        }
        let room = i32::try_from(view.room()).unwrap_or(i32::MAX);
        for i in 1..=pages.min(room).unsigned_abs() {
            let Some(page) = page.0.checked_add(i).map(PageId) else {
                return;
            };
            match view.page(page) {
                Whereabouts::Flash(at) if at.0.wrapping_sub(slot) <= 1 => slot = at.0,
                _ => return,
            }
            self.credit = (self.credit - COST).max(0);
            out.push(Candidate {
                page,
                place: Place::Shadow,
                store: false,
                kind: Kind::Guess,
            });
        }
    }
}
