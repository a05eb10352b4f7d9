//! The pager's threads. They run on stacks in one known place. They block all signals but the C
//! library's own and the synchronous ones: in inline mode a fault is a synchronous signal.
//!
//! The place matters: memory that the C library allocates for such a thread must not be managed
//! memory (the thread that resolves faults cannot wait for its own fault). The allocator asks
//! [`on_pager_stack`] instead of keeping a thread-local flag.

use super::map;
use super::raw::{SignalMask, set_signal_mask};
use super::signals::SYNCHRONOUS;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const STACK_BYTES: usize = 256 << 10;
/// At most four threads, and those of two queues of threads. An untouched stack takes no RAM.
pub(crate) const STACKS: usize = 40;
/// Tries to create a thread, and the pause between two tries.
const CREATE_TRIES: u32 = 1000;
const CREATE_WAIT: std::time::Duration = std::time::Duration::from_millis(1);

/// Signals that the C library sends to all threads. `setuid` waits until each thread has handled one
/// and changed its user.
const C_LIBRARY: SignalMask = 3 << 31;

static STACKS_BASE: AtomicUsize = AtomicUsize::new(0);
static TAKEN: [AtomicBool; STACKS] = [const { AtomicBool::new(false) }; STACKS];
/// Threads that have passed the C library's first steps.
static BEGUN: [AtomicBool; STACKS] = [const { AtomicBool::new(false) }; STACKS];

/// Whether the calling thread is one of the pager's.
#[must_use]
#[inline]
pub fn on_pager_stack() -> bool {
    let base = STACKS_BASE.load(Ordering::Relaxed);
    let here = std::ptr::from_ref(&base) as usize;
    base != 0 && here.wrapping_sub(base) < STACKS * STACK_BYTES
}

/// Which of the stacks begins at `address`.
pub(crate) fn number_of(address: usize) -> usize {
    (address - STACKS_BASE.load(Ordering::Relaxed)) / STACK_BYTES
}

/// Forgets all threads: after a fork none of them exists in the child.
pub(crate) fn forget_all() {
    for flag in TAKEN.iter().chain(&BEGUN) {
        flag.store(false, Ordering::Relaxed);
    }
    #[cfg(target_arch = "x86_64")]
    super::unseen::forget_all();
}

/// Waits until all threads have begun. The C library's first steps in a thread read the program's
/// locale with all signals blocked: once the program runs, the locale may be managed memory, and a
/// fault on it would end the process. Called with no lock of the pager held.
pub(crate) fn await_begun() {
    for (taken, begun) in TAKEN.iter().zip(&BEGUN) {
        while taken.load(Ordering::Relaxed) && !begun.load(Ordering::Acquire) {
            rustix::thread::sched_yield();
        }
    }
}

struct ThreadStart {
    run: Box<dyn FnOnce() + Send>,
    stack: usize,
}

/// Starts a thread of the pager: unknown to the C library where the guard catches the program's calls
/// ([`super::unseen`]). Must be called where the C library's allocations are not managed (while the pager starts, or from
/// another of its threads).
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    if STACKS_BASE.load(Ordering::Relaxed) == 0 {
        let base = map::own(STACKS * STACK_BYTES)?;
        STACKS_BASE.store(base, Ordering::Relaxed);
    }
    let stack = (0..STACKS)
        .find(|&i| !TAKEN[i].swap(true, Ordering::Relaxed))
        .ok_or(Errno::NOBUFS)?;
    let address = STACKS_BASE.load(Ordering::Relaxed) + stack * STACK_BYTES;
    let mut name_bytes = [0u8; 16];
    let len = name.len().min(15);
    name_bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    let start = Box::new(ThreadStart {
        run: Box::new(run),
        stack,
    });
    let mask = set_signal_mask(!(SYNCHRONOUS | C_LIBRARY));
    let made = create(address, name_bytes, start);
    set_signal_mask(mask);
    made.inspect_err(|_| TAKEN[stack].store(false, Ordering::Relaxed))
}

/// Creates a thread on the stack at `address`, which has the caller's mask of signals. A temporary shortage passes: other
/// processes of the run are just ending.
fn create(address: usize, name: [u8; 16], start: Box<ThreadStart>) -> Result<(), Errno> {
    let argument = Box::into_raw(start);
    let mut made = Err(Errno::AGAIN);
    for _ in 0..CREATE_TRIES {
        made = try_create(address, &name, argument);
        if made != Err(Errno::AGAIN) {
            break;
        }
        super::sleep(CREATE_WAIT);
    }
    made.inspect_err(|_| {
        // SAFETY: there is no thread, which would own it.
        drop(unsafe { Box::from_raw(argument) });
    })
}

fn try_create(address: usize, name: &[u8; 16], start: *mut ThreadStart) -> Result<(), Errno> {
    #[cfg(target_arch = "x86_64")]
    if super::unseen::storage().is_some() {
        // SAFETY: the stack is ours and given to no other thread; `enter` takes `start` over on success only.
        return unsafe { super::unseen::spawn((address, STACK_BYTES), *name, enter, start.cast()) };
    }
    // SAFETY: the attribute object is initialised before use; the stack is ours and given to no other thread; `enter` takes
    // `start` over on success only.
    unsafe {
        let mut attr = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attr.as_mut_ptr());
        libc::pthread_attr_setstack(attr.as_mut_ptr(), address as *mut _, STACK_BYTES);
        libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
        let code = libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), enter, start.cast());
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        if code != 0 {
            return Err(Errno::from_raw_os_error(code));
        }
        libc::pthread_setname_np(thread.assume_init(), name.as_ptr().cast());
    }
    Ok(())
}

extern "C" fn enter(start: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `spawn` made this box and gave it to this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<ThreadStart>()) };
    BEGUN[start.stack].store(true, Ordering::Release);
    (start.run)();
    // The stack stays taken: a thread of the pager ends only with its process.
    debug_assert!(TAKEN[start.stack].load(Ordering::Relaxed));
    std::ptr::null_mut()
}
