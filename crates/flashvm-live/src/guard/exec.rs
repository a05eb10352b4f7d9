//! `execve`: the kernel gets copies of the strings, because it takes absent memory for wrong
//! addresses.

use super::guard_stack::ThreadRecord;
use super::{calls, memory, own_path};
use crate::program::Loading;
use crate::program::exec::{self, with_run};
use crate::sys::raw::{self, failed};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

const PATH_BYTES_MAX: usize = 4096;
/// The kernel's limits for one string, and for all of them.
const TEXT_BYTES_MAX: usize = 128 << 10;
const TEXTS_BYTES_MAX: usize = 6 << 20;

/// The strings of a call.
pub(crate) struct Strings {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    argument_pointers: Vec<*const c_char>,
    environment_pointers: Vec<*const c_char>,
}

/// `execve`.
pub(super) fn execve(record: &mut ThreadRecord, args: &[usize; 6]) -> isize {
    let [path, arguments, environment, ..] = *args;
    let strings = match Strings::read(path, arguments, environment) {
        Ok(strings) => strings,
        Err(error) => return failed(error),
    };
    match exec::loading(OsStr::from_bytes(strings.path.to_bytes())) {
        None => failed(Errno::ACCESS),
        Some(Loading::Preloaded) => strings.execve(record),
        Some(Loading::Carried) => {
            let program = strings.path.clone();
            strings.carrying(program).execve(record)
        }
    }
}

/// `execveat`.
pub(super) fn execveat(record: &mut ThreadRecord, args: &[usize; 6]) -> isize {
    let [folder, path, arguments, environment, flags, _] = *args;
    let strings = match Strings::read(path, arguments, environment) {
        Ok(strings) => strings,
        Err(error) => return failed(error),
    };
    let name = strings.path.to_bytes();
    let at_work = folder as i32 == libc::AT_FDCWD;
    let whole = if name.starts_with(b"/") || (at_work && !name.is_empty()) {
        name.to_vec()
    } else if name.is_empty() && flags as i32 & libc::AT_EMPTY_PATH != 0 {
        format!("/proc/self/fd/{}", folder as i32).into_bytes()
    } else {
        [format!("/proc/self/fd/{}/", folder as i32).as_bytes(), name].concat()
    };
    match exec::loading(OsStr::from_bytes(&whole)) {
        None => return failed(Errno::ACCESS),
        Some(Loading::Preloaded) => {}
        Some(Loading::Carried) => {
            let program = CString::new(whole).unwrap_or_default();
            return strings.carrying(program).execve(record);
        }
    }
    strings.execute(record, libc::SYS_execveat, |s| {
        [
            folder,
            s.path.as_ptr() as usize,
            s.arguments(),
            s.environment(),
            flags,
            0,
        ]
    })
}

impl Strings {
    fn read(path: usize, arguments: usize, environment: usize) -> Result<Self, Errno> {
        let path = memory::read_text(path, PATH_BYTES_MAX).ok_or(Errno::FAULT)?;
        let mut path = CString::new(path).map_err(|_| Errno::INVAL)?;
        if let Some(program) = own_path::of_program(path.to_bytes()) {
            path = program;
        }
        let arguments = read_texts(arguments)?;
        let environment = with_run(read_texts(environment)?);
        Ok(Self::new(path, arguments, environment))
    }

    fn new(path: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        Self {
            path,
            argument_pointers: pointers(&arguments),
            environment_pointers: pointers(&environment),
            arguments,
            environment,
        }
    }

    /// The strings that start the object, which carries `program`.
    fn carrying(self, program: CString) -> Self {
        let (path, arguments) = exec::carried(&exec::object(), program, self.arguments);
        let mut environment = self.environment;
        // The linker would load the object twice.
        environment.retain(|entry| !entry.to_bytes().starts_with(b"LD_PRELOAD="));
        Self::new(path, arguments, environment)
    }

    fn execve(self, record: &mut ThreadRecord) -> isize {
        self.execute(record, libc::SYS_execve, |s| {
            let path = s.path.as_ptr() as usize;
            [path, s.arguments(), s.environment(), 0, 0, 0]
        })
    }

    fn arguments(&self) -> usize {
        self.argument_pointers.as_ptr() as usize
    }

    fn environment(&self) -> usize {
        self.environment_pointers.as_ptr() as usize
    }

    /// Lets the parent trace this child of `vfork` from now on, unless the program cannot be executed.
    ///
    /// Not when the child asks for it: each call that the guard catches is a signal, which stops a traced thread until its
    /// tracer lets it go on, and the parent waits for this `execve`.
    fn let_trace(&self) {
        if rustix::fs::access(&self.path, rustix::fs::Access::EXEC_OK).is_ok() {
            // SAFETY: takes no memory.
            unsafe {
                raw::syscall(
                    libc::SYS_ptrace,
                    [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0],
                )
            };
        }
    }

    /// Makes the call. A child between `vfork` and `execve` leaves its strings in its parent's
    /// memory: the parent frees them with the record.
    fn execute(
        self,
        record: &mut ThreadRecord,
        number: i64,
        args: impl Fn(&Self) -> [usize; 6],
    ) -> isize {
        if std::mem::take(&mut record.wants_tracer) {
            self.let_trace();
        }
        record.strings = Some(self);
        let args = record.strings.as_ref().map_or([0; 6], args);
        // SAFETY: the program's arguments, with copies of its strings, which the record keeps over the call.
        let result = unsafe { calls::call(record, number, &args) };
        record.strings = None;
        result
    }
}

fn read_texts(array: usize) -> Result<Vec<CString>, Errno> {
    let mut texts = Vec::new();
    let mut bytes = 0;
    if array == 0 {
        return Ok(texts);
    }
    for at in (array..).step_by(size_of::<usize>()) {
        let text = match memory::read::<usize>(at).ok_or(Errno::FAULT)? {
            0 => break,
            text => memory::read_text(text, TEXT_BYTES_MAX).ok_or(Errno::FAULT)?,
        };
        bytes += text.len() + size_of::<usize>();
        if bytes > TEXTS_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        texts.push(CString::new(text).map_err(|_| Errno::INVAL)?);
    }
    Ok(texts)
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let end = std::iter::once(std::ptr::null());
    texts.iter().map(|text| text.as_ptr()).chain(end).collect()
}
