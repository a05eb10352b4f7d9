//! New threads and processes. They start without dispatch of system calls and without an alternate
//! stack: so each begins in our text, and then continues where the program wants it.
//!
//! A child that shares our memory (a thread, or between `vfork` and `execve`) begins on its own
//! guard stack, with a copy of the signal frame of the call that made it; `rt_sigreturn` then makes
//! that copy its state. A child with a copy of our memory continues in this very code.

use super::actions::Table;
use super::entry::{self, flashvm_guard_clone, flashvm_guard_exit, flashvm_guard_resume};
use super::frame::{Context, Frame, Info, STATE_ALIGN, state_bytes};
use super::guard_stack::{self, Arrived, ThreadRecord};
use super::signals;
use super::{arm_thread, memory, refusals, thread_pointer};
use crate::pager;
use crate::pager::Pins;
use crate::sys::raw::{self, failed, set_signal_mask};
use crate::sys::signals::SYNCHRONOUS;
use rustix::io::Errno;
use std::ffi::c_void;

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
const CLONE_SIGHAND: u64 = libc::CLONE_SIGHAND as u64;
const CLONE_PARENT_SETTID: u64 = libc::CLONE_PARENT_SETTID as u64;
const CLONE_CHILD_SETTID: u64 = libc::CLONE_CHILD_SETTID as u64;
const CLONE_CHILD_CLEARTID: u64 = libc::CLONE_CHILD_CLEARTID as u64;
const CLONE_SETTLS: u64 = libc::CLONE_SETTLS as u64;
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// Words of `struct clone_args` that this version knows.
const ARGS_WORDS: usize = 11;

/// The start of a child.
#[derive(Clone, Copy)]
pub(crate) struct ChildStart {
    /// The context with which the child continues.
    context: *const Context,
    flags: u64,
    child_tid: usize,
}

/// `struct clone_args`.
#[derive(Clone, Copy, Default)]
struct CloneCall {
    words: [u64; ARGS_WORDS],
    /// The caller's size, or 0 for the other calls.
    size: usize,
}

impl CloneCall {
    fn read(number: i64, args: &[usize; 6]) -> Result<Self, Errno> {
        let [a, b, c, d, e, _] = args.map(|argument| argument as u64);
        let mut request = Self::default();
        match number {
            libc::SYS_fork => request.words[4] = libc::SIGCHLD as u64,
            libc::SYS_vfork => {
                request.words[0] = CLONE_VM | CLONE_VFORK;
                request.words[4] = libc::SIGCHLD as u64;
            }
            libc::SYS_clone => {
                // flags with the exit signal, stack, parent_tid, child_tid, tls
                request.words[0] = a & !0xff;
                request.words[4] = a & 0xff;
                request.words[5] = b;
                request.words[3] = c;
                request.words[2] = d;
                request.words[7] = e;
                // The descriptor of CLONE_PIDFD takes the place of the parent's tid.
                if a & libc::CLONE_PIDFD as u64 != 0 {
                    request.words[1] = c;
                }
            }
            _ => {
                let size = args[1];
                if !(64..=8 * ARGS_WORDS).contains(&size) {
                    return Err(if size < 64 {
                        Errno::INVAL
                    } else {
                        Errno::TOOBIG
                    });
                }
                if !memory::read_part(args[0], &mut request.words, size) {
                    return Err(Errno::FAULT);
                }
                request.size = size;
                // The stack is given by its lowest address.
                if request.words[5] != 0 {
                    request.words[5] += request.words[6];
                }
            }
        }
        Ok(request)
    }

    fn flags(&self) -> u64 {
        self.words[0]
    }

    /// Takes the child's thread pointer out of the call; without one the child has its parent's.
    fn take_thread_pointer(&mut self, parents: usize) -> usize {
        if self.words[0] & CLONE_SETTLS == 0 {
            return parents;
        }
        self.words[0] &= !CLONE_SETTLS;
        self.words[7] as usize
    }

    /// The top of the child's stack, or 0.
    fn stack(&self) -> u64 {
        self.words[5]
    }

    /// The call that makes the child: on `stack` (address and bytes), or on a copy of its parent's.
    fn call(
        &self,
        number: i64,
        stack: Option<(u64, u64)>,
        room: &mut [u64; ARGS_WORDS],
    ) -> (i64, [usize; 6]) {
        let mut words = self.words;
        // The child needs the guard's handlers: its record says that the program has none.
        words[0] &= !(CLONE_CHILD_SETTID | CLONE_CLEAR_SIGHAND);
        if words[0] & CLONE_VM == 0 {
            // The word is in the child's copy of the memory: the child names it itself (`fork`).
            words[0] &= !CLONE_CHILD_CLEARTID;
        }
        (words[5], words[6]) = stack.unwrap_or((0, 0));
        if number == libc::SYS_clone3 {
            *room = words;
            let at = room.as_ptr() as usize;
            return (number, [at, self.size, 0, 0, 0, 0]);
        }
        let top = words[5] + words[6];
        let third = if words[0] & libc::CLONE_PIDFD as u64 != 0 {
            words[1]
        } else {
            words[3]
        };
        let args = [words[0] | words[4], top, third, words[2], words[7], 0];
        (libc::SYS_clone, args.map(|word| word as usize))
    }
}

/// `clone`, `clone3`, `fork` and `vfork` of the program.
pub(super) fn clone(
    record: &mut ThreadRecord,
    context: &mut Context,
    number: i64,
    args: &[usize; 6],
) -> isize {
    let request = match CloneCall::read(number, args) {
        Ok(request) => request,
        Err(error) => return failed(error),
    };
    if let Some(error) = refusals::refused_clone(request.flags()) {
        return failed(error);
    }
    let mask = signals::block_all();
    // A pending signal comes first; the program repeats its call.
    let result = if Arrived::at(std::ptr::from_mut(record) as usize).is_any() {
        entry::RESTART
    } else if request.flags() & CLONE_VM == 0 {
        fork(record, context, number, &request)
    } else {
        thread(record, context, number, &request)
    };
    set_signal_mask(mask);
    result
}

/// A child with a copy of our memory.
fn fork(
    record: &mut ThreadRecord,
    context: &mut Context,
    number: i64,
    request: &CloneCall,
) -> isize {
    let Some(pager) = pager() else {
        return failed(Errno::NOSYS);
    };
    let own = std::ptr::from_mut(record);
    let (words, flags) = (request.words, request.flags());
    let mut request = *request;
    let parents = record.pointers.programs();
    let child_pointer = if thread_pointer::is_foreign() {
        request.take_thread_pointer(parents)
    } else {
        parents
    };
    let request = &request;
    let mut room = [0; ARGS_WORDS];
    let (number, args) = request.call(number, None, &mut room);
    let there = parent_words_there(request);
    let actions = record.actions.clone();
    let result = pager.fork_inline(|| {
        // SAFETY: the child continues here, with copies of all memory and of this thread alone.
        actions.keep(|| unsafe { raw::syscall(number, args) })
    });
    drop(actions);
    if result == 0 {
        // The pins belong to the parent's pager, which does not exist in the child.
        std::mem::forget(there);
        // SAFETY: a fork copies the calling thread alone, which is on this guard stack.
        unsafe { guard_stack::keep_only(own) };
        record.pointers.set_programs(child_pointer);
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        if flags & CLONE_CHILD_SETTID != 0 {
            // SAFETY: the word that the program has named for the child's thread id.
            unsafe { memory::write(words[2] as usize, &tid) };
        }
        if flags & CLONE_CHILD_CLEARTID != 0 {
            // SAFETY: the program has named this word in its call.
            let _ = unsafe { set_clear_tid(record, words[2] as usize) };
        }
        if request.stack() != 0 {
            context.regs.rsp = request.stack();
        }
        if flags & CLONE_CLEAR_SIGHAND != 0 {
            record.actions.clear_handlers();
        }
        // SAFETY: the record of the guard stack on which this thread, the child's only one, runs.
        if let Err(error) = unsafe { arm_thread(own) } {
            crate::program::end(&format!(
                "system calls of a forked child cannot be caught: {error}"
            ));
        }
    }
    result
}

/// Pins the words to which the kernel writes a child's number and descriptor before the child runs.
fn parent_words_there(request: &CloneCall) -> Option<Pins> {
    let mut pins = Pins::none(pager()?);
    for (flag, word) in [(CLONE_PARENT_SETTID, 3), (libc::CLONE_PIDFD as u64, 1)] {
        if request.flags() & flag != 0 {
            let address = request.words[word] as usize;
            pins.add(address, size_of::<i32>(), size_of::<i32>());
            memory::make_resident(address, size_of::<i32>(), true);
        }
    }
    Some(pins)
}

/// Sets the address that is cleared when a thread ends; the guard clears it where the kernel could
/// not.
///
/// # Safety
/// The program names a word of its own, or 0.
pub(super) unsafe fn set_clear_tid(record: &mut ThreadRecord, address: usize) -> isize {
    let managed = pager().is_some_and(|pager| pager.manages(address, 4));
    record.clear_tid = if managed { address } else { 0 };
    let address = if managed { 0 } else { address };
    // SAFETY: the caller guarantees the address.
    unsafe { raw::syscall(libc::SYS_set_tid_address, [address, 0, 0, 0, 0, 0]) }
}

/// A child that shares our memory.
fn thread(
    record: &mut ThreadRecord,
    context: &mut Context,
    number: i64,
    request: &CloneCall,
) -> isize {
    let Some(child) = guard_stack::take() else {
        return failed(Errno::AGAIN);
    };
    let flags = request.flags();
    let actions = if flags & CLONE_SIGHAND != 0 {
        record.actions.clone()
    } else {
        let own = record.actions.copy();
        if flags & CLONE_CLEAR_SIGHAND != 0 {
            own.clear_handlers();
        }
        own
    };
    // SAFETY: `take` has just handed out the guard stack: it is ours alone until the child runs. It
    // has room for the frame at its top, and `context` is the kernel's. A child that did not begin,
    // or has ended, no longer uses the stack.
    unsafe {
        let stack = guard_stack::stack_of(child);
        let mut state = *context;
        state.stack = stack;
        state.regs.rax = 0;
        if request.stack() != 0 {
            state.regs.rsp = request.stack();
        }
        let (landing, placed) = place(stack.sp + stack.size, &state);
        let start = ChildStart {
            context: placed,
            flags,
            child_tid: request.words[2] as usize,
        };
        let mut new = ThreadRecord::new(start, actions);
        new.hidden_mask = record.hidden_mask;
        // As in the kernel: threads begin without one, a child between vfork and execve keeps its
        // parent's.
        if flags & CLONE_VFORK != 0 {
            new.stack = record.stack;
        }
        let mut request = *request;
        if thread_pointer::is_foreign() {
            let programs = request.take_thread_pointer(record.pointers.programs());
            new.pointers = thread_pointer::for_thread(guard_stack::storage_of(child), programs);
            request.words[0] |= CLONE_SETTLS;
            request.words[7] = new.pointers.ours() as u64;
        }
        child.write(new);
        let clear_tid = request.words[2] as usize;
        if flags & CLONE_CHILD_CLEARTID != 0
            && pager().is_some_and(|pager| pager.manages(clear_tid, 4))
        {
            (*child).clear_tid = clear_tid;
            request.words[0] &= !CLONE_CHILD_CLEARTID;
        }
        let mut room = [0; ARGS_WORDS];
        let on = (stack.sp, landing - stack.sp);
        let (number, args) = request.call(number, Some(on), &mut room);
        let there = parent_words_there(&request);
        let result = flashvm_guard_clone(number, &args, child.cast());
        drop(there);
        // A child of vfork has ended or become another program by now.
        if result < 0 || flags & CLONE_VFORK != 0 {
            release(child);
        }
        result
    }
}

/// Whether a thread is a child of `vfork`, whose parent waits for its `execve` or its end.
pub(super) fn is_of_vfork(record: &ThreadRecord) -> bool {
    record.start.flags & CLONE_VFORK != 0
}

/// Frees a guard stack on which nobody runs, with what belongs to it.
///
/// # Safety
/// `thread` must have written the record, and its thread must be gone.
unsafe fn release(child: *mut ThreadRecord) {
    // SAFETY: `thread` has written the record, and its thread is gone, as the caller guarantees:
    // nobody else uses the record.
    unsafe {
        (*child).actions = Table::Process;
        drop((*child).strings.take());
    }
    // SAFETY: the thread that ran on the guard stack is gone, and this was the last use of the record.
    unsafe { guard_stack::give(child) };
}

/// Puts a signal frame with this context below an address; returns the stack pointer below it, and
/// the address of the context.
///
/// # Safety
/// There must be room that nobody else uses, and the context must be the kernel's.
unsafe fn place(top: u64, context: &Context) -> (u64, *const Context) {
    let mut at = top & !(STATE_ALIGN - 1);
    let mut context = *context;
    // SAFETY: the caller guarantees the room below `top`. In a context of the kernel's, `regs.state`
    // is 0 or the address of an extended state of `state_bytes`. The copies are aligned: the state to
    // `STATE_ALIGN`, the frame to 16. `Info` consists of integers, so zeros are a value.
    unsafe {
        if context.regs.state != 0 {
            let bytes = state_bytes(context.regs.state);
            at = (at - bytes as u64) & !(STATE_ALIGN - 1);
            std::ptr::copy_nonoverlapping(context.regs.state as *const u8, at as *mut u8, bytes);
            context.regs.state = at;
        }
        at = (at - size_of::<Frame>() as u64) & !15;
        let frame = at as *mut Frame;
        frame.write(Frame {
            restorer: 0,
            context,
            info: std::mem::zeroed::<Info>(),
        });
        (at - 256, &raw const (*frame).context)
    }
}

/// The start of a child, with all signals blocked.
pub(super) unsafe extern "C" fn begin(record: *mut c_void) -> ! {
    let record = record.cast::<ThreadRecord>();
    // SAFETY: the parent has filled in the record for this thread alone.
    let start = unsafe { (*record).start };
    // SAFETY: the parent has taken this guard stack for this thread, which gives it back as it ends.
    if let Err(error) = unsafe { arm_thread(record) } {
        crate::program::end(&format!(
            "system calls of a new thread cannot be caught: {error}"
        ));
    }
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    if start.flags & CLONE_CHILD_SETTID != 0 {
        // SAFETY: the word that the program has named for this thread's id.
        unsafe { memory::write(start.child_tid, &tid) };
    }
    // SAFETY: this thread's own record; what follows is not the C library's.
    unsafe { (*record).pointers.leave() };
    // SAFETY: the context is part of a whole frame, made by `place`. The kernel makes it this thread's
    // state; its mask is the program's.
    unsafe { flashvm_guard_resume(start.context) }
}

/// The end of a thread.
pub(super) fn exit(record: &mut ThreadRecord, status: i32) -> isize {
    set_signal_mask(!SYNCHRONOUS);
    let own = std::ptr::from_mut(record);
    if record.clear_tid != 0 {
        // The kernel would clear the word later, when nobody can resolve its fault any more. From
        // here on the thread touches no memory of the program.
        // SAFETY: the word that the program has named to be cleared at this thread's end.
        unsafe { memory::write(record.clear_tid, &0_i32) };
        let wake = [
            record.clear_tid,
            libc::FUTEX_WAKE as usize,
            i32::MAX as usize,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel only uses the address, whose page may have left again.
        while unsafe { raw::syscall(libc::SYS_futex, wake) } == failed(Errno::FAULT) {
            if !entry::touch(record.clear_tid, false) {
                break;
            }
        }
    }
    if is_of_vfork(record) {
        // SAFETY: takes no memory, and does not return. The parent frees the guard stack.
        unsafe { raw::syscall(libc::SYS_exit, [status as usize, 0, 0, 0, 0, 0]) };
    }
    record.actions = Table::Process;
    // SAFETY: the guard stack is not used from the first step on, and all signals are blocked.
    unsafe { flashvm_guard_exit(status, guard_stack::taken_word(own)) }
}

/// Writes the record of the thread that existed before the guard.
///
/// # Safety
/// The guard stack has just been taken: nobody runs on it, and its record has no value yet.
pub(super) unsafe fn first(record: *mut ThreadRecord) {
    let start = ChildStart {
        context: std::ptr::null(),
        flags: 0,
        child_tid: 0,
    };
    // SAFETY: the guard stack begins with room for a record. It has just been taken, as the caller
    // guarantees: nobody refers to that room.
    unsafe { record.write(ThreadRecord::new(start, Table::Process)) };
}
