//! How long it takes to open a large store whose process was killed, with its file in memory and not.
//!
//! A child fills each store with values of 1,000 bytes, commits, changes 1,000 of them one by one, and ends itself with SIGKILL.

use crate::{GordonMap, TABLE, median};
use clap::Args;
use gordon::{Heap, Options, Var};
use std::any::Any;
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const VALUE: [u8; 1000] = [7; 1000];
/// Values in a commit of the child.
const BATCH: u64 = 50_000;
/// Commits of one value each, after these.
const CHANGES: u64 = 1000;

#[derive(Args)]
pub(crate) struct Open {
    /// Only this: how long it takes to open a store with values of so many MiB after a crash
    #[arg(long, value_name = "MIB")]
    open: Option<u64>,
    /// Fills one store, and ends with SIGKILL
    #[arg(long, hide = true)]
    fill: Option<String>,
}

type Done = Result<(), Box<dyn Error>>;
/// A store that is open.
type Opened = Result<Box<dyn Any>, Box<dyn Error>>;
type Way = fn(&Path) -> Opened;

impl Open {
    /// Does what the arguments ask for. Returns whether they asked for anything.
    pub(crate) fn run(&self, folder: &Path, rounds: usize) -> Result<bool, Box<dyn Error>> {
        let Some(mib) = self.open else {
            return Ok(false);
        };
        let values = (mib << 20) / VALUE.len() as u64;
        if let Some(store) = &self.fill {
            fill(store, folder, values)?;
            rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            )?;
        }
        let folder = tempfile::Builder::new()
            .prefix(".gordon-versus-")
            .tempdir_in(folder)?;
        let ways: [(&str, &str, Way); 4] = [
            ("gordon", "gordon", |path| open_gordon(path, false)),
            ("gordon, trusted", "gordon", |path| open_gordon(path, true)),
            ("redb", "redb", open_redb),
            ("lmdb", "lmdb", open_lmdb),
        ];
        println!("open after a kill, {mib} MiB of values, s (median of {rounds})");
        for (name, store, open) in ways {
            let (mut cold, mut warm) = (Vec::new(), Vec::new());
            let file = path(folder.path(), store);
            for _ in 0..rounds {
                crash(store, folder.path(), mib)?;
                forget(&file)?;
                cold.push(timed(|| open(&file))?);
                crash(store, folder.path(), mib)?;
                warm.push(timed(|| open(&file))?);
            }
            let bytes = std::fs::metadata(&file)?.len();
            println!(
                "  {name:16} cold {:.3}, in memory {:.3}; file of {} MiB",
                median(&mut cold),
                median(&mut warm),
                bytes >> 20
            );
        }
        Ok(true)
    }
}

/// Seconds until a store is open. Closing it is not timed.
fn timed(open: impl FnOnce() -> Opened) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    let opened = open()?;
    let took = begun.elapsed().as_secs_f64();
    drop(opened);
    Ok(took)
}

fn path(folder: &Path, store: &str) -> PathBuf {
    folder.join(if store == "lmdb" {
        "lmdb/data.mdb"
    } else {
        store
    })
}

/// Fills the store in a child, or changes what is there already, until the child has killed itself.
fn crash(store: &str, folder: &Path, mib: u64) -> Done {
    let status = Command::new(std::env::current_exe()?)
        .arg(folder)
        .args(["--open", &mib.to_string(), "--fill", store])
        .status()?;
    match std::os::unix::process::ExitStatusExt::signal(&status) {
        Some(9) => Ok(()),
        _ => Err(format!("filling {store}: {status}").into()),
    }
}

/// Drops the file from the page cache.
fn forget(path: &Path) -> Done {
    let file = File::open(path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

fn fill(store: &str, folder: &Path, values: u64) -> Done {
    let file = path(folder, store);
    let is_new = !file.exists();
    match store {
        "gordon" => fill_gordon(&file, values, is_new),
        "redb" => fill_redb(&file, values, is_new),
        _ => fill_lmdb(&file, values, is_new),
    }
}

/// Keys of the first commits, each with the number of values, and then of the single changes.
fn commits(values: u64, is_new: bool) -> impl Iterator<Item = std::ops::Range<u64>> {
    let first = (0..values)
        .step_by(BATCH as usize)
        .filter(move |_| is_new)
        .map(move |at| at..(at + BATCH).min(values));
    let changes = (0..CHANGES).map(move |number| {
        let key = number * 7919 % values;
        key..key + 1
    });
    first.chain(changes)
}

#[allow(unsafe_code, reason = "opens a heap unchecked")]
fn heap(path: &Path, trusted: bool) -> gordon::Result<Heap> {
    match trusted {
        // SAFETY: only this program has written the heap.
        true => unsafe { Heap::open_trusted(path, Options::default()) },
        false => Heap::open(path, Options::default()),
    }
}

fn fill_gordon(path: &Path, values: u64, is_new: bool) -> Done {
    let heap = match is_new {
        true => Heap::create(path, values * 3 * VALUE.len() as u64, Options::default())?,
        false => heap(path, true)?,
    };
    for keys in commits(values, is_new) {
        heap.update(|tx| {
            let root = match tx.root::<Var<'_, GordonMap<'_>>>()? {
                Some(root) => root,
                None => {
                    let root = tx.var(GordonMap::new());
                    tx.set_root(root);
                    root
                }
            };
            let mut map = root.read();
            for key in keys {
                map = map.insert(tx, key, tx.bytes(&VALUE));
            }
            root.write(tx, map);
            Ok(())
        })?;
    }
    std::mem::forget(heap);
    Ok(())
}

fn open_gordon(path: &Path, trusted: bool) -> Opened {
    let heap = heap(path, trusted)?;
    heap.view(|view| {
        let root = view.root::<Var<'_, GordonMap<'_>>>()?;
        let map = root.ok_or_else(|| gordon::Error::abort("no map"))?.read();
        assert_eq!(map.get(&0).map(|value| value.len()), Some(VALUE.len()));
        Ok(())
    })?;
    Ok(Box::new(heap))
}

fn fill_redb(path: &Path, values: u64, is_new: bool) -> Done {
    let database = redb::Database::create(path)?;
    for keys in commits(values, is_new) {
        let write = database.begin_write()?;
        {
            let mut table = write.open_table(TABLE)?;
            for key in keys {
                table.insert(key, &VALUE[..])?;
            }
        }
        write.commit()?;
    }
    std::mem::forget(database);
    Ok(())
}

fn open_redb(path: &Path) -> Opened {
    use redb::ReadableDatabase;
    let database = redb::Database::open(path)?;
    let value = database.begin_read()?.open_table(TABLE)?.get(0)?;
    assert_eq!(value.map(|value| value.value().len()), Some(VALUE.len()));
    Ok(Box::new(database))
}

#[allow(
    unsafe_code,
    reason = "heed: the file must not be changed by others, and it is ours"
)]
fn environment(path: &Path) -> Result<heed::Env, Box<dyn Error>> {
    let folder = path.parent().expect("a folder");
    std::fs::create_dir_all(folder)?;
    // SAFETY: only one process of this program at a time opens the file, in a folder of its own, and closes it before it opens it again.
    Ok(unsafe {
        heed::EnvOpenOptions::new()
            .map_size(64 << 30)
            .open(folder)?
    })
}

fn fill_lmdb(path: &Path, values: u64, is_new: bool) -> Done {
    let env = environment(path)?;
    for keys in commits(values, is_new) {
        let mut write = env.write_txn()?;
        let database: crate::LmdbTable = env.create_database(&mut write, None)?;
        for key in keys {
            database.put(&mut write, &key, &VALUE)?;
        }
        write.commit()?;
    }
    std::mem::forget(env);
    Ok(())
}

fn open_lmdb(path: &Path) -> Opened {
    let env = environment(path)?;
    let read = env.read_txn()?;
    let database: Option<crate::LmdbTable> = env.open_database(&read, None)?;
    let value = database.ok_or("no table in the file")?.get(&read, &0)?;
    assert_eq!(value.map(<[u8]>::len), Some(VALUE.len()));
    drop(read);
    Ok(Box::new(env))
}
