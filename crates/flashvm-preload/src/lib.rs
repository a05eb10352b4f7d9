//! The object that `flashvm run` preloads into a program: its memory calls go to the pager.
//!
//! It replaces library symbols: an unmodified, dynamically linked program finds these first. A
//! constructor starts the pager before the program's own code runs. A process that runs already loads the object and calls
//! `flashvm_join`: it keeps its own symbols, and finds these by name.
//!
//! - `allocator`: `malloc` and its family, by mimalloc over managed memory;
//! - `next`: the `malloc` that the program has without this object (`--malloc own`);
//! - `small`: small objects on small pages (`--granularity 512`), by `flashvm-malloc`;
//! - `internal`: the pager's own allocator, never managed memory;
//! - `mapping`: `mmap` and its family; `api`: managed memory by name;
//! - `transfer`: the most frequent system calls, past the guard; `detour`: those that the C library makes for itself;
//! - `process`: joining the run, fork, and descriptors;
//! - `exec`: child programs;
//! - `carry`: programs that the dynamic linker does not start, such as static ones;
//! - `state`: the checks with which every wrapper begins; `c_library`: the interface to the C library.
//!
//! They import each other in one direction: `allocator` builds on `mapping`, `next`, `small` and
//! `internal`; `api` on `mapping`; `process` on `small` and `internal`; all on `state` and `c_library`;
//! and only this file on `allocator`, `api` and `process`.
#![allow(
    unsafe_code,
    reason = "C symbols with C contracts: each wrapper passes on its caller's guarantees"
)]

mod allocator;
mod api;
mod c_library;
// For inline and protect mode only.
#[cfg(target_arch = "x86_64")]
mod carry;
#[cfg(target_arch = "x86_64")]
mod detour;
mod exec;
mod internal;
mod mapping;
mod next;
mod process;
mod small;
mod state;
// For inline mode only.
#[cfg(target_arch = "x86_64")]
mod transfer;

use state::{GUARDED, READY, STARTING};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs before the program's `main`. Outside of a run it does nothing.
extern "C" fn constructor() {
    let Some(control) = std::env::var_os(flashvm_live::control::VARIABLE) else {
        return;
    };
    end_with_panics();
    STARTING.store(true, Ordering::Relaxed);
    let started = process::join(&control).and_then(start);
    if let Err(reason) = started {
        eprintln!("flashvm: {}: {reason}", process::command());
        std::process::exit(2);
    }
}

/// A pager that panics has lost track of the program's pages: the process must end with it. The usual report would
/// look up symbols in memory that may be managed; if the thread holds the pager's lock, it would wait for itself.
fn end_with_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let reason = format!("the pager {panic}");
        flashvm_live::note_end(&reason);
        flashvm_live::say(&reason);
        flashvm_live::abort()
    }));
}

/// [`flashvm_join`] has been called.
static ASKED: AtomicBool = AtomicBool::new(false);
/// Why [`flashvm_join`] did not give this process a pager.
static NOT_JOINED: OnceLock<CString> = OnceLock::new();

/// Gives a process that runs already a pager: it joins the run at `address`, the second line of `flashvm serve`. Null, or
/// a text that says why not; then no later call helps. Memory is managed that is asked for by name ([`api`]).
///
/// # Safety
/// `address` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn flashvm_join(address: *const c_char) -> *const c_char {
    // SAFETY: the caller guarantees a string.
    let address = unsafe { CStr::from_ptr(address) };
    let address = OsStr::from_bytes(address.to_bytes());
    let joined = if READY.load(Ordering::Relaxed) || ASKED.swap(true, Ordering::Relaxed) {
        Err("this process has a pager already".to_owned())
    } else {
        end_with_panics();
        STARTING.store(true, Ordering::Relaxed);
        process::join(address).and_then(start_for_api)
    };
    let Err(reason) = joined else {
        return std::ptr::null();
    };
    let reason = CString::new(reason).unwrap_or_default();
    NOT_JOINED.get_or_init(|| reason).as_ptr()
}

/// Starts the pager of a process that runs already.
fn start_for_api(joined: process::Joined) -> Result<(), String> {
    // The program's objects come from the `malloc` that it has.
    next::start(true)?;
    let pager = flashvm_live::start(joined.inheritance).map_err(|error| error.to_string())?;
    if pager.delivery().is_in_thread() || pager.manages_all() {
        return Err("this run is not made by flashvm serve".to_owned());
    }
    flashvm_live::guard::reserve_stacks()
        .map_err(|error| format!("no address space for stacks: {error}"))?;
    process::watch_forks();
    READY.store(true, Ordering::Release);
    STARTING.store(false, Ordering::Relaxed);
    Ok(())
}

/// Starts the pager, makes the program's memory managed, and guards this thread.
fn start(joined: process::Joined) -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    if joined.inheritance.settings.delivery.is_in_thread() {
        transfer::start();
    }
    let pager = flashvm_live::start(joined.inheritance).map_err(|error| error.to_string())?;
    flashvm_live::guard::reserve_stacks()
        .map_err(|error| format!("no address space for stacks: {error}"))?;
    let in_thread = pager.delivery().is_in_thread();
    let refused = |error| format!("the guard does not work here ({error}): use --fault handler");
    if in_thread {
        flashvm_live::guard::resolve_faults().map_err(refused)?;
    }
    // A carried program has a `malloc` of its own, which this object cannot replace.
    let carried = process::carried_program().is_some();
    let own = carried || pager.malloc() == flashvm_live::control::Malloc::Own;
    next::start(own)?;
    if own && pager.manages_all() {
        flashvm_live::program::mapping::reserve_break(pager)
            .map_err(|error| format!("no address space for the heap: {error}"))?;
    } else if !own {
        allocator::start(pager)?;
    }
    if let Some((base, bytes, settings)) = pager.small_pages()
        && !carried
    {
        small::start(base, bytes, pager.budget_bytes(), settings)?;
    }
    let loaded = c_library::own_path();
    flashvm_live::program::exec::remember_run(joined.handed_on, loaded, pager.delivery())
        .map_err(|error| format!("no descriptors for programs that this one executes: {error}"))?;
    process::watch_forks();
    GUARDED.store(in_thread, Ordering::Relaxed);
    READY.store(true, Ordering::Release);
    STARTING.store(false, Ordering::Relaxed);
    if in_thread {
        flashvm_live::guard::catch_calls().map_err(refused)?;
    }
    Ok(())
}
