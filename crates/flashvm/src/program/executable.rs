//! Whether a program can run with the preloaded object: found, executable, and started by glibc's
//! dynamic linker, which loads the object. Programs that would silently ignore it (static, setuid,
//! another architecture) are refused by name.

use rustix::fs::Access;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that the kernel follows.
const SCRIPTS_MAX: u32 = 5;
/// Most bytes of a script's first line that the kernel reads.
const SCRIPT_LINE_BYTES: usize = 256;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Why a program is not run: one line that names the program and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such program.
    #[error("{0}")]
    NotFound(String),
    /// It exists and cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
    /// It could be executed, but not with the preloaded object: it would run unpaged.
    #[error("{0}")]
    Unpaged(String),
}

/// Finds `program` as a shell would and checks that it can be preloaded.
///
/// # Errors
/// [`Refused`], with the problem and the remedy.
pub fn find(program: &OsStr) -> Result<PathBuf, Refused> {
    let path = locate(program)?;
    check(&path)?;
    Ok(path)
}

/// Finds `program` as a shell would, whether it can be preloaded or not.
///
/// # Errors
/// [`Refused`], with the problem and the remedy.
pub fn locate(program: &OsStr) -> Result<PathBuf, Refused> {
    let shown = program.display();
    if program.is_empty() {
        return Err(Refused::NotFound(
            "'': an empty name is no program: name one after --".to_owned(),
        ));
    }
    if program.as_bytes().contains(&b'/') {
        return match executable(Path::new(program)) {
            Ok(()) => Ok(program.into()),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Err(Refused::NotFound(format!(
                    "{shown}: no such program: check the path"
                )))
            }
            Err(e) => Err(not_executable(program, &e)),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut refused = None;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(program);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && path.is_file() => {
                refused = Some(not_executable(path.as_os_str(), &e));
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| {
        Refused::NotFound(format!(
            "{shown}: not found in $PATH: check the name or write a path"
        ))
    }))
}

fn not_executable(program: &OsStr, e: &io::Error) -> Refused {
    Refused::NotExecutable(format!(
        "{}: cannot be executed ({e}): name an executable file",
        program.display()
    ))
}

fn executable(path: &Path) -> io::Result<()> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a regular file",
        ));
    }
    Ok(rustix::fs::access(path, Access::EXEC_OK)?)
}

/// Checks that the program at `path` can be preloaded.
///
/// # Errors
/// [`Refused`], with the problem and the remedy.
pub fn check(path: &Path) -> Result<(), Refused> {
    inspect(path, SCRIPTS_MAX)
}

/// Checks a file, or the interpreter of a script.
fn inspect(path: &Path, scripts_left: u32) -> Result<(), Refused> {
    let shown = path.display();
    let file = File::open(path).map_err(|e| {
        Refused::Unpaged(format!(
            "{shown}: cannot be read, so not checked ({e}): make it readable"
        ))
    })?;
    let mut head = Vec::new();
    let mut start = (&file).take(SCRIPT_LINE_BYTES as u64);
    start
        .read_to_end(&mut head)
        .map_err(|e| not_executable(path.as_os_str(), &e))?;
    if head.starts_with(b"#!") {
        let line = head[2..].split(|b| *b == b'\n').next().unwrap_or_default();
        let name = line
            .split(|b| matches!(b, b' ' | b'\t' | b'\r'))
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        let interpreter = PathBuf::from(OsString::from_vec(name.to_vec()));
        executable(&interpreter).map_err(|e| {
            Refused::NotExecutable(format!(
                "{shown}: its interpreter '{}' cannot be executed ({e}): install it or correct the first line",
                interpreter.display()
            ))
        })?;
        if scripts_left == 0 {
            return Err(Refused::NotExecutable(format!(
                "{shown}: too many interpreters one behind the other"
            )));
        }
        return inspect(&interpreter, scripts_left - 1);
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(Refused::NotExecutable(format!(
            "{shown}: neither an ELF program nor a script with a #! line: name its interpreter, as in 'sh {shown}'"
        )));
    }
    let interpreter =
        elf_interpreter(&file).map_err(|why| Refused::Unpaged(format!("{shown}: {why}")))?;
    let Some(interpreter) = interpreter else {
        return Err(Refused::Unpaged(format!(
            "{shown}: statically linked, so nothing can be preloaded: use a dynamically linked build"
        )));
    };
    let linker = String::from_utf8_lossy(&interpreter).into_owned();
    if !linker
        .rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with("ld-linux"))
    {
        return Err(Refused::Unpaged(format!(
            "{shown}: started by {linker}, not by glibc: use a build for glibc"
        )));
    }
    privileged(path, &file)
}

/// Refuses programs that would run with other privileges than ours: the dynamic linker preloads
/// nothing then.
fn privileged(path: &Path, file: &File) -> Result<(), Refused> {
    let shown = path.display();
    let Ok(metadata) = file.metadata() else {
        return Ok(());
    };
    let (mode, own) = (metadata.mode(), rustix::process::geteuid());
    if mode & 0o4000 != 0 && metadata.uid() != own.as_raw() {
        return Err(Refused::Unpaged(format!(
            "{shown}: setuid, so nothing can be preloaded: run it as its owner, or a copy without the bit"
        )));
    }
    if mode & 0o2010 == 0o2010 && metadata.gid() != rustix::process::getegid().as_raw() {
        return Err(Refused::Unpaged(format!(
            "{shown}: setgid, so nothing can be preloaded: run it in its group, or a copy without the bit"
        )));
    }
    let mut capabilities = [0_u8; 64];
    let has_capabilities =
        rustix::fs::fgetxattr(file, "security.capability", &mut capabilities[..]).is_ok();
    if has_capabilities && !rustix::process::getuid().is_root() {
        return Err(Refused::Unpaged(format!(
            "{shown}: has file capabilities, so nothing can be preloaded: run it as root, or a copy without them"
        )));
    }
    Ok(())
}

/// The dynamic linker of an ELF program, `None` if it has none, or why it cannot run here.
fn elf_interpreter(file: &impl ReadAt) -> Result<Option<Vec<u8>>, String> {
    const PT_INTERP: u32 = 3;
    const PROGRAM_HEADER_BYTES: usize = 56;
    let truncated = || "a truncated ELF file: build or copy it again".to_owned();
    let mut header = [0_u8; 64];
    if !file.read_all_at(&mut header[..20], 0) {
        return Err(truncated());
    }
    let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    if header[4] != 2 {
        return Err("a 32-bit program: use a 64-bit build".to_owned());
    }
    if header[5] != 1 || half(&header, 18) != MACHINE {
        return Err("a program for another architecture: use a build for this machine".to_owned());
    }
    if !file.read_all_at(&mut header, 0) {
        return Err(truncated());
    }
    let long = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
    };
    let (table, size, count) = (long(&header, 32), half(&header, 54), half(&header, 56));
    if usize::from(size) < PROGRAM_HEADER_BYTES {
        return Err(truncated());
    }
    for index in 0..u64::from(count) {
        let mut entry = [0_u8; PROGRAM_HEADER_BYTES];
        let at = table
            .checked_add(index * u64::from(size))
            .ok_or_else(truncated)?;
        if !file.read_all_at(&mut entry, at) {
            return Err(truncated());
        }
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == PT_INTERP {
            let mut name = vec![0_u8; long(&entry, 32).min(4096) as usize];
            if !file.read_all_at(&mut name, long(&entry, 8)) {
                return Err(truncated());
            }
            name.truncate(name.iter().position(|b| *b == 0).unwrap_or(name.len()));
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Reading at an offset: of a file, or of bytes in a test.
trait ReadAt {
    /// Fills `buffer` from `at`; `false` if it cannot.
    fn read_all_at(&self, buffer: &mut [u8], at: u64) -> bool;
}

impl ReadAt for File {
    fn read_all_at(&self, buffer: &mut [u8], at: u64) -> bool {
        self.read_exact_at(buffer, at).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl ReadAt for Vec<u8> {
        fn read_all_at(&self, buffer: &mut [u8], at: u64) -> bool {
            let from = usize::try_from(at).ok().and_then(|at| self.get(at..));
            from.and_then(|from| from.get(..buffer.len()))
                .map(|from| buffer.copy_from_slice(from))
                .is_some()
        }
    }

    fn elf(interpreter: Option<&[u8]>) -> Vec<u8> {
        let mut elf = vec![0_u8; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        if let Some(name) = interpreter {
            elf[64] = 3;
            elf[64 + 8] = 120;
            elf[64 + 32] = name.len() as u8;
            elf.extend_from_slice(name);
        }
        elf
    }

    #[test]
    fn the_interpreter_is_found() {
        let glibc = b"/lib64/ld-linux-x86-64.so.2\0";
        let name = elf_interpreter(&elf(Some(glibc))).unwrap().unwrap();
        assert_eq!(name, glibc[..glibc.len() - 1]);
        assert_eq!(elf_interpreter(&elf(None)), Ok(None));
    }

    #[test]
    fn refusals_name_the_problem() {
        let mut narrow = elf(None);
        narrow[4] = 1;
        assert!(elf_interpreter(&narrow).unwrap_err().contains("32-bit"));
        let mut foreign = elf(None);
        foreign[18] = 0xf3;
        assert!(
            elf_interpreter(&foreign)
                .unwrap_err()
                .contains("architecture")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            tail in prop::collection::vec(any::<u8>(), 0..200),
            keep in 0_usize..64,
        ) {
            let mut bytes = elf(None);
            bytes.truncate(keep);
            bytes.extend(tail);
            let _ = elf_interpreter(&bytes);
        }
    }
}
