//! The preloaded object. The command carries it, so it needs no other file.
//!
//! Programs load it from a sealed memfd of the supervisor, through `/proc`, where they also find the control region.
//! Where the kernel maps no code from a memfd (a security module may forbid it) they load it from a file in the user's
//! cache folder. A build with the feature `external-preload`, for packages, carries no object: it takes the file
//! beside the command, or in `deps` or `../lib/flashvm`.

use super::refusal::Refusal;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of its file.
pub(super) const NAME: &str = "libflashvm_preload.so";
/// The name of its memfd in `/proc`.
pub(super) const MEMFD_NAME: &str = "/memfd:libflashvm_preload.so (deleted)";

/// The object, and where programs find it.
#[derive(Debug)]
pub(crate) struct Object {
    path: PathBuf,
    /// The memfd that `path` names; `None`: `path` names a file.
    memfd: Option<OwnedFd>,
}

impl Object {
    /// The number of the memfd in this process; `None`: the object is a file.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.memfd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Where programs find it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The value of `LD_PRELOAD` for the program: this object, then the entries of our own `LD_PRELOAD`.
    pub(crate) fn preload_list(&self) -> OsString {
        let object = self.path.as_os_str();
        let mut list = object.to_owned();
        let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        for other in before.as_bytes().split(|b| matches!(b, b':' | b' ')) {
            if !other.is_empty() && other != object.as_bytes() {
                list.push(":");
                list.push(std::ffi::OsStr::from_bytes(other));
            }
        }
        list
    }
}

/// A path of the memfd, by a descriptor of the supervisor `pid`.
pub(super) fn memfd_of(pid: u32) -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_str() == Some(MEMFD_NAME)
    })
}

/// Refuses a path that `LD_PRELOAD` cannot hold.
fn check_path(path: &Path) -> Result<(), Refusal> {
    let bytes = path.as_os_str().as_bytes();
    if !bytes.iter().any(|b| matches!(b, b':' | b' ')) {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "{}: the dynamic linker takes no path with a space or a colon: choose another folder",
        path.display()
    )))
}

#[cfg(feature = "external-preload")]
mod external {
    use super::{NAME, Object, check_path};
    use crate::cli::refusal::Refusal;
    use std::path::Path;

    impl Object {
        /// Finds the object of a build or an installation; of several, the newest.
        pub(crate) fn provide() -> Result<Self, Refusal> {
            let own = std::env::current_exe()
                .map_err(|e| Refusal::new(format!("/proc/self/exe: {e}: mount /proc")))?;
            let folder = own.parent().unwrap_or(Path::new("/"));
            let path = [
                folder.to_owned(),
                folder.join("deps"),
                folder.join("../lib/flashvm"),
            ]
            .iter()
            .map(|place| place.join(NAME))
            .filter(|path| path.is_file())
            // A build for tests may have left an older object beside the command.
            .max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok())
            .and_then(|path| path.canonicalize().ok())
            .ok_or_else(|| {
                Refusal::new(format!(
                    "{NAME} is neither beside {} nor in ../lib/flashvm: build or install it again",
                    own.display()
                ))
            })?;
            check_path(&path)?;
            Ok(Self { path, memfd: None })
        }
    }
}

#[cfg(not(feature = "external-preload"))]
mod carried {
    use super::{NAME, Object, check_path};
    use crate::cli::refusal::Refusal;
    use crate::cli::units::Size;
    use crate::cli::{shared_file, sys};
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::{Mode, OFlags};
    use rustix::process::{Resource, getrlimit};
    use std::fs::File;
    use std::hash::{DefaultHasher, Hasher};
    use std::io::{self, Read, Write};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::{Path, PathBuf};

    impl Object {
        /// Puts the object where programs can load it.
        pub(crate) fn provide() -> Result<Self, Refusal> {
            let bytes = sys::carried_object();
            let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
            if limit < bytes.len() as u64 {
                return Err(Refusal::new(format!(
                    "the limit on file sizes (ulimit -f) is {}, and the object that programs load takes {}: raise it",
                    Size(limit),
                    Size(bytes.len() as u64)
                )));
            }
            match in_memory(bytes) {
                Ok(memfd) => Ok(Self {
                    path: shared_file::path_of(&memfd),
                    memfd: Some(memfd),
                }),
                Err(why) => {
                    let path = cache_folder()
                        .and_then(|folder| in_folder(bytes, &folder))
                        .map_err(|refusal| {
                            Refusal::new(format!(
                                "no code can be mapped from a memfd ({why}); {refusal}"
                            ))
                        })?;
                    Ok(Self { path, memfd: None })
                }
            }
        }
    }

    /// The object in a sealed memfd, if code can be mapped from it.
    fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
        let memfd = shared_file::sealed(NAME, bytes)?;
        sys::try_to_map_code(memfd.as_fd())?;
        Ok(memfd)
    }

    /// Our folder in the user's cache folder.
    fn cache_folder() -> Result<PathBuf, Refusal> {
        let named = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let base = named("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let base = base.or_else(|| named("HOME").map(|home| home.join(".cache")));
        let base = base.ok_or_else(|| {
            Refusal::new("there is no cache folder: set XDG_CACHE_HOME to a folder of yours")
        })?;
        Ok(base.join("flashvm"))
    }

    /// Writes the object into a folder that only this user can write to, unless it is there. Files of other versions
    /// stay: programs may be running with them.
    pub(super) fn in_folder(bytes: &[u8], folder: &Path) -> Result<PathBuf, Refusal> {
        let failed = |what: &Path, why: &dyn std::fmt::Display| {
            Refusal::new(format!(
                "{}: {why}: set XDG_CACHE_HOME to a folder of yours that is mounted without noexec",
                what.display()
            ))
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|e| failed(folder, &e))?;
        let about = folder.metadata().map_err(|e| failed(folder, &e))?;
        if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(failed(folder, &"others can write to it"));
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        let path = folder.join(format!("{:016x}-{NAME}", hasher.finish()));
        check_path(&path)?;
        if !is(&path, bytes) {
            let mut file =
                tempfile::NamedTempFile::new_in(folder).map_err(|e| failed(folder, &e))?;
            file.write_all(bytes).map_err(|e| failed(&path, &e))?;
            file.persist(&path).map_err(|e| failed(&path, &e))?;
        }
        let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        file.and_then(|file| sys::try_to_map_code(file.as_fd()))
            .map_err(|e| failed(&path, &e))?;
        Ok(path)
    }

    /// Whether a file has these contents.
    fn is(path: &Path, bytes: &[u8]) -> bool {
        let mut found = Vec::new();
        File::open(path).is_ok_and(|mut file| file.read_to_end(&mut found).is_ok())
            && found == bytes
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::os::unix::fs::PermissionsExt;

        #[test]
        fn programs_get_what_the_command_carries() {
            let object = Object::provide().expect("a memfd");
            assert_eq!(object.memfd.is_some(), object.path.starts_with("/proc"));
            let bytes = std::fs::read(&object.path).expect("the object");
            assert!(bytes.starts_with(b"\x7fELF") && bytes == sys::carried_object());
            let write = std::fs::OpenOptions::new().write(true).open(&object.path);
            let written = write.and_then(|mut file| file.write_all(b"x"));
            assert!(written.is_err(), "the object is sealed");
        }

        #[test]
        fn a_file_is_made_once_and_mended() {
            let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
            let folder = folder.path().join("new/flashvm");
            let bytes = sys::carried_object();
            let path = in_folder(bytes, &folder).expect("a file");
            let inode = |path: &Path| path.metadata().expect("the file").ino();
            let first = inode(&path);
            assert_eq!(in_folder(bytes, &folder).expect("the same"), path);
            assert_eq!(inode(&path), first);
            std::fs::write(&path, b"half").expect("damage");
            assert_eq!(in_folder(bytes, &folder).expect("a new one"), path);
            assert!(is(&path, bytes) && inode(&path) != first);
            let other = in_folder(&bytes[..bytes.len() - 1], &folder).expect("another version's");
            assert_ne!(other, path);
        }

        #[test]
        fn a_folder_of_others_is_refused() {
            let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777))
                .expect("its mode");
            let refusal = in_folder(b"object", folder.path()).expect_err("others can write");
            assert!(refusal.to_string().contains("XDG_CACHE_HOME"), "{refusal}");
            let spaced = folder.path().join("a b");
            let refusal = in_folder(b"object", &spaced).expect_err("no space");
            assert!(refusal.to_string().contains("space"), "{refusal}");
        }
    }
}
