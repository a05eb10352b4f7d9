//! The cost of a fault without the disk: each kind of fault, timed in a program under `flashvm run`, with the flash
//! store in RAM (`/dev/shm`), so that a read is a copy. The program runs twice: without compression, where evicted pages
//! come back by a read, and with it, where they come back from the pool.
//!
//! `cargo bench -p flashvm-cli --bench fault_path`; the handler's turn:
//! `FLASHVM_BENCH_FAULT=handler cargo bench ...`; protect mode without guard regions:
//! `FLASHVM_BENCH_FAULT=protect FLASHVM_BENCH_NO_MARKERS=1`. Pages are touched in random order without prefetching: a right guess
//! would avoid a fault. The figure of a bench is the median time of one touch, that is of one fault. Words on the
//! command line select benches whose name contains one of them.

#[path = "../../flashvm-sim/benches/timing/selection.rs"]
mod selection;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Pages that are faulted on in one round: a quarter of the budget.
const PAGES: usize = 4096;
const BUDGET: &str = "64M";
/// Rounds of a bench, after one that is not counted.
const ROUNDS: usize = 11;
/// Pages that push all others out of the budget.
const CROWD: usize = 4 * PAGES;

/// Tells the program that its pages are compressed.
const COMPRESSED: &str = "FLASHVM_BENCH_COMPRESSED";

/// Managed memory of the program.
struct Memory {
    at: *mut u8,
    pages: usize,
}

impl Memory {
    fn new(pages: usize) -> Self {
        // SAFETY: fresh anonymous memory at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "no memory");
        Self {
            at: at.cast(),
            pages,
        }
    }

    fn load(&self, page: usize) {
        // SAFETY: inside of the mapping.
        black_box(unsafe { self.at.add(page * PAGE).read_volatile() });
    }

    fn store(&self, page: usize) {
        // SAFETY: inside of the mapping, which no reference points into.
        unsafe { self.at.add(page * PAGE).write_volatile(page as u8 | 1) };
    }

    fn store_all(&self) -> &Self {
        (0..self.pages).for_each(|page| self.store(page));
        self
    }

    /// Evicts all pages and waits until they have been written.
    fn page_out(&self) {
        // SAFETY: advice that changes no contents.
        unsafe { libc::madvise(self.at.cast(), self.pages * PAGE, libc::MADV_PAGEOUT) };
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody uses any more.
        unsafe { libc::munmap(self.at.cast(), self.pages * PAGE) };
    }
}

/// The pages in an order that no prefetcher can guess.
fn shuffled() -> Vec<usize> {
    let mut order: Vec<usize> = (0..PAGES).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for left in (1..PAGES).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(left, (state % (left as u64 + 1)) as usize);
    }
    order
}

/// Times `touch` on pages that `prepare` has put into the wanted state.
fn bench(name: &str, prepare: impl Fn(&Memory), touch: impl Fn(&Memory, usize)) {
    if !selection::is_selected(name) {
        return;
    }
    let order = shuffled();
    let round = || {
        let memory = Memory::new(PAGES);
        prepare(&memory);
        let start = Instant::now();
        order.iter().for_each(|&page| touch(&memory, page));
        start.elapsed().as_secs_f64() * 1e6 / PAGES as f64
    };
    round();
    let mut micros = [(); ROUNDS].map(|()| round());
    micros.sort_unstable_by(f64::total_cmp);
    println!(
        "{name:<42} {:>7.3} us ({:.3} to {:.3})",
        micros[ROUNDS / 2],
        micros[0],
        micros[ROUNDS - 1]
    );
}

fn out(memory: &Memory) {
    memory.store_all().page_out();
}

fn evicted(memory: &Memory) {
    out(memory);
    Memory::new(CROWD).store_all();
}

fn faults() {
    bench("zeros, by a store", |_| {}, Memory::store);
    bench("soft fault, by a load", out, Memory::load);
    bench("soft fault, by a store", out, Memory::store);
    let clean = |memory: &Memory| {
        out(memory);
        (0..PAGES).for_each(|page| memory.load(page));
    };
    bench("first store to a clean page", clean, Memory::store);
    bench(
        "page-in from a store in RAM, by a load",
        evicted,
        Memory::load,
    );
    bench(
        "page-in from a store in RAM, by a store",
        evicted,
        Memory::store,
    );
}

fn faults_in_the_pool() {
    bench("compressed page, by a load", evicted, Memory::load);
    bench("compressed page, by a store", evicted, Memory::store);
}

fn main() -> ExitCode {
    if std::env::var_os("FLASHVM_CONTROL").is_some() {
        match std::env::var_os(COMPRESSED) {
            None => faults(),
            Some(_) => faults_in_the_pool(),
        }
        return ExitCode::SUCCESS;
    }
    let fault = std::env::var("FLASHVM_BENCH_FAULT").unwrap_or_else(|_| "auto".to_owned());
    let program = std::env::current_exe().expect("the path of this program");
    for compress in ["off", "auto"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flashvm"));
        if compress != "off" {
            command.env(COMPRESSED, "1");
        }
        let status = command
            .args(["run", "--quiet", "--ram", BUDGET, "--flash-size", "1G"])
            .args(["--flash", "/dev/shm", "--flash-in-ram"])
            // A file in RAM would be read by a worker thread of the kernel's.
            .args(["--no-uring", "--prefetcher", "off"])
            .args(["--compress", compress, "--fault", &fault])
            .args(std::env::var_os("FLASHVM_BENCH_NO_MARKERS").map(|_| "--no-markers"))
            .arg("--")
            .arg(&program)
            .args(std::env::args_os().skip(1))
            .status();
        let status = status.expect("flashvm run starts");
        if !status.success() {
            eprintln!("flashvm run --compress {compress}: {status}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
