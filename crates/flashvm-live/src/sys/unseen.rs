//! Threads of the pager that the C library does not know.
//!
//! A process that has only these beside its own thread stays single-threaded for the C library. That matters: with a
//! second thread it locks each `getc`, and counts each reference of a `shared_ptr` atomically, for up to ten times as long.
//!
//! What the C library does for threads that it knows has to be done here: their storage ([`Storage`]), their end (they
//! have none), and the change of a user, which is each thread's own in the kernel ([`follow`]).

use super::thread::{self, STACKS};
use super::thread_storage::Storage;
use super::{map, raw, sleep};
use rustix::io::Errno;
use rustix_futex_sync::Mutex;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

std::arch::global_asm!(
    ".pushsection .text",
    // A new thread. (flags, top of its stack, thread pointer, argument): returns the parent's result.
    ".hidden flashvm_unseen_clone",
    ".globl flashvm_unseen_clone",
    "flashvm_unseen_clone:",
    "mov r8, rdx",
    "mov r9, rcx",
    "xor edx, edx",
    "xor r10d, r10d",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "xor ebp, ebp",
    "mov rdi, r9",
    "call {enter}",
    "ud2",
    ".popsection",
    enter = sym enter,
);

unsafe extern "C" {
    fn flashvm_unseen_clone(flags: usize, top: usize, pointer: usize, start: *mut Start) -> isize;
}

/// The signal by which [`follow`] reaches the threads: the C library's own for the same purpose, which no program uses.
pub(crate) const SIGNAL: i32 = 33;

const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS;
const WAIT: Duration = Duration::from_micros(100);

/// The storage that all copies come from, once the pager's threads are to be unseen.
static STORAGE: OnceLock<Storage> = OnceLock::new();
/// Room for the copies.
static ROOM: AtomicUsize = AtomicUsize::new(0);
/// The threads' ids, by their stacks.
static IDS: [AtomicI32; STACKS] = [const { AtomicI32::new(0) }; STACKS];

/// From now on the pager's threads are unknown to the C library. Called by the program's first thread, before its own code
/// runs.
///
/// # Errors
/// `ENOTSUP`: the C library does not tell what debuggers need; `ENOMEM`.
pub(crate) fn begin() -> Result<(), Errno> {
    let storage = Storage::of_this_thread()?;
    ROOM.store(map::own(STACKS * storage.room())?, Ordering::Relaxed);
    let _ = STORAGE.set(storage);
    Ok(())
}

/// The storage of which the threads have copies. `None`: the C library knows the pager's threads.
pub(crate) fn storage() -> Option<&'static Storage> {
    STORAGE.get()
}

/// The process whose threads they are.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn own_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Forgets all threads: after a fork none of them exists in the child, nor a thread of the parent that was in
/// [`follow`].
pub(crate) fn forget_all() {
    for id in &IDS {
        id.store(0, Ordering::Relaxed);
    }
    CHANGE.left.store(0, Ordering::Relaxed);
    if CHANGING.is_locked() {
        // SAFETY: the thread that has locked it does not exist in this process.
        unsafe { CHANGING.force_unlock() };
    }
}

/// What a thread begins with.
#[repr(C)]
struct Start {
    name: [u8; 16],
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

/// Starts a thread on the stack `(start, bytes)`. It begins with the caller's mask of signals.
///
/// # Errors
/// The kernel's. Then `run` does not get its argument.
///
/// # Safety
/// The stack is one of the pager's and no other thread's. `run` may be called with `argument` in another thread.
pub(crate) unsafe fn spawn(
    (stack, bytes): (usize, usize),
    name: [u8; 16],
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<(), Errno> {
    let storage = STORAGE.get().expect("the threads are unseen");
    let number = thread::number_of(stack);
    let start = Box::into_raw(Box::new(Start {
        name,
        run,
        argument,
    }));
    // A change of user comes before the thread, which then begins as the new one, or finds its id.
    let _turn = CHANGING.lock();
    // SAFETY: the stack and this part of the room are the new thread's alone, and so is `start`, if it begins.
    let made = unsafe {
        let room = ROOM.load(Ordering::Relaxed) + number * storage.room();
        storage.copy_for_thread(room).and_then(|pointer| {
            let made = flashvm_unseen_clone(FLAGS as usize, stack + bytes, pointer, start);
            raw::result(made)
        })
    };
    match made {
        Ok(id) => {
            PROCESS.store(own_process(), Ordering::Relaxed);
            IDS[number].store(id as i32, Ordering::Release);
            Ok(())
        }
        Err(error) => {
            // SAFETY: no thread has begun, which would own it.
            drop(unsafe { Box::from_raw(start) });
            Err(error)
        }
    }
}

unsafe extern "C" fn enter(start: *mut Start) -> ! {
    STORAGE.get().expect("this thread's").begin();
    // SAFETY: `spawn` made this box and gave it to this thread alone.
    let start = unsafe { Box::from_raw(start) };
    // SAFETY: the kernel reads the name, which ends with a zero.
    unsafe {
        let name = start.name.as_ptr() as usize;
        let args = [libc::PR_SET_NAME as usize, name, 0, 0, 0, 0];
        raw::syscall(libc::SYS_prctl, args);
    }
    (start.run)(start.argument);
    unreachable!("a thread of the pager ends only with its process")
}

/// A change of user or groups that the threads have to make as well.
struct Change {
    number: AtomicUsize,
    args: [AtomicUsize; 3],
    /// Threads that have not made it yet.
    left: AtomicU32,
}

static CHANGE: Change = Change {
    number: AtomicUsize::new(0),
    args: [const { AtomicUsize::new(0) }; 3],
    left: AtomicU32::new(0),
};
static CHANGING: Mutex<()> = Mutex::new(());

/// Whether a call changes the user or groups of its thread, and the C library makes all threads repeat it.
pub(crate) fn changes_user(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
    )
}

/// Makes the pager's threads repeat a call for which [`changes_user`]. One that may not keeps its user and groups: the program
/// may have kept a capability over the change of its user, by a call for its own thread alone.
pub(crate) fn follow(number: i64, args: &[usize; 6]) {
    let process = own_process();
    // A child that has the memory of its parent until it executes another program, but not its threads.
    if process != PROCESS.load(Ordering::Relaxed) {
        return;
    }
    let _turn = CHANGING.lock();
    CHANGE.number.store(number as usize, Ordering::Relaxed);
    for (place, &argument) in CHANGE.args.iter().zip(args) {
        place.store(argument, Ordering::Relaxed);
    }
    for id in IDS.iter().map(|id| id.load(Ordering::Acquire)) {
        if id == 0 {
            continue;
        }
        CHANGE.left.fetch_add(1, Ordering::Release);
        let args = [process as usize, id as usize, SIGNAL as usize, 0, 0, 0];
        // SAFETY: the call takes numbers.
        if unsafe { raw::syscall(libc::SYS_tgkill, args) } != 0 {
            CHANGE.left.fetch_sub(1, Ordering::Release);
        }
    }
    while CHANGE.left.load(Ordering::Acquire) > 0 {
        sleep(WAIT);
    }
}

/// What a thread of the pager does at [`SIGNAL`].
pub(crate) fn obey() {
    if !thread::on_pager_stack() || CHANGE.left.load(Ordering::Acquire) == 0 {
        return;
    }
    let [a, b, c] = CHANGE
        .args
        .each_ref()
        .map(|argument| argument.load(Ordering::Relaxed));
    let number = CHANGE.number.load(Ordering::Relaxed) as i64;
    // SAFETY: the program has made this call; the memory that it names stays until all have made it.
    unsafe { raw::syscall(number, [a, b, c, 0, 0, 0]) };
    CHANGE.left.fetch_sub(1, Ordering::Release);
}
