//! Which sides of a mirror serve: the word that all processes of a run share, and its changes.
//!
//! One side at most is out: *lost*, so that nobody asks it for anything; or *returning*, so that it is written, and read
//! where it has caught up. The other side is then the last one, and waited for as a store without a mirror is. A side's
//! *epoch* is how often it has returned: trouble with a connection from an earlier epoch says nothing of the side.

/// A side of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::A, Self::B];

    /// 0 or 1.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// How a side is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes no requests, and may have lost what it had.
    Lost,
    /// It takes writes, and its stale pages are copied to it.
    Returning,
}

/// Bits of an epoch in the word.
const EPOCH_BITS: u32 = 28;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

/// The state of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    epochs: [u32; 2],
    out: Option<(Side, Phase)>,
}

impl Health {
    /// Reads a word of [`Self::word`]. The word 0: both sides serve.
    pub(crate) fn of(word: u64) -> Self {
        let epoch = |side: u32| (word >> (8 + side * EPOCH_BITS) & EPOCH_MASK) as u32;
        let out = match word & 0xff {
            1 => Some((Side::A, Phase::Lost)),
            2 => Some((Side::B, Phase::Lost)),
            3 => Some((Side::A, Phase::Returning)),
            4 => Some((Side::B, Phase::Returning)),
            _ => None,
        };
        Self {
            epochs: [epoch(0), epoch(1)],
            out,
        }
    }

    pub(crate) fn word(self) -> u64 {
        let code = match self.out {
            None => 0,
            Some((side, Phase::Lost)) => 1 + side as u64,
            Some((side, Phase::Returning)) => 3 + side as u64,
        };
        let [a, b] = self.epochs.map(u64::from);
        code | a << 8 | b << (8 + EPOCH_BITS)
    }

    pub(crate) fn epoch(self, side: Side) -> u32 {
        self.epochs[side.index()]
    }

    pub(crate) fn out(self) -> Option<(Side, Phase)> {
        self.out
    }

    pub(crate) fn is_lost(self, side: Side) -> bool {
        self.out == Some((side, Phase::Lost))
    }

    /// Whether the other side is out, so that this one must not be lost.
    pub(crate) fn is_last(self, side: Side) -> bool {
        self.out.is_some_and(|(out, _)| out == side.other())
    }

    /// After trouble with a side in an epoch. `None`: it stays as it is, as the trouble is old, the side lost already, or
    /// the last.
    pub(crate) fn lose(self, side: Side, epoch: u32) -> Option<Self> {
        let is_new = self.epoch(side) == epoch && !self.is_lost(side) && !self.is_last(side);
        is_new.then_some(Self {
            out: Some((side, Phase::Lost)),
            ..self
        })
    }

    /// The lost side answers again.
    pub(crate) fn come_back(self, side: Side) -> Option<Self> {
        let mut epochs = self.epochs;
        epochs[side.index()] = (epochs[side.index()] + 1) & EPOCH_MASK as u32;
        self.is_lost(side).then_some(Self {
            epochs,
            out: Some((side, Phase::Returning)),
        })
    }

    /// The returning side has caught up.
    pub(crate) fn complete(self, side: Side) -> Option<Self> {
        (self.out == Some((side, Phase::Returning))).then_some(Self { out: None, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = (u8, Side, u32)> {
        let side = prop_oneof![Just(Side::A), Just(Side::B)];
        (0_u8..3, side, 0_u32..3)
    }

    proptest! {
        /// One side at most is out, whatever is reported in whatever order; each change is what it says; words keep all.
        #[test]
        fn one_side_always_serves(steps in prop::collection::vec(step(), 0..200)) {
            let mut health = Health::of(0);
            for (what, side, back) in steps {
                let epoch = health.epoch(side).saturating_sub(back);
                let next = match what {
                    0 => health.lose(side, epoch),
                    1 => health.come_back(side),
                    _ => health.complete(side),
                };
                if let Some(next) = next {
                    prop_assert_ne!(next, health);
                    match what {
                        0 => prop_assert!(next.is_lost(side) && epoch == health.epoch(side)),
                        1 => prop_assert_eq!(next.epoch(side), health.epoch(side) + 1),
                        _ => prop_assert_eq!(next.out(), None),
                    }
                    prop_assert!(!health.is_last(side), "the last side changed");
                    health = next;
                }
                prop_assert!(Side::BOTH.into_iter().any(|side| !health.is_lost(side)));
                prop_assert_eq!(Health::of(health.word()), health);
            }
        }
    }

    #[test]
    fn a_side_is_lost_once_and_returns() {
        let lost = Health::of(0).lose(Side::B, 0).unwrap();
        assert!(lost.is_lost(Side::B) && lost.is_last(Side::A) && !lost.is_last(Side::B));
        assert_eq!(lost.lose(Side::B, 0), None);
        assert_eq!(lost.lose(Side::A, 0), None, "the last side is waited for");
        let back = lost.come_back(Side::B).unwrap();
        assert_eq!(back.lose(Side::B, 0), None, "an old connection");
        assert!(back.lose(Side::B, 1).unwrap().is_lost(Side::B));
        let whole = back.complete(Side::B).unwrap();
        assert_eq!((whole.out(), whole.epoch(Side::B)), (None, 1));
        assert!(whole.lose(Side::A, 0).is_some());
    }

    #[test]
    fn epochs_wrap() {
        let last = Health {
            epochs: [EPOCH_MASK as u32; 2],
            out: Some((Side::A, Phase::Lost)),
        };
        assert_eq!(last.come_back(Side::A).unwrap().epoch(Side::A), 0);
        assert_eq!(Health::of(last.word()), last);
    }
}
