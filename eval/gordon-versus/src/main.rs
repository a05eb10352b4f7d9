//! Gordon beside SQLite, redb and LMDB: durable commits of one small update each, with the stores in
//! turns; and reads of a persistent map beside the same tree in plain Rust.
//!
//! Every store holds 10,000 keys of 8 bytes with values of 100 bytes, and a commit replaces the
//! value of one. All of them are configured to survive a power cut: SQLite with its write-ahead log
//! and `synchronous=FULL`, redb with `Durability::Immediate`, LMDB with its default of syncing.

mod open;
mod plain;

use clap::Parser;
use gordon::{ByteArray, Bytes, Heap, Map, Options, Persist, Ref, Slice, Var, sidney};
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const KEYS: u64 = 10_000;
const VALUE: [u8; 100] = [7; 100];

/// Measures Gordon beside its peers.
#[derive(Parser)]
struct Arguments {
    /// The folder whose disk is measured; all files are removed at the end
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Rounds; medians over them are printed
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Commits of each store in a round
    #[arg(long, default_value_t = 1000)]
    commits: u64,
    /// Threads that commit to Gordon together
    #[arg(long, default_value_t = 8)]
    threads: u64,
    /// Only commits: no collections and no look-ups
    #[arg(long)]
    commits_only: bool,
    #[command(flatten)]
    open: open::Open,
}

/// A store under test: replaces the value of a key, durably.
trait Store {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Box<dyn Error>>;
}

struct Gordon(Heap);

type GordonMap<'t> = Map<'t, u64, Bytes<'t>>;

impl Gordon {
    fn new(folder: &Path) -> Result<Self, Box<dyn Error>> {
        Self::fill(Heap::create(
            &folder.join("gordon"),
            256 << 20,
            Options::default(),
        )?)
    }

    /// The same heap on recoverable virtual memory.
    fn sidney(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let folder = folder.join("sidney");
        std::fs::create_dir(&folder)?;
        Self::fill(sidney::create(&folder, 128 << 20, Options::default())?)
    }

    fn fill(heap: Heap) -> Result<Self, Box<dyn Error>> {
        heap.update(|tx| {
            let mut map = GordonMap::new();
            for key in 0..KEYS {
                map = map.insert(tx, key, tx.bytes(&VALUE));
            }
            tx.set_root(tx.var(map));
            Ok(())
        })?;
        Ok(Self(heap))
    }

    fn put(heap: &Heap, key: u64, value: &[u8]) -> gordon::Result<()> {
        heap.update(|tx| {
            let root = tx
                .root::<Var<'_, GordonMap<'_>>>()?
                .ok_or_else(|| gordon::Error::abort("no map"))?;
            root.write(tx, root.read().insert(tx, key, tx.bytes(value)));
            Ok(())
        })
    }
}

impl Store for Gordon {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Box<dyn Error>> {
        Ok(Self::put(&self.0, key, value)?)
    }
}

struct Sqlite(rusqlite::Connection);

impl Sqlite {
    fn new(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let connection = rusqlite::Connection::open(folder.join("sqlite"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("CREATE TABLE t (key INTEGER PRIMARY KEY, value BLOB); BEGIN")?;
        for key in 0..KEYS {
            connection.execute("INSERT INTO t VALUES (?1, ?2)", (key as i64, &VALUE[..]))?;
        }
        connection.execute_batch("COMMIT")?;
        Ok(Self(connection))
    }
}

impl Store for Sqlite {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut statement = self
            .0
            .prepare_cached("UPDATE t SET value = ?2 WHERE key = ?1")?;
        statement.execute((key as i64, value))?;
        Ok(())
    }
}

struct Redb(redb::Database);

const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("t");

impl Redb {
    fn new(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let database = redb::Database::create(folder.join("redb"))?;
        let write = database.begin_write()?;
        {
            let mut table = write.open_table(TABLE)?;
            for key in 0..KEYS {
                table.insert(key, &VALUE[..])?;
            }
        }
        write.commit()?;
        Ok(Self(database))
    }
}

impl Store for Redb {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Box<dyn Error>> {
        let write = self.0.begin_write()?;
        write.open_table(TABLE)?.insert(key, value)?;
        write.commit()?;
        Ok(())
    }
}

struct Lmdb {
    env: heed::Env,
    database: LmdbTable,
}

type LmdbTable = heed::Database<heed::types::U64<heed::byteorder::BigEndian>, heed::types::Bytes>;

impl Lmdb {
    #[allow(
        unsafe_code,
        reason = "heed: the file must not be changed by others, and it is ours"
    )]
    fn new(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let folder = folder.join("lmdb");
        std::fs::create_dir(&folder)?;
        // SAFETY: heed demands that no other code changes the file or opens it again. `create_dir`
        // has just made its folder, in a temporary folder of this process.
        let env = unsafe {
            heed::EnvOpenOptions::new()
                .map_size(256 << 20)
                .open(&folder)?
        };
        let mut write = env.write_txn()?;
        let database = env.create_database(&mut write, None)?;
        let store = Self {
            env: env.clone(),
            database,
        };
        for key in 0..KEYS {
            store.database.put(&mut write, &key, &VALUE)?;
        }
        write.commit()?;
        Ok(store)
    }
}

impl Store for Lmdb {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut write = self.env.write_txn()?;
        self.database.put(&mut write, &key, value)?;
        write.commit()?;
        Ok(())
    }
}

fn key(number: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % KEYS
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn commits_per_s(store: &mut dyn Store, round: u64, commits: u64) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    for number in 0..commits {
        let mut value = VALUE;
        value[..8].copy_from_slice(&number.to_ne_bytes());
        store.put(key(round * commits + number), &value)?;
    }
    Ok(commits as f64 / begun.elapsed().as_secs_f64())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if arguments.open.run(&arguments.folder, arguments.rounds)? {
        return Ok(());
    }
    let folder = tempfile::Builder::new()
        .prefix(".gordon-versus-")
        .tempdir_in(&arguments.folder)?;
    let gordon = Gordon::new(folder.path())?;
    let mut stores: Vec<(&str, Box<dyn Store>)> = vec![
        ("gordon", Box::new(gordon)),
        ("sidney", Box::new(Gordon::sidney(folder.path())?)),
        ("sqlite", Box::new(Sqlite::new(folder.path())?)),
        ("redb", Box::new(Redb::new(folder.path())?)),
        ("lmdb", Box::new(Lmdb::new(folder.path())?)),
    ];
    let mut rates = vec![Vec::new(); stores.len()];
    for round in 0..arguments.rounds {
        for (store, rates) in stores.iter_mut().zip(&mut rates) {
            rates.push(commits_per_s(
                &mut *store.1,
                round as u64,
                arguments.commits,
            )?);
        }
    }
    println!(
        "durable commits a second, one thread (median of {} rounds of {})",
        arguments.rounds, arguments.commits
    );
    let gordon = median(&mut rates[0]);
    for ((name, _), rates) in stores.iter().zip(&mut rates) {
        let rate = median(rates);
        println!(
            "  {name:8} {rate:8.0}   gordon is {:.2} times as fast",
            gordon / rate
        );
    }
    drop(stores);
    together(folder.path(), &arguments)?;
    if arguments.commits_only {
        return Ok(());
    }
    pauses(folder.path())?;
    large(folder.path())?;
    reads(folder.path())
}

/// Group commit: several threads on one heap.
fn together(folder: &Path, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let folder = folder.join("together");
    std::fs::create_dir(&folder)?;
    let heap = Gordon::new(&folder)?.0;
    let syncs = heap.bank_counters().syncs;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.threads)
            .map(|thread| {
                let heap = &heap;
                scope.spawn(move || {
                    (0..arguments.commits)
                        .try_for_each(|n| Gordon::put(heap, key(thread << 32 | n), &VALUE))
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let commits = arguments.threads * arguments.commits;
    println!(
        "gordon, {} threads: {:.0} commits a second, {:.1} commits a sync",
        arguments.threads,
        commits as f64 / begun.elapsed().as_secs_f64(),
        commits as f64 / (heap.bank_counters().syncs - syncs) as f64
    );
    Ok(())
}

/// A heap whose objects are large.
#[derive(Clone, Copy, Persist)]
struct Large<'t> {
    blob: Bytes<'t>,
    changing: ByteArray<'t>,
    references: Slice<'t, Ref<'t, u64>>,
    count: Var<'t, u64>,
}

/// How long commits take while a collection copies objects of 50 MB.
fn large(folder: &Path) -> Result<(), Box<dyn Error>> {
    const LARGE: usize = 50_000_000;
    let folder = folder.join("large");
    std::fs::create_dir(&folder)?;
    let heap = Heap::create(&folder.join("heap"), 1 << 30, Options::default())?;
    heap.update(|tx| {
        let one = tx.alloc(1);
        tx.set_root(tx.alloc(Large {
            blob: tx.bytes(&vec![7; LARGE]),
            changing: tx.byte_array(&vec![8; LARGE]),
            references: tx.slice(&vec![one; LARGE / 8]),
            count: tx.var(0),
        }));
        Ok(())
    })?;
    let commit = |number: u64| {
        let begun = Instant::now();
        heap.update(|tx| {
            let root = tx.root::<Ref<'_, Large<'_>>>()?;
            let root = root.ok_or_else(|| gordon::Error::abort("no root"))?.read();
            root.count.write(tx, number);
            let at = number as usize * 7919 % LARGE;
            root.changing.write(tx, at, &[number as u8]);
            Ok(())
        })
        .map(|()| begun.elapsed().as_secs_f64() * 1e3)
    };
    let (mut quiet, mut beside) = (Vec::new(), Vec::new());
    // Commits go on while another thread starts one collection of the whole heap after the other.
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            (0..4).try_for_each(|_| {
                std::thread::sleep(Duration::from_millis(100));
                heap.start_collection()?;
                while heap.is_collecting() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok::<(), gordon::Error>(())
            })
        });
        let mut number = 0;
        while !collector.is_finished() {
            number += 1;
            let running = heap.is_collecting();
            let took = commit(number)?;
            if running || heap.is_collecting() {
                beside.push(took);
            } else {
                quiet.push(took);
            }
        }
        collector.join().expect("no panic")
    })?;
    println!("objects of 50 MB: a byte string, a byte array, 6 million references");
    tell(&mut quiet, &mut beside);
    println!("  persistent collections: {}", heap.counters().persistent);
    Ok(())
}

/// How long commits take while persistent collections run beside them, and while none does.
fn pauses(folder: &Path) -> Result<(), Box<dyn Error>> {
    let folder = folder.join("pauses");
    std::fs::create_dir(&folder)?;
    let heap = Gordon::new(&folder)?.0;
    let mut quiet = Vec::new();
    let mut beside = Vec::new();
    let patience = Instant::now();
    while heap.counters().persistent < 4 && patience.elapsed() < Duration::from_secs(60) {
        let collections = heap.counters().persistent;
        let running = heap.is_collecting();
        let begun = Instant::now();
        Gordon::put(
            &heap,
            key(quiet.len() as u64 + beside.len() as u64),
            &[1; 4000],
        )?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        if running || heap.is_collecting() || heap.counters().persistent != collections {
            beside.push(took);
        } else {
            quiet.push(took);
        }
    }
    tell(&mut quiet, &mut beside);
    println!("  persistent collections: {}", heap.counters().persistent);
    Ok(())
}

fn tell(quiet: &mut [f64], beside: &mut [f64]) {
    for (name, times) in [("without", quiet), ("during", beside)] {
        times.sort_unstable_by(f64::total_cmp);
        if let (Some(most), middle) = (times.last(), times.len() / 2) {
            let p99 = times[times.len() * 99 / 100];
            println!(
                "commit ms {name} a collection: p50 {:.2}, p99 {p99:.2}, max {most:.2} ({} commits)",
                times[middle],
                times.len()
            );
        }
    }
}

/// Look-ups in a map of a million keys, and in the same tree in boxes.
fn reads(folder: &Path) -> Result<(), Box<dyn Error>> {
    const MANY: u64 = 1_000_000;
    const LOOKUPS: u64 = 2_000_000;
    let folder = folder.join("reads");
    std::fs::create_dir(&folder)?;
    let heap = Heap::create(&folder.join("heap"), 1 << 30, Options::default())?;
    heap.update(|tx| {
        let mut map = Map::new();
        for number in 0..MANY {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            map = map.insert(tx, key, number);
        }
        tx.set_root(tx.alloc(map));
        Ok(())
    })?;
    let mut plain = plain::Map::default();
    for number in 0..MANY {
        plain.insert(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number);
    }
    let (mut persistent, mut boxed) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let look_up = |get: &dyn Fn(u64) -> Option<u64>| {
            let begun = Instant::now();
            let mut sum = 0_u64;
            for number in 0..LOOKUPS {
                let number = number.wrapping_mul(0x2545_f491_4f6c_dd1d) % MANY;
                let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                sum = sum.wrapping_add(get(key).unwrap_or(0));
            }
            black_box(sum);
            begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
        };
        heap.view(|view| {
            let map = view
                .root::<Ref<'_, Map<'_, u64, u64>>>()?
                .ok_or_else(|| gordon::Error::abort("no map"))?
                .read();
            persistent.push(look_up(&|key| map.get(&key)));
            Ok(())
        })?;
        boxed.push(look_up(&|key| plain.get(key)));
    }
    let (persistent, boxed) = (median(&mut persistent), median(&mut boxed));
    println!("look-up in a map of a million keys, ns");
    println!("  gordon      {persistent:.0}");
    println!(
        "  plain Rust  {boxed:.0}   gordon takes {:.2} times as long",
        persistent / boxed
    );
    Ok(())
}
