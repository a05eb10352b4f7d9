//! `ioctl`: the commands that do not encode their size, and the rule for those that do.

use super::{Case, Direction, Nested, Pointee, case, case_both, case_in, case_out, size};

/// The kernel's `termios`, which is smaller than the C library's.
const TERMIOS: usize = 36;
const TERMIO: usize = 18;
const WINSIZE: usize = 8;
const IFREQ: usize = 40;

/// Old commands: their numbers encode nothing.
const OLD: &[Case] = &[
    case_out(0x5401, TERMIOS),    // TCGETS
    case_in(0x5402, TERMIOS),     // TCSETS
    case_in(0x5403, TERMIOS),     // TCSETSW
    case_in(0x5404, TERMIOS),     // TCSETSF
    case_out(0x5405, TERMIO),     // TCGETA
    case_in(0x5406, TERMIO),      // TCSETA
    case_in(0x5407, TERMIO),      // TCSETAW
    case_in(0x5408, TERMIO),      // TCSETAF
    case_out(0x540F, size::INT),  // TIOCGPGRP
    case_in(0x5410, size::INT),   // TIOCSPGRP
    case_out(0x5411, size::INT),  // TIOCOUTQ
    case_in(0x5412, 1),           // TIOCSTI
    case_out(0x5413, WINSIZE),    // TIOCGWINSZ
    case_in(0x5414, WINSIZE),     // TIOCSWINSZ
    case_out(0x5415, size::INT),  // TIOCMGET
    case_in(0x5416, size::INT),   // TIOCMBIS
    case_in(0x5417, size::INT),   // TIOCMBIC
    case_in(0x5418, size::INT),   // TIOCMSET
    case_out(0x5419, size::INT),  // TIOCGSOFTCAR
    case_in(0x541A, size::INT),   // TIOCSSOFTCAR
    case_out(0x541B, size::INT),  // FIONREAD
    case_in(0x5420, size::INT),   // TIOCPKT
    case_in(0x5421, size::INT),   // FIONBIO
    case_in(0x5423, size::INT),   // TIOCSETD
    case_out(0x5424, size::INT),  // TIOCGETD
    case_out(0x5429, size::INT),  // TIOCGSID
    case_in(0x5452, size::INT),   // FIOASYNC
    case_out(0x5460, size::WORD), // FIOQSIZE
    case_in(0x8902, size::INT),   // SIOCSPGRP
    case_out(0x8904, size::INT),  // SIOCGPGRP
    case_out(0x8905, size::INT),  // SIOCATMARK
    case_out(0x8906, size::TIME), // SIOCGSTAMP
    case_out(0x8907, size::TIME), // SIOCGSTAMPNS
    case(
        0x8912, // SIOCGIFCONF
        Direction::InOut,
        Pointee::Nested(Nested {
            bytes: 16,
            pointer: 8,
            count: 0,
            width: 4,
            item: 1,
            direction: Direction::Out,
        }),
    ),
    // The numbers of these encode wrong sizes.
    case_out(0x8008_6601, size::INT), // FS_IOC_GETFLAGS
    case_in(0x4008_6602, size::INT),  // FS_IOC_SETFLAGS
    case_out(0x8008_7601, size::INT), // FS_IOC_GETVERSION
    case_in(0x4008_7602, size::INT),  // FS_IOC_SETVERSION
];

/// What the argument of an `ioctl` points to, if it is a pointer.
///
/// A command that encodes its size and direction has these; old ones of terminals have 64 bytes,
/// those of network devices an `ifreq`, any other 256, which is enough for all their structures.
/// Pointers inside such structures are unknown here.
#[must_use]
pub fn case_of(request: u32) -> Case {
    if let Some(old) = OLD.iter().find(|case| case.command == request) {
        return *old;
    }
    let bytes = (request >> 16 & 0x3fff) as usize;
    match (request >> 30, bytes, request >> 8 & 0xff) {
        (1, 1.., _) => case_in(request, bytes),
        (2, 1.., _) => case_out(request, bytes),
        (3, 1.., _) => case_both(request, bytes),
        (_, _, 0x54) => case_both(request, 64),
        (_, _, 0x89) => case_both(request, IFREQ),
        _ => case_both(request, 256),
    }
}
