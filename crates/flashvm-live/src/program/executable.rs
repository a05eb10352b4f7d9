//! Whether a program can run with the pager's object, and how the object gets into it. glibc's dynamic linker preloads
//! it; a program without that linker (static, or of another C library) is carried: the object itself maps the program.
//! Programs that would run without it (setuid, another architecture) are refused by name.

use super::image::Image;
use flashvm_core::PAGE_SIZE;
use rustix::fs::Access;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that the kernel follows.
const SCRIPTS_MAX: u32 = 5;
/// Most bytes of a script's first line that the kernel reads.
const SCRIPT_LINE_BYTES: usize = 256;

/// How the pager's object gets into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// glibc's dynamic linker preloads it.
    Preloaded,
    /// The program has no such linker: the object starts first, and maps the program. Needs the guard.
    Carried,
}

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

/// Finds `program` as a shell would and checks that the object gets into it.
///
/// # Errors
/// [`Refused`], with the problem and the remedy.
pub fn find(program: &OsStr) -> Result<(PathBuf, Loading), Refused> {
    let path = locate(program)?;
    let loading = check(&path)?;
    Ok((path, loading))
}

/// Finds `program` as a shell would, whether the object gets into it or not.
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

/// Checks that the object gets into the program at `path`, and how.
///
/// # Errors
/// [`Refused`], with the problem and the remedy.
pub fn check(path: &Path) -> Result<Loading, Refused> {
    inspect(path, SCRIPTS_MAX)
}

/// Refuses a program that has to be carried, where the guard does not run.
///
/// # Errors
/// [`Refused`], with the remedy.
pub fn refuse_carried(path: &Path) -> Result<(), Refused> {
    Err(Refused::Unpaged(format!(
        "{}: statically linked or not for glibc, which handler mode cannot page: use --fault inline or protect",
        path.display()
    )))
}

/// Checks a file, or the interpreter of a script.
fn inspect(path: &Path, scripts_left: u32) -> Result<Loading, Refused> {
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
        return match inspect(&interpreter, scripts_left - 1)? {
            Loading::Preloaded => Ok(Loading::Preloaded),
            Loading::Carried => Err(Refused::Unpaged(format!(
                "{shown}: the kernel would start its interpreter, which is statically linked or not for glibc, unpaged: \
                 name it, as in '{} {shown}'",
                interpreter.display()
            ))),
        };
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(Refused::NotExecutable(format!(
            "{shown}: neither an ELF program nor a script with a #! line: name its interpreter, as in 'sh {shown}'"
        )));
    }
    let image = Image::read(&file).map_err(|why| Refused::Unpaged(format!("{shown}: {why}")))?;
    privileged(path, &file)?;
    let by_glibc = |linker: &Vec<u8>| {
        let name = linker.rsplit(|byte| *byte == b'/').next();
        name.is_some_and(|name| name.starts_with(b"ld-linux"))
    };
    if image.interpreter.as_ref().is_some_and(by_glibc) {
        return Ok(Loading::Preloaded);
    }
    if cfg!(not(target_arch = "x86_64")) || image.span(PAGE_SIZE as u64).is_none() {
        return Err(Refused::Unpaged(format!(
            "{shown}: statically linked or not for glibc, and its segments cannot be mapped here: use a dynamically \
             linked build for glibc"
        )));
    }
    Ok(Loading::Carried)
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
