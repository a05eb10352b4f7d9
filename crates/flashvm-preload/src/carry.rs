//! Carried programs: those that glibc's dynamic linker does not start (static programs, such as Go's, and programs of
//! another C library). The linker starts this object as if it were a program. The object runs its own constructors, and
//! so starts the pager as always. Then it maps the program as the kernel would at `execve`, and jumps to its first
//! instruction. From there on the guard is the only way from the program to the kernel.

use crate::process::carried_program;
use flashvm_core::PAGE_SIZE;
use flashvm_live::program::exec::CARRIED_AFTER;
use flashvm_live::program::mapping::kernels_break;
use flashvm_live::program::{Image, Segment};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

std::arch::global_asm!(
    ".pushsection .text",
    // Where the dynamic linker jumps if this object is the program. The stack is a program's: count, arguments.
    ".globl flashvm_carry",
    "flashvm_carry:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {carry}",
    "ud2",
    // The program's first instruction, with the registers as after `execve`. (stack pointer, address)
    ".hidden flashvm_carry_begin",
    ".globl flashvm_carry_begin",
    "flashvm_carry_begin:",
    "mov rsp, rdi",
    "mov rcx, rsi",
    "xor eax, eax",
    "wrfsbase rax",
    "xor ebx, ebx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r11d, r11d",
    "xor r12d, r12d",
    "xor r13d, r13d",
    "xor r14d, r14d",
    "xor r15d, r15d",
    "jmp rcx",
    ".popsection",
    carry = sym carry,
);

unsafe extern "C" {
    fn flashvm_carry_begin(stack: *mut usize, entry: usize) -> !;
    /// This object's dynamic section: pairs of a tag and a value, a zero tag at the end.
    static _DYNAMIC: [usize; 2];
}

const DT_INIT_ARRAY: usize = 25;
const DT_INIT_ARRAYSZ: usize = 27;

/// A constructor, as the C library calls it.
type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

/// Runs this object's constructors. The dynamic linker leaves those of a program to the program.
///
/// # Safety
/// `stack` is a program's first stack, and the constructors have not run.
unsafe fn construct(stack: *const usize) {
    let (mut array, mut bytes) = (0, 0);
    // SAFETY: the linker ends the section with a zero tag; the C library knows where it has loaded this object. The array
    // has the size that the section says, and consists of constructors. The caller guarantees the stack.
    unsafe {
        let mut entry = &raw const _DYNAMIC;
        while (*entry)[0] != 0 {
            match (*entry)[0] {
                DT_INIT_ARRAY => array = (*entry)[1],
                DT_INIT_ARRAYSZ => bytes = (*entry)[1],
                _ => {}
            }
            entry = entry.add(1);
        }
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        libc::dladdr(carry as *const c_void, info.as_mut_ptr());
        let base = info.assume_init().dli_fbase as usize;
        let (count, arguments) = (*stack, stack.add(1).cast::<*const c_char>());
        let environment = arguments.add(count + 1);
        for at in (0..bytes).step_by(size_of::<usize>()) {
            let constructor = *((base + array + at) as *const Constructor);
            constructor(count as c_int, arguments, environment);
        }
    }
}

/// Starts the program that this object carries. Never returns.
///
/// # Safety
/// `stack` is a program's first stack, and this is its only thread.
unsafe extern "C" fn carry(stack: *mut usize) -> ! {
    // SAFETY: the caller guarantees the stack; the object was just started.
    let started = unsafe {
        construct(stack);
        load(stack)
    };
    let (stack, entry) = match started {
        Ok(start) => start,
        Err(reason) => {
            let program = carried_program().unwrap_or_default();
            eprintln!("flashvm: {}: {reason}", program.display());
            std::process::exit(2)
        }
    };
    // SAFETY: the stack is a program's, the entry is mapped, and nothing of this function is used any more.
    unsafe { flashvm_carry_begin(stack, entry) }
}

/// Maps the program; returns its stack and its first instruction.
///
/// # Safety
/// As for [`carry`].
unsafe fn load(stack: *mut usize) -> Result<(*mut usize, usize), String> {
    let program = carried_program().ok_or("this object is for `flashvm run`, and no program")?;
    if !crate::state::guarded() {
        return Err("the guard does not run: use --fault inline or protect".to_owned());
    }
    let (file, image) = open(&program)?;
    let base = map(&file, &image).map_err(|error| format!("cannot be mapped ({error})"))?;
    let mut entry = base.wrapping_add(image.entry as usize);
    let mut linker_base = 0;
    if let Some(name) = &image.interpreter {
        let name = OsStr::from_bytes(name);
        let whose = |reason| format!("its dynamic linker {}: {reason}", name.display());
        let (file, linker) = open(name).map_err(whose)?;
        linker_base = map(&file, &linker).map_err(|error| whose(error.to_string()))?;
        entry = linker_base.wrapping_add(linker.entry as usize);
    }
    let name = std::path::Path::new(&program).file_name();
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|error| error.to_string());
    let short = text(name.unwrap_or(&program))?;
    let _ = rustix::thread::set_name(&short);
    // The program's path stays: its stack names it.
    let path = Box::leak(text(&program)?.into_boxed_c_str());
    // SAFETY: the caller guarantees the stack: a count, then arguments, of which the first are ours; then the
    // environment and the auxiliary vector, each with a zero at its end.
    let stack = unsafe {
        let count = *stack - CARRIED_AFTER;
        let stack = stack.add(CARRIED_AFTER);
        *stack = count;
        let first_argument = *stack.add(1);
        let mut at = stack.add(1 + count + 1);
        while *at != 0 {
            at = at.add(1);
        }
        let headers = image.headers.map_or(0, |at| base.wrapping_add(at as usize));
        let new = [
            (libc::AT_PHDR, headers),
            (libc::AT_PHENT, 56),
            (libc::AT_PHNUM, usize::from(image.header_count)),
            (libc::AT_BASE, linker_base),
            (libc::AT_ENTRY, base.wrapping_add(image.entry as usize)),
            (libc::AT_EXECFN, path.as_ptr() as usize),
        ];
        let vector = at.add(1);
        at = vector;
        while *at != libc::AT_NULL as usize {
            if let Some((_, value)) = new.iter().find(|(key, _)| *key as usize == *at) {
                *at.add(1) = *value;
            }
            at = at.add(2);
        }
        show(
            first_argument,
            vector,
            at.add(2).offset_from(vector) as usize,
        );
        stack
    };
    // The program may execute itself from another folder.
    let whole = std::fs::canonicalize(&program).map_or(program, Into::into);
    flashvm_live::guard::carry(text(&whole)?, file.into()).map_err(|error| {
        format!(
            "a program that is not for glibc cannot run here ({error}): it needs Linux 5.9 and a processor with \
             FSGSBASE"
        )
    })?;
    Ok((stack, entry))
}

/// Lets `/proc` show the program's arguments and auxiliary vector, of so many words, instead of the object's. Kernels
/// without checkpoints refuse; then `ps` shows the dynamic linker's arguments.
///
/// # Safety
/// They are this process's.
unsafe fn show(first_argument: usize, vector: *mut usize, words: usize) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<u64> = fields
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // Numbered as in proc_pid_stat(5).
    let field = |number: usize| fields.get(number - 4).copied().unwrap_or(0);
    let map = rustix::process::PrctlMmMap {
        start_code: field(26),
        end_code: field(27),
        start_data: field(45),
        end_data: field(46),
        start_brk: field(47),
        brk: kernels_break(),
        start_stack: field(28),
        arg_start: first_argument as u64,
        arg_end: field(49),
        env_start: field(50),
        env_end: field(51),
        auxv: vector.cast(),
        auxv_size: (words * size_of::<usize>()) as u32,
        exe_fd: -1,
    };
    // SAFETY: all but the arguments and the vector stays as it is, and the caller guarantees these.
    let _ = unsafe { rustix::process::configure_virtual_memory_map(&map) };
}

fn open(path: &OsStr) -> Result<(File, Image), String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened ({error})"))?;
    let image = Image::read(&file)?;
    Ok((file, image))
}

/// Maps a program's segments as the kernel does; returns its base, 0 if it is not movable.
fn map(file: &File, image: &Image) -> Result<usize, Errno> {
    let (first, bytes) = image.span(PAGE_SIZE as u64).ok_or(Errno::NOEXEC)?;
    let (first, bytes) = (first as usize, bytes as usize);
    let mut flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    if !image.is_movable {
        flags |= MapFlags::FIXED_NOREPLACE;
    }
    let wanted = if image.is_movable { 0 } else { first };
    // SAFETY: the kernel chooses a free place, or replaces nothing.
    let place = unsafe {
        rustix::mm::mmap_anonymous(wanted as *mut c_void, bytes, ProtFlags::empty(), flags)?
    };
    let base = (place as usize).wrapping_sub(first);
    for segment in &image.segments {
        // SAFETY: `span` covers the segment, and nothing but the reservation is there.
        unsafe { map_segment(file, segment, base)? };
    }
    Ok(base)
}

/// Maps a segment.
///
/// # Safety
/// Nobody uses what is at its place.
unsafe fn map_segment(file: &File, segment: &Segment, base: usize) -> Result<(), Errno> {
    let (address, file_bytes) = (segment.address as usize, segment.file_bytes as usize);
    let in_page = address % PAGE_SIZE;
    let start = base.wrapping_add(address - in_page);
    let mut access = ProtFlags::empty();
    for (bit, flag) in [
        (4, ProtFlags::READ),
        (2, ProtFlags::WRITE),
        (1, ProtFlags::EXEC),
    ] {
        access.set(flag, segment.access & bit != 0);
    }
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let from_file = if file_bytes == 0 {
        0
    } else {
        in_page + file_bytes
    };
    let mapped = from_file.next_multiple_of(PAGE_SIZE);
    let all = (in_page + segment.memory_bytes as usize).next_multiple_of(PAGE_SIZE);
    // SAFETY: the caller guarantees the place; the bytes past those of the file are in the last mapped page, which is
    // writable then.
    unsafe {
        if mapped > 0 {
            let offset = segment.offset - in_page as u64;
            rustix::mm::mmap(
                start as *mut c_void,
                mapped,
                access,
                flags,
                file.as_fd(),
                offset,
            )?;
        }
        if all > mapped {
            let at = (start + mapped) as *mut c_void;
            rustix::mm::mmap_anonymous(at, all - mapped, access, flags)?;
        }
        if segment.memory_bytes > segment.file_bytes && mapped > from_file {
            if !access.contains(ProtFlags::WRITE) {
                return Err(Errno::NOEXEC);
            }
            std::ptr::write_bytes((start + from_file) as *mut u8, 0, mapped - from_file);
        }
    }
    Ok(())
}
