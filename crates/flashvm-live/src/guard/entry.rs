//! The few instructions that cannot be written in Rust: system calls at known addresses, copies
//! that may fault, the first steps of a new thread and the last of an ending one.

use super::frame::Context;
use std::ffi::c_void;

std::arch::global_asm!(
    // Loads the arguments of a system call from where r11 points to.
    ".macro flashvm_guard_load_arguments",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    ".endm",
    ".pushsection .text",
    // The end of our own signal handlers.
    ".hidden flashvm_guard_restorer",
    ".globl flashvm_guard_restorer",
    "flashvm_guard_restorer:",
    "mov eax, 15",
    "syscall",
    // A system call of the program. A pending signal comes first. (number, arguments, pending)
    ".hidden flashvm_guard_call, flashvm_guard_call_start, flashvm_guard_call_end, flashvm_guard_call_interrupted",
    ".globl flashvm_guard_call, flashvm_guard_call_start, flashvm_guard_call_end, flashvm_guard_call_interrupted",
    "flashvm_guard_call:",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rcx, rdx",
    "flashvm_guard_load_arguments",
    "flashvm_guard_call_start:",
    "cmp dword ptr [rcx], 0",
    "jne flashvm_guard_call_interrupted",
    "syscall",
    "flashvm_guard_call_end:",
    "ret",
    "flashvm_guard_call_interrupted:",
    "mov rax, -512",
    "ret",
    // A send that the program makes past the guard. (descriptor, three arguments, number): returns the result, and 1 if
    // a signal was delivered when the call ended: `note_signal` sets r9, which the kernel preserves.
    ".hidden flashvm_send, flashvm_send_made",
    ".globl flashvm_send, flashvm_send_made",
    "flashvm_send:",
    // A cancelled thread is unwound from here.
    ".cfi_startproc",
    "mov r10, rcx",
    "mov rax, r8",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "syscall",
    "flashvm_send_made:",
    "mov rdx, r9",
    "ret",
    ".cfi_endproc",
    // A copy that stops at absent memory. (to, from, bytes): returns the bytes left.
    ".hidden flashvm_guard_copy, flashvm_guard_copy_start, flashvm_guard_copy_end",
    ".globl flashvm_guard_copy, flashvm_guard_copy_start, flashvm_guard_copy_end",
    "flashvm_guard_copy:",
    "mov rcx, rdx",
    "flashvm_guard_copy_start:",
    "rep movsb",
    "flashvm_guard_copy_end:",
    "mov rax, rcx",
    "ret",
    // A load, or a store that changes nothing. (address, store): 0 if it succeeded.
    ".hidden flashvm_guard_touch, flashvm_guard_touch_start, flashvm_guard_touch_end",
    ".globl flashvm_guard_touch, flashvm_guard_touch_start, flashvm_guard_touch_end",
    "flashvm_guard_touch:",
    "test esi, esi",
    "jne 2f",
    "flashvm_guard_touch_start:",
    "mov al, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    "2:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    "flashvm_guard_touch_end:",
    "mov eax, 1",
    "ret",
    // A new thread. (number, arguments, record): returns the parent's result.
    ".hidden flashvm_guard_clone",
    ".globl flashvm_guard_clone",
    "flashvm_guard_clone:",
    "push rbx",
    "mov rbx, rdx",
    "mov rax, rdi",
    "mov r11, rsi",
    "flashvm_guard_load_arguments",
    "syscall",
    "test rax, rax",
    "jz 3f",
    "pop rbx",
    "ret",
    "3:",
    "mov rdi, rbx",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {begin}",
    "ud2",
    // A call on another stack. (top of the stack, function, its argument)
    ".hidden flashvm_guard_aside",
    ".globl flashvm_guard_aside",
    "flashvm_guard_aside:",
    "push rbp",
    "mov rbp, rsp",
    "mov rsp, rdi",
    "mov rdi, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    // Continues as a frame says. (address of its context)
    ".hidden flashvm_guard_resume",
    ".globl flashvm_guard_resume",
    "flashvm_guard_resume:",
    "mov rsp, rdi",
    "mov eax, 15",
    "syscall",
    "ud2",
    // The end of a caught call: continues as the frame of its handler says, unless a signal is pending, which comes first.
    // The handler of a caught call runs with the program's signal mask, so a signal may arrive at any instruction before
    // the kernel has taken the frame. (address of its context, pending)
    ".hidden flashvm_guard_leave, flashvm_guard_leave_start, flashvm_guard_leave_end, flashvm_guard_leave_interrupted",
    ".globl flashvm_guard_leave, flashvm_guard_leave_start, flashvm_guard_leave_end, flashvm_guard_leave_interrupted",
    "flashvm_guard_leave:",
    "mov rsp, rdi",
    "flashvm_guard_leave_start:",
    "cmp dword ptr [rsi], 0",
    "jne flashvm_guard_leave_interrupted",
    "mov eax, 15",
    "syscall",
    "flashvm_guard_leave_end:",
    "ud2",
    "flashvm_guard_leave_interrupted:",
    "mov rbx, rsp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {deliver_arrived}",
    "mov rdi, rbx",
    "jmp flashvm_guard_resume",
    // The end of a thread, which must not use its guard stack from the first step on. (status, word
    // that says that the guard stack is taken)
    ".hidden flashvm_guard_exit",
    ".globl flashvm_guard_exit",
    "flashvm_guard_exit:",
    "mov dword ptr [rsi], 0",
    "mov eax, 60",
    "syscall",
    "ud2",
    ".popsection",
    ".purgem flashvm_guard_load_arguments",
    begin = sym super::clone::begin,
    deliver_arrived = sym super::signals::deliver_arrived,
);

unsafe extern "C" {
    pub(super) fn flashvm_guard_restorer();
    pub(super) fn flashvm_guard_call(
        number: i64,
        arguments: *const [usize; 6],
        pending: *const i32,
    ) -> isize;
    fn flashvm_guard_call_start();
    fn flashvm_guard_call_end();
    fn flashvm_guard_call_interrupted();
    fn flashvm_send_made();
    fn flashvm_guard_copy(to: usize, from: usize, bytes: usize) -> usize;
    fn flashvm_guard_copy_start();
    fn flashvm_guard_copy_end();
    fn flashvm_guard_touch(address: usize, store: i32) -> i32;
    fn flashvm_guard_touch_start();
    fn flashvm_guard_touch_end();
    pub(super) fn flashvm_guard_clone(
        number: i64,
        arguments: *const [usize; 6],
        record: *mut c_void,
    ) -> isize;
    pub(super) fn flashvm_guard_aside(
        top: u64,
        work: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    pub(super) fn flashvm_guard_resume(context: *const Context) -> !;
    pub(super) fn flashvm_guard_leave(context: *const Context, pending: *const i32) -> !;
    fn flashvm_guard_leave_start();
    fn flashvm_guard_leave_end();
    fn flashvm_guard_leave_interrupted();
    pub(super) fn flashvm_guard_exit(status: i32, taken: *const std::sync::atomic::AtomicU32) -> !;
}

unsafe extern "C-unwind" {
    fn flashvm_send(fd: usize, a: usize, b: usize, c: usize, number: i64) -> Sent;
}

/// The result of [`send`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Bytes, or a negative error number.
    pub result: isize,
    signal: usize,
}

impl Sent {
    /// Whether a signal was delivered when the call ended, and so may have ended it.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.signal != 0
    }
}

/// Makes a call that sends: a descriptor and three arguments.
///
/// # Safety
/// The arguments are valid as this system call demands.
#[inline]
pub unsafe fn send(number: i64, [fd, a, b, c]: [usize; 4]) -> Sent {
    // SAFETY: the caller guarantees the arguments; the instructions use neither the stack nor a register that a
    // function must preserve.
    unsafe { flashvm_send(fd, a, b, c, number) }
}

/// Tells a [`send`] that a signal for the program has ended it.
pub(super) fn note_signal(context: &mut Context) {
    if context.regs.rip == address(flashvm_send_made) {
        context.regs.r9 = 1;
    }
}

/// The result of `flashvm_guard_call` for a call that a signal prevented, or that is to be repeated
/// after the signal: the kernel's own `ERESTARTSYS`.
pub(super) const RESTART: isize = -512;

type Label = unsafe extern "C" fn();

/// The address of a label.
pub(super) fn address(label: Label) -> u64 {
    label as *const () as u64
}

fn between(at: u64, start: Label, end: Label) -> bool {
    (address(start)..address(end)).contains(&at)
}

/// A signal arrived: a call that has not begun returns [`RESTART`], and the end of a caught call delivers the signal first.
pub(super) fn interrupt(context: &mut Context) {
    let rip = context.regs.rip;
    if between(rip, flashvm_guard_call_start, flashvm_guard_call_end) {
        context.regs.rip = address(flashvm_guard_call_interrupted);
    } else if between(rip, flashvm_guard_leave_start, flashvm_guard_leave_end) {
        context.regs.rip = address(flashvm_guard_leave_interrupted);
    }
}

/// Ends the copy or touch that met absent memory. Returns false if the fault came from other code.
pub(super) fn abandon_access(context: &mut Context) -> bool {
    let rip = context.regs.rip;
    if between(rip, flashvm_guard_copy_start, flashvm_guard_copy_end) {
        context.regs.rip = address(flashvm_guard_copy_end);
        return true;
    }
    if between(rip, flashvm_guard_touch_start, flashvm_guard_touch_end) {
        context.regs.rip = address(flashvm_guard_touch_end);
        return true;
    }
    false
}

/// Copies between the guard's memory and the program's; returns the bytes that could not be copied.
///
/// # Safety
/// One side is `bytes` bytes of the guard's memory that nobody else uses until the call returns. The other is
/// an address that the program has named; where it is `to`, no Rust code refers to what lies there.
pub(super) unsafe fn copy(to: usize, from: usize, bytes: usize) -> usize {
    // SAFETY: the guard's side has `bytes` bytes that nobody else uses; no Rust code refers to the
    // program's side, if it is the one stored to. The caller guarantees both. A fault on the
    // program's side ends the copy (`abandon_access`).
    unsafe { flashvm_guard_copy(to, from, bytes) }
}

/// Touches a byte of the program as the kernel will; returns whether it exists.
pub(super) fn touch(address: usize, store: bool) -> bool {
    // SAFETY: a fault ends the touch (`abandon_access`); the store is an atomic `or` with 0, which
    // leaves the byte as it is.
    unsafe { flashvm_guard_touch(address, i32::from(store)) == 0 }
}
