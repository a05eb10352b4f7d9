//! Calls that only x86-64 has: most have a successor with a directory descriptor.

use super::Len::{Arg, Bits, Bytes, Items};
use super::{Case, Row, both, by, case, case_out, input, output, size, text};
use super::{Direction, Pointee};

const SYSFS_1: &[Case] = &[case(1, Direction::In, Pointee::Text)];

/// A file system's name; names are short, and no argument has the size of the buffer.
const SYSFS_2: &[Case] = &[case_out(2, 32)];

const ARCH_PRCTL: &[Case] = &[
    case_out(0x1003, size::WORD), // ARCH_GET_FS
    case_out(0x1004, size::WORD), // ARCH_GET_GS
    case_out(0x1021, size::WORD), // ARCH_GET_XCOMP_SUPP
    case_out(0x1022, size::WORD), // ARCH_GET_XCOMP_PERM
    case_out(0x1024, size::WORD), // ARCH_GET_XCOMP_GUEST_PERM
    case_out(0x4001, size::WORD), // ARCH_GET_UNTAG_MASK
    case_out(0x4003, size::WORD), // ARCH_GET_MAX_TAG_BITS
    case_out(0x5005, size::WORD), // ARCH_SHSTK_STATUS
];

pub(super) const ROWS: &[Row] = &[
    row!(SYS_open, Never, [text(0)]),
    row!(SYS_creat, Never, [text(0)]),
    row!(SYS_stat, Never, [text(0), output(1, Bytes(size::STAT))]),
    row!(SYS_lstat, Never, [text(0), output(1, Bytes(size::STAT))]),
    row!(SYS_ustat, Never, [output(1, Bytes(32))]),
    row!(SYS_access, Never, [text(0)]),
    row!(SYS_readlink, Never, [text(0), output(1, Arg(2))]),
    row!(SYS_rename, Never, [text(0), text(1)]),
    row!(SYS_link, Never, [text(0), text(1)]),
    row!(SYS_symlink, Never, [text(0), text(1)]),
    row!(SYS_unlink, Never, [text(0)]),
    row!(SYS_mkdir, Never, [text(0)]),
    row!(SYS_rmdir, Never, [text(0)]),
    row!(SYS_mknod, Never, [text(0)]),
    row!(SYS_chmod, Never, [text(0)]),
    row!(SYS_chown, Never, [text(0)]),
    row!(SYS_lchown, Never, [text(0)]),
    row!(SYS_utime, Never, [text(0), input(1, Bytes(size::TIME))]),
    row!(
        SYS_utimes,
        Never,
        [text(0), input(1, Bytes(2 * size::TIME))]
    ),
    row!(
        SYS_futimesat,
        Never,
        [text(1), input(2, Bytes(2 * size::TIME))]
    ),
    row!(SYS_getdents, Always, [output(1, Arg(2))]),
    row!(SYS_pipe, Never, [output(0, Bytes(2 * size::INT))]),
    row!(SYS_poll, Never, [both(0, Items(1, size::POLLFD))]),
    // The remaining time is written without an error report.
    row!(
        SYS_select,
        Always,
        [
            both(1, Bits(0)),
            both(2, Bits(0)),
            both(3, Bits(0)),
            both(4, Bytes(size::TIME))
        ]
    ),
    row!(
        SYS_epoll_wait,
        Never,
        [output(1, Items(2, size::EPOLL_EVENT))]
    ),
    row!(SYS_signalfd, Never, [input(1, Arg(2))]),
    row!(SYS_getrlimit, Never, [output(1, Bytes(size::RLIMIT))]),
    row!(SYS_setrlimit, Never, [input(1, Bytes(size::RLIMIT))]),
    row!(SYS_time, Never, [output(0, Bytes(size::WORD))]),
    row!(SYS_sysfs, Never, [by(1, 0, SYSFS_1), by(2, 0, SYSFS_2)]),
    row!(SYS_arch_prctl, Never, [by(1, 0, ARCH_PRCTL)]),
    // Its errors have 32 bits: EFAULT is 0xffff_fff2.
    row!(SYS_modify_ldt, Never, [both(1, Arg(2))]),
];
