//! A mirror as flash store (`--flash mirror:A,B`): its sides, and the checks before the program starts.

use super::nbd;
use super::options::RunOptions;
use super::refusal::Refusal;
use super::single_store::SingleStore;
use super::store::{self, RAM_MULTIPLE_MIN, Store};
use super::units::Size;
use flashvm::control::{ServedSide, SidePlace};
use flashvm::{MirrorAttendant, StoreKind, control::Control};
use rustix::fd::{OwnedFd, RawFd};
use std::path::Path;

/// What a `--flash` begins with that is a mirror.
const SCHEME: &str = "mirror:";

/// Two open sides.
#[derive(Debug)]
pub(crate) struct MirrorStore {
    sides: [SingleStore; 2],
    names: [String; 2],
    /// The store's size: that of the smaller side.
    pub(crate) bytes: u64,
}

/// The sides of a `--flash` that is a mirror, in one text.
pub(crate) fn sides(flash: &Path) -> Option<&str> {
    flash.to_str()?.strip_prefix(SCHEME)
}

/// Opens both sides, for a budget of `ram` bytes, as the options say.
pub(super) fn open(text: &str, ram: u64, options: &RunOptions) -> Result<MirrorStore, Refusal> {
    let refused = |why: &str| Refusal::new(format!("--flash {SCHEME}{text}: {why}"));
    let parts: Vec<_> = text.split(',').collect();
    let [a, b] = parts[..] else {
        return Err(refused(
            "a mirror has two sides, with one comma between them (%2C within a URI): write mirror:A,B",
        ));
    };
    if a.is_empty() || b.is_empty() {
        return Err(refused("a side is empty: write mirror:A,B"));
    }
    if let Some(nested) = [a, b].into_iter().find(|side| side.starts_with(SCHEME)) {
        return Err(refused(&format!(
            "a mirror is no side of another: name a path or an NBD URI instead of {nested}"
        )));
    }
    let is_server = |side: &str| nbd::uri(Path::new(side)).is_some();
    let files = [a, b].into_iter().filter(|side| !is_server(side));
    let files: Vec<_> = files.map(Path::new).collect();
    if let (Some(timeout), 2) = (options.flash_timeout, files.len()) {
        return Err(Refusal::new(format!(
            "--flash-timeout {timeout} is for a store at a server, and both sides are here: leave it out"
        )));
    }
    // Files are unlinked when they are opened: first everything that can be refused without.
    for file in &files {
        if !options.flash_in_ram.is_some_and(|flag| flag.0) {
            store::refuse_ram(file)?;
        }
        if !file.exists() {
            store::open(file, ram, options.flash_size)?;
        }
    }
    let same = match files[..] {
        [one, two] => one.canonicalize().ok() == two.canonicalize().ok(),
        _ => a == b,
    };
    let twice = "both sides are the same, so a failure of one is one of both: name two";
    if same {
        return Err(refused(twice));
    }
    let server = |side: &str| nbd::open(side, ram, options.flash_size, options.flash_timeout);
    let server = |side| is_server(side).then(|| server(side)).transpose();
    let servers = [server(a)?, server(b)?];
    if let [Some(one), Some(two)] = &servers
        && one.server == two.server
    {
        return Err(refused(twice));
    }
    let [one, two] = servers;
    let side = |text: &str, server| match server {
        Some(server) => Ok(SingleStore::Server(server)),
        None => store::open(Path::new(text), ram, options.flash_size).map(SingleStore::File),
    };
    let mirror = MirrorStore {
        sides: [side(a, one)?, side(b, two)?],
        names: [a.to_owned(), b.to_owned()],
        bytes: 0,
    };
    let bytes = mirror.bytes_of_both(options.flash_size.is_some());
    if bytes < ram.saturating_mul(RAM_MULTIPLE_MIN) && options.flash_size.is_none() {
        return Err(refused(&format!(
            "there is room for {} on each side, less than twice the budget of {}: make room, or name another side",
            Size(bytes),
            Size(ram)
        )));
    }
    Ok(MirrorStore { bytes, ..mirror })
}

impl MirrorStore {
    fn files(&self) -> impl Iterator<Item = &Store> {
        self.sides.iter().filter_map(SingleStore::file)
    }

    /// The smaller size. Files on one file system share its space, unless a size was asked for.
    fn bytes_of_both(&self, is_asked: bool) -> u64 {
        let bytes = self.sides.iter().map(SingleStore::bytes);
        let bytes = bytes.min().expect("two sides");
        let disk = |store: &Store| {
            let is_file = StoreKind::of(&store.fd) == Ok(StoreKind::File);
            let stat = rustix::fs::fstat(&store.fd).ok();
            stat.filter(|_| is_file).map(|stat| stat.st_dev)
        };
        let disks: Vec<_> = self.files().filter_map(disk).collect();
        match disks[..] {
            [one, two] if one == two && !is_asked => bytes / 2 / store::PAGE * store::PAGE,
            _ => bytes,
        }
    }

    /// Bytes from the start that have disk space on both sides.
    pub(crate) fn backed(&self) -> u64 {
        let backed = self.sides.iter().map(SingleStore::backed);
        backed.fold(self.bytes, u64::min)
    }

    /// Discards the first page of each side; one that accepts it suffices.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        let [one, two] = &self.sides;
        one.try_discard().or(two.try_discard())
    }

    /// The descriptors of the sides that are files or devices, in their order.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; 2] {
        let mut descriptors = self.sides.iter().filter_map(SingleStore::descriptor);
        [descriptors.next(), descriptors.next()]
    }

    /// Where the sides are, for the processes.
    pub(crate) fn places(&self) -> [SidePlace; 2] {
        [0, 1].map(|side: usize| SidePlace {
            name: self.names[side].clone(),
            server: match &self.sides[side] {
                SingleStore::File(_) => None,
                SingleStore::Server(store) => Some(ServedSide {
                    server: store.server.clone(),
                    unit: store.unit,
                    trims: store.trims,
                    flushes: store.flushes,
                }),
            },
        })
    }

    /// The thread that brings its sides up to date.
    pub(crate) fn attend(&self, control: Control) -> Result<MirrorAttendant, Refusal> {
        let [one, two] = self.places();
        let file = |side: &SingleStore| -> std::io::Result<Option<OwnedFd>> {
            side.file().map(|store| store.fd.try_clone()).transpose()
        };
        let files = file(&self.sides[0]).and_then(|one| Ok((one, file(&self.sides[1])?)));
        let (first, second) =
            files.map_err(|e| Refusal::new(format!("a descriptor for the mirror: {e}")))?;
        Ok(MirrorAttendant::new(control, [(one, first), (two, second)]))
    }
}
