//! Calls that move data and wait for it: contents of files, pipes, sockets, polling, asynchronous
//! I/O.

use super::Len::{Arg, At, Bits, Bytes, Items};
use super::{Case, Direction, Nested, Pointee, Row, any, both, by, case, input, output, size};
use super::{case_both, case_in, case_out};

const fn iovec(argument: u8, direction: Direction, count: u8) -> super::Pointer {
    any(argument, direction, Pointee::Iovec { count })
}

/// A set of signals and its size behind one pointer: a call has no seventh argument.
const MASK_AND_SIZE: Pointee = Pointee::Nested(Nested {
    bytes: 16,
    pointer: 0,
    count: 8,
    width: 8,
    item: 1,
    direction: Direction::In,
});

/// `sock_fprog`: a program of eight bytes an instruction.
pub(super) const FILTER: Pointee = Pointee::Nested(Nested {
    bytes: 16,
    pointer: 8,
    count: 0,
    width: 2,
    item: 8,
    direction: Direction::In,
});

/// Options with further pointers; only at level `SOL_SOCKET`.
const OPTION_LEVELS: &[Case] = &[case(
    libc::SOL_SOCKET as u32,
    Direction::In,
    Pointee::By {
        command: 2,
        mask: u32::MAX,
        cases: &[
            case(libc::SO_ATTACH_FILTER as u32, Direction::In, FILTER),
            case(libc::SO_ATTACH_REUSEPORT_CBPF as u32, Direction::In, FILTER),
        ],
    },
)];

const FCNTL: &[Case] = &[
    case_both(libc::F_GETLK as u32, size::FLOCK),
    case_in(libc::F_SETLK as u32, size::FLOCK),
    case_in(libc::F_SETLKW as u32, size::FLOCK),
    case_both(libc::F_OFD_GETLK as u32, size::FLOCK),
    case_in(libc::F_OFD_SETLK as u32, size::FLOCK),
    case_in(libc::F_OFD_SETLKW as u32, size::FLOCK),
    case_in(15, 8),                  // F_SETOWN_EX
    case_out(16, 8),                 // F_GETOWN_EX
    case_out(17, 2 * size::INT),     // F_GETOWNER_UIDS
    case_out(1024 + 11, size::WORD), // F_GET_RW_HINT
    case_in(1024 + 12, size::WORD),  // F_SET_RW_HINT
    case_out(1024 + 13, size::WORD), // F_GET_FILE_RW_HINT
    case_in(1024 + 14, size::WORD),  // F_SET_FILE_RW_HINT
];

pub(super) const ROWS: &[Row] = &[
    row!(SYS_read, OfSome, [output(1, Arg(2))]),
    row!(SYS_pread64, OfSome, [output(1, Arg(2))]),
    row!(SYS_readv, OfSome, [iovec(1, Direction::Out, 2)]),
    row!(SYS_preadv, OfSome, [iovec(1, Direction::Out, 2)]),
    row!(SYS_preadv2, OfSome, [iovec(1, Direction::Out, 2)]),
    // A write that stops short continues as a second one: where that differs (a pipe and at most
    // PIPE_BUF bytes, a device), the buffer must be present first.
    row!(SYS_write, Never, [input(1, Arg(2))]),
    row!(SYS_pwrite64, Never, [input(1, Arg(2))]),
    row!(SYS_writev, Never, [iovec(1, Direction::In, 2)]),
    row!(SYS_pwritev, Never, [iovec(1, Direction::In, 2)]),
    row!(SYS_pwritev2, Never, [iovec(1, Direction::In, 2)]),
    // The end of the pipe decides the direction.
    row!(SYS_vmsplice, Never, [iovec(1, Direction::InOut, 2)]),
    // Offsets are written after the bytes have been moved.
    row!(SYS_sendfile, Always, [both(2, Bytes(size::WORD))]),
    row!(
        SYS_splice,
        Always,
        [both(1, Bytes(size::WORD)), both(3, Bytes(size::WORD))]
    ),
    row!(
        SYS_copy_file_range,
        Always,
        [both(1, Bytes(size::WORD)), both(3, Bytes(size::WORD))]
    ),
    row!(SYS_fcntl, Never, [by(2, 1, FCNTL)]),
    row!(
        SYS_ioctl,
        OfSome,
        [any(2, Direction::InOut, Pointee::Ioctl)]
    ),
    row!(SYS_pipe2, Never, [output(0, Bytes(2 * size::INT))]),
    // The remaining time is written without an error report.
    row!(
        SYS_pselect6,
        Always,
        [
            both(1, Bits(0)),
            both(2, Bits(0)),
            both(3, Bits(0)),
            both(4, Bytes(size::TIME)),
            any(5, Direction::In, MASK_AND_SIZE)
        ]
    ),
    row!(
        SYS_ppoll,
        Always,
        [
            both(0, Items(1, size::POLLFD)),
            both(2, Bytes(size::TIME)),
            input(3, Arg(4))
        ]
    ),
    row!(SYS_epoll_ctl, Never, [input(3, Bytes(size::EPOLL_EVENT))]),
    // An event that could not be written is reported again.
    row!(
        SYS_epoll_pwait,
        Never,
        [output(1, Items(2, size::EPOLL_EVENT)), input(4, Arg(5))]
    ),
    row!(
        SYS_epoll_pwait2,
        Never,
        [
            output(1, Items(2, size::EPOLL_EVENT)),
            input(3, Bytes(size::TIME)),
            input(4, Arg(5))
        ]
    ),
    row!(SYS_signalfd4, Never, [input(1, Arg(2))]),
    row!(SYS_bind, Never, [input(1, Arg(2))]),
    row!(SYS_connect, Never, [input(1, Arg(2))]),
    row!(
        SYS_accept,
        Always,
        [both(2, Bytes(size::INT)), output(1, At(2))]
    ),
    row!(
        SYS_accept4,
        Always,
        [both(2, Bytes(size::INT)), output(1, At(2))]
    ),
    row!(
        SYS_getsockname,
        Never,
        [both(2, Bytes(size::INT)), output(1, At(2))]
    ),
    row!(
        SYS_getpeername,
        Never,
        [both(2, Bytes(size::INT)), output(1, At(2))]
    ),
    row!(SYS_socketpair, Never, [output(3, Bytes(2 * size::INT))]),
    // SO_ERROR is delivered once. Some options are read as well.
    row!(
        SYS_getsockopt,
        Always,
        [both(4, Bytes(size::INT)), both(3, At(4))]
    ),
    row!(
        SYS_setsockopt,
        Never,
        [input(3, Arg(4)), by(3, 1, OPTION_LEVELS)]
    ),
    row!(SYS_sendto, Never, [input(1, Arg(2)), input(4, Arg(5))]),
    row!(
        SYS_sendmsg,
        Never,
        [any(1, Direction::In, Pointee::Message)]
    ),
    // A message has been sent when its length is written.
    row!(
        SYS_sendmmsg,
        Always,
        [any(1, Direction::In, Pointee::Messages { count: 2 })]
    ),
    row!(
        SYS_recvfrom,
        Always,
        [
            output(1, Arg(2)),
            both(5, Bytes(size::INT)),
            output(4, At(5))
        ]
    ),
    row!(
        SYS_recvmsg,
        Always,
        [any(1, Direction::Out, Pointee::Message)]
    ),
    row!(
        SYS_recvmmsg,
        Always,
        [
            any(1, Direction::Out, Pointee::Messages { count: 2 }),
            both(4, Bytes(size::TIME))
        ]
    ),
    row!(SYS_io_setup, Never, [both(1, Bytes(size::WORD))]),
    // Absent buffers are reported by the event, not by `EFAULT`.
    row!(
        SYS_io_submit,
        Quietly,
        [any(
            2,
            Direction::InOut,
            Pointee::IoControlBlocks { count: 1 }
        )]
    ),
    row!(
        SYS_io_cancel,
        Always,
        [input(1, Bytes(64)), output(2, Bytes(size::IO_EVENT))]
    ),
    row!(
        SYS_io_getevents,
        Always,
        [
            output(3, Items(2, size::IO_EVENT)),
            input(4, Bytes(size::TIME))
        ]
    ),
    row!(
        SYS_io_pgetevents,
        Always,
        [
            output(3, Items(2, size::IO_EVENT)),
            input(4, Bytes(size::TIME)),
            any(5, Direction::In, MASK_AND_SIZE)
        ]
    ),
];
