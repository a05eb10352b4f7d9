//! Caught system calls: those that the guard carries out or changes, and all others, which are made
//! while their memory is resident and pinned.

use super::entry::{self, RESTART, flashvm_guard_call};
use super::frame::Context;
use super::guard_stack::{Arrived, ThreadRecord};
use super::memory::{Program, make_resident};
use super::own_call::{OWN_CALL, Own};
use super::table::{self, Consumes, Direction, Row};
use super::transfer::Parts;
use super::walk;
use super::{clone, exec, kill, own_path, process_vm, refusals, signals, thread_pointer, transfer};
use crate::PageList;
use crate::pager::Pins;
use crate::program::descriptor_kind::{self, Kind};
use crate::program::mapping;
use crate::sys::raw::{self, failed};
use crate::sys::unseen;
use crate::{is_pager_descriptor, pager};
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;
use std::time::Duration;

/// Tries of a call that needs room for its pins, and the pause between two tries.
const PATIENCE: u32 = 1000;
const PATIENCE_STEP: Duration = Duration::from_millis(1);
/// Immediate retries of a call whose memory could not be pinned as a whole.
const EAGER: u32 = 64;
const EFAULT: isize = -(libc::EFAULT as isize);

/// A mapping call's result.
fn address(result: Result<usize, Errno>) -> isize {
    result.map_or_else(failed, |address| address as isize)
}

fn status(result: Result<(), Errno>) -> isize {
    result.map_or_else(failed, |()| 0)
}

fn arguments(context: &Context) -> [usize; 6] {
    let regs = &context.regs;
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9].map(|register| register as usize)
}

/// Makes the call unchanged.
///
/// # Safety
/// The context is that of a call which may be made as it is.
unsafe fn make(context: &Context) -> isize {
    // SAFETY: the caller guarantees the call.
    unsafe { raw::syscall(context.regs.rax as i64, arguments(context)) }
}

/// A call that the guard makes through the C library.
///
/// # Safety
/// The context is that of such a call, which has just been caught.
pub(super) unsafe fn nested(context: &mut Context) {
    // SAFETY: the guard has made this call through the C library, which answers for its arguments.
    context.regs.rax = unsafe { make(context) } as u64;
}

/// A call of the program.
///
/// # Safety
/// The context is that of such a call, which has just been caught.
pub(super) unsafe fn caught(record: &mut ThreadRecord, context: &mut Context) {
    let number = context.regs.rax as i64;
    let args = arguments(context);
    if number == libc::SYS_rt_sigreturn {
        return signals::sigreturn(record, context);
    }
    // SAFETY: the program has made this call, as the caller guarantees.
    let result = unsafe { answer(record, context, number, &args) };
    if result == RESTART {
        // The program repeats the call after its signal handler.
        context.regs.rip -= 2;
        context.regs.rax = number as u64;
    } else {
        context.regs.rax = result as u64;
    }
}

/// Calls that change the program's mappings or their contents.
///
/// # Safety
/// The program has made this call.
unsafe fn change_mapping(number: i64, args: &[usize; 6]) -> isize {
    let [a, b, c, d, e, f] = *args;
    // SAFETY: the program has made this call, as the caller guarantees, and on memory of its own: it knows no address of
    // the pager's.
    unsafe {
        match number {
            libc::SYS_mmap => address(mapping::map(a, b, c as i32, d as i32, e as i32, f)),
            libc::SYS_munmap => status(mapping::unmap(a, b)),
            libc::SYS_brk => address(mapping::set_break(a)),
            libc::SYS_mremap => address(mapping::remap(a, b, c, d as i32, e)),
            libc::SYS_mprotect => status(mapping::protect(a, b, c as u32)),
            _ => status(mapping::advise(a, b, c as i32)),
        }
    }
}

/// Tells a report which code has asked for memory, by a call with this result. `end_before`: the break before it.
fn tell_memory(
    context: &Context,
    number: i64,
    args: &[usize; 6],
    result: isize,
    end_before: usize,
) {
    let at = result as usize;
    // After an error no managed memory begins there.
    let (start, end) = match number {
        libc::SYS_mmap => (at, at.saturating_add(args[1])),
        libc::SYS_mremap | OWN_CALL => (at, at.saturating_add(args[2])),
        libc::SYS_brk => (end_before, at),
        _ => return,
    };
    if let (Some(pager), Some(by)) = (pager(), signals::interrupted(context)) {
        pager.note_memory(by, start, end);
    }
}

/// # Safety
/// The program has made this call with these arguments.
unsafe fn answer(
    record: &mut ThreadRecord,
    context: &mut Context,
    number: i64,
    args: &[usize; 6],
) -> isize {
    let [a, b, c, ..] = *args;
    match number {
        libc::SYS_rt_sigaction => signals::sigaction(record, args),
        libc::SYS_rt_sigprocmask => signals::sigprocmask(record, context, args),
        libc::SYS_sigaltstack => signals::sigaltstack(record, context, args),
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            clone::clone(record, context, number, args)
        }
        libc::SYS_exit => clone::exit(record, a as i32),
        libc::SYS_kill => kill::kill(args),
        libc::SYS_execve => exec::execve(record, args),
        libc::SYS_execveat => exec::execveat(record, args),
        libc::SYS_ptrace if a == libc::PTRACE_TRACEME as usize && clone::is_of_vfork(record) => {
            record.wants_tracer = true;
            0
        }
        // SAFETY: the program has made this call, as the caller guarantees, and names a word of its own.
        libc::SYS_set_tid_address => unsafe { clone::set_clear_tid(record, a) },
        // Refused: the kernel would write there at any time, and end the process if the page were absent. The C library
        // then asks the kernel for its processor.
        libc::SYS_rseq if pager().is_some_and(|pager| pager.manages(a, b)) => 0,
        libc::SYS_madvise if c as i32 == libc::MADV_POPULATE_READ => populate(a, b, false),
        libc::SYS_madvise if c as i32 == libc::MADV_POPULATE_WRITE => populate(a, b, true),
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mremap
        | libc::SYS_mprotect
        | libc::SYS_madvise
        | libc::SYS_brk => {
            let end_before = mapping::program_break();
            // SAFETY: the program has made this call, as the caller guarantees.
            let result = unsafe { change_mapping(number, args) };
            tell_memory(context, number, args, result, end_before);
            result
        }
        libc::SYS_mlock | libc::SYS_mlock2 | libc::SYS_munlock
            if let Some(pages) = mapping::managed_pages(a, b) =>
        {
            change_lock(number, pages, c)
        }
        libc::SYS_mlockall => failed(Errno::NOMEM),
        libc::SYS_munlockall => {
            mapping::unlock_all();
            // SAFETY: the program has made this call, as the caller guarantees.
            unsafe { repeat(record, number, args) }
        }
        libc::SYS_close if is_pager_descriptor(a as i32) => failed(Errno::BADF),
        libc::SYS_close => {
            descriptor_kind::forget(a as i32);
            // SAFETY: the program has made this call, as the caller guarantees.
            unsafe { repeat(record, number, args) }
        }
        libc::SYS_dup2 | libc::SYS_dup3 if is_pager_descriptor(b as i32) => failed(Errno::BUSY),
        libc::SYS_dup2 | libc::SYS_dup3 => {
            // SAFETY: the program has made this call, as the caller guarantees.
            let result = unsafe { repeat(record, number, args) };
            descriptor_kind::forget(b as i32);
            result
        }
        libc::SYS_close_range => status(descriptor_kind::close_range(a as u32, b as u32, c as u32)),
        libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
            // SAFETY: the program has made this call, as the caller guarantees; the vectors of a piece outlive it.
            let ended = process_vm::in_pieces(args, |args| unsafe { repeat(record, number, args) });
            if ended.stopped_there {
                refusals::say_absent_there();
            }
            ended.result
        }
        _ if unseen::changes_user(number) => {
            // A list of groups stays in RAM until all have read it.
            let _pins = bring_in_patiently(number, args);
            // SAFETY: the program has made this call, as the caller guarantees.
            let result = unsafe { repeat(record, number, args) };
            if result == 0 {
                unseen::follow(number, args);
            }
            result
        }
        OWN_CALL if a == Own::Map as usize => {
            let result = address(mapping::map_for_api(c));
            tell_memory(context, number, args, result, 0);
            result
        }
        // SAFETY: only the preloaded object knows this call.
        OWN_CALL => unsafe { own(a, b, c) },
        libc::SYS_arch_prctl if thread_pointer::answers(a) => {
            thread_pointer::arch_prctl(record, a, b)
        }
        _ => match refusals::refused(number, args) {
            Some(error) => failed(error),
            None => {
                let mut mask = refusals::Mask::default();
                let args = refusals::unmask(number, args, &mut mask);
                let args = own_path::replace(number, &args);
                // SAFETY: the program has made this call, as the caller guarantees. A copy of its mask outlives the call.
                unsafe { repeat(record, number, &args) }
            }
        },
    }
}

/// `mlock`, `mlock2` and `munlock` of managed pages.
fn change_lock(number: i64, (start, len): (usize, usize), flags: usize) -> isize {
    if number == libc::SYS_munlock {
        return status(mapping::unlock(start, len));
    }
    let on_fault = number == libc::SYS_mlock2 && flags & libc::MLOCK_ONFAULT as usize != 0;
    let touch = || make_resident(start, len, false);
    status(mapping::lock(start, len, (!on_fault).then_some(touch)))
}

/// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`: touches the pages one by one.
fn populate(start: usize, len: usize, store: bool) -> isize {
    if !start.is_multiple_of(PAGE_SIZE) {
        return failed(Errno::INVAL);
    }
    let len = len.next_multiple_of(PAGE_SIZE);
    status(
        make_resident(start, len, store)
            .then_some(())
            .ok_or(Errno::NOMEM),
    )
}

/// A request of the preloaded object.
///
/// # Safety
/// What [`Own`] demands of the arguments of `what`; for lists, `start` is the address of a [`PageList`] that is not
/// managed memory, and that nobody else uses until this returns.
unsafe fn own(what: usize, start: usize, len: usize) -> isize {
    let Some(pager) = pager() else {
        return failed(Errno::NOSYS);
    };
    status(match what {
        _ if what == Own::Commit as usize => pager.commit_range(start, len),
        _ if what == Own::Decommit as usize => pager.decommit_range(start, len),
        _ if what == Own::Free as usize => pager
            .mapping_len(start)
            .ok_or(Errno::INVAL)
            .and_then(|len| pager.unmap(start, len)),
        _ if what == Own::StartThreads as usize => pager.start_threads(),
        _ if what == Own::TakePages as usize || what == Own::GivePages as usize => {
            let heap = pager.chameleon();
            // SAFETY: the caller guarantees the list.
            let list = unsafe { (start as *mut PageList).as_mut() };
            match (heap, list) {
                (Some(heap), Some(list)) if what == Own::TakePages as usize => {
                    heap.take_pages(pager, len, list)
                }
                (Some(heap), Some(list)) => {
                    heap.give_pages(pager, list);
                    Ok(())
                }
                _ => Err(Errno::INVAL),
            }
        }
        _ => Err(Errno::NOSYS),
    })
}

/// Makes a call of the program once. Signals interrupt it as they would without the guard.
///
/// # Safety
/// The arguments are the program's own, or name copies that outlive the call.
pub(super) unsafe fn call(record: &ThreadRecord, number: i64, args: &[usize; 6]) -> isize {
    let pending = Arrived::at(std::ptr::from_ref(record) as usize).word();
    // SAFETY: the caller guarantees the arguments; the pending word lies on this thread's guard stack.
    unsafe { flashvm_guard_call(number, args, pending) }
}

/// Makes a call with its memory resident. Repeats it while its memory cannot be pinned as a whole, and continues a
/// transfer that stopped where memory was absent.
///
/// Making the call first and repeating it after `EFAULT` would not do: many calls consume something
/// before they write (a datagram, a child's status), or write a part of what they have read, so
/// they must not meet absent memory at all. Frequent calls that can be repeated come here only
/// after `EFAULT` (`flashvm-preload/src/transfer.rs`).
///
/// # Safety
/// The arguments are the program's own, or name copies that outlive the call.
unsafe fn repeat(record: &ThreadRecord, number: i64, args: &[usize; 6]) -> isize {
    let mut parts = Parts::new(number, args);
    let mut tries = 0;
    loop {
        // A socket moves up to 64 KiB or nothing. If too few pages can be pinned for long, the transfer goes on page by
        // page.
        let (args, is_page) = parts.next(tries > EAGER);
        let pins = bring_in_patiently(number, &args);
        let result = if parts.is_amid_file() {
            // SAFETY: the caller's arguments, or a vector in `parts` of its memory. A signal that arrives meanwhile is
            // delivered after the call.
            unsafe { raw::syscall(number, args) }
        } else {
            // SAFETY: the caller's arguments, or a vector in `parts` of its memory.
            unsafe { call(record, number, &args) }
        };
        let fell_short = pins.is_some_and(|pins| pins.fell_short());
        if result > 0 {
            if !(fell_short || is_page) || !parts.advance(result as usize, is_page) {
                return parts.moved() + result;
            }
            tries = 0;
            continue;
        }
        tries += 1;
        if result != EFAULT || !fell_short || tries == PATIENCE {
            // Bytes moved so far are the result, as in the kernel.
            return if parts.moved() > 0 {
                parts.moved()
            } else {
                result
            };
        }
        if tries > EAGER {
            // Other threads pin so much that these pages leave at once: wait for them.
            crate::sys::sleep(PATIENCE_STEP);
        }
    }
}

/// Brings the memory of a call in. If the call must not be made without pins, waits for other threads to release
/// theirs.
fn bring_in_patiently(number: i64, args: &[usize; 6]) -> Option<Pins> {
    let mut pins = bring_in(number, args);
    if table::row(number).is_some_and(|row| consumes(row, args)) {
        for _ in 0..PATIENCE {
            if !pins.as_ref().is_some_and(Pins::crowded) {
                break;
            }
            drop(pins);
            crate::sys::sleep(PATIENCE_STEP);
            pins = bring_in(number, args);
        }
    }
    pins
}

/// Whether a call consumes something that cannot be delivered again.
fn consumes(row: &Row, args: &[usize; 6]) -> bool {
    match row.consumes {
        Consumes::Never => false,
        Consumes::Always | Consumes::Quietly => true,
        Consumes::OfSome => descriptor_kind::kind(args[0] as i32) == Kind::Consumed,
    }
}

/// Most bytes of one range that are pinned for a transfer. A longer one continues after a first part.
const RESIDENT_BYTES_MAX: usize = 1 << 20;

/// Makes the memory of a call resident and pins it until the call is over. `None` if none of it is
/// managed, or some of it does not exist.
fn bring_in(number: i64, args: &[usize; 6]) -> Option<Pins> {
    let pager = pager()?;
    let mut pins = Pins::none(pager);
    let mut there = true;
    let most = if transfer::is_transfer(number, args) {
        RESIDENT_BYTES_MAX
    } else {
        walk::RANGE_MAX
    };
    match table::row(number) {
        Some(row) => walk::ranges(row, args, &Program, &mut |range| {
            if pager.manages(range.start, range.len) {
                let len = pins.add(range.start, range.len, most);
                let store = range.direction != Direction::In;
                // Without moves, a page on its way out stays readable: only a store takes it back.
                let back = !pager.moves() && make_resident(range.start, len, true);
                there &= back || make_resident(range.start, len, store);
            }
        }),
        // An unknown call: the page of each argument and the next one, writable if possible.
        None => {
            for &argument in args.iter().filter(|&&argument| pager.manages(argument, 1)) {
                for at in [argument, (argument | (PAGE_SIZE - 1)) + 1] {
                    let _ = pins.add(at, 1, 1);
                    let _ = entry::touch(at, true) || entry::touch(at, false);
                }
            }
        }
    }
    (there && pins.any()).then_some(pins)
}
