//! The C library's own calls of `read` and `write`, for example those of its buffered streams. They do not look for a
//! symbol, so a preloaded one does not get them, and each would cost a signal of the guard. So the first instructions of
//! these two functions become a jump to ours (`transfer`).
//!
//! Where the C library's text cannot be changed (a security module forbids it, or its version is older than 2.32), the guard
//! catches these calls as it does all others, for a microsecond or two each.

use std::ffi::{CStr, c_void};

/// `jmp [rip]`, followed by the address to which it jumps.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const BYTES: usize = JUMP.len() + size_of::<usize>();
const PAGE: usize = 4096;

/// Makes the C library's function `name` jump to `ours`, where that can be.
///
/// # Safety
/// No other thread runs. `ours` does what the function does, and does not call it.
pub(crate) unsafe fn detour(name: &CStr, ours: usize) {
    let Some(at) = function(name) else {
        return;
    };
    let mut code = [0; BYTES];
    code[..JUMP.len()].copy_from_slice(&JUMP);
    code[JUMP.len()..].copy_from_slice(&ours.to_ne_bytes());
    let start = at & !(PAGE - 1);
    let len = (at + BYTES).next_multiple_of(PAGE) - start;
    let protect = |rights: i32| {
        let args = [start, len, rights as usize, 0, 0, 0];
        // SAFETY: the range is text of the C library, and stays executable.
        unsafe { flashvm_live::raw_call(libc::SYS_mprotect, args) == 0 }
    };
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    // All rights at once: who forbids this (`PR_SET_MDWE`, SELinux) would forbid to make it executable again, too.
    if !protect(executable | libc::PROT_WRITE) {
        return;
    }
    // SAFETY: the function is long enough, no thread is in it, and the caller answers for the code that takes its place.
    unsafe { (at as *mut [u8; BYTES]).write(code) };
    protect(executable);
}

/// Address of a function of the C library's that has room for the jump.
fn function(name: &CStr) -> Option<usize> {
    /// `RTLD_DL_SYMENT`: asks for the symbol.
    const SYMBOL: i32 = 1;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let mut symbol = std::ptr::null_mut::<c_void>();
    // SAFETY: the names are strings. The C library is loaded and stays so: the handle need not be closed. `dladdr1` fills in
    // both places; if it succeeds, the symbol is one of the linker's tables, or null.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let address = libc::dlsym(library, name.as_ptr());
        if address.is_null()
            || libc::dladdr1(address, info.as_mut_ptr(), &raw mut symbol, SYMBOL) == 0
        {
            return None;
        }
        let symbol = symbol.cast::<libc::Elf64_Sym>().as_ref()?;
        (symbol.st_size as usize >= BYTES).then_some(address as usize)
    }
}
