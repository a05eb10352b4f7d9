//! The system as a whole: mounts, names, keys, modules, quotas, access rules.

use super::Len::{Arg, At, Bytes, Items, Own};
use super::{Case, Direction, Len, Pointee, Row, any, both, by, case, input, output, size};
use super::{case_in, case_out, text};

/// Without the type of quota in the low byte.
const QUOTA_COMMAND: u32 = 0xffff_ff00;

const QUOTA: &[Case] = &[
    case(0x80_0002 << 8, Direction::In, Pointee::Text), // Q_QUOTAON
    case_out(0x80_0004 << 8, size::INT),                // Q_GETFMT
    case_out(0x80_0005 << 8, 24),                       // Q_GETINFO
    case_in(0x80_0006 << 8, 24),                        // Q_SETINFO
    case_out(0x80_0007 << 8, 72),                       // Q_GETQUOTA
    case_in(0x80_0008 << 8, 72),                        // Q_SETQUOTA
    case_out(0x80_0009 << 8, 72),                       // Q_GETNEXTQUOTA
];

const fn quota(argument: u8, command: u8) -> super::Pointer {
    let pointee = Pointee::By {
        command,
        mask: QUOTA_COMMAND,
        cases: QUOTA,
    };
    any(argument, Direction::InOut, pointee)
}

const PAYLOAD: Pointee = Pointee::Bytes(Arg(3));

const KEYCTL_1: &[Case] = &[case(1, Direction::In, Pointee::Text)]; // JOIN_SESSION_KEYRING

const KEYCTL_2: &[Case] = &[
    case(2, Direction::In, PAYLOAD),        // UPDATE
    case(6, Direction::Out, PAYLOAD),       // DESCRIBE
    case(10, Direction::In, Pointee::Text), // SEARCH
    case(11, Direction::Out, PAYLOAD),      // READ
    case(12, Direction::In, PAYLOAD),       // INSTANTIATE
    case(17, Direction::Out, PAYLOAD),      // GET_SECURITY
];

const KEYCTL_3: &[Case] = &[case(10, Direction::In, Pointee::Text)];

const FSCONFIG: &[Case] = &[
    case(1, Direction::In, Pointee::Text),          // SET_STRING
    case(2, Direction::In, Pointee::Bytes(Arg(4))), // SET_BINARY
    case(3, Direction::In, Pointee::Text),          // SET_PATH
    case(4, Direction::In, Pointee::Text),          // SET_PATH_EMPTY
];

/// `LINUX_REBOOT_CMD_RESTART2` takes a string for the firmware.
const REBOOT: &[Case] = &[case(0xA1B2_C3D4, Direction::In, Pointee::Text)];

const LANDLOCK_RULE: &[Case] = &[
    case_in(1, 12), // PATH_BENEATH
    case_in(2, 16), // NET_PORT
];

const PERF_ATTR: Len = Own {
    offset: 4,
    default: 64,
    plus: 0,
};

/// `mnt_id_req` begins with its size.
const MOUNT_REQUEST: Len = Own {
    offset: 0,
    default: 24,
    plus: 0,
};

pub(super) const ROWS: &[Row] = &[
    // The options are read as far as they exist, at most a page.
    row!(
        SYS_mount,
        Quietly,
        [text(0), text(1), text(2), input(4, Bytes(4096))]
    ),
    row!(SYS_umount2, Never, [text(0)]),
    row!(SYS_pivot_root, Never, [text(0), text(1)]),
    row!(SYS_open_tree, Never, [text(1)]),
    row!(SYS_open_tree_attr, Never, [text(1), input(3, Arg(4))]),
    row!(SYS_move_mount, Never, [text(1), text(3)]),
    row!(SYS_fsopen, Never, [text(0)]),
    row!(SYS_fsconfig, Never, [text(2), by(3, 1, FSCONFIG)]),
    row!(SYS_fspick, Never, [text(1)]),
    row!(SYS_mount_setattr, Never, [text(1), input(3, Arg(4))]),
    row!(
        SYS_statmount,
        Never,
        [input(0, MOUNT_REQUEST), output(1, Arg(2))]
    ),
    row!(
        SYS_listmount,
        Never,
        [input(0, MOUNT_REQUEST), output(1, Items(2, size::WORD))]
    ),
    row!(SYS_swapon, Never, [text(0)]),
    row!(SYS_swapoff, Never, [text(0)]),
    row!(SYS_acct, Never, [text(0)]),
    row!(SYS_quotactl, Never, [text(1), quota(3, 0)]),
    row!(SYS_quotactl_fd, Never, [quota(3, 1)]),
    row!(SYS_sethostname, Never, [input(0, Arg(1))]),
    row!(SYS_setdomainname, Never, [input(0, Arg(1))]),
    row!(SYS_reboot, Never, [by(3, 2, REBOOT)]),
    // Some commands consume the messages that they return.
    row!(SYS_syslog, Always, [output(1, Arg(2))]),
    row!(SYS_init_module, Never, [input(0, Arg(1)), text(2)]),
    row!(SYS_finit_module, Never, [text(1)]),
    row!(SYS_delete_module, Never, [text(0)]),
    row!(SYS_kexec_file_load, Never, [input(3, Arg(2))]),
    row!(SYS_add_key, Never, [text(0), text(1), input(2, Arg(3))]),
    row!(SYS_request_key, Never, [text(0), text(1), text(2)]),
    row!(
        SYS_keyctl,
        Never,
        [by(1, 0, KEYCTL_1), by(2, 0, KEYCTL_2), by(3, 0, KEYCTL_3)]
    ),
    row!(SYS_landlock_create_ruleset, Never, [input(0, Arg(1))]),
    row!(SYS_landlock_add_rule, Never, [by(2, 1, LANDLOCK_RULE)]),
    row!(
        SYS_lsm_get_self_attr,
        Never,
        [both(2, Bytes(size::INT)), output(1, At(2))]
    ),
    row!(SYS_lsm_set_self_attr, Never, [input(1, Arg(2))]),
    row!(
        SYS_lsm_list_modules,
        Never,
        [both(1, Bytes(size::INT)), output(0, At(1))]
    ),
    row!(SYS_perf_event_open, Never, [input(0, PERF_ATTR)]),
];
