//! The `malloc` that the program has without us: the next one in the order in which the dynamic linker looks up
//! symbols. That is the C library's, or that of a library which the program brings along.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

type Block = *mut c_void;

/// Its functions, with the contracts of C.
pub(crate) struct Next {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> Block,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) realloc: unsafe extern "C" fn(Block, usize) -> Block,
    pub(crate) memalign: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) malloc_usable_size: unsafe extern "C" fn(Block) -> usize,
    pub(crate) free: unsafe extern "C" fn(Block),
}

static NEXT: OnceLock<Next> = OnceLock::new();
/// The program's blocks come from it.
static IS_HEAP: AtomicBool = AtomicBool::new(false);

/// Whether the program's blocks come from the next `malloc` (`--malloc own`).
#[inline]
pub(crate) fn is_heap() -> bool {
    IS_HEAP.load(Ordering::Relaxed)
}

/// Looks the functions up; `is_heap` says whether the program's blocks come from them. Before the program has
/// any: what the linker allocates meanwhile is the pager's own.
pub(crate) fn start(is_heap: bool) -> Result<(), String> {
    if NEXT.set(find()?).is_err() {
        unreachable!("the constructor runs once");
    }
    IS_HEAP.store(is_heap, Ordering::Relaxed);
    Ok(())
}

/// The next `malloc`. Every block that is not ours is its.
#[inline]
pub(crate) fn next() -> &'static Next {
    NEXT.get().expect("looked up before the program has blocks")
}

fn find() -> Result<Next, String> {
    // SAFETY: each name is that of the C function with this signature.
    unsafe {
        Ok(Next {
            malloc: symbol(c"malloc")?,
            calloc: symbol(c"calloc")?,
            realloc: symbol(c"realloc")?,
            memalign: symbol(c"memalign")?,
            malloc_usable_size: symbol(c"malloc_usable_size")?,
            free: symbol(c"free")?,
        })
    }
}

/// A function by its name.
///
/// # Safety
/// `F` is the type of a pointer to the function of this name.
unsafe fn symbol<F>(name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<Block>()) };
    // SAFETY: a name that ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        return Err(format!(
            "no {} beside ours: use --malloc mimalloc",
            name.to_string_lossy()
        ));
    }
    // SAFETY: a pointer to that function, by this function's contract.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}
