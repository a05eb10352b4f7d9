//! Processes and threads: time, waiting, scheduling, signals, futexes, queues, memory.

use super::Len::{Arg, ArgPlus, Bits, Bytes, Items, Own, Pages};
use super::data::FILTER;
use super::{Case, Direction, Len, Pointee, Row, any, both, by, case, input, output, size};
use super::{case_in, case_out, text, texts};

/// Without `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
const FUTEX_COMMAND: u32 = 0x7f;

const fn by_futex(argument: u8, cases: &'static [Case]) -> super::Pointer {
    let pointee = Pointee::By {
        command: 1,
        mask: FUTEX_COMMAND,
        cases,
    };
    any(argument, Direction::InOut, pointee)
}

/// A futex word. The kernel demands a writable page even for a word that it only reads.
const fn word(command: i32, direction: Direction) -> Case {
    case(command as u32, direction, Pointee::Bytes(Bytes(size::INT)))
}

const FUTEX_WORD: &[Case] = &[
    word(libc::FUTEX_WAIT, Direction::InOut),
    word(libc::FUTEX_WAKE, Direction::InOut),
    word(libc::FUTEX_REQUEUE, Direction::InOut),
    word(libc::FUTEX_CMP_REQUEUE, Direction::InOut),
    word(libc::FUTEX_WAKE_OP, Direction::InOut),
    word(libc::FUTEX_LOCK_PI, Direction::InOut),
    word(libc::FUTEX_UNLOCK_PI, Direction::InOut),
    word(libc::FUTEX_TRYLOCK_PI, Direction::InOut),
    word(libc::FUTEX_WAIT_BITSET, Direction::InOut),
    word(libc::FUTEX_WAKE_BITSET, Direction::InOut),
    word(libc::FUTEX_WAIT_REQUEUE_PI, Direction::InOut),
    word(libc::FUTEX_CMP_REQUEUE_PI, Direction::InOut),
    word(libc::FUTEX_LOCK_PI2, Direction::InOut),
];

/// With the other commands the argument is a number.
const FUTEX_TIMEOUT: &[Case] = &[
    case_in(libc::FUTEX_WAIT as u32, size::TIME),
    case_in(libc::FUTEX_LOCK_PI as u32, size::TIME),
    case_in(libc::FUTEX_WAIT_BITSET as u32, size::TIME),
    case_in(libc::FUTEX_WAIT_REQUEUE_PI as u32, size::TIME),
    case_in(libc::FUTEX_LOCK_PI2 as u32, size::TIME),
];

const FUTEX_SECOND: &[Case] = &[
    word(libc::FUTEX_REQUEUE, Direction::InOut),
    word(libc::FUTEX_CMP_REQUEUE, Direction::InOut),
    word(libc::FUTEX_WAKE_OP, Direction::InOut),
    word(libc::FUTEX_WAIT_REQUEUE_PI, Direction::InOut),
    word(libc::FUTEX_CMP_REQUEUE_PI, Direction::InOut),
];

/// `futex_waitv`.
const WAITER: usize = 24;

const PRCTL_1: &[Case] = &[
    case_out(libc::PR_GET_PDEATHSIG as u32, size::INT),
    case_out(libc::PR_GET_UNALIGN as u32, size::INT),
    case_out(libc::PR_GET_FPEMU as u32, size::INT),
    case_out(libc::PR_GET_FPEXC as u32, size::INT),
    case_out(libc::PR_GET_ENDIAN as u32, size::INT),
    case_out(libc::PR_GET_TSC as u32, size::INT),
    case_out(libc::PR_GET_CHILD_SUBREAPER as u32, size::INT),
    case_out(libc::PR_GET_TID_ADDRESS as u32, size::WORD),
    case_in(libc::PR_SET_NAME as u32, 16),
    case_out(libc::PR_GET_NAME as u32, 16),
    case(
        0x4155_5856, // PR_GET_AUXV
        Direction::Out,
        Pointee::Bytes(Arg(2)),
    ),
];

/// `PR_SET_SECCOMP` of `SECCOMP_MODE_FILTER`.
const PRCTL_2: &[Case] = &[case(
    libc::PR_SET_SECCOMP as u32,
    Direction::In,
    Pointee::By {
        command: 1,
        mask: u32::MAX,
        cases: &[case(2, Direction::In, FILTER)],
    },
)];

/// `PR_SET_VMA` sets names; `PR_SCHED_CORE` of 0 (`GET`) writes a cookie.
const PRCTL_4: &[Case] = &[
    case(libc::PR_SET_VMA as u32, Direction::In, Pointee::Text),
    case(
        libc::PR_SCHED_CORE as u32,
        Direction::Out,
        Pointee::By {
            command: 1,
            mask: u32::MAX,
            cases: &[case_out(0, size::WORD)],
        },
    ),
];

const IPC_SET: u32 = libc::IPC_SET as u32;
const IPC_STAT: u32 = libc::IPC_STAT as u32;
const IPC_INFO: u32 = 3;

const MSGCTL: &[Case] = &[
    case_in(IPC_SET, 120),
    case_out(IPC_STAT, 120),
    case_out(IPC_INFO, 32),
    case_out(11, 120), // MSG_STAT
    case_out(12, 32),  // MSG_INFO
    case_out(13, 120), // MSG_STAT_ANY
];

const SHMCTL: &[Case] = &[
    case_in(IPC_SET, 112),
    case_out(IPC_STAT, 112),
    case_out(IPC_INFO, 72),
    case_out(13, 112), // SHM_STAT
    case_out(14, 48),  // SHM_INFO
    case_out(15, 112), // SHM_STAT_ANY
];

#[cfg(target_arch = "x86_64")]
const SEMID: usize = 104;
#[cfg(not(target_arch = "x86_64"))]
const SEMID: usize = 88;

/// Only the set knows its number of semaphores; the kernel's default limit is 32000.
const SEMAPHORES: usize = 2 * 32000;

const SEMCTL: &[Case] = &[
    case_in(IPC_SET, SEMID),
    case_out(IPC_STAT, SEMID),
    case_out(IPC_INFO, 40),
    case_out(13, SEMAPHORES), // GETALL
    case_in(17, SEMAPHORES),  // SETALL
    case_out(18, SEMID),      // SEM_STAT
    case_out(19, 40),         // SEM_INFO
    case_out(20, SEMID),      // SEM_STAT_ANY
];

const fn buffers_of(argument: u8, direction: Direction) -> super::Pointer {
    let pointee = Pointee::IovecOf {
        count: 4,
        process: 0,
    };
    any(argument, direction, pointee)
}

const fn iovec(argument: u8, direction: Direction) -> super::Pointer {
    any(argument, direction, Pointee::Iovec { count: 2 })
}

const TIME: Len = Bytes(size::TIME);
const ITIMER: Len = Bytes(size::ITIMER);
const INT: Len = Bytes(size::INT);
const INFO: Len = Bytes(size::SIGINFO);
const WAITERS: Pointee = Pointee::FutexWaiters(Items(1, WAITER));
const TWO_WAITERS: Pointee = Pointee::FutexWaiters(Bytes(2 * WAITER));
const SCHED_ATTR: Len = Own {
    offset: 0,
    default: 48,
    plus: 0,
};

pub(super) const ROWS: &[Row] = &[
    // Time.
    row!(SYS_clock_gettime, Never, [output(1, TIME)]),
    row!(SYS_clock_settime, Never, [input(1, TIME)]),
    row!(SYS_clock_getres, Never, [output(1, TIME)]),
    row!(SYS_clock_adjtime, Always, [both(1, Bytes(size::TIMEX))]),
    row!(SYS_adjtimex, Always, [both(0, Bytes(size::TIMEX))]),
    // The remaining time is written after a part of the time has passed.
    row!(SYS_nanosleep, Always, [input(0, TIME), output(1, TIME)]),
    row!(
        SYS_clock_nanosleep,
        Always,
        [input(2, TIME), output(3, TIME)]
    ),
    row!(
        SYS_gettimeofday,
        Never,
        [output(0, TIME), output(1, Bytes(8))]
    ),
    row!(
        SYS_settimeofday,
        Never,
        [input(0, TIME), input(1, Bytes(8))]
    ),
    row!(SYS_getitimer, Never, [output(1, ITIMER)]),
    row!(SYS_setitimer, Always, [input(1, ITIMER), output(2, ITIMER)]),
    row!(
        SYS_timer_create,
        Never,
        [input(1, Bytes(size::SIGEVENT)), output(2, INT)]
    ),
    row!(
        SYS_timer_settime,
        Always,
        [input(2, ITIMER), output(3, ITIMER)]
    ),
    row!(SYS_timer_gettime, Never, [output(1, ITIMER)]),
    row!(
        SYS_timerfd_settime,
        Always,
        [input(2, ITIMER), output(3, ITIMER)]
    ),
    row!(SYS_timerfd_gettime, Never, [output(1, ITIMER)]),
    row!(SYS_times, Never, [output(0, Bytes(32))]),
    // Processes.
    row!(SYS_execve, Never, [text(0), texts(1), texts(2)]),
    row!(SYS_execveat, Never, [text(1), texts(2), texts(3)]),
    row!(
        SYS_wait4,
        Always,
        [output(1, INT), output(3, Bytes(size::RUSAGE))]
    ),
    row!(
        SYS_waitid,
        Always,
        [output(2, INFO), output(4, Bytes(size::RUSAGE))]
    ),
    row!(SYS_getrusage, Never, [output(1, Bytes(size::RUSAGE))]),
    row!(
        SYS_prlimit64,
        Always,
        [
            input(2, Bytes(size::RLIMIT)),
            output(3, Bytes(size::RLIMIT))
        ]
    ),
    row!(SYS_sysinfo, Never, [output(0, Bytes(112))]),
    row!(SYS_uname, Never, [output(0, Bytes(size::UTSNAME))]),
    row!(SYS_getgroups, Never, [output(1, Items(0, size::INT))]),
    row!(SYS_setgroups, Never, [input(1, Items(0, size::INT))]),
    row!(
        SYS_getresuid,
        Never,
        [output(0, INT), output(1, INT), output(2, INT)]
    ),
    row!(
        SYS_getresgid,
        Never,
        [output(0, INT), output(1, INT), output(2, INT)]
    ),
    // The first version of the interface has half the data. The kernel writes the header if it does
    // not know the version.
    row!(SYS_capget, Never, [both(0, Bytes(8)), output(1, Bytes(24))]),
    row!(SYS_capset, Never, [both(0, Bytes(8)), input(1, Bytes(24))]),
    row!(
        SYS_prctl,
        Never,
        [by(1, 0, PRCTL_1), by(2, 0, PRCTL_2), by(4, 0, PRCTL_4)]
    ),
    row!(SYS_getcpu, Never, [output(0, INT), output(1, INT)]),
    row!(SYS_getrandom, Never, [output(0, Arg(1))]),
    row!(SYS_sched_setparam, Never, [input(1, INT)]),
    row!(SYS_sched_getparam, Never, [output(1, INT)]),
    row!(SYS_sched_setscheduler, Never, [input(2, INT)]),
    row!(SYS_sched_rr_get_interval, Never, [output(1, TIME)]),
    row!(SYS_sched_setaffinity, Never, [input(2, Arg(1))]),
    row!(SYS_sched_getaffinity, Never, [output(2, Arg(1))]),
    row!(SYS_sched_setattr, Never, [input(1, SCHED_ATTR)]),
    row!(SYS_sched_getattr, Never, [output(1, Arg(2))]),
    // Signals.
    row!(SYS_rt_sigpending, Never, [output(0, Arg(1))]),
    row!(SYS_rt_sigsuspend, Never, [input(0, Arg(1))]),
    row!(
        SYS_rt_sigtimedwait,
        Always,
        [input(0, Arg(3)), output(1, INFO), input(2, TIME)]
    ),
    row!(SYS_rt_sigqueueinfo, Never, [input(2, INFO)]),
    row!(SYS_rt_tgsigqueueinfo, Never, [input(3, INFO)]),
    row!(SYS_pidfd_send_signal, Never, [input(2, INFO)]),
    // Futexes.
    row!(
        SYS_futex,
        Never,
        [
            by_futex(0, FUTEX_WORD),
            by_futex(3, FUTEX_TIMEOUT),
            by_futex(4, FUTEX_SECOND)
        ]
    ),
    row!(
        SYS_futex_waitv,
        Never,
        [any(0, Direction::In, WAITERS), input(3, TIME)]
    ),
    row!(SYS_futex_wake, Never, [both(0, INT)]),
    row!(SYS_futex_wait, Never, [both(0, INT), input(4, TIME)]),
    row!(
        SYS_futex_requeue,
        Never,
        [any(0, Direction::In, TWO_WAITERS)]
    ),
    row!(
        SYS_get_robust_list,
        Never,
        [output(1, Bytes(size::WORD)), output(2, Bytes(size::WORD))]
    ),
    // Queues, semaphores, segments. A message begins with its type, which is not counted.
    row!(SYS_semop, Never, [input(1, Items(2, 6))]),
    row!(
        SYS_semtimedop,
        Never,
        [input(1, Items(2, 6)), input(3, TIME)]
    ),
    row!(SYS_semctl, Never, [by(3, 2, SEMCTL)]),
    row!(SYS_msgsnd, Never, [input(1, ArgPlus(2, size::WORD))]),
    row!(SYS_msgrcv, Always, [output(1, ArgPlus(2, size::WORD))]),
    row!(SYS_msgctl, Never, [by(2, 1, MSGCTL)]),
    row!(SYS_shmctl, Never, [by(2, 1, SHMCTL)]),
    row!(
        SYS_mq_open,
        Never,
        [text(0), input(3, Bytes(size::MQ_ATTR))]
    ),
    row!(SYS_mq_unlink, Never, [text(0)]),
    row!(SYS_mq_timedsend, Never, [input(1, Arg(2)), input(4, TIME)]),
    row!(
        SYS_mq_timedreceive,
        Always,
        [output(1, Arg(2)), output(3, INT), input(4, TIME)]
    ),
    row!(
        SYS_mq_notify,
        Never,
        [any(1, Direction::In, Pointee::Notification)]
    ),
    row!(
        SYS_mq_getsetattr,
        Always,
        [
            input(1, Bytes(size::MQ_ATTR)),
            output(2, Bytes(size::MQ_ATTR))
        ]
    ),
    // Memory.
    row!(SYS_mincore, Never, [output(2, Pages(1))]),
    row!(
        SYS_move_pages,
        Never,
        [
            input(2, Items(1, size::WORD)),
            input(3, Items(1, size::INT)),
            output(4, Items(1, size::INT))
        ]
    ),
    row!(
        SYS_migrate_pages,
        Never,
        [input(2, Bits(1)), input(3, Bits(1))]
    ),
    row!(SYS_mbind, Never, [input(3, Bits(4))]),
    row!(SYS_set_mempolicy, Never, [input(1, Bits(2))]),
    row!(
        SYS_get_mempolicy,
        Never,
        [output(0, INT), output(1, Bits(2))]
    ),
    // The ranges are named, not accessed.
    row!(
        SYS_process_madvise,
        Never,
        [input(1, Items(2, size::IOVEC))]
    ),
    // Memory that is absent in the named process stops the call short. The guard can bring it in only
    // if that process is this one.
    row!(
        SYS_process_vm_readv,
        Never,
        [iovec(1, Direction::Out), buffers_of(3, Direction::In)]
    ),
    row!(
        SYS_process_vm_writev,
        Never,
        [iovec(1, Direction::In), buffers_of(3, Direction::Out)]
    ),
];
