//! The program's memory as the guard accesses it: read and written in user mode, so that an absent
//! page comes in by an ordinary fault, and an invalid address is an error, not a crash.

use super::entry;
use super::walk::Memory;
use flashvm_core::PAGE_SIZE;

/// The memory of this process.
pub(super) struct Program;

impl Memory for Program {
    fn read(&self, address: usize, into: &mut [u8]) -> bool {
        read_part(address, into, into.len())
    }

    fn is_own_process(&self, process: usize) -> bool {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        [own, thread].contains(&(process as i32))
    }
}

/// Reads a plain value.
pub(super) fn read<T: Plain>(address: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: room for a value, on this stack.
    let left = unsafe { entry::copy(value.as_mut_ptr() as usize, address, size_of::<T>()) };
    // SAFETY: all bytes were copied, and any bytes are a value of a plain type.
    (left == 0).then(|| unsafe { value.assume_init() })
}

/// Reads the first `bytes` bytes of plain values; returns whether all of them could be read.
///
/// # Panics
/// If `bytes` exceeds the size of `into`.
pub(super) fn read_part<T: Plain>(address: usize, into: &mut [T], bytes: usize) -> bool {
    assert!(bytes <= size_of_val(into), "room for what is read");
    // SAFETY: `into` has room for `bytes`, and nobody else uses it; any bytes are values of a plain type.
    unsafe { entry::copy(into.as_mut_ptr() as usize, address, bytes) == 0 }
}

/// Writes a plain value; returns whether it could be written.
///
/// # Safety
/// The program has told the kernel to write to `address`, and no Rust code refers to what lies there.
pub(super) unsafe fn write<T: Plain>(address: usize, value: &T) -> bool {
    // SAFETY: `value` is borrowed. No Rust code refers to what lies at `address`, as the caller
    // guarantees.
    unsafe { entry::copy(address, std::ptr::from_ref(value) as usize, size_of::<T>()) == 0 }
}

/// Types for which any bytes are a value.
///
/// # Safety
/// Any bytes must be a value.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: an integer, an array of integers, or a structure of integers alone.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8, i32, u32, u64, usize, [usize; 2], [u64; 11]);
plain!(
    super::frame::AltStack,
    super::frame::Context,
    super::frame::Frame
);
plain!(super::actions::KernelAction);

/// A string of the program, without its NUL.
pub(super) fn read_text(address: usize, most: usize) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < most {
        let at = address + text.len();
        // To the end of the page: the next one need not exist.
        let len = (PAGE_SIZE - at % PAGE_SIZE).min(256);
        let mut part = [0_u8; 256];
        if !read_part(at, &mut part, len) {
            return None;
        }
        match part[..len].iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(&part[..end]);
                return Some(text);
            }
            None => text.extend_from_slice(&part[..len]),
        }
    }
    None
}

/// Makes every page of a range resident, writable if the kernel is going to write; returns whether
/// all of it exists.
pub(super) fn make_resident(start: usize, len: usize, store: bool) -> bool {
    if len == 0 {
        return true;
    }
    let Some(last) = start.checked_add(len - 1) else {
        return false;
    };
    let mut at = start;
    let mut there = true;
    loop {
        if !entry::touch(at, store) {
            // A page that cannot be written may be readable, which has to suffice.
            there = false;
            if !store || !entry::touch(at, false) {
                return false;
            }
        }
        at = (at & !(PAGE_SIZE - 1)) + PAGE_SIZE;
        if at == 0 || at > last {
            return there;
        }
    }
}
