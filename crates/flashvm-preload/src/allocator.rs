//! `malloc` and its family.
//!
//! With `--malloc own` the program keeps the `malloc` that it has without this object
//! ([`crate::next`]): its heap is as compact as outside a run, and the guard sees its `brk` and `mmap`. With
//! `--malloc mimalloc` objects come from mimalloc over managed arenas; those of 32 MiB and more are mappings, and with
//! `--granularity 512` small ones lie on small pages.
//!
//! mimalloc asks for memory through a callback, which commits it against budget and store: without
//! room the program's `malloc` fails with `ENOMEM`, long before data is at risk.

use crate::c_library::{keeping_errno, set_errno};
use crate::internal;
use crate::mapping::{mmap, mremap};
use crate::next::{self, next};
use crate::small;
use crate::state::{for_pager, guard_call, guarded, pager};
use flashvm_live::guard::{Own, aside};
use flashvm_malloc::Allocator;
use libmimalloc_sys as mi;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Objects of this size and more are mappings of their own, unmapped when they are freed.
const MAPPED_BYTES: usize = 32 << 20;
/// Address space of all arenas. Budget and store bound the committed part.
const ARENAS_BYTES: usize = 256 << 30;
/// Largest and smallest arena. mimalloc's own tables take a part of each arena, in RAM from the
/// start, and it cannot place the tables of an arena beyond 15 GiB.
const ARENA_BYTES_MAX: usize = 8 << 30;
const ARENA_BYTES_MIN: usize = 256 << 20;
/// The first arena is FIRST_ARENA_BUDGETS * budget; each later one as large as all before it.
const FIRST_ARENA_BUDGETS: usize = 8;
/// Most arenas added for one object: other threads may use an arena up first.
const ARENA_TRIES: usize = 4;
/// Mappings start at multiples of this.
const MAPPED_ALIGN: usize = 64 << 10;
/// Alignment of `malloc`.
const MALLOC_ALIGN: usize = 16;
const PAGE: usize = 4096;

static ARENAS: AtomicUsize = AtomicUsize::new(0);
/// Bytes of address space that mimalloc may have, and bytes that it has.
static ARENAS_WANTED: AtomicUsize = AtomicUsize::new(0);
static ARENAS_GIVEN: AtomicUsize = AtomicUsize::new(0);
/// Commits that the pager refused.
static COMMITS_REFUSED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// Adds an arena with a callback for commits (missing from the generated bindings).
    fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit: unsafe extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool,
        argument: *mut c_void,
        arena: *mut *mut c_void,
    ) -> bool;
}

/// `mi_option_disallow_os_alloc`.
const DISALLOW_OS_ALLOC: mi::mi_option_t = 17;
/// `mi_option_purge_delay`, in milliseconds.
const PURGE_DELAY: mi::mi_option_t = 15;

/// Gives mimalloc its first arena. All arenas together may have 2 * (budget + store) of address
/// space, so that gaps between objects do not matter.
pub(crate) fn start(pager: &'static flashvm_live::Pager) -> Result<(), String> {
    let base = pager
        .map(ARENAS_BYTES, ProtFlags::READ | ProtFlags::WRITE, false)
        .map_err(|error| format!("no address space for the heap: {error}"))?;
    let wanted = (2 * pager.capacity_bytes()).clamp(ARENA_BYTES_MIN, ARENAS_BYTES);
    ARENAS.store(base, Ordering::Relaxed);
    ARENAS_WANTED.store(wanted, Ordering::Relaxed);
    // SAFETY: the calls take numbers only; the constructor runs before any other use of mimalloc.
    unsafe {
        mi::mi_option_set(DISALLOW_OS_ALLOC, 1);
        mi::mi_option_set(mi::mi_option_show_errors, 0);
        // A purge costs a call of the pager: purge rarely.
        mi::mi_option_set(PURGE_DELAY, 50);
    }
    let first = FIRST_ARENA_BUDGETS * pager.budget_bytes();
    if !add_arena(first.next_power_of_two()) {
        return Err("budget and flash store are too small for a heap".to_owned());
    }
    Ok(())
}

/// Gives mimalloc one more arena, of about `bytes`. `false`: it has all of them.
fn add_arena(bytes: usize) -> bool {
    let wanted = ARENAS_WANTED.load(Ordering::Relaxed);
    let size = bytes.clamp(ARENA_BYTES_MIN, ARENA_BYTES_MAX);
    let next = |given: usize| (given < wanted).then_some(given + size);
    let Ok(given) = ARENAS_GIVEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else {
        return false;
    };
    let size = size.min(ARENAS_BYTES - given);
    let start = ARENAS.load(Ordering::Relaxed) + given;
    // SAFETY: `fetch_update` gives each part of the mapping that `start` made to one caller, once;
    // the mapping stays.
    unsafe {
        mi_manage_memory(
            start as *mut c_void,
            size,
            false,
            false,
            true,
            -1,
            false,
            commit,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

/// mimalloc commits memory or returns it.
///
/// # Safety
/// mimalloc calls it: a range that is decommitted holds no object, and `is_zero` is null or a variable of mimalloc's.
unsafe extern "C" fn commit(
    on: bool,
    start: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    _argument: *mut c_void,
) -> bool {
    if on && !is_zero.is_null() {
        // SAFETY: the caller guarantees the pointer.
        unsafe { *is_zero = false };
    }
    let start = start as usize;
    let pager = flashvm_live::pager().expect("the pager runs before its allocator");
    // SAFETY: the caller guarantees that a decommit drops no object; a commit drops nothing.
    let result = unsafe {
        match (on, guarded()) {
            (true, true) => guard_call(Own::Commit, start, size),
            (false, true) => guard_call(Own::Decommit, start, size),
            (true, false) => aside(move || pager.commit_range(start, size)),
            (false, false) => aside(move || pager.decommit_range(start, size)),
        }
    };
    if on && result.is_err() {
        COMMITS_REFUSED.fetch_add(1, Ordering::Relaxed);
    }
    result.is_ok()
}

/// The owner of an object.
enum Owner {
    Internal,
    Small(&'static Allocator),
    Arena,
    Mapping,
    Next,
}

fn owner(object: *mut c_void) -> Owner {
    let address = object as usize;
    if next::is_heap() {
        if internal::owns(address) {
            Owner::Internal
        } else {
            Owner::Next
        }
    } else if address.wrapping_sub(ARENAS.load(Ordering::Relaxed)) < ARENAS_BYTES {
        Owner::Arena
    } else if let Some(allocator) = small::owner(address) {
        Owner::Small(allocator)
    } else if internal::owns(address) {
        Owner::Internal
    } else if flashvm_live::pager().is_some_and(|pager| pager.manages(address, 1)) {
        Owner::Mapping
    } else {
        Owner::Next
    }
}

fn checked(object: *mut c_void) -> *mut c_void {
    if object.is_null() {
        set_errno(Errno::NOMEM);
    }
    object
}

/// A result of `mmap` as one of `malloc`.
fn mapped(address: *mut c_void) -> *mut c_void {
    if address == libc::MAP_FAILED {
        return checked(std::ptr::null_mut());
    }
    address
}

fn map_object(size: usize) -> *mut c_void {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel and the pager choose a free place; no existing mapping changes.
    mapped(unsafe { mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) })
}

/// Allocates; `zero`: the object must be zeroed.
#[inline]
fn allocate(size: usize, align: usize, zero: bool) -> *mut c_void {
    if for_pager() {
        return checked(internal::allocate(size, align).cast());
    }
    if next::is_heap() {
        // SAFETY: the next `malloc` takes any size, and alignments are powers of two.
        return unsafe {
            match (align <= MALLOC_ALIGN, zero) {
                (true, false) => (next().malloc)(size),
                (true, true) => (next().calloc)(1, size),
                (false, _) => (next().memalign)(align, size),
            }
        };
    }
    if let Some(object) = small::allocate(size, align) {
        if zero {
            // SAFETY: the object is new and has at least `size` bytes.
            unsafe { std::ptr::write_bytes(object.cast::<u8>(), 0, size) };
        }
        return object;
    }
    if size >= MAPPED_BYTES && align <= MAPPED_ALIGN {
        return map_object(size);
    }
    // mimalloc aligns objects of less than 16 bytes less strictly.
    let size = size.max(MALLOC_ALIGN);
    retrying(size.saturating_add(align), || {
        // SAFETY: `start` set mimalloc up; alignments are powers of two.
        unsafe {
            match (align <= MALLOC_ALIGN, zero) {
                (true, false) => mi::mi_malloc(size),
                (true, true) => mi::mi_zalloc(size),
                (false, false) => mi::mi_malloc_aligned(size, align),
                (false, true) => mi::mi_zalloc_aligned(size, align),
            }
        }
    })
}

/// Allocates; if that fails, retries after mimalloc has returned the freed memory that it keeps,
/// and with more arenas. `bytes`: the object's size plus its alignment.
#[inline]
fn retrying(bytes: usize, allocate: impl Fn() -> *mut c_void) -> *mut c_void {
    let object = allocate();
    if !object.is_null() {
        return object;
    }
    retry(bytes, &allocate)
}

#[cold]
fn retry(bytes: usize, allocate: &dyn Fn() -> *mut c_void) -> *mut c_void {
    // SAFETY: the call takes a flag only, and the caller holds no lock of mimalloc's.
    unsafe { mi::mi_collect(true) };
    for _ in 0..ARENA_TRIES {
        let refused = COMMITS_REFUSED.load(Ordering::Relaxed);
        let object = allocate();
        if !object.is_null() {
            return object;
        }
        if COMMITS_REFUSED.load(Ordering::Relaxed) != refused {
            flashvm_live::count_refused_allocation();
            break;
        }
        let given = ARENAS_GIVEN.load(Ordering::Relaxed);
        if bytes > ARENA_BYTES_MAX / 2 || !add_arena(given.max(2 * bytes)) {
            break;
        }
    }
    checked(std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    allocate(size, MALLOC_ALIGN, false)
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => allocate(bytes, MALLOC_ALIGN, true),
        None => checked(std::ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(object: *mut c_void) {
    if object.is_null() {
        return;
    }
    // SAFETY: the program passes an object that it no longer uses, as free(3) demands; `owner`
    // names the allocator that it came from.
    unsafe {
        match owner(object) {
            Owner::Arena => mi::mi_free(object),
            Owner::Small(allocator) => small::checked(allocator.release(object.cast())),
            Owner::Internal => internal::release(object.cast()),
            Owner::Mapping => free_mapping(object),
            Owner::Next => (next().free)(object),
        }
    }
}

/// Unmaps an object that is a mapping of its own.
///
/// # Safety
/// The program no longer uses the object.
unsafe fn free_mapping(object: *mut c_void) {
    let unmapped = keeping_errno(|| {
        if guarded() {
            // SAFETY: the guard unmaps a whole mapping that begins here, or none; the caller
            // guarantees that nobody uses the object.
            return unsafe { guard_call(Own::Free, object as usize, 0) };
        }
        let object = object as usize;
        aside(move || {
            let len = pager().mapping_len(object).ok_or(Errno::INVAL)?;
            pager().unmap(object, len)
        })
    });
    if unmapped.is_err() {
        flashvm_live::end(&format!("free(): {object:p} is not an allocated object"));
    }
}

/// Usable bytes of an object.
///
/// # Safety
/// The object is null, or one of the program's.
unsafe fn room(object: *mut c_void) -> usize {
    // SAFETY: the caller guarantees an object in use; `owner` names the allocator that it came
    // from.
    unsafe {
        match owner(object) {
            Owner::Arena => mi::mi_usable_size(object),
            Owner::Small(allocator) => small::checked(allocator.room(object.cast())),
            Owner::Internal => internal::size_of_object(object.cast()),
            Owner::Mapping => pager().mapping_len(object as usize).unwrap_or(0),
            Owner::Next => (next().malloc_usable_size)(object),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    if object.is_null() {
        return malloc(size);
    }
    // SAFETY: the program passes an object in use, as realloc(3) demands; `owner` names its
    // allocator. The copy stays within the room of both objects, which do not overlap.
    unsafe {
        match owner(object) {
            Owner::Next if next::is_heap() && !for_pager() => {
                return (next().realloc)(object, size);
            }
            Owner::Small(allocator) if small::checked(allocator.fits(object.cast(), size)) => {
                return object;
            }
            Owner::Arena if size < MAPPED_BYTES => {
                return retrying(size, || mi::mi_realloc(object, size.max(MALLOC_ALIGN)));
            }
            Owner::Mapping if size >= MAPPED_BYTES => {
                let Some(len) = pager().mapping_len(object as usize) else {
                    free_mapping(object);
                    return std::ptr::null_mut();
                };
                let moving = libc::MREMAP_MAYMOVE;
                return mapped(mremap(object, len, size, moving, std::ptr::null_mut()));
            }
            _ => {}
        }
        let new = malloc(size);
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(
                object.cast::<u8>(),
                new.cast::<u8>(),
                room(object).min(size),
            );
            free(object);
        }
        new
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(object: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the program passes an object in use, or null, as reallocarray(3) demands.
        Some(bytes) => unsafe { realloc(object, bytes) },
        None => checked(std::ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    if object.is_null() {
        return 0;
    }
    // SAFETY: the program passes an object in use, as malloc_usable_size(3) demands.
    unsafe { room(object) }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(Errno::INVAL);
        return std::ptr::null_mut();
    }
    allocate(size, align, false)
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    memalign(align, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let object = keeping_errno(|| allocate(size, align, false));
    if object.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the program passes a pointer to store to, as posix_memalign(3) demands.
    unsafe { *out = object };
    0
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    allocate(size, PAGE, false)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE) {
        Some(size) => allocate(size, PAGE, false),
        None => checked(std::ptr::null_mut()),
    }
}
