//! `kill` of the own process by a thread that is not the main one.
//!
//! The kernel gives such a signal to the main thread, unless that blocks it: it wakes that thread, and any thread that looks
//! at its signals before that has run takes the signal away from it. Without the guard the sender does not look. With it the
//! sender returns by `rt_sigreturn`, which looks. Python's main thread then sleeps on, and an interrupt is lost to it. So
//! the sender first lets others take the signal.

use super::signals::block_all;
use crate::sys::{raw, sleep};
use std::time::Duration;

/// Looks whether the signal has been taken, and the pause between two: 2 ms in all.
const LOOKS: u32 = 40;
const PAUSE: Duration = Duration::from_micros(50);

/// `kill` with the program's arguments.
pub(super) fn kill(args: &[usize; 6]) -> isize {
    let [process, signal, ..] = *args;
    // So that this thread neither takes the signal now nor misses that it is pending.
    let before = block_all();
    // SAFETY: the call takes numbers, and touches no memory of this process.
    let result = unsafe { raw::syscall(libc::SYS_kill, *args) };
    if result == 0 && signal != 0 && may_be_own(process as i32) {
        for _ in 0..LOOKS {
            if !is_pending(signal) {
                break;
            }
            sleep(PAUSE);
        }
    }
    raw::set_signal_mask(before);
    result
}

/// Whether the signal may go to this process, and this thread is not its main one.
fn may_be_own(process: i32) -> bool {
    // SAFETY: these calls take nothing and touch nothing.
    let [own, thread] = [libc::SYS_getpid, libc::SYS_gettid]
        .map(|number| unsafe { raw::syscall(number, [0; 6]) } as i32);
    (process <= 0 || process == own) && thread != own
}

/// Whether a blocked signal waits for this thread or this process.
fn is_pending(signal: usize) -> bool {
    let mut set = 0_u64;
    let args = [&raw mut set as usize, size_of_val(&set), 0, 0, 0, 0];
    // SAFETY: the kernel writes the set, which is on this stack.
    let result = unsafe { raw::syscall(libc::SYS_rt_sigpending, args) };
    result == 0 && signal <= 64 && set >> (signal - 1) & 1 != 0
}
