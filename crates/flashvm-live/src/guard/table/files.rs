//! Files by path or descriptor: their metadata, not their contents.

use super::Len::{Arg, Bytes, Own};
use super::{Direction, Nested, Pointee, Row, any, both, input, output, size, text};

/// `xattr_args`: address and length of the value.
const fn value(direction: Direction) -> Pointee {
    Pointee::Nested(Nested {
        bytes: 16,
        pointer: 0,
        count: 8,
        width: 4,
        item: 1,
        direction,
    })
}

/// `file_handle`: a header of 8 bytes, and the number of bytes in its first word.
const HANDLE: super::Len = Own {
    offset: 0,
    default: 0,
    plus: 8,
};

pub(super) const ROWS: &[Row] = &[
    row!(SYS_openat, Never, [text(1)]),
    row!(SYS_openat2, Never, [text(1), input(2, Arg(3))]),
    row!(SYS_open_by_handle_at, Never, [input(1, HANDLE)]),
    // The mount number has eight bytes with AT_HANDLE_MNT_ID_UNIQUE.
    row!(
        SYS_name_to_handle_at,
        Never,
        [text(1), both(2, HANDLE), output(3, Bytes(size::WORD))]
    ),
    row!(SYS_memfd_create, Never, [text(0)]),
    row!(
        SYS_newfstatat,
        Never,
        [text(1), output(2, Bytes(size::STAT))]
    ),
    row!(SYS_fstat, Never, [output(1, Bytes(size::STAT))]),
    row!(SYS_statx, Never, [text(1), output(4, Bytes(size::STATX))]),
    row!(SYS_statfs, Never, [text(0), output(1, Bytes(size::STATFS))]),
    row!(SYS_fstatfs, Never, [output(1, Bytes(size::STATFS))]),
    row!(
        SYS_cachestat,
        Never,
        [input(1, Bytes(16)), output(2, Bytes(40))]
    ),
    row!(SYS_faccessat, Never, [text(1)]),
    row!(SYS_faccessat2, Never, [text(1)]),
    row!(SYS_readlinkat, Never, [text(1), output(2, Arg(3))]),
    row!(SYS_renameat, Never, [text(1), text(3)]),
    row!(SYS_renameat2, Never, [text(1), text(3)]),
    row!(SYS_linkat, Never, [text(1), text(3)]),
    row!(SYS_symlinkat, Never, [text(0), text(2)]),
    row!(SYS_unlinkat, Never, [text(1)]),
    row!(SYS_mkdirat, Never, [text(1)]),
    row!(SYS_mknodat, Never, [text(1)]),
    row!(SYS_fchmodat, Never, [text(1)]),
    row!(SYS_fchmodat2, Never, [text(1)]),
    row!(SYS_fchownat, Never, [text(1)]),
    row!(
        SYS_utimensat,
        Never,
        [text(1), input(2, Bytes(2 * size::TIME))]
    ),
    row!(SYS_truncate, Never, [text(0)]),
    row!(SYS_chdir, Never, [text(0)]),
    row!(SYS_chroot, Never, [text(0)]),
    row!(SYS_getcwd, Never, [output(0, Arg(1))]),
    // The directory position advances with the last entry, whose offset is written after that.
    row!(SYS_getdents64, Always, [output(1, Arg(2))]),
    row!(SYS_inotify_add_watch, Never, [text(1)]),
    row!(SYS_fanotify_mark, Never, [text(4)]),
    row!(SYS_file_getattr, Never, [text(1), output(2, Arg(3))]),
    row!(SYS_file_setattr, Never, [text(1), input(2, Arg(3))]),
    row!(SYS_setxattr, Never, [text(0), text(1), input(2, Arg(3))]),
    row!(SYS_lsetxattr, Never, [text(0), text(1), input(2, Arg(3))]),
    row!(SYS_fsetxattr, Never, [text(1), input(2, Arg(3))]),
    row!(
        SYS_setxattrat,
        Never,
        [
            text(1),
            text(3),
            any(4, Direction::In, value(Direction::In))
        ]
    ),
    row!(SYS_getxattr, Never, [text(0), text(1), output(2, Arg(3))]),
    row!(SYS_lgetxattr, Never, [text(0), text(1), output(2, Arg(3))]),
    row!(SYS_fgetxattr, Never, [text(1), output(2, Arg(3))]),
    row!(
        SYS_getxattrat,
        Never,
        [
            text(1),
            text(3),
            any(4, Direction::In, value(Direction::Out))
        ]
    ),
    row!(SYS_listxattr, Never, [text(0), output(1, Arg(2))]),
    row!(SYS_llistxattr, Never, [text(0), output(1, Arg(2))]),
    row!(SYS_flistxattr, Never, [output(1, Arg(2))]),
    row!(SYS_listxattrat, Never, [text(1), output(3, Arg(4))]),
    row!(SYS_removexattr, Never, [text(0), text(1)]),
    row!(SYS_lremovexattr, Never, [text(0), text(1)]),
    row!(SYS_fremovexattr, Never, [text(1)]),
    row!(SYS_removexattrat, Never, [text(1), text(3)]),
];
