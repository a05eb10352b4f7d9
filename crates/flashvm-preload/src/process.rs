//! Processes: joining the run, fork, a change of groups, and descriptors that belong to the pager.

use crate::c_library::{next, set_errno, status};
use crate::internal;
use crate::small;
use crate::state::{READY, STARTING, for_pager, guard_call, guarded, pager};
use flashvm_live::control::{Control, Descriptors, NotAnAddress, RunAddress, STORES_MAX};
use flashvm_live::guard::Own;
use flashvm_live::program::descriptor_kind;
use flashvm_live::program::exec::HandedOn;
use flashvm_live::{Inheritance, Pager};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, c_int, c_long, c_uint};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

/// Bytes of stack on each side of the current frame that a fork needs resident, if they are
/// managed.
const STACK_BYTES: usize = 32 << 10;

/// Most groups of a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// The program that this process carries.
pub(crate) fn carried_program() -> Option<std::ffi::OsString> {
    flashvm_live::program::exec::carried_program(crate::c_library::own_path())
}

/// The name of this program, for messages.
pub(crate) fn command() -> String {
    let name = carried_program().or_else(|| std::env::args_os().next());
    name.map_or_else(
        || "?".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The run of this process, and what the programs that it executes inherit.
pub(crate) struct Joined {
    pub(crate) inheritance: Inheritance,
    pub(crate) handed_on: HandedOn,
}

/// Joins the run: by inherited descriptors, or by the supervisor's.
pub(crate) fn join(address: &OsStr) -> Result<Joined, String> {
    let text = address.to_string_lossy();
    let address: RunAddress = text
        .parse()
        .map_err(|error: NotAnAddress| error.to_string())?;
    let inherited = address
        .inherited
        .and_then(|inherited| take(address, inherited));
    let handed_on = inherited.map_or_else(|| open(address), Ok)?;
    let control = Control::attach(handed_on.region.as_fd()).map_err(|error| error.to_string())?;
    control
        .check_pid_namespace()
        .map_err(|error| error.to_string())?;
    let settings = control.settings().map_err(|error| error.to_string())?;
    let supervisor = address.supervisor;
    let pid = rustix::process::Pid::from_raw(supervisor).ok_or("no supervisor")?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(|error| format!("the supervisor, process {supervisor}, is gone: {error}"))?;
    let duplicate = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
    let stores = handed_on.stores.iter().flatten().map(duplicate);
    let stores = stores.collect::<Result<Vec<_>, _>>();
    let stores = stores.map_err(|error| format!("no descriptor for the store: {error}"))?;
    Ok(Joined {
        inheritance: Inheritance {
            control,
            settings,
            stores,
            supervisor: pidfd,
            command: command(),
        },
        handed_on,
    })
}

/// Opens the supervisor's descriptors.
fn open(address: RunAddress) -> Result<HandedOn, String> {
    let supervisor = address.supervisor;
    let open = |fd: RawFd, flags: OFlags| -> Result<OwnedFd, String> {
        rustix::fs::open(address.path(fd), flags | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
            format!(
                "cannot join the run of process {supervisor} ({error}): a program that changes its user, or \
                 outlives `flashvm run`, cannot start paged programs here"
            )
        })
    };
    let theirs = address.supervisors;
    let mut stores = [const { None }; STORES_MAX];
    for (place, store) in stores.iter_mut().zip(theirs.stores.into_iter().flatten()) {
        *place = Some(open(store, OFlags::RDWR | OFlags::DIRECT)?);
    }
    Ok(HandedOn {
        region: open(theirs.region, OFlags::RDWR)?,
        stores,
        object: theirs
            .object
            .map(|fd| open(fd, OFlags::RDONLY))
            .transpose()?,
        address,
    })
}

/// Takes the inherited descriptors, unless the program before this one has closed them unseen (possible in handler
/// mode).
fn take(address: RunAddress, inherited: Descriptors) -> Option<HandedOn> {
    // SAFETY: the descriptor is only inspected: if the number is another file's, or no file's, it is no control region.
    Control::attach(unsafe { BorrowedFd::borrow_raw(inherited.region) }).ok()?;
    let take = |fd: RawFd| {
        // SAFETY: the program before this one handed them all on; nothing else in this process knows the numbers.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    Some(HandedOn {
        region: take(inherited.region),
        stores: inherited.stores.map(|fd| fd.map(take)),
        object: inherited.object.map(take),
        address,
    })
}

/// Registers handlers with the C library for every fork.
pub(crate) fn watch_forks() {
    flashvm_live::set_fork_hooks(flashvm_live::ForkHooks {
        before: internal::lock_for_fork,
        // SAFETY: the pager calls `before` first, in the thread that forks; this thread or its copy
        // runs `after`.
        after: || unsafe { internal::unlock_after_fork() },
    });
    // SAFETY: the handlers are functions of this object, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

extern "C" fn before_fork() {
    if !READY.load(Ordering::Relaxed) {
        return;
    }
    // The guard catches the fork itself, however the program makes it.
    if guarded() {
        small::lock_for_fork();
        return;
    }
    let mut touched = Vec::new();
    let here = std::ptr::from_ref(&touched) as usize;
    // The stack grows down: the program's frames are above this one, frames of calls from here below.
    for address in (here - STACK_BYTES..here + STACK_BYTES).step_by(4096) {
        if pager().manages(address, 1) {
            touched.push(address);
        }
    }
    pager().prepare_fork(&touched);
    drop(touched);
    // From here on this thread must not allocate or free before the fork is over.
    internal::lock_for_fork();
}

extern "C" fn in_parent() {
    if !READY.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: `before_fork` took these locks, in this thread.
    unsafe {
        if guarded() {
            small::unlock_in_parent();
        } else {
            internal::unlock_after_fork();
            pager().resume_parent();
        }
    }
}

extern "C" fn in_child() {
    if !READY.load(Ordering::Relaxed) {
        return;
    }
    if guarded() {
        // SAFETY: `before_fork` took the locks in the thread that this one copies; no other thread runs in the child
        // yet.
        unsafe { small::unlock_in_child() };
        // The C library works again: the pager can start its threads.
        // SAFETY: `StartThreads` takes no address.
        if let Err(error) = unsafe { guard_call(Own::StartThreads, 0, 0) } {
            flashvm_live::end(&format!(
                "a forked child cannot have its pager's threads: {error}"
            ));
        }
    } else {
        // SAFETY: `before_fork` took the lock in the thread that this one copies.
        unsafe { internal::unlock_after_fork() };
        STARTING.store(true, Ordering::Relaxed);
        Pager::resume_child();
        STARTING.store(false, Ordering::Relaxed);
    }
}

/// The C library makes every thread that it knows repeat this call. In handler mode it knows the pager's, which must not
/// touch managed memory: they would wait for themselves. So all read a copy of the list.
#[unsafe(no_mangle)]
unsafe extern "C" fn setgroups(count: usize, list: *const libc::gid_t) -> c_int {
    type Call = unsafe extern "C" fn(usize, *const libc::gid_t) -> c_int;
    // SAFETY: the C library's `setgroups` has this type.
    let call = unsafe { next::<Call>(c"setgroups") };
    let is_managed = || {
        (1..=GROUPS_MAX).contains(&count)
            && pager().manages(list.addr(), count * size_of::<libc::gid_t>())
    };
    if for_pager() || guarded() || !is_managed() {
        // SAFETY: the caller's guarantees.
        return unsafe { call(count, list) };
    }
    // SAFETY: the list has so many groups, as the caller guarantees. The copy is the pager's memory.
    let copy = unsafe { std::slice::from_raw_parts(list, count) }.to_vec();
    // SAFETY: a list of as many groups, which lives over the call.
    unsafe { call(count, copy.as_ptr()) }
}

/// Fails early if budget and store cannot hold a copy of the process.
#[unsafe(no_mangle)]
extern "C" fn fork() -> c_int {
    if !for_pager() && !guarded() && !flashvm_live::guard::aside(|| pager().can_fork()) {
        set_errno(Errno::NOMEM);
        return -1;
    }
    // SAFETY: the C library's `fork` has this type.
    unsafe { next::<extern "C" fn() -> c_int>(c"fork")() }
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    if flashvm_live::is_pager_descriptor(fd) {
        set_errno(Errno::BADF);
        return -1;
    }
    descriptor_kind::forget(fd);
    // SAFETY: the call takes no pointer, and the descriptor is none of the pager's, as checked
    // above.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(fd)) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if for_pager() {
        return raw_close_range(first, last, flags);
    }
    status(descriptor_kind::close_range(first, last, flags as u32))
}

#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

fn raw_close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: it takes no pointer; the callers have left the pager's descriptors out.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            c_long::from(first),
            c_long::from(last),
            c_long::from(flags),
        ) as c_int
    }
}

/// Whether the number belongs to a descriptor of the pager, which the program must not replace. Sets `errno`.
fn taken(new: c_int) -> bool {
    let taken = flashvm_live::is_pager_descriptor(new);
    if taken {
        set_errno(Errno::BUSY);
    }
    taken
}

#[unsafe(no_mangle)]
extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if taken(new) {
        return -1;
    }
    // SAFETY: the calls take no pointer, and `new` is none of the pager's descriptors, as checked
    // above.
    unsafe {
        if old == new {
            // dup3 refuses equal numbers; dup2 only checks that the descriptor is open.
            return if libc::fcntl(old, libc::F_GETFD) < 0 {
                -1
            } else {
                new
            };
        }
        libc::syscall(libc::SYS_dup3, c_long::from(old), c_long::from(new), 0) as c_int
    }
}

#[unsafe(no_mangle)]
extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if taken(new) {
        return -1;
    }
    // SAFETY: the call takes no pointer, and `new` is none of the pager's descriptors, as checked
    // above.
    unsafe {
        libc::syscall(
            libc::SYS_dup3,
            c_long::from(old),
            c_long::from(new),
            c_long::from(flags),
        ) as c_int
    }
}
