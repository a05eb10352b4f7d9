//! Whether a side is asked, after it was away for too long. Decides, and does nothing.
//!
//! A store of several sides goes on without a side that stays away: what is there cannot be read or written. The side is
//! tried again now and then, by one request at a time. The last side that serves is waited for, as a store of one side is.

use flashvm_core::Nanos;

/// Between two tries of a side that is away.
pub(super) const PAUSE: Nanos = Nanos(2_000_000_000);
/// How long a try may take.
pub(super) const TRY: Nanos = Nanos(500_000_000);

/// How a request meets its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// The side serves: the request may take its whole time.
    Patiently,
    /// The side was away: this request tries it, and the side's word becomes the one given.
    Once { word: u64 },
    /// The side is away: the request fails.
    Never,
}

/// What a request does at `now`. `word` is 0 if the side serves, else the time of the next try.
pub(super) fn asks(word: u64, now: Nanos) -> Asks {
    match word {
        0 => Asks::Patiently,
        next if now.0 < next => Asks::Never,
        _ => Asks::Once { word: away(now) },
    }
}

/// The word of a side that is away from `now` on.
pub(super) fn away(now: Nanos) -> u64 {
    (now.0 + PAUSE.0).max(1)
}

/// Whether a side that has not answered in time may be given up. `words` are those of all sides.
pub(super) fn may_give_up(words: impl IntoIterator<Item = u64>, side: usize) -> bool {
    let mut words = words.into_iter().enumerate();
    words.any(|(other, word)| other != side && word == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However requests, answers and silences follow each other: one side always serves, and a side that is away is
        /// tried once in a pause.
        #[test]
        fn one_side_serves_and_tries_are_rare(
            sides in 2_usize..=8,
            steps in prop::collection::vec((0_usize..8, 0_u64..1_000_000_000, any::<bool>()), 1..200),
        ) {
            let mut words = vec![0; sides];
            let mut tried = vec![None; sides];
            let mut now = Nanos(1);
            for (side, pause, answers) in steps {
                let side = side % sides;
                now = Nanos(now.0 + pause);
                match asks(words[side], now) {
                    Asks::Patiently => {
                        if !answers && may_give_up(words.clone(), side) {
                            words[side] = away(now);
                            tried[side] = Some(now);
                        }
                    }
                    Asks::Once { word } => {
                        let last: Nanos = tried[side].expect("away since");
                        prop_assert!(now.since(last).0 >= PAUSE.0);
                        tried[side] = Some(now);
                        words[side] = if answers { 0 } else { word };
                    }
                    Asks::Never => {
                        let last: Nanos = tried[side].expect("away since");
                        prop_assert!(now.since(last).0 < PAUSE.0);
                    }
                }
                prop_assert!(words.contains(&0), "nobody serves");
            }
        }
    }
}
