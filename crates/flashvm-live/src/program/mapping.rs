//! `mmap` and its family: large private anonymous mappings are managed memory, the rest is the
//! kernel's. Both entry points (preloaded symbols, and calls that the guard catches) lead here.

use crate::pager::{Pager, pager};
use crate::sys::raw;
use flashvm_core::{Advice, PAGE_SIZE};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Anonymous mappings of this size and more are managed.
const MANAGED_BYTES: usize = 64 << 10;
/// Smaller ones as well, once the kernel has this many bytes of them: the program maps its heap in small pieces.
const SMALL_BYTES_MAX: usize = 4 << 20;
/// Reservations of more addresses than this are the kernel's, as the managed range cannot hold them. Smaller ones that do not fit are
/// refused: a program that reserves 1 TiB (GHC, V8) then asks for less, and its heap is managed.
const RESERVATION_MAX: usize = 4 << 40;
/// Bytes of smaller mappings that are the kernel's.
static SMALL_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Room without which glibc's `malloc` cannot enlarge its heap: it asks for 1 MiB where `brk` is refused.
const HEAP_STEP_BYTES: usize = (1 << 20) + MANAGED_BYTES;
/// Flags of mappings that stay the kernel's: flags that only the kernel can honour, and stacks, to which it writes at
/// any time.
const KERNEL_ONLY: i32 =
    libc::MAP_SHARED | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_STACK | LOW;
#[cfg(target_arch = "x86_64")]
const LOW: i32 = libc::MAP_32BIT;
#[cfg(not(target_arch = "x86_64"))]
const LOW: i32 = 0;

/// Address space of the program's break: the power of two from `2 * capacity` on, clamped to `BREAK_BYTES_MIN..=BREAK_BYTES_MAX`.
/// So other mappings lie in the same places, though the capacity varies with the free space of a disk.
const BREAK_BYTES_MIN: usize = 1 << 30;
const BREAK_BYTES_MAX: usize = 128 << 30;

/// Where the managed break begins, where it is, and where its address space ends. All 0: the kernel has it.
static BREAK_BASE: AtomicUsize = AtomicUsize::new(0);
static BREAK: AtomicUsize = AtomicUsize::new(0);
static BREAK_LIMIT: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// Nobody but the program uses the memory that the call changes.
unsafe fn kernel(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: calls on mappings access no memory through their arguments. What this one changes is used by the
    // program alone, as the caller guarantees.
    raw::result(unsafe { raw::syscall(number, args) })
}

/// The pager, if at least a part of a range is managed memory.
fn managed(address: usize, len: usize) -> Option<&'static Pager> {
    pager().filter(|pager| pager.manages(address, len))
}

/// `mmap`.
///
/// # Errors
/// As `mmap`: `ENOMEM` if budget and store together have no room.
///
/// # Safety
/// Nobody but the program uses the memory that the call changes: it has asked for this.
pub unsafe fn map(
    address: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: usize,
) -> Result<usize, Errno> {
    let kernel_at = |address| {
        let args = [
            address,
            len,
            prot as usize,
            flags as usize,
            fd as usize,
            offset,
        ];
        // SAFETY: without `MAP_FIXED` the kernel takes a free place; with it, the program alone uses what it
        // replaces, as our caller guarantees.
        unsafe { kernel(libc::SYS_mmap, args) }
    };
    let kernel = || kernel_at(address);
    let Some(pager) = pager() else {
        return kernel();
    };
    let private = flags & libc::MAP_ANONYMOUS != 0 && flags & KERNEL_ONLY == 0;
    let prot_flags = ProtFlags::from_bits_retain(prot as u32);
    let commit = prot & libc::PROT_WRITE != 0 && flags & libc::MAP_NORESERVE == 0;
    let ours = private && pager.manages_all() && (commit || len <= RESERVATION_MAX);
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if fixed {
        if !pager.manages(address, len) {
            return kernel();
        }
        if flags & libc::MAP_FIXED == 0 {
            // The reservation of the managed range counts as taken.
            return Err(Errno::EXIST);
        }
        if ours {
            pager.map_over(address, len, prot_flags, commit)?;
            return Ok(address);
        }
        return pager.map_foreign(address, len, kernel);
    }
    if ours && (len >= MANAGED_BYTES || SMALL_BYTES.load(Ordering::Relaxed) >= SMALL_BYTES_MAX) {
        return pager.map(len, prot_flags, commit);
    }
    if ours && keeps_heap() && !pager.has_room_for((HEAP_STEP_BYTES / PAGE_SIZE) as u64) {
        // A `malloc` without a heap maps page by page. Such mappings are too small to be managed: they are refused as
        // well.
        pager.count_refused_allocation();
        return Err(Errno::NOMEM);
    }
    if ours {
        SMALL_BYTES.fetch_add(len, Ordering::Relaxed);
    }
    // The heap of small pages looks vacant to the kernel, which would follow a hint into it.
    if pager.manages(address, len) {
        return kernel_at(0);
    }
    kernel()
}

/// Managed memory that the program asks this library for, whatever `--select` says: zeros, to read and write.
///
/// # Errors
/// `ENOMEM` if budget and store together have no room; `EINVAL` for no bytes; `ENOSYS` outside of a run.
pub fn map_for_api(len: usize) -> Result<usize, Errno> {
    let pager = pager().ok_or(Errno::NOSYS)?;
    if len == 0 {
        return Err(Errno::INVAL);
    }
    pager.map(len, ProtFlags::READ | ProtFlags::WRITE, true)
}

/// The break of the kernel's, which stays where it was when the program began.
#[must_use]
pub fn kernels_break() -> u64 {
    // SAFETY: 0 is no place for a break: the call only asks.
    unsafe { raw::syscall(libc::SYS_brk, [0; 6]) as u64 }
}

/// Reserves managed address space for the program's break, before the program moves it.
///
/// # Errors
/// `ENOMEM` if the managed range has no room.
pub fn reserve_break(pager: &Pager) -> Result<(), Errno> {
    let bytes = (2 * pager.capacity_bytes()).next_power_of_two();
    let bytes = bytes.clamp(BREAK_BYTES_MIN, BREAK_BYTES_MAX);
    let base = pager.map(bytes, ProtFlags::empty(), false)?;
    BREAK_LIMIT.store(base + bytes, Ordering::Relaxed);
    BREAK.store(base, Ordering::Relaxed);
    BREAK_BASE.store(base, Ordering::Release);
    Ok(())
}

/// The end of the program's heap, if it is managed memory; else 0.
#[must_use]
pub fn program_break() -> usize {
    BREAK.load(Ordering::Relaxed)
}

/// Whether the program's own `malloc` has its heap in managed memory.
fn keeps_heap() -> bool {
    BREAK_BASE.load(Ordering::Acquire) != 0
}

/// `brk`: the end of the program's heap, which is managed memory after [`reserve_break`].
///
/// # Errors
/// None: a refused move returns the old break, as the kernel does. A program that moved the kernel's break before the
/// pager ran cannot move it further; its `malloc` then uses `mmap`.
///
/// # Safety
/// Nobody but the program uses the memory that the call changes: it has asked for this.
pub unsafe fn set_break(to: usize) -> Result<usize, Errno> {
    // SAFETY: `brk` changes the program's heap only, which nobody else uses, as our caller guarantees.
    let kernel = |to| unsafe { kernel(libc::SYS_brk, [to, 0, 0, 0, 0, 0]) };
    let base = BREAK_BASE.load(Ordering::Acquire);
    let (Some(pager), true) = (pager(), base != 0) else {
        return kernel(to);
    };
    let now = BREAK.load(Ordering::Relaxed);
    if to == 0 {
        return Ok(now);
    }
    if !(base..=BREAK_LIMIT.load(Ordering::Relaxed)).contains(&to) {
        return kernel(0);
    }
    let (from, end) = (
        now.next_multiple_of(PAGE_SIZE),
        to.next_multiple_of(PAGE_SIZE),
    );
    let moved = if end > from {
        // Not counted if it is refused: `malloc` tries `mmap` next.
        pager.commit_range(from, end - from).and_then(|()| {
            let read_write = MprotectFlags::READ | MprotectFlags::WRITE;
            pager.protect(from, end - from, read_write)
        })
    } else if end < from {
        pager.map_over(end, from - end, ProtFlags::empty(), false)
    } else {
        Ok(())
    };
    if moved.is_err() {
        return Ok(now);
    }
    BREAK.store(to, Ordering::Relaxed);
    Ok(to)
}

/// `munmap`.
///
/// # Errors
/// As `munmap`.
///
/// # Safety
/// Nobody but the program uses the memory that the call changes: it has asked for this.
pub unsafe fn unmap(address: usize, len: usize) -> Result<(), Errno> {
    match managed(address, len) {
        Some(pager) => pager.unmap(address, len),
        None => {
            // Mappings of files count here, too: a few more small ones are the kernel's then.
            if len < MANAGED_BYTES {
                let less = |bytes: usize| Some(bytes.saturating_sub(len));
                let _ = SMALL_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
            // SAFETY: no page of the range is managed, and the program alone uses it, as our caller guarantees.
            unsafe { kernel(libc::SYS_munmap, [address, len, 0, 0, 0, 0]) }.map(|_| ())
        }
    }
}

/// `mprotect`.
///
/// # Errors
/// As `mprotect`; `ENOMEM` also if budget and store have no room for what becomes writable.
///
/// # Safety
/// Nobody but the program uses the memory that the call changes: it has asked for this.
pub unsafe fn protect(address: usize, len: usize, prot: u32) -> Result<(), Errno> {
    match managed(address, len).filter(|_| len > 0) {
        Some(pager) => pager.protect(address, len, MprotectFlags::from_bits_retain(prot)),
        None => {
            let args = [address, len, prot as usize, 0, 0, 0];
            // SAFETY: the range is empty, or no page of it is managed and the program alone uses it, as our
            // caller guarantees.
            unsafe { kernel(libc::SYS_mprotect, args) }.map(|_| ())
        }
    }
}

const MADV_KEEPONFORK: i32 = 19;
const MADV_DONTNEED_LOCKED: i32 = 24;

/// `madvise`.
///
/// # Errors
/// As `madvise`.
///
/// # Safety
/// Nobody but the program uses the memory that the call changes: it has asked for this.
pub unsafe fn advise(address: usize, len: usize, advice: i32) -> Result<(), Errno> {
    let args = [address, len, advice as usize, 0, 0, 0];
    // SAFETY: `madvise` changes this range only, which the program alone uses, as our caller guarantees.
    let kernel = || unsafe { kernel(libc::SYS_madvise, args) }.map(|_| ());
    let Some(pager) = managed(address, len).filter(|_| len > 0) else {
        return kernel();
    };
    match advice {
        // A lazily freed page reads as its old contents or as zeros; here as zeros.
        libc::MADV_DONTNEED | libc::MADV_FREE | MADV_DONTNEED_LOCKED => {
            pager.zap_contents(address, len)
        }
        libc::MADV_WILLNEED => pager.advise(address, len, Advice::WillNeed),
        libc::MADV_COLD => pager.advise(address, len, Advice::Cold),
        libc::MADV_PAGEOUT => pager.advise(address, len, Advice::PageOut),
        // The kernel hears of it as well: a fault would otherwise leave an empty page table, which takes a huge page apart.
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => {
            match pager.want_huge(address, len, advice == libc::MADV_HUGEPAGE)? {
                true => kernel(),
                false => Ok(()),
            }
        }
        // Hints that change no contents. The prefetcher sees streams by itself; managed pages are never wiped, left out or
        // merged.
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DOFORK
        | MADV_KEEPONFORK => Ok(()),
        // Whether core dumps contain the memory.
        libc::MADV_DONTDUMP | libc::MADV_DODUMP => kernel(),
        // EINVAL, as from a kernel that does not know the advice. WIPEONFORK, DONTFORK: the child's copy of the page
        // table has all pages. POPULATE, COLLAPSE, GUARD_INSTALL and later ones: the kernel would change pages without
        // the engine.
        _ => Err(Errno::INVAL),
    }
}

/// `mremap`.
///
/// # Errors
/// As `mremap`.
///
/// # Safety
/// Nobody but the program uses the memory that the call changes: it has asked for this.
pub unsafe fn remap(
    address: usize,
    len: usize,
    new_len: usize,
    flags: i32,
    new_address: usize,
) -> Result<usize, Errno> {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let args = [address, len, new_len, flags as usize, new_address, 0];
    // SAFETY: the program alone uses the range at `address` and, with `MREMAP_FIXED`, the one at `new_address`, as
    // our caller guarantees; any other new place is free.
    let kernel = || unsafe { kernel(libc::SYS_mremap, args) };
    if let Some(pager) = managed(address, len.max(1)) {
        let to = fixed.then_some(new_address);
        let may_move = flags & libc::MREMAP_MAYMOVE != 0;
        return if new_len == 0 || len == 0 || flags & libc::MREMAP_DONTUNMAP != 0 {
            Err(Errno::INVAL)
        } else if fixed && !pager.manages(new_address, new_len) {
            // SAFETY: the program alone uses both ranges, as our caller guarantees.
            unsafe { pager.move_out(address, len, new_address, new_len) }
        } else {
            // SAFETY: the program alone uses the range at `address` and the one at `to`, if it named one, as our
            // caller guarantees.
            unsafe { pager.remap(address, len, new_len, may_move, to) }
        };
    }
    match managed(new_address, new_len).filter(|_| fixed) {
        Some(pager) => pager.map_foreign(new_address, new_len, kernel),
        None => kernel(),
    }
}

/// The whole pages around a range, if there is managed memory among them: its first address and its length.
#[must_use]
pub fn managed_pages(address: usize, len: usize) -> Option<(usize, usize)> {
    let start = address & !(PAGE_SIZE - 1);
    let len = address
        .checked_add(len)?
        .checked_next_multiple_of(PAGE_SIZE)?
        - start;
    (len > 0 && managed(start, len).is_some()).then_some((start, len))
}

/// Most touches of locked pages, and the pause between two. A touch does nothing for a page whose move out of the region is
/// still to be made.
const LOCK_TOUCHES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// `mlock` of [`managed_pages`]: they stay in RAM once they have been touched. `touch` does so now, and says whether it
/// could.
///
/// # Errors
/// `ENOMEM` if they are not all managed and readable, or if the budget has no room for so many locked pages.
pub fn lock(address: usize, len: usize, touch: Option<impl Fn() -> bool>) -> Result<(), Errno> {
    let pager = pager().ok_or(Errno::NOSYS)?;
    pager.lock_memory(address, len)?;
    let Some(touch) = touch else {
        return Ok(());
    };
    for _ in 0..LOCK_TOUCHES {
        if !touch() {
            pager.unlock_memory(address, len)?;
            return Err(Errno::NOMEM);
        }
        if pager.is_in_reach(address, len) {
            break;
        }
        crate::sys::sleep(LOCK_PAUSE);
    }
    Ok(())
}

/// `munlock` of [`managed_pages`].
///
/// # Errors
/// `ENOMEM` if they are not all managed and mapped.
pub fn unlock(address: usize, len: usize) -> Result<(), Errno> {
    let pager = pager().ok_or(Errno::NOSYS)?;
    pager.unlock_memory(address, len)
}

/// `munlockall`, as far as memory is managed.
pub fn unlock_all() {
    if let Some(pager) = pager() {
        pager.unlock_all_memory();
    }
}
