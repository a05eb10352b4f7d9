//! The table of system calls: which arguments point to memory, what lies there, and whether a call
//! that failed with `EFAULT` may be made again.
//!
//! Code, tests (`tests/torture/table.c`) and documentation go by this one table. Its lengths are
//! those of the kernel's structures, not of the C library's. Where the kernel decides how much it
//! touches, a length is the most that it can be; whoever touches the memory must pass over what is
//! not mapped.
//!
//! No rows:
//! - Calls without pointers, and calls that take addresses without touching what lies there
//!   (`brk`, `madvise`, `msync`, `shmat`, `set_robust_list`, `membarrier`, …).
//! - Calls that the guard handles itself: `mmap`, `munmap`, `mremap`, `mprotect`, `mlock*`,
//!   `clone*`, `fork`, `vfork`, `exit*`, `rt_sigaction`, `rt_sigprocmask`, `rt_sigreturn`,
//!   `sigaltstack`, `set_tid_address`, `rseq`, `seccomp`, `io_uring_*`, `userfaultfd`.
//! - Calls whose layout is another program's or another world's: `ptrace`, `bpf`, `kexec_load`,
//!   `lookup_dcookie`, `uselib`, `_sysctl`.
//!
//! The guard retries a call without a row with one page of each argument resident. So does it with
//! a command of `fcntl`, `prctl`, `keyctl`, … that has no [`Case`]: then a row names no range.

/// A row of one of this folder's files; number and name come from one word.
macro_rules! row {
    ($number:ident, $consumes:ident, $pointers:expr) => {
        $crate::guard::table::Row {
            #[allow(
                clippy::unnecessary_cast,
                reason = "a C long is not an i64 on every target"
            )]
            number: $crate::guard::table::numbers::$number as i64,
            // Behind "SYS_".
            name: stringify!($number).split_at(4).1,
            pointers: &$pointers,
            consumes: $crate::guard::table::Consumes::$consumes,
        }
    };
}

mod data;
mod files;
mod ioctl;
#[cfg(target_arch = "x86_64")]
mod old;
mod process;
mod system;

pub use ioctl::case_of as ioctl_case;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The kernel reads.
    In,
    /// The kernel writes.
    Out,
    /// The kernel reads, then writes.
    InOut,
}

/// How many bytes lie at a pointer. Numbers of arguments start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    /// The fixed size of a structure.
    Bytes(usize),
    /// An argument, in bytes.
    Arg(u8),
    /// An argument, in bytes, and so many more.
    ArgPlus(u8, usize),
    /// An argument times the size of an item.
    Items(u8, usize),
    /// An argument in bits: a set of descriptors or of memory nodes, in whole words.
    Bits(u8),
    /// A byte for each page of as many bytes as an argument says.
    Pages(u8),
    /// The `u32` (`socklen_t`) that an argument points to.
    At(u8),
    /// The object says it itself: the `u32` at `offset`, if it is not 0, else `default`; and
    /// `plus` bytes beside it.
    Own {
        /// Where in the object.
        offset: usize,
        /// What 0 stands for.
        default: usize,
        /// What is not counted.
        plus: usize,
    },
}

/// A structure with one pointer to a counted array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nested {
    /// Size of the structure.
    pub bytes: usize,
    /// Where the pointer is.
    pub pointer: usize,
    /// Where the count is.
    pub count: usize,
    /// Width of the count: 2, 4 or 8 bytes.
    pub width: usize,
    /// Size of an item of the array.
    pub item: usize,
    /// Which way the array's bytes go; those of the structure go as its pointer says.
    pub direction: Direction,
}

/// What a command of a multiplexed call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The command.
    pub command: u32,
    /// Which way bytes go.
    pub direction: Direction,
    /// What lies at the pointer.
    pub pointee: Pointee,
}

/// What lies at a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointee {
    /// So many bytes.
    Bytes(Len),
    /// NUL-terminated.
    Text,
    /// Null-terminated array of NUL-terminated strings.
    Texts,
    /// Array of `iovec`, as many as argument `count` says; the buffers go in the direction of the
    /// pointer, the array is read.
    Iovec {
        /// The argument.
        count: u8,
    },
    /// The same, for buffers in the memory of the process that argument `process` names.
    IovecOf {
        /// The argument that says how many.
        count: u8,
        /// The argument that says whose.
        process: u8,
    },
    /// `msghdr`: the header, name, control data, vector and buffers.
    Message,
    /// Array of `mmsghdr`.
    Messages {
        /// The argument that says how many.
        count: u8,
    },
    /// `io_submit`'s array of pointers to `iocb`, with the buffers that those name.
    IoControlBlocks {
        /// The argument that says how many.
        count: u8,
    },
    /// Array of `futex_waitv`, with their words.
    FutexWaiters(Len),
    /// `sigevent` of `mq_notify`: with `SIGEV_THREAD` it points to a cookie.
    Notification,
    /// A structure that points to an array.
    Nested(Nested),
    /// Depends on the low 32 bits of an argument, masked; nothing if no case is that of the
    /// command.
    By {
        /// The argument.
        command: u8,
        /// Which of its bits say the command.
        mask: u32,
        /// What is known.
        cases: &'static [Case],
    },
    /// What the `ioctl` of argument 1 takes: see [`ioctl_case`].
    Ioctl,
}

/// A pointer among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Which argument, from 0.
    pub argument: u8,
    /// Which way bytes go.
    pub direction: Direction,
    /// What lies there.
    pub pointee: Pointee,
}

/// Whether a call may be repeated when its memory was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumes {
    /// It may. A result that could not be written is given again, and what stopped short goes on
    /// where it stopped.
    Never,
    /// Depends on the descriptor (an `eventfd`, an inotify queue, a terminal, … gives what it has
    /// once), and for `ioctl` on the command.
    OfSome,
    /// The kernel takes or changes something before it writes its results, or does not tell that
    /// it could not write one (the time that `select` leaves, control data of `recvmsg`): it must
    /// write to memory that is there.
    Always,
    /// The kernel does not tell with `EFAULT` what it could not read or write: everything must be
    /// there before the first try.
    Quietly,
}

/// What is known of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// `libc::SYS_*`.
    pub number: i64,
    /// Without `SYS_`.
    pub name: &'static str,
    /// The arguments that point to memory.
    pub pointers: &'static [Pointer],
    /// Whether it may be repeated.
    pub consumes: Consumes,
}

/// Numbers of calls: libc's, and those that it does not have yet, which are the same everywhere.
mod numbers {
    #![allow(
        non_upper_case_globals,
        reason = "they are named as libc names those that it has"
    )]
    #[cfg(target_arch = "aarch64")]
    pub(super) const SYS_fchmodat2: c_long = 452;
    #[cfg(target_arch = "aarch64")]
    pub(super) const SYS_io_pgetevents: c_long = 292;
    #[cfg(target_arch = "aarch64")]
    pub(super) const SYS_renameat: c_long = 38;
    #[cfg(target_arch = "x86_64")]
    pub(super) const SYS_io_pgetevents: c_long = 333;
    pub(super) const SYS_cachestat: c_long = 451;
    pub(super) const SYS_file_getattr: c_long = 468;
    pub(super) const SYS_file_setattr: c_long = 469;
    pub(super) const SYS_futex_requeue: c_long = 456;
    pub(super) const SYS_futex_wait: c_long = 455;
    pub(super) const SYS_futex_wake: c_long = 454;
    pub(super) const SYS_getxattrat: c_long = 464;
    pub(super) const SYS_listmount: c_long = 458;
    pub(super) const SYS_listxattrat: c_long = 465;
    pub(super) const SYS_lsm_get_self_attr: c_long = 459;
    pub(super) const SYS_lsm_list_modules: c_long = 461;
    pub(super) const SYS_lsm_set_self_attr: c_long = 460;
    pub(super) const SYS_open_tree_attr: c_long = 467;
    pub(super) const SYS_removexattrat: c_long = 466;
    pub(super) const SYS_setxattrat: c_long = 463;
    pub(super) const SYS_statmount: c_long = 457;
    pub(super) use libc::*;
}

/// Sizes of the kernel's structures, in bytes.
mod size {
    pub(super) const INT: usize = 4;
    pub(super) const WORD: usize = 8;
    pub(super) const EPOLL_EVENT: usize = size_of::<libc::epoll_event>();
    pub(super) const FLOCK: usize = 32;
    pub(super) const IO_EVENT: usize = 32;
    pub(super) const IOVEC: usize = 16;
    pub(super) const ITIMER: usize = 32;
    pub(super) const MQ_ATTR: usize = 64;
    pub(super) const POLLFD: usize = 8;
    pub(super) const RLIMIT: usize = 16;
    pub(super) const RUSAGE: usize = 144;
    pub(super) const SIGEVENT: usize = 64;
    pub(super) const SIGINFO: usize = 128;
    pub(super) const STAT: usize = size_of::<libc::stat>();
    pub(super) const STATFS: usize = 120;
    pub(super) const STATX: usize = 256;
    pub(super) const TIMEX: usize = 208;
    /// `timespec`, `timeval` and `utimbuf` alike.
    pub(super) const TIME: usize = 16;
    pub(super) const UTSNAME: usize = 6 * 65;
}

const fn text(argument: u8) -> Pointer {
    any(argument, Direction::In, Pointee::Text)
}

const fn texts(argument: u8) -> Pointer {
    any(argument, Direction::In, Pointee::Texts)
}

const fn input(argument: u8, len: Len) -> Pointer {
    any(argument, Direction::In, Pointee::Bytes(len))
}

const fn output(argument: u8, len: Len) -> Pointer {
    any(argument, Direction::Out, Pointee::Bytes(len))
}

const fn both(argument: u8, len: Len) -> Pointer {
    any(argument, Direction::InOut, Pointee::Bytes(len))
}

/// Depends on a command; its direction is that of the case.
const fn by(argument: u8, command: u8, cases: &'static [Case]) -> Pointer {
    let pointee = Pointee::By {
        command,
        mask: u32::MAX,
        cases,
    };
    any(argument, Direction::InOut, pointee)
}

const fn any(argument: u8, direction: Direction, pointee: Pointee) -> Pointer {
    Pointer {
        argument,
        direction,
        pointee,
    }
}

const fn case_in(command: u32, bytes: usize) -> Case {
    case(command, Direction::In, Pointee::Bytes(Len::Bytes(bytes)))
}

const fn case_out(command: u32, bytes: usize) -> Case {
    case(command, Direction::Out, Pointee::Bytes(Len::Bytes(bytes)))
}

const fn case_both(command: u32, bytes: usize) -> Case {
    case(command, Direction::InOut, Pointee::Bytes(Len::Bytes(bytes)))
}

const fn case(command: u32, direction: Direction, pointee: Pointee) -> Case {
    Case {
        command,
        direction,
        pointee,
    }
}

#[cfg(target_arch = "x86_64")]
const GROUPS: &[&[Row]] = &[
    files::ROWS,
    data::ROWS,
    process::ROWS,
    system::ROWS,
    old::ROWS,
];
#[cfg(not(target_arch = "x86_64"))]
const GROUPS: &[&[Row]] = &[files::ROWS, data::ROWS, process::ROWS, system::ROWS];

const COUNT: usize = {
    let (mut group, mut count) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

static ROWS: [Row; COUNT] = {
    let mut rows = [GROUPS[0][0]; COUNT];
    let (mut group, mut at) = (0, 0);
    while group < GROUPS.len() {
        let mut i = 0;
        while i < GROUPS[group].len() {
            rows[at] = GROUPS[group][i];
            at += 1;
            i += 1;
        }
        group += 1;
    }
    rows
};

/// Above every number of a call.
const NUMBERS: usize = 512;

/// For each number the place of its row and 1, or 0. Two rows of one number do not compile.
static INDEX: [u16; NUMBERS] = {
    let mut index = [0; NUMBERS];
    let mut at = 0;
    while at < COUNT {
        let number = ROWS[at].number as usize;
        assert!(index[number] == 0, "two rows of one number");
        index[number] = at as u16 + 1;
        at += 1;
    }
    index
};

/// The row of a call; `None` if there is none.
#[must_use]
#[inline]
pub fn row(number: i64) -> Option<&'static Row> {
    let place = *INDEX.get(usize::try_from(number).ok()?)?;
    ROWS.get(usize::from(place).checked_sub(1)?)
}

/// All rows, by subject.
#[must_use]
pub fn rows() -> &'static [Row] {
    &ROWS
}

#[cfg(test)]
mod tests;
