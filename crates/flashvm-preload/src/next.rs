//! The `malloc` that the program has without this object: the next one in the dynamic linker's order of lookup. It is
//! the C library's, or that of a library which the program brings along.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

type Block = *mut c_void;

/// Its functions; C defines their contracts.
pub(crate) struct Next {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> Block,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) realloc: unsafe extern "C" fn(Block, usize) -> Block,
    pub(crate) memalign: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) malloc_usable_size: unsafe extern "C" fn(Block) -> usize,
    pub(crate) free: unsafe extern "C" fn(Block),
}

static NEXT: OnceLock<Next> = OnceLock::new();
/// Whether the program's objects come from it.
static IS_HEAP: AtomicBool = AtomicBool::new(false);

/// Whether the program's objects come from the next `malloc` (`--malloc own`).
#[inline]
pub(crate) fn is_heap() -> bool {
    IS_HEAP.load(Ordering::Relaxed)
}

/// Looks the functions up before the program has any objects: objects that the linker allocates meanwhile are the
/// pager's own. `is_heap`: the program's objects come from these functions.
pub(crate) fn start(is_heap: bool) -> Result<(), String> {
    if NEXT.set(find()?).is_err() {
        unreachable!("the constructor runs once");
    }
    IS_HEAP.store(is_heap, Ordering::Relaxed);
    Ok(())
}

/// The next `malloc`, the owner of every object that this object did not allocate.
#[inline]
pub(crate) fn next() -> &'static Next {
    NEXT.get()
        .expect("looked up before the program has objects")
}

fn find() -> Result<Next, String> {
    // SAFETY: C gives the function of each name the type of its field.
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
    // SAFETY: the name is a string.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        return Err(format!(
            "no {} beside ours: use --malloc mimalloc",
            name.to_string_lossy()
        ));
    }
    // SAFETY: the caller guarantees that `F` is the type of a pointer to this function; it has a pointer's size, as
    // asserted above.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}
