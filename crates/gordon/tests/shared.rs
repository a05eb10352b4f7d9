//! A heap that another process has open, and goes on changing, is read: no state is older than a commit that had returned.

mod common;

use common::small_limits;
use gordon::{Array, Bytes, Collector, Error, Heap, Options};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Names the heap that this process is to write.
const WRITER: &str = "GORDON_TEST_WRITER";
const SLOTS: usize = 8;

type Slots<'t> = Array<'t, (u64, Option<Bytes<'t>>)>;

/// Not a test of its own: the process that has the heap. It commits without end, and prints what it has committed.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(WRITER) else {
        return;
    };
    let options = Options {
        limits: small_limits(),
        collector: Collector::Beside,
        ..Options::default()
    };
    let heap = Heap::open(Path::new(&path), options).expect("the heap");
    let mut out = std::io::stdout();
    for number in 1_u64.. {
        heap.update(|tx| {
            let slots = tx.root::<Slots<'_>>()?.expect("set");
            // Sizes of all kinds of commits.
            let bytes = vec![number as u8; (number % 7 * 6_000) as usize];
            slots.set(
                tx,
                number as usize % SLOTS,
                (number, Some(tx.bytes(&bytes))),
            );
            Ok(())
        })
        .expect("a commit");
        // The test has gone: so does this process.
        if writeln!(out, "committed {number}").is_err() {
            return;
        }
    }
}

struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The newest number, after a check of all.
fn newest(view: &gordon::View<'_>) -> gordon::Result<u64> {
    let slots = view.root::<Slots<'_>>()?.expect("set");
    let numbers: Vec<_> = (0..SLOTS)
        .map(|at| {
            let (number, bytes) = slots.get(at).expect("a slot");
            let is_whole = |bytes: Bytes<'_>| {
                bytes.len() as u64 == number % 7 * 6_000
                    && bytes.iter().all(|byte| *byte == number as u8)
            };
            assert!(bytes.is_none_or(is_whole), "the bytes of {number}");
            number
        })
        .collect();
    let newest = numbers.iter().copied().max().expect("slots");
    for back in 0..(SLOTS as u64).min(newest) {
        assert!(numbers.contains(&(newest - back)), "one state: {numbers:?}");
    }
    Ok(newest)
}

#[test]
fn what_another_process_commits_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap");
    let heap = Heap::create(&path, 4 << 20, Options::default()).expect("a heap");
    heap.update(|tx| {
        tx.set_root(tx.array(&[(0_u64, None::<Bytes<'_>>); SLOTS]));
        Ok(())
    })
    .expect("a commit");
    heap.close().expect("closed");
    assert_eq!(
        Heap::read_shared(&path, None, newest).expect("nobody has it"),
        0
    );

    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["writer", "--exact", "--nocapture"])
        .env(WRITER, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let out = child.stdout.take().expect("its output");
    let writer = Writer(child);
    let committed = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&committed);
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("committed ") {
                noted.store(number.parse().expect("a number"), Ordering::Relaxed);
            }
        }
    });
    let begun = Instant::now();
    let (mut reads, mut states) = (0, std::collections::BTreeSet::new());
    while reads < 60 || states.len() < 10 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{reads} reads, states {states:?}"
        );
        let before = committed.load(Ordering::Relaxed);
        if before == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let found = Heap::read_shared(&path, None, newest).expect("a state");
        assert!(found >= before, "{found} after {before} had returned");
        states.insert(found);
        reads += 1;
    }
    assert!(matches!(
        Heap::open(&path, Options::default()),
        Err(Error::Locked(_))
    ));
    let copy = folder.path().join("copy");
    Heap::read_shared(&path, None, |view| view.backup(&copy)).expect("a backup");
    drop(writer);
    let heap = Heap::open(&copy, Options::default()).expect("the copy");
    assert!(heap.view(newest).expect("a state") >= *states.last().expect("states"));
    drop(heap);
    let heap = Heap::open(&path, Options::default()).expect("killed, and good");
    heap.view(newest).expect("a state");
}
