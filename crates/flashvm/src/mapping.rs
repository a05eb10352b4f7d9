//! A mapping: managed memory as bytes.
#![allow(unsafe_code, reason = "pages are bytes for their owner")]

use crate::pages::{Managed, PAGE, Pages};
use crate::{Error, Result};
use std::ops::{Deref, DerefMut};

/// Managed memory of so many bytes, zeros at first, unmapped on drop. For numbers of one type [`FlashVec`](crate::FlashVec) is
/// simpler.
///
/// ```
/// use flashvm::{Error, Mapping};
///
/// # fn sample() -> flashvm::Result<()> {
/// let mut bytes = Mapping::new(1 << 30)?;
/// bytes[1 << 29] = 1;
/// assert_eq!(bytes[0], 0);
/// # Ok(())
/// # }
/// # assert!(matches!(sample(), Ok(()) | Err(Error::NotARun | Error::NoRoom { .. })));
/// ```
#[derive(Debug)]
pub struct Mapping {
    pages: Pages<Managed>,
    /// At most the bytes of the pages. Those beyond are zeros.
    len: usize,
}

fn not_empty(bytes: usize) -> Result<()> {
    match bytes {
        0 => Err(Error::Invalid(
            "a mapping of 0 bytes: ask for at least 1".to_owned(),
        )),
        _ => Ok(()),
    }
}

impl Mapping {
    /// Maps `bytes` of zeros.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 bytes, [`Error::NotARun`], and [`Error::NoRoom`] if budget and store together have no room.
    ///
    /// ```
    /// use flashvm::{Error, Mapping};
    /// let error = Mapping::new(0).expect_err("no memory has 0 bytes");
    /// assert!(matches!(error, Error::Invalid(_)));
    /// ```
    pub fn new(bytes: usize) -> Result<Self> {
        not_empty(bytes)?;
        let pages = Pages::map(Managed, bytes)?;
        Ok(Self { pages, len: bytes })
    }

    /// Changes the size. The first bytes stay as they are, at another address perhaps; new ones are zeros.
    ///
    /// # Errors
    /// As [`Mapping::new`]; the mapping is as before then.
    ///
    /// ```
    /// use flashvm::{Error, Mapping};
    ///
    /// # fn sample() -> flashvm::Result<()> {
    /// let mut bytes = Mapping::new(3)?;
    /// bytes.copy_from_slice(b"abc");
    /// bytes.resize(1)?;
    /// bytes.resize(3)?;
    /// assert_eq!(&bytes[..], b"a\0\0");
    /// # Ok(())
    /// # }
    /// # assert!(matches!(sample(), Ok(()) | Err(Error::NotARun)));
    /// ```
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        not_empty(bytes)?;
        self.pages.resize(bytes)?;
        if bytes < self.len {
            let end = bytes.next_multiple_of(PAGE).min(self.len);
            self.len = end;
            self[bytes..].fill(0);
        }
        self.len = bytes;
        Ok(())
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages have `len` bytes, which are all written or zeros, and belong to `self` alone.
        unsafe { std::slice::from_raw_parts(self.pages.start().as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pages.start().as_ptr(), self.len) }
    }
}
