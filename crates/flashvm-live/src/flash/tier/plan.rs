//! Which chunks of a tier move. Decides, and does nothing.
//!
//! - Room is kept on the first side, so that new pages go there: when less than 1/16 of it is free, its coldest chunks move
//!   away until 1/8 is.
//! - A chunk of the second side that is asked for often moves to the first, as long as there is more room than 1/16; without
//!   room it changes places with the coldest chunk there, if it is more than twice as warm.
//!
//! *Warm* is a count of requests; the caller halves it now and then.

/// Parts of the first side that are kept free: less than 1 / `LOW` begins to make room, 1 / `HIGH` ends it.
const LOW: usize = 16;
const HIGH: usize = 8;
/// Most moves of one plan in either direction.
const MOVES: usize = 32;
/// A chunk is not worth moving for fewer requests.
const WARM: u32 = 4;
/// A chunk displaces another one if it is so many times as warm.
const TIMES: u32 = 2;

/// A chunk on one of the sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chunk {
    pub(super) warmth: u32,
    pub(super) chunk: u32,
}

/// The moves that are due, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To the second side, the coldest first.
    pub(super) demote: Vec<u32>,
    /// To the first side, the warmest first.
    pub(super) promote: Vec<u32>,
}

/// What is due for these chunks of both sides, if the first has `places` places. Reorders them.
pub(super) fn plan(first: &mut [Chunk], second: &mut [Chunk], places: usize) -> Plan {
    let free = places.saturating_sub(first.len());
    let low = places.div_ceil(LOW);
    let high = places.div_ceil(HIGH).max(low);
    let room = if free < low { high - free } else { 0 };
    first.sort_unstable();
    second.sort_unstable_by(|a, b| b.cmp(a));
    let mut plan = Plan {
        demote: first
            .iter()
            .take(room.min(MOVES))
            .map(|it| it.chunk)
            .collect(),
        promote: Vec::new(),
    };
    let mut coldest = first[plan.demote.len()..].iter();
    // Where room is made it is for new pages.
    let mut spare = if room > 0 { 0 } else { free - low };
    for warm in second.iter().take_while(|it| it.warmth >= WARM) {
        if plan.promote.len() == MOVES {
            break;
        }
        if spare > 0 {
            spare -= 1;
        } else {
            let exchange = coldest.next();
            let exchange = exchange.filter(|it| warm.warmth / TIMES > it.warmth);
            let Some(cold) = exchange.filter(|_| plan.demote.len() < MOVES) else {
                break;
            };
            plan.demote.push(cold.chunk);
        }
        plan.promote.push(warm.chunk);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn chunks(warmths: &[u32], from: u32) -> Vec<Chunk> {
        let numbered = warmths.iter().zip(from..);
        numbered
            .map(|(&warmth, chunk)| Chunk { warmth, chunk })
            .collect()
    }

    /// Both sides after a plan.
    fn after(plan: &Plan, first: &mut Vec<Chunk>, second: &mut Vec<Chunk>) {
        let shift = |from: &mut Vec<Chunk>, to: &mut Vec<Chunk>, moved: &[u32]| {
            let (moving, staying) = from.iter().partition(|it| moved.contains(&it.chunk));
            *from = staying;
            to.extend::<Vec<Chunk>>(moving);
        };
        shift(first, second, &plan.demote);
        shift(second, first, &plan.promote);
    }

    proptest! {
        #[test]
        fn a_plan_makes_room_and_comes_to_rest(
            first in prop::collection::vec(0_u32..100, 0..200),
            second in prop::collection::vec(0_u32..100, 0..400),
            spare in 0_usize..50,
        ) {
            let places = first.len() + spare;
            let mut first = chunks(&first, 0);
            let mut second = chunks(&second, 1000);
            let all = first.len() + second.len();
            let warmth: HashMap<_, _> =
                first.iter().chain(&second).map(|it| (it.chunk, it.warmth)).collect();
            let mut rest = 0;
            for _ in 0..100 {
                let plan = plan(&mut first, &mut second, places);
                prop_assert!(plan.demote.len() <= MOVES && plan.promote.len() <= MOVES);
                // Nothing that stays is colder than what leaves.
                let leaves = plan.demote.iter().map(|chunk| warmth[chunk]).max();
                let stays = first.iter().filter(|it| !plan.demote.contains(&it.chunk));
                if let (Some(leaves), Some(stays)) = (leaves, stays.map(|it| it.warmth).min()) {
                    prop_assert!(leaves <= stays);
                }
                let comes = plan.promote.iter().map(|chunk| warmth[chunk]).min();
                prop_assert!(comes.is_none_or(|comes| comes >= WARM));
                after(&plan, &mut first, &mut second);
                prop_assert!(first.len() <= places);
                prop_assert_eq!(first.len() + second.len(), all);
                if plan == Plan::default() {
                    rest += 1;
                }
            }
            prop_assert!(rest > 50, "it never rests");
            prop_assert!(places - first.len() >= places.div_ceil(LOW).min(places));
            // What is warm is not left behind while colder chunks have the better place.
            let coldest = first.iter().map(|it| it.warmth).min().unwrap_or(u32::MAX);
            let warmest = second.iter().map(|it| it.warmth).max().unwrap_or(0);
            prop_assert!(warmest < WARM || coldest == u32::MAX || warmest / TIMES <= coldest);
        }
    }

    #[test]
    fn the_coldest_leave_and_the_warmest_come() {
        let mut first = chunks(&[5, 0, 9, 1, 7, 8, 6, 3, 4, 2, 9, 9, 9, 9, 9, 9], 0);
        let mut second = chunks(&[0, 50, 3, 40], 100);
        let made = plan(&mut first, &mut second, 16);
        assert_eq!(made.demote[..2], [1, 3]);
        let mut first = chunks(&[5, 0, 9, 1], 0);
        let made = plan(&mut first, &mut second, 16);
        assert_eq!((made.demote, made.promote), (vec![], vec![101, 103]));
    }
}
