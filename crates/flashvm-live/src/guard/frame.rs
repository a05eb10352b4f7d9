//! The signal frame of the kernel (x86-64): `rt_sigframe`, and the extended processor state above
//! it.

/// Registers: `struct sigcontext`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub(super) r8: u64,
    pub(super) r9: u64,
    pub(super) r10: u64,
    pub(super) r11: u64,
    pub(super) r12: u64,
    pub(super) r13: u64,
    pub(super) r14: u64,
    pub(super) r15: u64,
    pub(super) rdi: u64,
    pub(super) rsi: u64,
    pub(super) rbp: u64,
    pub(super) rbx: u64,
    pub(super) rdx: u64,
    pub(super) rax: u64,
    pub(super) rcx: u64,
    pub(super) rsp: u64,
    pub(super) rip: u64,
    pub(super) eflags: u64,
    pub(super) segments: u64,
    /// The page fault's error code.
    pub(super) error: u64,
    pub(super) trap: u64,
    pub(super) old_mask: u64,
    pub(super) cr2: u64,
    /// Address of the extended state, or 0.
    pub(super) state: u64,
    pub(super) reserved: [u64; 8],
}

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AltStack {
    pub(super) sp: u64,
    pub(super) flags: i32,
    pub(super) pad: i32,
    pub(super) size: u64,
}

impl AltStack {
    pub(super) const NONE: Self = Self {
        sp: 0,
        flags: libc::SS_DISABLE,
        pad: 0,
        size: 0,
    };

    /// Whether a stack pointer is on it.
    pub(super) fn holds(&self, sp: u64) -> bool {
        self.flags & libc::SS_DISABLE == 0 && sp > self.sp && sp - self.sp <= self.size
    }
}

/// The kernel's `struct ucontext`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(super) flags: u64,
    pub(super) link: u64,
    pub(super) stack: AltStack,
    pub(super) regs: Registers,
    pub(super) mask: u64,
}

/// `siginfo_t`, as bytes and the fields used here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Info {
    pub(super) signal: i32,
    pub(super) errno: i32,
    pub(super) code: i32,
    pub(super) pad: i32,
    /// The address of a fault.
    pub(super) address: u64,
    pub(super) rest: [u64; 13],
}

/// `struct rt_sigframe`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) restorer: u64,
    pub(super) context: Context,
    pub(super) info: Info,
}

const _: () = assert!(size_of::<Context>() == 304 && size_of::<Info>() == 128);
const _: () = assert!(size_of::<Frame>() == 440);

/// Page fault error code: the page is present.
pub(super) const FAULT_PRESENT: u64 = 1;
/// Page fault error code: a store.
pub(super) const FAULT_WRITE: u64 = 2;
/// The instruction itself was fetched there.
pub(super) const FAULT_FETCH: u64 = 0x10;
/// A protection key forbids the access.
pub(super) const FAULT_BY_KEY: u64 = 0x20;

/// Alignment of the extended state.
pub(super) const STATE_ALIGN: u64 = 64;
const LEGACY_BYTES: usize = 512;
const MAGIC: u32 = 0x4650_5853;
const MAGIC_AT: usize = 464;
const FEATURES_AT: usize = 512;

/// Bytes of the extended state at an address in the guard's memory.
///
/// # Safety
/// The kernel, or this module, has put such a state there.
pub(super) unsafe fn state_bytes(at: u64) -> usize {
    // SAFETY: there is an extended state at `at`, as the caller guarantees: at least 512 bytes, in
    // which both fields lie.
    unsafe {
        let magic = (at as usize + MAGIC_AT) as *const u32;
        if magic.read() == MAGIC {
            magic.add(1).read() as usize
        } else {
            LEGACY_BYTES
        }
    }
}

/// Resets all components of the state to their initial configuration, as a signal handler finds
/// them.
///
/// # Safety
/// As [`state_bytes`].
pub(super) unsafe fn reset_state(at: u64) {
    // SAFETY: there is an extended state at `at`, as the caller guarantees. If it is longer than 512
    // bytes, its header follows them and begins with the features.
    unsafe {
        if state_bytes(at) > LEGACY_BYTES {
            ((at as usize + FEATURES_AT) as *mut u64).write(0);
        }
    }
}
