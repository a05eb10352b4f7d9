//! Signals: ours stay ours, and the program's are delivered where the program expects them.
//!
//! The kernel delivers every signal that has a handler to us, on the guard stack: the program's own
//! stack may be absent, which the kernel would take for an overflow. The guard then builds a frame
//! on the program's stack, as the kernel would, and the thread continues in the program's handler;
//! the guard carries out the handler's `rt_sigreturn` as well.
//!
//! A signal that arrives while a thread is in the guard waits until the caught system call has
//! ended, or interrupts it ([`Arrived`]).

use super::actions::{ACTIONS, KernelAction, SIGNALS};
use super::frame::{
    self, AltStack, Context, FAULT_BY_KEY, FAULT_FETCH, FAULT_PRESENT, FAULT_WRITE, Frame, Info,
    STATE_ALIGN, state_bytes,
};
use super::guard_stack::{self, Arrived, ThreadRecord};
use super::thread_pointer::Stay;
use super::{calls, entry, memory};
use crate::control::Interrupted;
use crate::space::Use;
use crate::sys::raw::{self, SignalMask, set_signal_mask};
use crate::sys::signals::{SYNCHRONOUS, bit};
use crate::sys::unseen;
use crate::{Resolution, pager};
use flashvm_core::Access;
use rustix::io::Errno;

const SA_RESTORER: u64 = 0x0400_0000;
/// Flags of the program's handlers that the kernel has to know.
const FOR_KERNEL: u64 = (libc::SA_RESTART | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u32 as u64;
/// `SS_AUTODISARM`.
const AUTODISARM: i32 = i32::MIN;
/// `SYS_USER_DISPATCH`.
const DISPATCHED: i32 = 2;
/// Bytes below a stack pointer that belong to its function.
const RED_ZONE: u64 = 128;
const MINIMAL_STACK: u64 = 2048;
/// `BUS_ADRERR`.
const BUS_ADRERR: i32 = 2;

/// Sets and returns the kernel's action for a signal.
fn kernel_action(signal: i32, new: Option<&KernelAction>) -> Result<KernelAction, Errno> {
    let mut old = KernelAction::default();
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as usize);
    // SAFETY: both structures are the kernel's and live over the call.
    let result = unsafe {
        raw::syscall(
            libc::SYS_rt_sigaction,
            [signal as usize, new, &raw mut old as usize, 8, 0, 0],
        )
    };
    raw::result(result).map(|_| old)
}

/// A signal handler.
type Handler = extern "C" fn(i32, *mut Info, *mut Context);

/// Our handler for a signal.
fn ours(handler: Handler, flags: u64, mask: SignalMask) -> KernelAction {
    KernelAction {
        handler: handler as *const () as u64,
        flags: flags | (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER,
        restorer: entry::address(entry::flashvm_guard_restorer),
        mask,
    }
}

/// Takes over the handlers that are installed already, and the synchronous signals.
pub(super) fn install() -> Result<(), Errno> {
    for signal in 1..=SIGNALS as i32 {
        let Ok(before) = kernel_action(signal, None) else {
            continue;
        };
        ACTIONS.set(signal, &before);
        if before.is_handler() && bit(signal) & SYNCHRONOUS == 0 {
            let action = ours(on_signal, before.flags & FOR_KERNEL, !SYNCHRONOUS);
            kernel_action(signal, Some(&action))?;
        }
    }
    let all = !SYNCHRONOUS;
    let nested = libc::SA_NODEFER as u64;
    kernel_action(libc::SIGBUS, Some(&ours(on_bus, nested, all)))?;
    kernel_action(libc::SIGSEGV, Some(&ours(on_segv, nested, all)))?;
    let restart = libc::SA_RESTART as u64;
    kernel_action(unseen::SIGNAL, Some(&ours(on_signal, restart, all)))?;
    // With the program's own mask: the caught call is made inside.
    kernel_action(libc::SIGSYS, Some(&ours(on_sys, nested, 0)))?;
    Ok(())
}

/// What the kernel passes to a handler with `SA_SIGINFO`.
///
/// # Safety
/// The caller is such a handler, and passes what it got, once.
unsafe fn delivered<'a>(info: *mut Info, context: *mut Context) -> (&'a mut Info, &'a mut Context) {
    // SAFETY: the kernel has made both for this call of the handler alone. The caller guarantees that they are these, and
    // that it asks once, so there are no other references.
    unsafe { (&mut *info, &mut *context) }
}

/// A fault: resolves it if it is on managed memory.
extern "C" fn on_bus(signal: i32, info: *mut Info, context: *mut Context) {
    let _stay = Stay::begin();
    // SAFETY: this handler passes on what the kernel passed to it, once.
    let (info, context) = unsafe { delivered(info, context) };
    if info.code > 0
        && let Some(pager) = pager()
    {
        let access = if context.regs.error & FAULT_WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        };
        let present = context.regs.error & FAULT_PRESENT != 0;
        if pager.fault(info.address as usize, access, present, interrupted(context))
            == Resolution::Resolved
        {
            return;
        }
    }
    forward(signal, info, context);
}

extern "C" fn on_segv(signal: i32, info: *mut Info, context: *mut Context) {
    let _stay = Stay::begin();
    // SAFETY: this handler passes on what the kernel passed to it, once.
    let (info, context) = unsafe { delivered(info, context) };
    if info.code > 0
        && let Some(pager) = pager()
    {
        let address = info.address as usize;
        let mut resolution = Resolution::NotOurs;
        if let Some(heap) = pager.chameleon() {
            resolution = heap.fault(pager, address);
        }
        if resolution == Resolution::NotOurs && context.regs.error & FAULT_BY_KEY == 0 {
            resolution =
                pager.fault_at_hidden(address, wanted(context.regs.error), interrupted(context));
        }
        match resolution {
            Resolution::Resolved => return,
            // SIGBUS, as from the kernel for a page that it has lost: the program may expect it.
            Resolution::Lost => {
                (info.signal, info.code) = (libc::SIGBUS, BUS_ADRERR);
                return forward(libc::SIGBUS, info, context);
            }
            Resolution::NotOurs => {}
        }
    }
    forward(signal, info, context);
}

/// Where a fault or a call interrupted the program; `None` if it was the guard, on its own stack.
pub(super) fn interrupted(context: &Context) -> Option<Interrupted> {
    let regs = &context.regs;
    let is_ours = guard_stack::at(regs.rsp as usize).is_some();
    (!is_ours).then_some(Interrupted {
        ip: regs.rip,
        sp: regs.rsp,
        fp: regs.rbp,
    })
}

/// What the program wanted to do with a page, by the error code of the page fault.
fn wanted(error: u64) -> Use {
    if error & FAULT_WRITE != 0 {
        Use::Store
    } else if error & FAULT_FETCH != 0 {
        Use::Execute
    } else {
        Use::Load
    }
}

/// Forwards a synchronous signal that is not the pager's.
fn forward(signal: i32, info: &Info, context: &mut Context) {
    if info.code > 0 && entry::abandon_access(context) {
        return;
    }
    if guard_stack::at(context.regs.rsp as usize).is_some() && info.code > 0 {
        crate::program::end(&format!(
            "signal {signal} inside the pager at {:#x} (address {:#x})",
            context.regs.rip, info.address
        ));
    }
    let is_hidden = |record: *mut ThreadRecord| {
        // SAFETY: this thread's own record, which nobody has borrowed: the program was interrupted.
        unsafe { (*record).hidden_mask & bit(signal) != 0 }
    };
    if info.code > 0 && ThreadRecord::current().is_some_and(is_hidden) {
        // The kernel ends a process that blocks a signal which it raises.
        end_by(signal, info);
        return;
    }
    receive(signal, info, context);
}

/// Any signal with a handler of the program.
extern "C" fn on_signal(signal: i32, info: *mut Info, context: *mut Context) {
    let _stay = Stay::begin();
    // SAFETY: this handler passes on what the kernel passed to it, once.
    let (info, context) = unsafe { delivered(info, context) };
    receive(signal, info, context);
}

/// Delivers a signal to the program: now, or when the thread leaves the guard.
fn receive(signal: i32, info: &Info, context: &mut Context) {
    let interrupted = context.regs.rsp as usize;
    if guard_stack::at(interrupted).is_some() {
        // SAFETY: this is the signal's handler, and it has interrupted code on the guard stack of its own thread.
        unsafe { Arrived::at(interrupted).put(signal, info) };
        context.mask = !SYNCHRONOUS;
        entry::interrupt(context);
        return;
    }
    if let Some(record) = ThreadRecord::current() {
        // SAFETY: the record of the guard stack on which this thread runs. The signal has interrupted the program, so
        // no code of the guard is using the record.
        let record = unsafe { &mut *record };
        entry::note_signal(context);
        deliver(record, signal, info, context);
        return;
    }
    if signal == unseen::SIGNAL {
        unseen::obey();
    }
}

/// Ends the process by a signal's default action. A signal that the kernel raised is raised again,
/// at the same place. It would not raise SIGBUS for a lost page again where a touch is SIGSEGV.
fn end_by(signal: i32, info: &Info) {
    let _ = kernel_action(signal, Some(&KernelAction::default()));
    let is_again = info.code > 0 && bit(signal) & SYNCHRONOUS != 0;
    let by_segv = pager().is_some_and(|pager| pager.gives_segv(info.address as usize));
    if !is_again || (signal == libc::SIGBUS && by_segv) {
        raise(signal);
    }
}

fn raise(signal: i32) {
    // SAFETY: takes no memory.
    unsafe {
        let process = raw::syscall(libc::SYS_getpid, [0; 6]) as usize;
        let thread = raw::syscall(libc::SYS_gettid, [0; 6]) as usize;
        raw::syscall(
            libc::SYS_tgkill,
            [process, thread, signal as usize, 0, 0, 0],
        );
    }
}

/// Makes the thread continue in the program's handler.
fn deliver(record: &mut ThreadRecord, signal: i32, info: &Info, context: &mut Context) {
    let action = record.actions.get(signal);
    if !action.is_handler() {
        if action.handler == libc::SIG_DFL as u64 {
            context.mask &= !bit(signal);
            end_by(signal, info);
        }
        return;
    }
    let on_stack = action.flags & libc::SA_ONSTACK as u64 != 0;
    let regs = context.regs;
    let top = if on_stack
        && record.stack.flags & libc::SS_DISABLE == 0
        && !record.stack.holds(regs.rsp)
    {
        record.stack.sp + record.stack.size
    } else {
        regs.rsp - RED_ZONE
    };
    let mut at = top;
    let mut state = 0;
    if regs.state != 0 {
        // SAFETY: the kernel has put its extended state there, into the frame of this handler on the guard stack.
        let bytes = unsafe { state_bytes(regs.state) };
        at = (at - bytes as u64) & !(STATE_ALIGN - 1);
        state = at;
        // SAFETY: the state in the kernel's frame has `bytes` bytes; it goes to the program's stack, below the used
        // part.
        if unsafe { entry::copy(at as usize, regs.state as usize, bytes) } != 0 {
            return overflow();
        }
        // SAFETY: the state of the kernel's frame, of which the program has a copy now.
        unsafe { frame::reset_state(regs.state) };
    }
    at = ((at - size_of::<Frame>() as u64) & !15) - 8;
    let mut frame = Frame {
        restorer: action.restorer,
        context: *context,
        info: *info,
    };
    frame.context.stack = record.stack;
    frame.context.mask |= record.hidden_mask;
    frame.context.regs.state = state;
    // SAFETY: on the program's stack, below its used part.
    if !unsafe { memory::write(at as usize, &frame) } {
        return overflow();
    }
    if record.stack.flags & AUTODISARM != 0 && on_stack {
        record.stack = AltStack::NONE;
    }
    if action.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
        let _ = set_action(record, signal, &KernelAction::default());
    }
    let regs = &mut context.regs;
    regs.rdi = signal as u64;
    regs.rsi = at + std::mem::offset_of!(Frame, info) as u64;
    regs.rdx = at + std::mem::offset_of!(Frame, context) as u64;
    regs.rax = 0;
    regs.rsp = at;
    regs.rip = action.handler;
    // Direction, trap and resume flags.
    regs.eflags &= !(0x400 | 0x100 | 0x1_0000);
    context.mask |= action.mask;
    if action.flags & libc::SA_NODEFER as u64 == 0 {
        context.mask |= bit(signal);
    }
    record.hidden_mask |= context.mask & SYNCHRONOUS;
    context.mask &= !SYNCHRONOUS;
}

/// There is no room for a frame: the kernel ends such a process by SIGSEGV.
fn overflow() {
    let _ = kernel_action(libc::SIGSEGV, Some(&KernelAction::default()));
    raise(libc::SIGSEGV);
}

/// SIGSYS: a caught system call, or a signal that a process has sent.
extern "C" fn on_sys(signal: i32, info: *mut Info, context: *mut Context) {
    if let Some(arrived) = on_call(signal, info, context) {
        // SAFETY: the kernel has put this context into the frame of this handler, which interrupted the program.
        // Nothing of the handler is used any more.
        unsafe { entry::flashvm_guard_leave(context, arrived.word()) }
    }
}

/// The work of [`on_sys`]. Returns where a signal of this thread waits, if the handler has interrupted the program.
fn on_call(signal: i32, info: *mut Info, context: *mut Context) -> Option<&'static Arrived> {
    let _stay = Stay::begin();
    // SAFETY: this handler passes on what the kernel passed to it, once.
    let (info, context) = unsafe { delivered(info, context) };
    let is_guards = guard_stack::at(context.regs.rsp as usize).is_some();
    let record = ThreadRecord::current();
    let arrived = record.map(|record| Arrived::at(record as usize));
    if info.code != DISPATCHED {
        forward(signal, info, context);
    } else if let Some(record) = record.filter(|_| !is_guards) {
        // SAFETY: this thread's own record; a handler that interrupts this one leaves it alone.
        let record = unsafe { &mut *record };
        // SAFETY: the call that this handler has caught is one of the program's: the others are dealt with below.
        unsafe { calls::caught(record, context) };
    } else {
        // A call of the guard itself, through the C library.
        // SAFETY: the call that this handler has caught is one of the guard's.
        unsafe { calls::nested(context) };
    }
    arrived.filter(|_| !is_guards)
}

/// Makes a thread that leaves the guard continue in the program's handler of the signal that waits for it.
pub(super) extern "C" fn deliver_arrived(context: *mut Context) {
    let _stay = Stay::begin();
    let record = ThreadRecord::current().expect("a guard stack");
    // SAFETY: all signals are blocked while one waits, and stay so until the kernel has taken this context. So nobody
    // stores to what has arrived, which lies on this thread's guard stack.
    let arrived = unsafe { Arrived::at(record as usize).take() };
    if let Some((signal, info)) = arrived {
        // SAFETY: this thread's own record, and the frame of its handler, which has ended.
        let (record, context) = unsafe { (&mut *record, &mut *context) };
        deliver(record, signal, &info, context);
    }
}

/// `rt_sigaction`.
pub(super) fn sigaction(record: &mut ThreadRecord, args: &[usize; 6]) -> isize {
    let [signal, new, old, size, ..] = *args;
    let signal = signal as i32;
    if size != 8 || !(1..=SIGNALS as i32).contains(&signal) {
        return -(libc::EINVAL as isize);
    }
    let new = match new {
        0 => None,
        at => match memory::read::<KernelAction>(at) {
            Some(action) => Some(action),
            None => return -(libc::EFAULT as isize),
        },
    };
    if new.is_some() && matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
        return -(libc::EINVAL as isize);
    }
    let before = record.actions.get(signal);
    if let Some(action) = new
        && let Err(error) = set_action(record, signal, &action)
    {
        return -(error.raw_os_error() as isize);
    }
    // SAFETY: the program has passed `old` to the kernel for the old value; the memory is the program's.
    if old != 0 && !unsafe { memory::write(old, &before) } {
        return -(libc::EFAULT as isize);
    }
    0
}

fn set_action(record: &ThreadRecord, signal: i32, action: &KernelAction) -> Result<(), Errno> {
    record.actions.set(signal, action);
    if bit(signal) & SYNCHRONOUS != 0 {
        return Ok(());
    }
    let new = if action.is_handler() || signal == unseen::SIGNAL {
        ours(on_signal, action.flags & FOR_KERNEL, !SYNCHRONOUS)
    } else {
        *action
    };
    kernel_action(signal, Some(&new)).map(|_| ())
}

/// `rt_sigprocmask`: changes the mask of the context to which the handler returns.
pub(super) fn sigprocmask(
    record: &mut ThreadRecord,
    context: &mut Context,
    args: &[usize; 6],
) -> isize {
    let [how, new, old, size, ..] = *args;
    if size != 8 {
        return -(libc::EINVAL as isize);
    }
    let before = context.mask | record.hidden_mask;
    if new != 0 {
        let Some(set) = memory::read::<u64>(new) else {
            return -(libc::EFAULT as isize);
        };
        let mask = match how as i32 {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return -(libc::EINVAL as isize),
        };
        set_mask(record, context, mask);
    }
    // SAFETY: the program has passed `old` to the kernel for the old value; the memory is the program's.
    if old != 0 && !unsafe { memory::write(old, &before) } {
        return -(libc::EFAULT as isize);
    }
    0
}

/// Sets the mask that the program requests.
fn set_mask(record: &mut ThreadRecord, context: &mut Context, mask: SignalMask) {
    record.hidden_mask = mask & SYNCHRONOUS;
    context.mask = mask & !SYNCHRONOUS;
}

/// `sigaltstack`: the kernel's alternate stack is the guard stack; the program's handlers run on
/// the program's.
pub(super) fn sigaltstack(
    record: &mut ThreadRecord,
    context: &Context,
    args: &[usize; 6],
) -> isize {
    let [new, old, ..] = *args;
    let mut before = record.stack;
    if before.holds(context.regs.rsp) {
        before.flags |= libc::SS_ONSTACK;
    }
    if new != 0 {
        let Some(stack) = memory::read::<AltStack>(new) else {
            return -(libc::EFAULT as isize);
        };
        if before.flags & libc::SS_ONSTACK != 0 {
            return -(libc::EPERM as isize);
        }
        record.stack = match stack.flags & !AUTODISARM {
            libc::SS_DISABLE => AltStack::NONE,
            0 | libc::SS_ONSTACK if stack.size < MINIMAL_STACK => return -(libc::ENOMEM as isize),
            0 | libc::SS_ONSTACK => AltStack {
                flags: stack.flags & AUTODISARM,
                pad: 0,
                ..stack
            },
            _ => return -(libc::EINVAL as isize),
        };
    }
    // SAFETY: the program has passed `old` to the kernel for the old value; the memory is the program's.
    if old != 0 && !unsafe { memory::write(old, &before) } {
        return -(libc::EFAULT as isize);
    }
    0
}

/// `rt_sigreturn` from a handler of the program: its frame becomes our context.
pub(super) fn sigreturn(record: &mut ThreadRecord, context: &mut Context) {
    let at = context.regs.rsp as usize;
    let Some(saved) = memory::read::<Context>(at) else {
        return overflow();
    };
    let ours = context.regs;
    if saved.regs.state != 0 && ours.state != 0 {
        // SAFETY: the kernel has put its extended state there, into the frame of this handler on the guard stack.
        let bytes = unsafe { state_bytes(ours.state) };
        // SAFETY: the state in the kernel's frame has `bytes` bytes, and the frame is this handler's alone.
        if unsafe { entry::copy(ours.state as usize, saved.regs.state as usize, bytes) } != 0 {
            return overflow();
        }
    }
    context.regs = saved.regs;
    context.regs.state = ours.state;
    context.regs.segments = ours.segments;
    // Flags that a program may set: arithmetic, direction, alignment and trap.
    const SETTABLE: u64 = 0x0004_0dd5 | 0x100;
    context.regs.eflags = (ours.eflags & !SETTABLE) | (saved.regs.eflags & SETTABLE);
    record.stack = saved.stack;
    record.stack.flags &= !libc::SS_ONSTACK;
    // The mask in the frame has synchronous signals only if the program put them there.
    let mask = saved.mask;
    set_mask(record, context, mask);
}

/// Blocks all signals but the synchronous ones, for the guard's own work.
pub(super) fn block_all() -> SignalMask {
    set_signal_mask(!SYNCHRONOUS)
}
