//! Where the command `flashvm` is.

use crate::{Error, Result};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "FLASHVM";

/// Whether a path is a file that may be executed.
fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A program by its path, or by its name in the folders of `search`.
fn program(name: &OsStr, search: Option<&OsStr>) -> Option<PathBuf> {
    let named = Path::new(name);
    if named.components().count() > 1 {
        return is_program(named).then(|| named.to_owned());
    }
    let folders = std::env::split_paths(search?);
    folders
        .map(|folder| folder.join(named))
        .find(|path| is_program(path))
}

/// The command by the values of `FLASHVM` and `PATH`.
pub(super) fn by(named: Option<&OsStr>, search: Option<&OsStr>) -> Result<PathBuf> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return program(named, search).ok_or_else(|| {
            Error::CommandNotFound(format!(
                "{VARIABLE}={named:?} is no program: name the flashvm command, or unset {VARIABLE}"
            ))
        });
    }
    program(OsStr::new("flashvm"), search).ok_or_else(|| {
        Error::CommandNotFound(format!(
            "the flashvm command is not on PATH: install it (cargo install --locked --path crates/flashvm-cli --bin flashvm in a clone), or name it in {VARIABLE}"
        ))
    })
}

/// The command: what `FLASHVM` names in the environment, else `flashvm` on `PATH`.
///
/// # Errors
/// [`Error::CommandNotFound`].
///
/// ```
/// match flashvm::command() {
///     Ok(path) => println!("{}", path.display()),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn command() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name);
    by(variable(VARIABLE).as_deref(), variable("PATH").as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_variable_wins_over_the_path_and_names_what_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str, mode| {
            let path = folder.path().join(name);
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
            path
        };
        let (own, other) = (make("flashvm", 0o755), make("other", 0o755));
        let no_program = make("data", 0o644);
        let search = Some(folder.path().as_os_str());
        let found = |named: Option<&Path>, search| by(named.map(Path::as_os_str), search);
        assert_eq!(found(None, search).expect("on the path"), own);
        assert_eq!(found(Some(Path::new("")), search).expect("empty"), own);
        assert_eq!(found(Some(&other), None).expect("named"), other);
        let by_name = found(Some(Path::new("other")), search);
        assert_eq!(by_name.expect("on the path"), other);
        for (named, search, part) in [
            (Some(&*no_program), search, "/data"),
            (Some(folder.path()), search, "FLASHVM="),
            (Some(Path::new("absent")), search, "\"absent\""),
            (None, None, "not on PATH"),
        ] {
            let error = found(named, search).expect_err("no program").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
