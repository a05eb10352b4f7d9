//! The table is consistent, samples of it are right, and the torture program makes each call.

use super::*;

/// A sample of rows: name and number.
const SAMPLE: &[(&str, i64)] = &[
    ("read", libc::SYS_read),
    ("recvmsg", libc::SYS_recvmsg),
    ("wait4", libc::SYS_wait4),
    ("futex", libc::SYS_futex),
    ("pidfd_send_signal", 424),
    ("futex_waitv", 449),
    ("fchmodat2", 452),
    ("file_setattr", 469),
];

#[test]
fn names_are_those_of_the_numbers() {
    for &(name, number) in SAMPLE {
        assert_eq!(row(number).map(|row| row.name), Some(name));
    }
    for row in rows() {
        assert!(!row.name.is_empty() && !row.name.contains("SYS"), "{row:?}");
    }
}

#[test]
fn the_index_agrees_with_a_search() {
    for number in -2..2 * NUMBERS as i64 {
        let mut found = rows().iter().filter(|row| row.number == number);
        assert_eq!(row(number), found.next());
        assert_eq!(found.next(), None, "two rows of {number}");
    }
    assert_eq!(row(i64::MAX), None);
    assert_eq!(row(i64::MIN), None);
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = rows().iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows().len());
}

#[test]
fn calls_that_the_guard_handles_have_no_row() {
    for number in [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_exit_group,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_rseq,
        libc::SYS_io_uring_enter,
        libc::SYS_userfaultfd,
        libc::SYS_getpid,
    ] {
        assert_eq!(row(number), None);
    }
}

fn check_pointee(row: &Row, pointee: &Pointee) {
    let known = |argument: u8| assert!(argument < 6, "{row:?}");
    match *pointee {
        Pointee::Bytes(len) | Pointee::FutexWaiters(len) => match len {
            Len::Bytes(bytes) => assert!(bytes > 0, "{row:?}"),
            Len::Arg(argument)
            | Len::ArgPlus(argument, _)
            | Len::Items(argument, _)
            | Len::Bits(argument)
            | Len::Pages(argument) => known(argument),
            // The argument with a length is itself among the pointers, and before its buffer.
            Len::At(argument) => assert!(
                row.pointers[..row.pointers.len() - 1]
                    .iter()
                    .any(|p| p.argument == argument),
                "{row:?}"
            ),
            Len::Own { offset, .. } => assert!(offset < 64, "{row:?}"),
        },
        Pointee::Iovec { count }
        | Pointee::Messages { count }
        | Pointee::IoControlBlocks { count } => known(count),
        Pointee::IovecOf { count, process } => {
            known(count);
            known(process);
        }
        Pointee::By {
            command,
            mask,
            cases,
        } => {
            known(command);
            for (i, case) in cases.iter().enumerate() {
                assert_eq!(case.command & mask, case.command, "{row:?}");
                let same = |other: &Case| other.command == case.command;
                assert!(!cases[..i].iter().any(same), "twice {case:?} of {row:?}");
                check_pointee(row, &case.pointee);
            }
        }
        Pointee::Nested(nested) => {
            assert!(nested.pointer + 8 <= nested.bytes, "{row:?}");
            assert!(nested.count + nested.width <= nested.bytes, "{row:?}");
        }
        Pointee::Text
        | Pointee::Texts
        | Pointee::Message
        | Pointee::Notification
        | Pointee::Ioctl => {}
    }
}

#[test]
fn rows_name_existing_arguments() {
    for row in rows() {
        assert!(!row.pointers.is_empty(), "{row:?}");
        for pointer in row.pointers {
            assert!(pointer.argument < 6, "{row:?}");
            check_pointee(row, &pointer.pointee);
        }
    }
}

/// A call that only reads memory has no result that could be lost.
#[test]
fn calls_that_consume_write_something() {
    for row in rows().iter().filter(|row| row.consumes == Consumes::Always) {
        let writes = |pointer: &Pointer| {
            pointer.direction != Direction::In
                || matches!(pointer.pointee, Pointee::Messages { .. })
        };
        assert!(row.pointers.iter().any(writes), "{row:?}");
    }
}

#[test]
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
fn sizes_match_the_c_library_where_it_has_the_kernel_structures() {
    assert_eq!(size::FLOCK, size_of::<libc::flock>());
    assert_eq!(size::IOVEC, size_of::<libc::iovec>());
    assert_eq!(size::ITIMER, size_of::<libc::itimerspec>());
    assert_eq!(size::MQ_ATTR, size_of::<libc::mq_attr>());
    assert_eq!(size::POLLFD, size_of::<libc::pollfd>());
    assert_eq!(size::RLIMIT, size_of::<libc::rlimit>());
    assert_eq!(size::RUSAGE, size_of::<libc::rusage>());
    assert_eq!(size::SIGEVENT, size_of::<libc::sigevent>());
    assert_eq!(size::SIGINFO, size_of::<libc::siginfo_t>());
    assert_eq!(size::STATFS, size_of::<libc::statfs>());
    assert_eq!(size::STATX, size_of::<libc::statx>());
    assert_eq!(size::TIME, size_of::<libc::timespec>());
    assert_eq!(size::TIME, size_of::<libc::utimbuf>());
    assert_eq!(size::TIMEX, size_of::<libc::timex>());
    assert_eq!(size::UTSNAME, size_of::<libc::utsname>());
}

#[test]
fn ioctls_have_the_size_that_they_encode() {
    let bytes = |len| Pointee::Bytes(Len::Bytes(len));
    // TCGETS, BLKGETSIZE64 (_IOR of a size_t), an unknown _IOWR, an unknown old one of terminals,
    // SIOCGIFFLAGS, CDROM_GET_CAPABILITY.
    for (request, direction, len) in [
        (0x5401, Direction::Out, 36),
        (0x8008_1272, Direction::Out, 8),
        (0xC123_AA05, Direction::InOut, 0x123),
        (0x5499, Direction::InOut, 64),
        (0x8913, Direction::InOut, 40),
        (0x5331, Direction::InOut, 256),
    ] {
        let case = ioctl_case(request);
        assert_eq!((case.direction, case.pointee), (direction, bytes(len)));
    }
}

/// The torture program makes each of these calls: `ROW(name)`.
#[test]
fn every_row_is_tortured() {
    let rows_of_the_test = include_str!("../../../../../tests/torture/table.c");
    for row in rows() {
        let expected = format!("\nROW({})", row.name);
        assert!(
            rows_of_the_test.contains(&expected),
            "tests/torture/table.c lacks ROW({})",
            row.name
        );
    }
}
