//! The table of system calls: which arguments point to memory, what they point to, and whether a
//! call that failed with `EFAULT` may be repeated.
//!
//! Code, tests (`tests/torture/table.c`) and documentation use this one table. Lengths are the
//! sizes of the kernel's structures, not of the C library's. Where the kernel decides how much it
//! touches, a length is the maximum; a user of the table has to skip unmapped parts.
//!
//! No rows:
//! - Calls without pointers, and calls that take addresses without accessing the memory there
//!   (`brk`, `madvise`, `msync`, `shmat`, `set_robust_list`, `membarrier`, …).
//! - Calls that the guard handles itself: `mmap`, `munmap`, `mremap`, `mprotect`, `mlock*`,
//!   `clone*`, `fork`, `vfork`, `exit*`, `rt_sigaction`, `rt_sigprocmask`, `rt_sigreturn`,
//!   `sigaltstack`, `set_tid_address`, `rseq`, `seccomp`, `io_uring_*`, `userfaultfd`.
//! - Calls with foreign layouts: `ptrace`, `bpf`, `kexec_load`, `lookup_dcookie`, `uselib`,
//!   `_sysctl`.
//!
//! The guard makes a call without a row with two pages of each argument resident: the one that it
//! points into, and the next. A command of `fcntl`, `prctl`, `keyctl`, … without a [`Case`] gets no
//! memory: its row names no range.

/// A row of one of this folder's files; one word gives number and name.
macro_rules! row {
    ($number:ident, $consumes:ident, $pointers:expr) => {
        $crate::guard::table::Row {
            #[allow(
                clippy::unnecessary_cast,
                reason = "a C long is not an i64 on every target"
            )]
            number: $crate::guard::table::numbers::$number as i64,
            // After "SYS_".
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

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The kernel reads.
    In,
    /// The kernel writes.
    Out,
    /// The kernel reads, then writes.
    InOut,
}

/// The number of bytes at a pointer. Arguments are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    /// The fixed size of a structure.
    Bytes(usize),
    /// An argument, in bytes.
    Arg(u8),
    /// An argument, in bytes, plus a constant.
    ArgPlus(u8, usize),
    /// An argument times the size of an item.
    Items(u8, usize),
    /// An argument in bits: a set of descriptors or of memory nodes, in whole words.
    Bits(u8),
    /// One byte for each page of a range whose length is the argument.
    Pages(u8),
    /// The `u32` (`socklen_t`) that an argument points to.
    At(u8),
    /// The object's own field: the `u32` at `offset`, or `default` if it is 0; plus `plus`.
    Own {
        /// Offset in the object.
        offset: usize,
        /// The meaning of 0.
        default: usize,
        /// Bytes that the field does not count.
        plus: usize,
    },
}

/// A structure with one pointer to a counted array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nested {
    /// Size of the structure.
    pub bytes: usize,
    /// Offset of the pointer.
    pub pointer: usize,
    /// Offset of the count.
    pub count: usize,
    /// Width of the count: 2, 4 or 8 bytes.
    pub width: usize,
    /// Size of an item of the array.
    pub item: usize,
    /// Direction of the array; the structure has the direction of its pointer.
    pub direction: Direction,
}

/// The meaning of one command of a multiplexed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The command.
    pub command: u32,
    /// What the kernel does with the pointee.
    pub direction: Direction,
    /// The pointee.
    pub pointee: Pointee,
}

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointee {
    /// Bytes.
    Bytes(Len),
    /// NUL-terminated.
    Text,
    /// Null-terminated array of NUL-terminated strings.
    Texts,
    /// Array of `iovec`, with argument `count` as its length; the buffers have the direction of the
    /// pointer, the array is read.
    Iovec {
        /// The argument with the length.
        count: u8,
    },
    /// The same, with buffers in the memory of the process that argument `process` names.
    IovecOf {
        /// The argument with the length.
        count: u8,
        /// The argument with the process.
        process: u8,
    },
    /// `msghdr`: the header, name, control data, vector and buffers.
    Message,
    /// Array of `mmsghdr`.
    Messages {
        /// The argument with the length.
        count: u8,
    },
    /// `io_submit`'s array of pointers to `iocb`, with their buffers.
    IoControlBlocks {
        /// The argument with the length.
        count: u8,
    },
    /// Array of `futex_waitv`, with their words.
    FutexWaiters(Len),
    /// `sigevent` of `mq_notify`: with `SIGEV_THREAD` it points to a cookie.
    Notification,
    /// A structure that points to an array.
    Nested(Nested),
    /// Depends on the low 32 bits of an argument, masked; nothing if no case has the command.
    By {
        /// The argument with the command.
        command: u8,
        /// The bits of the argument that hold the command.
        mask: u32,
        /// The known cases.
        cases: &'static [Case],
    },
    /// The argument of the `ioctl` whose request is argument 1: see [`ioctl_case`].
    Ioctl,
}

/// A pointer among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The argument, from 0.
    pub argument: u8,
    /// What the kernel does with the pointee.
    pub direction: Direction,
    /// The pointee.
    pub pointee: Pointee,
}

/// Whether a call may be repeated after its memory was absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumes {
    /// Yes. A result that could not be written is delivered again, and a transfer that stopped
    /// short continues where it stopped.
    Never,
    /// Depends on the descriptor (an `eventfd`, an inotify queue, a terminal, … delivers only
    /// once), and for `ioctl` on the command.
    OfSome,
    /// No: the kernel consumes or changes something before it writes its results, or does not
    /// report that it could not write one (the remaining time of `select`, control data of
    /// `recvmsg`). Its memory must be present.
    Always,
    /// The kernel does not report with `EFAULT` what it could not read or write: all memory must be
    /// present before the first try.
    Quietly,
}

/// A system call.
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

/// Numbers of calls: libc's, and those that it lacks. Newer calls have one number on all
/// architectures.
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

/// Depends on a command; the case has the direction.
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

/// Above every call number.
const NUMBERS: usize = 512;

/// For each number the index of its row plus 1, or 0. Two rows with one number do not compile.
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
