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
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const STACK_BYTES: usize = 256 << 10;
/// At most four threads, and those of two queues of threads. An untouched stack takes no RAM.
const STACKS: usize = 40;
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

/// Forgets all threads: after a fork none of them exists in the child.
pub(crate) fn forget_all() {
    for flag in TAKEN.iter().chain(&BEGUN) {
        flag.store(false, Ordering::Relaxed);
    }
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

/// The guard's function for work that creates threads; unset without the guard. See
/// [`making_threads`].
static GUARDED: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// From here on `guard` runs the work of [`making_threads`].
pub(crate) fn guard_creation(guard: fn(&mut dyn FnMut())) {
    let _ = GUARDED.set(guard);
}

/// Runs `work`, in which a thread of the pager creates others through the C library. The guard, if
/// there is one, has to see them begin.
pub(crate) fn making_threads<T>(work: impl FnOnce() -> T) -> T {
    let Some(guarded) = GUARDED.get() else {
        return work();
    };
    let (mut work, mut result) = (Some(work), None);
    guarded(&mut || result = work.take().map(|work| work()));
    result.expect("the guard has run it")
}

struct ThreadStart {
    run: Box<dyn FnOnce() + Send>,
    stack: usize,
}

/// Starts a thread of the pager. Must be called where the C library's allocations are not managed
/// (while the pager starts, or from another of its threads).
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    if STACKS_BASE.load(Ordering::Relaxed) == 0 {
        let base = map::own(STACKS * STACK_BYTES)?;
        STACKS_BASE.store(base, Ordering::Relaxed);
    }
    let stack = (0..STACKS)
        .find(|&i| !TAKEN[i].swap(true, Ordering::Relaxed))
        .ok_or(Errno::NOBUFS)?;
    let address = STACKS_BASE.load(Ordering::Relaxed) + stack * STACK_BYTES;
    let start = Box::into_raw(Box::new(ThreadStart {
        run: Box::new(run),
        stack,
    }));
    let mut name_bytes = [0u8; 16];
    let len = name.len().min(15);
    name_bytes[..len].copy_from_slice(&name.as_bytes()[..len]);

    // SAFETY: the attribute object is initialised before use; the stack is ours and given to no
    // other thread; signals are blocked over the creation so that the new thread inherits that, and
    // the caller's mask is restored; `enter` takes `start` over on success only.
    unsafe {
        let mut attr = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attr.as_mut_ptr());
        libc::pthread_attr_setstack(attr.as_mut_ptr(), address as *mut _, STACK_BYTES);
        libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let mask = set_signal_mask(!(SYNCHRONOUS | C_LIBRARY));
        let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
        let mut create =
            || libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), enter, start.cast());
        let mut code = create();
        // A temporary shortage: other processes of the run are just ending.
        for _ in 0..CREATE_TRIES {
            if code != libc::EAGAIN {
                break;
            }
            super::sleep(CREATE_WAIT);
            code = create();
        }
        set_signal_mask(mask);
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        if code != 0 {
            drop(Box::from_raw(start));
            TAKEN[stack].store(false, Ordering::Relaxed);
            return Err(Errno::from_raw_os_error(code));
        }
        libc::pthread_setname_np(thread.assume_init(), name_bytes.as_ptr().cast());
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
