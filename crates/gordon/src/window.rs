//! A reserved range of addresses, in which flash and memory are mapped and unmapped.
//!
//! Safety: the range is reserved with `MAP_FIXED_NOREPLACE` and owned by this value until it is
//! dropped, so every mapping made with `MAP_FIXED` inside it replaces our own. A type that returns
//! slices of its window borrows itself for them, and changes of mappings take `&mut self`, so no
//! slice exists then.
#![allow(unsafe_code, reason = "mapping memory")]

use crate::error::{Error, Result};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// A range of addresses. Parts that are neither mapped nor opened cannot be accessed.
#[derive(Debug)]
pub(crate) struct Window(Range<u64>);

thread_local! {
    /// A range that this thread has chosen for a heap that it is about to create.
    static PROMISED: RefCell<Option<Window>> = const { RefCell::new(None) };
}

/// The memory at `address`.
pub(crate) fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

impl Window {
    /// Keeps the range for this thread's next reservation at the same base, so that no other thread takes it in
    /// between. The thread's next promise ends this one.
    pub(crate) fn promise(self) {
        PROMISED.set(Some(self));
    }

    /// The first `length` bytes of the promised range, if it begins at `base`.
    fn claim(base: u64, length: u64) -> Option<Self> {
        let fits = |window: &mut Self| window.0.start == base && window.0.end - base >= length;
        let mut window = PROMISED.with_borrow_mut(|promised| promised.take_if(fits))?;
        let rest = window.0.end - base - length;
        if rest > 0 {
            // SAFETY: the end of a range that this value has reserved, and that nobody has used yet.
            unsafe { rustix::mm::munmap(pointer(base + length), rest as usize) }.ok()?;
            window.0.end = base + length;
        }
        Some(window)
    }

    /// Reserves `length` bytes of addresses at `base`.
    pub(crate) fn reserve(base: u64, length: u64) -> Result<Self> {
        if let Some(window) = Self::claim(base, length) {
            return Ok(window);
        }
        // SAFETY: NOREPLACE makes the kernel refuse a range that is in use, so no other mapping is
        // affected; the reserved range cannot be accessed.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                pointer(base),
                length as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
            )
        };
        let taken = Error::AddressTaken {
            base,
            end: base + length,
        };
        match mapped {
            Ok(at) if at.expose_provenance() as u64 == base => Ok(Self(base..base + length)),
            Ok(at) => {
                // A kernel before 4.17 takes the address as a hint.
                // SAFETY: this mapping was made above, and nobody else knows of it.
                let _ = unsafe { rustix::mm::munmap(at, length as usize) };
                Err(taken)
            }
            Err(rustix::io::Errno::EXIST) => Err(taken),
            Err(errno) => Err(Error::io(
                format!("reserving {length} bytes of addresses"),
                errno,
            )),
        }
    }

    /// The addresses.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.0.clone()
    }

    fn check(&self, address: u64, length: u64) -> *mut c_void {
        let inside = address >= self.0.start && length <= self.0.end.saturating_sub(address);
        assert!(
            inside,
            "{length} bytes at {address:#x} are not in the window"
        );
        pointer(address)
    }

    /// Maps `length` bytes of `medium` from `offset` on at `address`, read-only.
    pub(crate) fn map(
        &mut self,
        address: u64,
        medium: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let at = self.check(address, length);
        // SAFETY: the bytes are inside the range that this value owns, as just asserted, and no
        // slice of them exists (`&mut self`).
        let mapped = unsafe {
            rustix::mm::mmap(
                at,
                length as usize,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::FIXED,
                medium,
                offset,
            )
        };
        mapped
            .map(|_| ())
            .map_err(|errno| Error::io("mapping flash", errno))
    }

    /// Unmaps `length` bytes at `address`.
    pub(crate) fn unmap(&mut self, address: u64, length: u64) -> Result<()> {
        let at = self.check(address, length);
        // SAFETY: inside this value's range, as just asserted, and no slice exists (`&mut self`);
        // the new mapping cannot be accessed.
        let unmapped = unsafe {
            rustix::mm::mmap_anonymous(
                at,
                length as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
            )
        };
        unmapped
            .map(|_| ())
            .map_err(|errno| Error::io("unmapping flash", errno))
    }

    /// Makes `length` bytes readable and writable memory, where nothing is mapped.
    pub(crate) fn open(&mut self, address: u64, length: u64) -> Result<()> {
        let at = self.check(address, length);
        // SAFETY: inside this value's range, as just asserted. More access to memory invalidates no
        // reference.
        unsafe {
            rustix::mm::mprotect(
                at,
                length as usize,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .map_err(|errno| Error::io(format!("{length} bytes of memory"), errno))
    }

    /// Zaps opened memory; it stays open, and reads as zeros.
    pub(crate) fn zap(&mut self, address: u64, length: u64) {
        let at = self.check(address, length);
        // SAFETY: inside this value's range, as just asserted, and no slice exists (`&mut self`).
        let dropped = unsafe { rustix::mm::madvise(at, length as usize, Advice::LinuxDontNeed) };
        assert!(
            dropped.is_ok(),
            "private anonymous memory can be given up: {dropped:?}"
        );
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let length = self.0.end - self.0.start;
        // SAFETY: this value reserved the range, and references into it borrow this value's owner,
        // which is being dropped.
        let unmapped = unsafe { rustix::mm::munmap(pointer(self.0.start), length as usize) };
        debug_assert!(unmapped.is_ok());
    }
}
