//! What a program tells the pager about memory that it has.
#![allow(unsafe_code, reason = "advice names memory by address")]

use crate::pages::PAGE;
use crate::preloaded::functions;
use crate::{Error, Result, stats};
use std::ffi::c_void;
use std::io;

/// How memory will be used. Its contents stay as they are.
///
/// ```
/// use flashvm::Advice;
/// let after_use = |again: bool| if again { Advice::Cold } else { Advice::PageOut };
/// assert_eq!(after_use(true), Advice::Cold);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Read it ahead.
    WillNeed,
    /// Evict it before other memory.
    Cold,
    /// Begin to evict it now.
    PageOut,
    /// Keep it in RAM from now on (`mlock`): no access waits for flash. It ends with [`Advice::Unpin`] or with the memory; if other
    /// processes of the run leave too little of the budget, all pins of this one end. A forked child has none.
    Pin,
    /// No longer (`munlock`).
    Unpin,
}

/// The whole pages of a range that the advice is about; `None`: there are none.
fn range(address: usize, bytes: usize, advice: Advice) -> Option<(usize, usize)> {
    let end = address.checked_add(bytes).filter(|_| bytes > 0)?;
    let (first, end) = match advice {
        Advice::Cold | Advice::PageOut => (address.next_multiple_of(PAGE), end / PAGE * PAGE),
        _ => (address / PAGE * PAGE, end.next_multiple_of(PAGE)),
    };
    (first < end).then_some((first, end - first))
}

/// Tells the pager how memory will be used: a [`Mapping`](crate::Mapping), a [`FlashVec`](crate::FlashVec) or a part of one, or any slice if
/// the whole program is paged.
///
/// [`Advice::Cold`] and [`Advice::PageOut`] are about the pages that hold nothing else, the others about every page that the slice
/// touches.
///
/// # Errors
/// [`Error::NotARun`]; [`Error::TooManyPins`] if more than (budget - 256 KiB) / 2 would be pinned; [`Error::Os`] if the pager or the
/// kernel refuses.
///
/// ```
/// use flashvm::{Advice, Error, Mapping, advise};
///
/// # fn sample() -> flashvm::Result<()> {
/// let table = Mapping::new(1 << 20)?;
/// advise(&table[..4096], Advice::Pin)?;
/// advise(&table[4096..], Advice::Cold)?;
/// # Ok(())
/// # }
/// # assert!(matches!(sample(), Ok(()) | Err(Error::NotARun)));
/// ```
pub fn advise<T>(memory: &[T], advice: Advice) -> Result<()> {
    advise_on(memory.as_ptr() as usize, size_of_val(memory), advice)
}

/// As [`advise`], by address: the kernel and the pager refuse what is no memory.
pub(crate) fn advise_on(address: usize, bytes: usize, advice: Advice) -> Result<()> {
    functions()?;
    let Some((first, bytes)) = range(address, bytes, advice) else {
        return Ok(());
    };
    let at = first as *mut c_void;
    // SAFETY: no advice changes contents; pages that the range shares with other memory stay as they are, too.
    let status = unsafe {
        match advice {
            Advice::WillNeed => libc::madvise(at, bytes, libc::MADV_WILLNEED),
            Advice::Cold => libc::madvise(at, bytes, libc::MADV_COLD),
            Advice::PageOut => libc::madvise(at, bytes, libc::MADV_PAGEOUT),
            Advice::Pin => libc::mlock(at, bytes),
            Advice::Unpin => libc::munlock(at, bytes),
        }
    };
    if status == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if advice == Advice::Pin && error.raw_os_error() == Some(libc::ENOMEM) {
        let now = stats()?;
        return Err(Error::TooManyPins {
            bytes,
            pinned: now.locked_bytes,
            budget: now.budget_bytes,
        });
    }
    Err(Error::os(format!("{advice:?} for {bytes} bytes"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_spares_neighbours_and_the_rest_rounds_outwards() {
        let first = 16 * PAGE;
        for (address, bytes, inner, outer) in [
            (first, 0, None, None),
            (first + 1, 8, None, Some((first, PAGE))),
            (first, PAGE, Some((first, PAGE)), Some((first, PAGE))),
            (
                first + 1,
                2 * PAGE,
                Some((first + PAGE, PAGE)),
                Some((first, 3 * PAGE)),
            ),
        ] {
            for advice in [Advice::Cold, Advice::PageOut] {
                assert_eq!(range(address, bytes, advice), inner, "{bytes} {advice:?}");
            }
            for advice in [Advice::WillNeed, Advice::Pin, Advice::Unpin] {
                assert_eq!(range(address, bytes, advice), outer, "{bytes} {advice:?}");
            }
        }
    }
}
