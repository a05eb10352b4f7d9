//! The sides of a store of several (`mirror`, `stripe`, `tier`): the checks of all before any is opened.

use super::nbd;
use super::options::RunOptions;
use super::refusal::Refusal;
use super::single_store::SingleStore;
use super::store::{self, Store};
use super::units::Size;
use flashvm_live::StoreKind;
use flashvm_live::control::{STORES_MAX, ServedSide, SidePlace};
use rustix::fd::{OwnedFd, RawFd};
use std::ops::RangeInclusive;
use std::path::Path;

/// What a `--flash` of several sides begins with.
const SCHEMES: [&str; 3] = ["mirror:", "stripe:", "tier:"];

/// The rest of a `--flash` that begins with a scheme.
pub(super) fn after<'a>(flash: &'a Path, scheme: &str) -> Option<&'a str> {
    flash.to_str()?.strip_prefix(scheme)
}

/// What is asked of each side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The side serves as for a budget of so many bytes.
    pub(super) ram: u64,
    /// The size that the user asked for.
    pub(super) size: Option<Size>,
}

/// Open sides.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) stores: Vec<SingleStore>,
    names: Vec<String>,
}

/// Opens the sides that a `--flash` names after its scheme. The same is asked of each.
pub(super) fn open(
    scheme: &str,
    text: &str,
    count: RangeInclusive<usize>,
    demand: Demand,
    options: &RunOptions,
) -> Result<Sides, Refusal> {
    let names: Vec<_> = text.split(',').collect();
    let demands = vec![demand; names.len()];
    open_each(scheme, text, &names, count, &demands, options)
}

/// [`open`], with these names and a demand of each side.
pub(super) fn open_each(
    scheme: &str,
    text: &str,
    names: &[&str],
    count: RangeInclusive<usize>,
    demands: &[Demand],
    options: &RunOptions,
) -> Result<Sides, Refusal> {
    check(scheme, text, names, count, options)?;
    let is_server = |side: &str| nbd::uri(Path::new(side)).is_some();
    let asked = || names.iter().copied().zip(demands);
    // Files are unlinked when they are opened: first everything that can be refused without.
    for (file, demand) in asked().filter(|(side, _)| !is_server(side)) {
        let file = Path::new(file);
        if !options.flash_in_ram.is_some_and(|flag| flag.0) {
            store::refuse_ram(file)?;
        }
        if !file.exists() {
            store::open(file, demand.ram, demand.size)?;
        }
    }
    let server = |(side, demand): (&str, &Demand)| {
        let open = || nbd::open(side, demand.ram, demand.size, options.flash_timeout);
        is_server(side).then(open).transpose()
    };
    let servers: Result<Vec<_>, Refusal> = asked().map(server).collect();
    let servers = servers?;
    let exports: Vec<_> = servers.iter().flatten().map(|open| &open.server).collect();
    if let Some(twice) = twice(&exports) {
        return Err(same(scheme, text, &exports[twice].to_string()));
    }
    let side = |((name, demand), server): ((&str, &Demand), _)| match server {
        Some(server) => Ok(SingleStore::Server(server)),
        None => store::open(Path::new(name), demand.ram, demand.size).map(SingleStore::File),
    };
    let stores: Result<Vec<_>, Refusal> = asked().zip(servers).map(side).collect();
    Ok(Sides {
        stores: stores?,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    })
}

/// Checks the names of sides.
fn check(
    scheme: &str,
    text: &str,
    names: &[&str],
    count: RangeInclusive<usize>,
    options: &RunOptions,
) -> Result<(), Refusal> {
    let kind = scheme.trim_end_matches(':');
    let refused = |why: String| Refusal::new(format!("--flash {scheme}{text}: {why}"));
    if !count.contains(&names.len()) {
        let (sides, form) = match (*count.end(), kind) {
            (_, "mirror") => (
                "two sides, with one comma between them, and perhaps a spare".to_owned(),
                "[,spare=C]",
            ),
            (2, _) => ("two sides, with one comma between them".to_owned(), ""),
            (most, _) => (
                format!("2 to {most} sides, with commas between them"),
                "[,C...]",
            ),
        };
        return Err(refused(format!(
            "a {kind} has {sides} (%2C within a URI): write {scheme}A,B{form}"
        )));
    }
    if names.iter().any(|side| side.is_empty()) {
        return Err(refused(format!("a side is empty: write {scheme}A,B")));
    }
    let is_nested = |side: &&&str| SCHEMES.iter().any(|scheme| side.starts_with(scheme));
    if let Some(nested) = names.iter().find(is_nested) {
        return Err(refused(format!(
            "a {} is no side of another store: name a path or an NBD URI instead of {nested}",
            nested.split(':').next().expect("a scheme")
        )));
    }
    let is_here = |side: &&&str| nbd::uri(Path::new(side)).is_none();
    let files: Vec<_> = names.iter().filter(is_here).map(Path::new).collect();
    if let (Some(timeout), true) = (options.flash_timeout, files.len() == names.len()) {
        return Err(Refusal::new(format!(
            "--flash-timeout {timeout} is for a store at a server, and all sides are here: leave it out"
        )));
    }
    let files: Vec<_> = files
        .into_iter()
        .filter_map(|file| file.canonicalize().ok())
        .collect();
    if let Some(at) = twice(&files) {
        return Err(same(scheme, text, &files[at].display().to_string()));
    }
    match twice(names) {
        Some(at) => Err(same(scheme, text, names[at])),
        None => Ok(()),
    }
}

/// The index of an element that was there before.
fn twice<T: PartialEq>(all: &[T]) -> Option<usize> {
    (0..all.len()).find(|&at| all[..at].contains(&all[at]))
}

fn same(scheme: &str, text: &str, name: &str) -> Refusal {
    Refusal::new(format!(
        "--flash {scheme}{text}: two sides are the same, {name}: name each once"
    ))
}

impl Sides {
    pub(super) fn len(&self) -> usize {
        self.stores.len()
    }

    fn files(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter().filter_map(SingleStore::file)
    }

    /// The smallest size. Files on one file system share its space, unless a size was asked for.
    pub(super) fn bytes_of_each(&self, is_asked: bool) -> u64 {
        let disk = |store: &Store| {
            let is_file = StoreKind::of(&store.fd) == Ok(StoreKind::File);
            let stat = rustix::fs::fstat(&store.fd).ok();
            stat.filter(|_| is_file).map(|stat| stat.st_dev)
        };
        let disks: Vec<_> = self.files().filter_map(disk).collect();
        let bytes = self.stores.iter().map(|side| {
            let on_its_disk = side.file().and_then(disk).map_or(1, |its| {
                disks.iter().filter(|&&other| other == its).count() as u64
            });
            match is_asked {
                true => side.bytes(),
                false => side.bytes() / on_its_disk / store::PAGE * store::PAGE,
            }
        });
        bytes.min().expect("sides")
    }

    /// The descriptors of the sides that are files or devices, in their order.
    pub(super) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        let mut descriptors = self.stores.iter().filter_map(SingleStore::descriptor);
        [(); STORES_MAX].map(|()| descriptors.next())
    }

    /// Where the sides are, for the processes.
    pub(super) fn places(&self) -> Vec<SidePlace> {
        let place = |(name, store): (&String, &SingleStore)| SidePlace {
            name: name.clone(),
            server: match store {
                SingleStore::File(_) => None,
                SingleStore::Server(store) => Some(ServedSide {
                    server: store.server.clone(),
                    unit: store.unit,
                    trims: store.trims,
                    flushes: store.flushes,
                }),
            },
        };
        self.names.iter().zip(&self.stores).map(place).collect()
    }

    /// Where the sides are, each with a descriptor of its own if it is a file or device, for a thread of the supervisor.
    pub(super) fn twins(&self) -> Result<Vec<(SidePlace, Option<OwnedFd>)>, Refusal> {
        let file = |side: &SingleStore| -> std::io::Result<Option<OwnedFd>> {
            side.file().map(|store| store.fd.try_clone()).transpose()
        };
        let files: std::io::Result<Vec<_>> = self.stores.iter().map(file).collect();
        let files = files.map_err(|e| Refusal::new(format!("a descriptor for a side: {e}")))?;
        Ok(self.places().into_iter().zip(files).collect())
    }
}
