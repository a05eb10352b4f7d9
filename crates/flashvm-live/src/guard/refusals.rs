//! Calls refused while faults are resolved inline, most with one line that names the remedy; and
//! signal masks that must not block our signals.

use super::memory;
use crate::flash::file_limit;
use crate::pager::pager;
use crate::program::refuse_once;
use crate::sys::signals::SYNCHRONOUS;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::AtomicBool;

const SYS_IO_URING_SETUP: i64 = libc::SYS_io_uring_setup;
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

static SAID_URING: AtomicBool = AtomicBool::new(false);
static SAID_AIO: AtomicBool = AtomicBool::new(false);
static SAID_FILE_LIMIT: AtomicBool = AtomicBool::new(false);
static SAID_SECCOMP: AtomicBool = AtomicBool::new(false);
static SAID_CLOCK: AtomicBool = AtomicBool::new(false);
static SAID_CHILD: AtomicBool = AtomicBool::new(false);
static SAID_FAULTS: AtomicBool = AtomicBool::new(false);
static SAID_ABSENT: AtomicBool = AtomicBool::new(false);
static SAID_TABLE: AtomicBool = AtomicBool::new(false);
static SAID_LIMIT: AtomicBool = AtomicBool::new(false);

/// Whether a call would set a limit on file sizes that is too low for the pager's own files.
fn lowers_file_limit(number: i64, args: &[usize; 6]) -> bool {
    let limit = file_limit::set_by(Resource::Fsize, number, args, memory::read::<u64>);
    pager().is_some_and(|pager| limit.is_some_and(|limit| limit < pager.file_bytes()))
}

/// Whether a call would limit what the process may map, by less than it may now.
fn limits_addresses(number: i64, args: &[usize; 6]) -> bool {
    [Resource::As, Resource::Data].into_iter().any(|resource| {
        let now = getrlimit(resource).current.unwrap_or(u64::MAX);
        file_limit::set_by(resource, number, args, memory::read::<u64>).is_some_and(|new| new < now)
    })
}

/// The error of a refused call; `None` if it is allowed.
pub(super) fn refused(number: i64, args: &[usize; 6]) -> Option<Errno> {
    match number {
        SYS_IO_URING_SETUP => {
            refuse_once(
                &SAID_URING,
                "io_uring is refused, as the kernel would use memory that the pager does not see: run it with \
                 --fault handler",
            );
            Some(Errno::NOSYS)
        }
        // The kernel uses memory after the call has returned, and only `UFFDIO_MOVE` tells the pager so.
        libc::SYS_io_setup if pager().is_some_and(|pager| !pager.keeps_pinned_pages()) => {
            refuse_once(
                &SAID_AIO,
                "asynchronous I/O (io_setup) is refused: run it on Linux 6.8 or later, with userfaultfd allowed",
            );
            Some(Errno::NOSYS)
        }
        // Small pages are not moved either.
        libc::SYS_io_setup if pager().is_some_and(|pager| pager.chameleon().is_some()) => {
            refuse_once(
                &SAID_AIO,
                "asynchronous I/O (io_setup) is refused with small pages: run it with --granularity 4096",
            );
            Some(Errno::NOSYS)
        }
        libc::SYS_ioctl if takes_faults(args) => {
            refuse_once(
                &SAID_FAULTS,
                "a userfaultfd for managed memory is refused (EBUSY): it has the pager's",
            );
            Some(Errno::BUSY)
        }
        libc::SYS_prlimit64 | libc::SYS_setrlimit if lowers_file_limit(number, args) => {
            refuse_once(
                &SAID_FILE_LIMIT,
                "a limit on file sizes (ulimit -f) below the size of the pager's files is refused: set a higher one",
            );
            Some(Errno::PERM)
        }
        libc::SYS_prlimit64 | libc::SYS_setrlimit if limits_addresses(number, args) => {
            refuse_once(
                &SAID_LIMIT,
                "a limit on address space or data (ulimit -v, -d) is refused, as the pager's own memory counts: --ram bounds \
                 the program's",
            );
            Some(Errno::PERM)
        }
        libc::SYS_unshare if args[0] & libc::CLONE_FILES as usize != 0 => {
            refuse_once(
                &SAID_TABLE,
                "unshare with CLONE_FILES is refused: the thread would not have descriptors that the pager opens later",
            );
            Some(Errno::INVAL)
        }
        // Only the pager may map memory in its ranges: in the heap of small pages they look vacant.
        libc::SYS_shmat
            if args[1] != 0 && pager().is_some_and(|pager| pager.manages(args[1], 1)) =>
        {
            Some(Errno::INVAL)
        }
        // The pipe would keep the frame, which may hold another page by the time it is read.
        libc::SYS_vmsplice if names_small_pages(args[1], args[2]) => Some(Errno::INVAL),
        // SECCOMP_SET_MODE_STRICT and SECCOMP_SET_MODE_FILTER.
        libc::SYS_seccomp if args[0] <= 1 => {
            say_seccomp();
            Some(Errno::INVAL)
        }
        libc::SYS_prctl if args[0] == libc::PR_SET_SECCOMP as usize => {
            say_seccomp();
            Some(Errno::INVAL)
        }
        libc::SYS_prctl if args[0] == PR_SET_SYSCALL_USER_DISPATCH => Some(Errno::INVAL),
        libc::SYS_prctl
            if args[..2] == [libc::PR_SET_TSC as usize, libc::PR_TSC_SIGSEGV as usize] =>
        {
            refuse_once(
                &SAID_CLOCK,
                "a signal for reading the processor's clock (PR_SET_TSC) is refused: the pager reads it",
            );
            Some(Errno::INVAL)
        }
        _ => None,
    }
}

/// Whether `ioctl` asks for the faults of managed memory. The pager would meet them, too, and wait for the program.
fn takes_faults(args: &[usize; 6]) -> bool {
    const REGISTER: usize = 0xC020_AA00;
    let [_, request, at, ..] = *args;
    request == REGISTER
        && memory::read::<[usize; 2]>(at)
            .zip(pager())
            .is_some_and(|([start, len], pager)| pager.manages(start, len))
}

/// A transfer with another process has met memory that is absent there, or does not exist.
pub(super) fn say_absent_there() {
    refuse_once(
        &SAID_ABSENT,
        "process_vm_readv and process_vm_writev do not reach memory of another process that is on flash (EFAULT): run it \
         with --fault handler",
    );
}

/// The error of a refused `clone` with `flags`; `None` if it is allowed.
pub(super) fn refused_clone(flags: u64) -> Option<Errno> {
    const FILES: u64 = libc::CLONE_FILES as u64;
    const MEMORY: u64 = libc::CLONE_VM as u64;
    (flags & (MEMORY | FILES) == FILES).then(|| {
        refuse_once(
            &SAID_CHILD,
            "a child that shares descriptors but no memory (clone with CLONE_FILES, without CLONE_VM) is refused: it \
             would close its parent's descriptors of the pager",
        );
        Errno::INVAL
    })
}

/// Whether a vector names memory in the heap of small pages.
fn names_small_pages(vector: usize, count: usize) -> bool {
    let Some(heap) = pager().and_then(|pager| pager.chameleon()) else {
        return false;
    };
    (0..count.min(1024)).any(|at| {
        memory::read::<[usize; 2]>(vector + at * size_of::<[usize; 2]>())
            .is_some_and(|[address, len]| heap.holds(address, len))
    })
}

fn say_seccomp() {
    refuse_once(
        &SAID_SECCOMP,
        "seccomp filters are refused: they would stop the pager's own system calls: run it with \
         --fault handler",
    );
}

/// Room for a signal mask, and for `pselect6`'s pointer to it with its size.
#[derive(Default)]
pub(super) struct Mask {
    set: u64,
    sized: [usize; 2],
}

/// The arguments of a call that waits with a signal mask of its own, with our signals removed from
/// the mask.
pub(super) fn unmask(number: i64, args: &[usize; 6], room: &mut Mask) -> [usize; 6] {
    let mut args = *args;
    let at = match number {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_pselect6 => 5,
        _ => return args,
    };
    if args[at] == 0 {
        return args;
    }
    if number != libc::SYS_pselect6 {
        if let Some(set) = memory::read::<u64>(args[at]) {
            room.set = set & !SYNCHRONOUS;
            args[at] = &raw const room.set as usize;
        }
    } else if let Some(mask) = memory::read::<usize>(args[at])
        && let Some(size) = memory::read::<usize>(args[at] + size_of::<usize>())
        && let Some(set) = memory::read::<u64>(mask)
    {
        room.set = set & !SYNCHRONOUS;
        room.sized = [&raw const room.set as usize, size];
        args[at] = room.sized.as_ptr() as usize;
    }
    args
}
