//! Symbols that replace the C library's, and the constructor that starts the pager.
//!
//! - `internal`: the pager's own allocator, never managed memory;
//! - `allocator`: `malloc` and its kin, on mimalloc over managed memory;
//! - `small`: small blocks on small pages (`--granularity 512`);
//! - `mapping`: `mmap` and its kin;
//! - `process`: joining the run, fork, and descriptors;
//! - `transfer`: the calls that are made most;
//! - `exec`: child programs.

mod allocator;
mod exec;
mod internal;
mod mapping;
mod process;
// For inline mode only.
#[cfg(target_arch = "x86_64")]
mod small;
#[cfg(target_arch = "x86_64")]
mod transfer;

use std::sync::atomic::{AtomicBool, Ordering};

/// The pager runs, and the program's memory is managed.
static READY: AtomicBool = AtomicBool::new(false);
/// The pager is starting, or a forked child's is: what is allocated now is the pager's own.
static STARTING: AtomicBool = AtomicBool::new(false);
/// System calls of the program's are caught.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// Whether memory that is asked for now belongs to the pager and not to the program.
#[inline]
fn for_pager() -> bool {
    !READY.load(Ordering::Relaxed)
        || STARTING.load(Ordering::Relaxed)
        || flashvm::on_pager_stack()
        || flashvm::on_guard_stack()
}

/// Whether system calls of the program's are caught (inline mode).
#[inline]
fn guarded() -> bool {
    GUARDED.load(Ordering::Relaxed)
}

/// Has the guard do something for the pager on a stack that is not managed memory.
fn guard_call(
    what: flashvm::guard::Own,
    address: usize,
    len: usize,
) -> Result<(), rustix::io::Errno> {
    let what = what as usize;
    // SAFETY: the guard answers this call, which no kernel knows.
    match unsafe { libc::syscall(flashvm::guard::OWN_CALL, what, address, len) } {
        -1 => {
            // SAFETY: the location is this thread's own.
            let errno = unsafe { *libc::__errno_location() };
            Err(rustix::io::Errno::from_raw_os_error(errno))
        }
        _ => Ok(()),
    }
}

/// The pager; there is one whenever [`for_pager`] is false.
fn pager() -> &'static flashvm::Pager {
    flashvm::pager().expect("ready means that there is a pager")
}

/// The next symbol of this name: the C library's.
///
/// # Safety
/// `F` is the type of that function.
unsafe fn next<F: Copy>(name: &std::ffi::CStr) -> F {
    // SAFETY: the name is a string; a function pointer has the size of a data pointer.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        assert!(!symbol.is_null(), "the C library has {name:?}");
        std::mem::transmute_copy::<*mut std::ffi::c_void, F>(&symbol)
    }
}

/// Sets the calling thread's `errno`.
fn set_errno(error: rustix::io::Errno) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = error.raw_os_error() };
}

/// Runs `work` and leaves `errno` as it was.
fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// A C result: 0, or -1 with `errno` set.
fn status(result: Result<(), rustix::io::Errno>) -> std::ffi::c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs before the program's `main`. Without a run to belong to, the object does nothing: it is
/// also linked into tests and into the supervisor.
extern "C" fn constructor() {
    let Some(control) = std::env::var_os(flashvm::control::VARIABLE) else {
        return;
    };
    // A pager that unwinds has lost track of the program's pages: the process must end with it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        flashvm::note_end(&format!("the pager {panic}"));
        flashvm::abort()
    }));
    STARTING.store(true, Ordering::Relaxed);
    let started = process::inherit(&control).and_then(start);
    if let Err(reason) = started {
        eprintln!("flashvm: {}: {reason}", process::command());
        std::process::exit(2);
    }
}

/// Starts the pager, puts the program's memory in its care, and guards this thread.
fn start(inheritance: flashvm::Inheritance) -> Result<(), String> {
    let pager = flashvm::start(inheritance).map_err(|error| error.to_string())?;
    flashvm::guard::reserve_blocks()
        .map_err(|error| format!("no address space for stacks: {error}"))?;
    let inline = pager.delivery() == flashvm::Delivery::Inline;
    let refused = |error| format!("inline mode does not work here ({error}): use --fault handler");
    if inline {
        flashvm::guard::resolve_faults().map_err(refused)?;
    }
    allocator::start(pager)?;
    #[cfg(target_arch = "x86_64")]
    if let Some((base, bytes, settings)) = pager.small_pages() {
        small::start(base, bytes, pager.budget_bytes(), settings)?;
    }
    flashvm::exec::remember_run();
    process::watch_forks();
    GUARDED.store(inline, Ordering::Relaxed);
    READY.store(true, Ordering::Release);
    STARTING.store(false, Ordering::Relaxed);
    if inline {
        flashvm::guard::catch_calls().map_err(refused)?;
    }
    Ok(())
}
