//! Messages when the pager ends a process or refuses it something: a line on standard error at
//! once, and the same in the control region, for the summary of the run.

use crate::pager::pager;
use crate::sys::message::say;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the process by SIGABRT: the pager cannot continue, and the program must not read wrong
/// data.
pub fn end(reason: &str) -> ! {
    note_end(reason);
    say(reason);
    crate::sys::signals::abort()
}

/// Notes for the summary why the process ends. The caller has told the user already.
pub fn note_end(reason: &str) {
    if let Some(pager) = pager() {
        pager.process().note_end(reason);
    }
}

/// Reports that a system call is refused, and why.
fn refuse(reason: &str) {
    if let Some(pager) = pager() {
        pager.process().note_refusal(reason);
    }
    say(reason);
}

/// Reports it the first time: `said` remembers that.
pub(crate) fn refuse_once(said: &AtomicBool, reason: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        refuse(reason);
    }
}

/// Counts an allocation refused because budget and store had no room for it.
pub fn count_refused_allocation() {
    if let Some(pager) = pager() {
        pager.count_refused_allocation();
    }
}
