//! Discards (TRIM). After a device has refused one, the engine sends none, and the user gets one message.

use super::Pager;
use crate::flash::{Span, Store, offset};
use crate::sys::message::eprint_line;
use flashvm_core::{Event, PAGE_SIZE};

impl Pager {
    /// Executes the engine's discard, with nothing locked: the device may take long.
    pub(super) fn discard_slots(&self) {
        let span = |&(first, count)| Span {
            at: offset(first),
            len: u64::from(count) * PAGE_SIZE as u64,
        };
        let spans: Vec<Span> = self
            .lock()
            .engine
            .discard_ranges()
            .iter()
            .map(span)
            .collect();
        let done = self.store.discard(&spans);
        if let Err(error) = done {
            eprint_line(&format!(
                "flashvm: process {}: the flash store refuses discards ({error}): no more are sent",
                std::process::id()
            ));
        }
        let mut locked = self.lock();
        let refused = done.is_err();
        self.apply(&mut locked, Event::Discarded { refused });
    }
}
