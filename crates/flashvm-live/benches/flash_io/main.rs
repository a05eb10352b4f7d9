//! Ways to read and write the flash store: calls that wait, threads, Linux' asynchronous I/O, io_uring.
//!
//! `cargo bench -p flashvm-live --bench flash_io` measures a file in `/var/tmp`; `FLASHVM_BENCH_FOLDER` names another folder,
//! `FLASHVM_BENCH_ROUNDS` another number of rounds. In each round all ways of a job take turns, so that a slow minute of
//! the disk hits all of them; figures are medians of the rounds. Processor time is that of the process, with all its threads; the
//! host's and other processes' are not in it. Words on the command line select jobs whose name contains one of them.

mod aio;
mod calls;
mod disk;
mod job;
mod ring;
#[path = "../../../flashvm-sim/benches/timing/selection.rs"]
mod selection;
mod threads;
mod way;

use disk::Disk;
use job::{Job, Sample, Wait};
use std::path::PathBuf;
use way::Open;

const PAGE: usize = 4096;
const BYTES: u64 = 1 << 30;
/// Of the file that is written for the first time: all operations of a round.
const NEW_BYTES: u64 = 128 << 20;

/// A way with its name, and how to wait for it.
type Choice = (&'static str, Open, Wait);

/// Waits of a thread for one read: asleep in the call, or polling in user space.
const DEMAND: &[Choice] = &[
    ("pread", calls::pread, Wait::Sleep),
    ("preadv2", calls::preadv2, Wait::Sleep),
    ("preadv2, RWF_HIPRI", calls::hipri, Wait::Sleep),
    ("preadv2, RWF_NOWAIT", calls::nowait, Wait::Sleep),
    ("libaio, io_getevents", aio::without_event, Wait::Sleep),
    ("libaio, polled", aio::without_event, Wait::Poll),
    ("libaio with eventfd, polled", aio::with_event, Wait::Poll),
    ("io_uring, asleep", ring::ring, Wait::Sleep),
    ("io_uring, polled", ring::ring, Wait::Poll),
];

/// Ways to have many operations in flight.
const QUEUES: &[Choice] = &[
    ("4 threads", threads::four, Wait::Sleep),
    ("8 threads", threads::eight, Wait::Sleep),
    ("32 threads", threads::thirty_two, Wait::Sleep),
    ("libaio, io_getevents", aio::without_event, Wait::Sleep),
    ("libaio with eventfd", aio::with_event, Wait::Sleep),
    ("io_uring", ring::ring, Wait::Sleep),
];

fn main() {
    let variable = |name| std::env::var(name).ok();
    let folder = variable("FLASHVM_BENCH_FOLDER").map_or("/var/tmp".into(), PathBuf::from);
    let rounds = variable("FLASHVM_BENCH_ROUNDS").map_or(9, |rounds| {
        rounds
            .parse()
            .expect("FLASHVM_BENCH_ROUNDS is a number above 0")
    });
    let open = |made: std::io::Result<Disk>| match made {
        Ok(disk) => disk,
        Err(error) => {
            eprintln!(
                "{}: {error}: name a folder with direct I/O in FLASHVM_BENCH_FOLDER",
                folder.display()
            );
            std::process::exit(2);
        }
    };
    let old = open(Disk::written(&folder, BYTES));
    let new = open(Disk::allocated(&folder, NEW_BYTES));
    for (job, ways) in jobs() {
        if !selection::is_selected(job.name) {
            continue;
        }
        let disk = if job.new { &new } else { &old };
        println!(
            "{}: {} operations a round, {rounds} rounds",
            job.name, job.operations
        );
        let mut samples: Vec<Vec<Sample>> = ways.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            for (way, samples) in ways.iter().zip(&mut samples) {
                if let Some(sample) = job.run(disk, way.1, way.2)
                    && round > 0
                {
                    samples.push(sample);
                }
            }
        }
        for ((name, ..), samples) in ways.iter().zip(&samples) {
            report(&job, name, samples);
        }
    }
}

fn jobs() -> Vec<(Job, &'static [Choice])> {
    let reads = Job {
        name: "",
        write: false,
        new: false,
        bytes: PAGE,
        random: true,
        threads: 1,
        depth: 1,
        operations: 4000,
    };
    let demand = |name, threads| Job {
        name,
        threads,
        ..reads
    };
    let writes = Job {
        name: "128 KiB writes in order, 8 in flight",
        write: true,
        bytes: 128 << 10,
        random: false,
        depth: 8,
        operations: 1000,
        ..reads
    };
    vec![
        (demand("4 KiB random reads, 1 at a time", 1), DEMAND),
        (demand("4 KiB random reads, 4 threads, 1 each", 4), DEMAND),
        (
            Job {
                name: "4 KiB random reads, 32 in flight",
                depth: 32,
                operations: 16_000,
                ..reads
            },
            QUEUES,
        ),
        (
            Job {
                name: "64 KiB reads in order, 8 in flight",
                bytes: 64 << 10,
                random: false,
                depth: 8,
                ..reads
            },
            QUEUES,
        ),
        (writes, QUEUES),
        (
            Job {
                name: "128 KiB first writes, 8 in flight",
                new: true,
                ..writes
            },
            QUEUES,
        ),
    ]
}

fn report(job: &Job, name: &str, samples: &[Sample]) {
    if samples.is_empty() {
        println!("  {name:<28} the kernel refuses it");
        return;
    }
    let median = |of: fn(&Sample) -> f64| {
        let mut all = Vec::from_iter(samples.iter().map(of));
        all.sort_unstable_by(f64::total_cmp);
        (all[all.len() / 2], all[0], all[all.len() - 1])
    };
    let (latency, ..) = median(|sample| sample.latency_us);
    let (seconds, least, most) = median(|sample| sample.seconds);
    let (processor, ..) = median(|sample| sample.processor_us);
    let rate = |seconds: f64| match job.bytes {
        PAGE => job.operations as f64 / seconds,
        bytes => (job.operations * bytes) as f64 / seconds / (1 << 20) as f64,
    };
    let unit = if job.bytes == PAGE { "/s" } else { "MiB/s" };
    println!(
        "  {name:<28} {:>9.0} {unit} ({:.0} to {:.0}), {latency:>7.1} us each, processor {processor:>6.1} us each",
        rate(seconds),
        rate(most),
        rate(least),
    );
}
