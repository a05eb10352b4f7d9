//! A job: operations of one size and order, with some of them in flight at any time.

use crate::disk::{Buffers, Disk};
use crate::way::{Open, Operation, Way};
use std::thread;
use std::time::{Duration, Instant};

/// How a thread waits for its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Sleep,
    /// Looks again and again, and yields the processor from time to time, as `flash/demand.rs` does.
    Poll,
}

/// Looks between two offers to yield the processor.
const LOOKS: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) write: bool,
    /// Writes go to space that was allocated and never written.
    pub(crate) new: bool,
    /// Of each operation.
    pub(crate) bytes: usize,
    pub(crate) random: bool,
    /// Threads, each with operations of its own.
    pub(crate) threads: usize,
    /// Operations in flight of each thread.
    pub(crate) depth: usize,
    /// Of all threads, in a round.
    pub(crate) operations: usize,
}

/// A round's figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    /// Mean time from the submission of an operation until it was seen to have ended.
    pub(crate) latency_us: f64,
    /// Processor time of an operation.
    pub(crate) processor_us: f64,
}

/// One thread's way and buffers, which are dropped in this order.
struct Worker {
    way: Box<dyn Way>,
    buffers: Buffers,
    random: u64,
}

impl Job {
    /// A round. `None` if the kernel refuses the way.
    pub(crate) fn run(&self, disk: &Disk, open: Open, wait: Wait) -> Option<Sample> {
        if self.new {
            disk.renew().expect("space for the file");
        }
        let mut workers = (0..self.threads)
            .map(|thread| {
                Some(Worker {
                    way: open(disk, self.depth)?,
                    buffers: Buffers::new(self.depth, self.bytes),
                    random: 0x9e37_79b9_7f4a_7c15 + thread as u64,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        let share = self.operations / self.threads;
        let (begun, processor) = (Instant::now(), processor_time());
        let waited: Duration = match &mut workers[..] {
            [worker] => self.work(disk, worker, share, wait),
            workers => thread::scope(|scope| {
                let spawn = |worker| scope.spawn(move || self.work(disk, worker, share, wait));
                let all = Vec::from_iter(workers.iter_mut().map(spawn));
                all.into_iter()
                    .map(|thread| thread.join().expect("a thread failed"))
                    .sum()
            }),
        };
        let each = 1e6 / (share * self.threads) as f64;
        let sample = Sample {
            seconds: begun.elapsed().as_secs_f64(),
            latency_us: waited.as_secs_f64() * each,
            processor_us: (processor_time() - processor).as_secs_f64() * each,
        };
        Some(sample)
    }

    /// Carries out `operations`. Returns the sum of their times.
    fn work(&self, disk: &Disk, worker: &mut Worker, operations: usize, wait: Wait) -> Duration {
        let Worker {
            way,
            buffers,
            random,
        } = worker;
        let places = disk.bytes / self.bytes as u64;
        let mut free = Vec::from_iter(0..self.depth);
        let mut in_flight = vec![(0, Instant::now()); self.depth];
        let (mut begun, mut done, mut waited) = (0, 0, Duration::ZERO);
        let mut ended = Vec::with_capacity(self.depth);
        while done < operations {
            while begun < operations
                && let Some(buffer) = free.pop()
            {
                let place = if self.random {
                    next(random) % places
                } else {
                    begun as u64 % places
                };
                let at = place * self.bytes as u64;
                if self.write {
                    buffers.stamp(buffer, at, self.bytes);
                }
                in_flight[buffer] = (at, Instant::now());
                begun += 1;
                way.push(Operation {
                    write: self.write,
                    at,
                    bytes: self.bytes,
                    address: buffers.address(buffer),
                    buffer,
                });
            }
            way.submit();
            let mut looks = 0;
            way.reap(&mut ended);
            while ended.is_empty() {
                looks += 1;
                match wait {
                    Wait::Sleep => way.sleep(),
                    Wait::Poll if looks % LOOKS == 0 => thread::yield_now(),
                    Wait::Poll => std::hint::spin_loop(),
                }
                way.reap(&mut ended);
            }
            done += ended.len();
            for buffer in ended.drain(..) {
                let (at, since) = in_flight[buffer];
                waited += since.elapsed();
                if !self.write {
                    buffers.check(buffer, at, self.bytes);
                }
                free.push(buffer);
            }
        }
        waited
    }
}

/// Xorshift (Marsaglia, 2003).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Processor time of this process, user and system.
fn processor_time() -> Duration {
    // SAFETY: all zeros is a usage, and the kernel stores one there.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
