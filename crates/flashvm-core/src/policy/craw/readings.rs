//! How CRAW's text is read where it leaves a choice. The first word of each is what `craw` does;
//! `docs/reproduction/craw.md` has the I/O time of all of them.

use super::super::parameters::{Parameter, Values};

/// Whether the access that brings a page in sets its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It has already decided the page's area.
    Clear,
    /// As hardware does after the fault.
    Set,
}

/// Pages by which a hit in R' and a hit in W1' or W2' enlarge the area ("the different cost of a read
/// and a write is also considered", IV.A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// The cost of a read in writes, and one.
    Cost,
    /// One, and the cost of a write in reads.
    Whole,
    /// One, and the cost of a write and a read in reads: a page that was written has to be read again.
    Both,
    /// One each: the ratio of hits alone.
    Equal,
}

/// Where pages of W1 go whose write bit the hand finds set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promotion {
    /// To W2, for "pages that are written more than once" (IV.B).
    ToW2,
    /// They stay in W1: the text moves pages to W2 at faults only.
    Stay,
}

/// Where a page joins the write area that the hand of R finds written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// W2 if its metadata is in W1' or W2', otherwise W1.
    History,
    /// W1, as the text says.
    W1,
}

/// The write bit that the hand of R finds at a page of the write area, and likewise the read bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherBit {
    /// It stays for the hand of the write area.
    Kept,
    /// It is cleared, as the text says of every page found with it.
    Cleared,
}

/// The desired sizes at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// S/3 each: nothing is known.
    Thirds,
    /// Half for reads, half for writes: S/2, S/4, S/4.
    Halves,
}

/// Which areas shrink when one grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shrink {
    /// Both others, in proportion to their sizes.
    Both,
    /// The larger of the others.
    Larger,
}

/// Sizes of W1' and W2'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ghosts {
    /// Together S - W1 - W2: with R' no more than S.
    Together,
    /// S - W1 and S - W2.
    Each,
}

/// A fault on a page that the histories of the other kind remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherHistory {
    /// They are left alone.
    Kept,
    /// They forget the page.
    Forgotten,
    /// It is a hit: the page joins that area too, which grows.
    Hit,
}

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readings {
    pub(super) arrival: Arrival,
    pub(super) growth: Growth,
    pub(super) promotion: Promotion,
    pub(super) found: Found,
    pub(super) other_bit: OtherBit,
    pub(super) start: Start,
    pub(super) shrink: Shrink,
    pub(super) ghosts: Ghosts,
    pub(super) other_history: OtherHistory,
}

const fn word(name: &'static str, words: &'static [&'static str]) -> Parameter {
    Parameter::Word { name, words }
}

/// The choices, in the order of the fields of [`Readings`].
pub(crate) const PARAMETERS: &[Parameter] = &[
    word("bits", &["clear", "set"]),
    word("growth", &["cost", "whole", "both", "equal"]),
    word("promote", &["w2", "stay"]),
    word("found", &["history", "w1"]),
    word("other-bit", &["kept", "cleared"]),
    word("start", &["thirds", "halves"]),
    word("shrink", &["both", "larger"]),
    word("ghosts", &["together", "each"]),
    word("other-history", &["kept", "forgotten", "hit"]),
];

impl Readings {
    /// The reading of these words' indices.
    pub(crate) fn new(values: Values) -> Self {
        let [
            bits,
            growth,
            promote,
            found,
            other_bit,
            start,
            shrink,
            ghosts,
            history,
        ] = values.map(|value| value as usize);
        Self {
            arrival: [Arrival::Clear, Arrival::Set][bits],
            growth: [Growth::Cost, Growth::Whole, Growth::Both, Growth::Equal][growth],
            promotion: [Promotion::ToW2, Promotion::Stay][promote],
            found: [Found::History, Found::W1][found],
            other_bit: [OtherBit::Kept, OtherBit::Cleared][other_bit],
            start: [Start::Thirds, Start::Halves][start],
            shrink: [Shrink::Both, Shrink::Larger][shrink],
            ghosts: [Ghosts::Together, Ghosts::Each][ghosts],
            other_history: [
                OtherHistory::Kept,
                OtherHistory::Forgotten,
                OtherHistory::Hit,
            ][history],
        }
    }
}
