//! The store list (section 6.3): every write to an object older than the last commit, with the old
//! contents. It gives collections their roots, `commit` what to log, `abort` what to restore.

use crate::region::{Area, Region, WORD};

/// A run of words of an object: what one write replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Address of the object's header.
    pub(crate) object: u64,
    /// First word, counted after the header.
    pub(crate) start: u64,
    /// Number of words.
    pub(crate) words: u32,
    /// Pointers among them, at the front.
    pub(crate) pointers: u32,
}

impl Span {
    /// Address of the first word.
    pub(crate) fn address(&self) -> u64 {
        self.object + (1 + self.start) * WORD
    }

    /// The first `words` words, and the rest.
    pub(crate) fn split(self, words: u32) -> (Self, Self) {
        let first = Self {
            words,
            pointers: self.pointers.min(words),
            ..self
        };
        let rest = Self {
            start: self.start + u64::from(words),
            words: self.words - words,
            pointers: self.pointers - first.pointers,
            ..self
        };
        (first, rest)
    }

    /// Addresses of the pointers.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.address();
        (0..u64::from(self.pointers)).map(move |index| first + index * WORD)
    }
}

/// The writes since the last commit or abort, in order.
#[derive(Debug, Default)]
pub(crate) struct StoreList {
    spans: Vec<Span>,
    /// The old contents of the spans, one after the other.
    saved: Vec<u64>,
}

impl StoreList {
    /// Notes that `span` is about to be written.
    pub(crate) fn push(&mut self, region: &Region, span: Span) {
        self.saved
            .extend_from_slice(region.words(span.address(), span.words.into()));
        self.spans.push(span);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        self.saved.clear();
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The spans in `area`.
    pub(crate) fn spans_in(&self, region: &Region, area: Area) -> Vec<Span> {
        let inside = |span: &&Span| region.area(span.object) == Some(area);
        self.spans.iter().filter(inside).copied().collect()
    }

    /// Swaps memory and old contents, last write first: the state before.
    pub(crate) fn undo(&mut self, region: &mut Region) {
        let mut end = self.saved.len();
        for span in self.spans.iter().rev() {
            let start = end - span.words as usize;
            region
                .words_mut(span.address(), span.words.into())
                .swap_with_slice(&mut self.saved[start..end]);
            end = start;
        }
    }

    /// Swaps again, first write first: the state after.
    pub(crate) fn redo(&mut self, region: &mut Region) {
        let mut start = 0;
        for span in &self.spans {
            let end = start + span.words as usize;
            region
                .words_mut(span.address(), span.words.into())
                .swap_with_slice(&mut self.saved[start..end]);
            start = end;
        }
    }

    /// Replaces every address in the list: of objects, and in old contents.
    pub(crate) fn for_each_address(&mut self, mut f: impl FnMut(&mut u64)) {
        let mut start = 0;
        for span in &mut self.spans {
            f(&mut span.object);
            let pointers = span.pointers as usize;
            self.saved[start..start + pointers]
                .iter_mut()
                .for_each(&mut f);
            start += span.words as usize;
        }
    }
}
