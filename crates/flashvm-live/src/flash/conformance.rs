//! Tests the contract of `store` on every store, layer and stack, in the calling thread and through each queue.

use super::checked::Checked;
use super::either::Either;
use super::encrypted::Encrypted;
use super::file::FileStore;
use super::injected::Injected;
use super::memory::MemoryStore;
use super::mirror::Mirror;
use super::modelled::Modelled;
use super::nbd::testing::{Manner, TestServer};
use super::nbd::{CONNECTIONS_MAX, NbdStore};
use super::side::SideStore;
use super::sides::Sides;
use super::store::{
    Completion, Failed, Geometry, Part, Request, Span, Store, StoreQueue, Transfer,
};
use super::stripe::Stripe;
use super::testing::{
    Pages, SilentSide, encrypted_stack, encrypted_stack_without_ring, file, held, leak,
    mirror_stack, settings, stack_without_ring, whole_stack,
};
use super::{Queue, ThreadQueue};
use crate::control::{Control, Inject, NbdAddress, NbdServer};
use flashvm_core::{Nanos, PAGE_SIZE};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of every store here.
const BYTES: u64 = 8 << 20;
const PAGE: u64 = PAGE_SIZE as u64;
/// Requests that a test pushes to a queue, more than its depth.
const REQUESTS: u64 = 400;
const DEPTH: u32 = 8;

fn file_store(without_ring: bool) -> FileStore {
    FileStore::new(file(BYTES), BYTES, without_ring).unwrap()
}

/// Checks the whole contract except queues.
fn conforms(store: &'static impl Store) {
    let geometry = store.geometry();
    assert_eq!(geometry, store.geometry());
    assert!(PAGE_SIZE.is_multiple_of(geometry.unit) && geometry.threads > 0);
    gathered_writes_read_back(store, geometry);
    threads_do_not_mix(store);
    discards_leave_the_rest(store);
    store.sync().unwrap();
    other_requests_are_refused(store, geometry);
}

fn gathered_writes_read_back(store: &impl Store, geometry: Geometry) {
    let (from, around) = (Pages::new(3, 1), Pages::new(5, 2));
    let mut to = Pages::new(5, 3);
    // SAFETY: all pages live over the calls, and this thread alone uses them.
    unsafe {
        assert!(store.write(10 * PAGE, &[around.all()]).is_none());
        let parts = [from.page(2), from.page(0), from.page(1)];
        assert!(store.write(11 * PAGE, &parts).is_none());
        assert!(store.read(10 * PAGE, to.all()).is_none());
        assert_eq!(to.bytes(0), around.bytes(0));
        for (at, page) in [2, 0, 1].into_iter().enumerate() {
            assert_eq!(to.bytes(1 + at), from.bytes(page));
        }
        assert_eq!(to.bytes(4), around.bytes(4));
        // The smallest read, in the middle of what was written.
        let unit = Part {
            len: geometry.unit,
            ..to.page(0)
        };
        let skip = PAGE_SIZE - geometry.unit;
        assert!(store.read(11 * PAGE + skip as u64, unit).is_none());
        assert_eq!(to.bytes(0)[..geometry.unit], from.bytes(2)[skip..]);
        // The ends of the store.
        for at in [0, BYTES - PAGE] {
            assert!(store.write(at, &[from.page(0)]).is_none());
            to.fill(0);
            assert!(store.read(at, to.page(0)).is_none());
            assert_eq!(to.bytes(0), from.bytes(0));
        }
    }
}

fn threads_do_not_mix(store: &impl Store) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let (mut page, mut back) = (Pages::new(1, thread), Pages::new(1, thread));
                for turn in 0..50 {
                    let at = (100 + thread * 50 + turn % 25) * PAGE;
                    page.fill(thread * 1000 + turn);
                    // SAFETY: both pages live over the calls and are this thread's.
                    unsafe {
                        assert!(store.write(at, &[page.all()]).is_none());
                        assert!(store.read(at, back.all()).is_none());
                    }
                    assert_eq!(page.bytes(0), back.bytes(0));
                    back.fill(0);
                }
            });
        }
    });
}

fn discards_leave_the_rest(store: &impl Store) {
    let (from, mut to) = (Pages::new(8, 4), Pages::new(8, 5));
    // SAFETY: both live over the calls, and this thread alone uses them.
    unsafe {
        assert!(store.write(20 * PAGE, &[from.all()]).is_none());
        let span = |page, pages| Span {
            at: page * PAGE,
            len: pages * PAGE,
        };
        match store.discard(&[span(21, 2), span(25, 1)]) {
            Ok(()) => {}
            Err(error) => eprintln!("SKIPPED: discards of this store: {error}"),
        }
        for page in [0, 3, 4, 6, 7] {
            let at = (20 + page as u64) * PAGE;
            assert!(store.read(at, to.page(page)).is_none());
            assert_eq!(to.bytes(page), from.bytes(page));
        }
        // What was discarded can be written again.
        assert!(store.write(20 * PAGE, &[from.all()]).is_none());
        to.fill(0);
        assert!(store.read(20 * PAGE, to.all()).is_none());
        assert_eq!(to.bytes(5), from.bytes(5));
        assert_eq!(store.discard(&[]), Ok(()));
    }
}

fn other_requests_are_refused(store: &impl Store, geometry: Geometry) {
    let pages = Pages::new(2, 6);
    let odd = Part {
        len: geometry.unit / 2,
        ..pages.page(0)
    };
    for (at, part) in [
        (BYTES, pages.page(0)),
        (BYTES - PAGE, pages.all()),
        (u64::MAX - PAGE + 1, pages.page(0)),
        (geometry.unit as u64 / 2, pages.page(0)),
        (0, odd),
    ] {
        // SAFETY: the pages live over the calls, and this thread alone uses them.
        let read = || unsafe { store.read(at, part) };
        // SAFETY: `part` lives over the call, and nobody stores to it meanwhile.
        let write = || unsafe { store.write(at, &[part]) };
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err(), "{at}");
        assert!(catch_unwind(AssertUnwindSafe(write)).is_err(), "{at}");
    }
}

/// Each request comes back once, unchanged, after its work is done.
fn queue_conforms(mut queue: impl StoreQueue) {
    let from = Pages::new(2 * REQUESTS as usize, 7);
    let mut to = Pages::new(2 * REQUESTS as usize, 8);
    // Two pages a request, the second page before the first.
    let write = |tag: u64| {
        let first = 2 * tag as usize;
        Transfer::Write(vec![from.page(first + 1), from.page(first)])
    };
    let read = |tag: u64| {
        Transfer::Read(Part {
            len: 2 * PAGE_SIZE,
            ..to.page(2 * tag as usize)
        })
    };
    carry_out(&mut queue, &write);
    carry_out(&mut queue, &read);
    for request in 0..REQUESTS as usize {
        assert_eq!(to.bytes(2 * request), from.bytes(2 * request + 1));
        assert_eq!(to.bytes(2 * request + 1), from.bytes(2 * request));
    }
    to.fill(0);
}

fn carry_out(queue: &mut impl StoreQueue, transfer: &impl Fn(u64) -> Transfer) {
    let request = |tag| Request {
        tag,
        at: 2 * tag * PAGE,
        transfer: transfer(tag),
    };
    let mut pushed: BTreeMap<u64, String> = BTreeMap::new();
    for tag in 0..REQUESTS {
        pushed.insert(tag, format!("{:?}", request(tag)));
        // SAFETY: the pages live until all requests are back, below, and no two requests share a page.
        unsafe { queue.push(request(tag)) };
        if tag % 3 == 0 {
            queue.submit();
        }
    }
    queue.submit();
    let mut ended: Vec<Completion> = Vec::new();
    while !pushed.is_empty() {
        let mut ready = [PollFd::from_borrowed_fd(queue.readiness(), PollFlags::IN)];
        poll(&mut ready, None).unwrap();
        queue.reap(&mut ended);
        for Completion { request, failed } in ended.drain(..) {
            assert!(failed.is_none());
            let asked = pushed.remove(&request.tag);
            assert_eq!(asked, Some(format!("{request:?}")), "as pushed, and once");
        }
    }
    queue.reap(&mut ended);
    assert!(ended.is_empty());
}

/// The store's own queue, with fewer entries than requests.
fn own_queue_conforms(store: &'static impl Store) {
    match store.queue(DEPTH, None) {
        Ok(queue) => queue_conforms(queue),
        Err(error) => eprintln!("SKIPPED: requests by the store's own queue: {error}"),
    }
}

fn threads_conform(store: &'static impl Store) {
    queue_conforms(ThreadQueue::start(store).unwrap());
}

#[test]
fn memory() {
    let store = leak(MemoryStore::new(BYTES));
    conforms(store);
    own_queue_conforms(store);
    threads_conform(store);
}

#[test]
fn each_layer() {
    let below = || MemoryStore::new(BYTES);
    let checked = leak(Checked::new(below()).unwrap());
    conforms(checked);
    own_queue_conforms(checked);
    let injected = leak(Injected::new(below(), None));
    conforms(injected);
    own_queue_conforms(injected);
    for encrypt in [false, true] {
        let encrypted = leak(Encrypted::new(below(), encrypt).unwrap());
        conforms(encrypted);
        own_queue_conforms(encrypted);
    }
    let modelled = leak(Modelled::new(below(), None));
    conforms(modelled);
    own_queue_conforms(modelled);
}

#[test]
fn a_file() {
    let store = leak(file_store(false));
    conforms(store);
    own_queue_conforms(store);
    threads_conform(store);
}

#[test]
fn a_file_without_io_uring() {
    let store = leak(file_store(true));
    if store.needs_threads() {
        eprintln!("SKIPPED: requests by asynchronous I/O (io_setup)");
        return;
    }
    let queue = store.queue(DEPTH, None).unwrap();
    assert!(matches!(queue, Either::Fallback(_)));
    queue_conforms(queue);
}

fn server_store(server: NbdServer) -> &'static NbdStore {
    let control = Control::create(&settings(BYTES)).unwrap().0;
    let process = control.register(1, "nbd").unwrap();
    leak(NbdStore::open(server, BYTES, process).unwrap())
}

#[test]
fn at_a_server() {
    for manner in [Manner::Simple, Manner::Whole, Manner::Pieces] {
        // The server's threads hold no more than its folder, which this test keeps to its end.
        let server = TestServer::start(BYTES, manner);
        let store = server_store(server.server.clone());
        conforms(store);
        assert!(store.queue(DEPTH, None).is_err(), "threads serve");
        // Threads of queues never end, and a process can have few.
        if manner == Manner::Pieces {
            threads_conform(store);
        }
    }
}

/// A mirror of sides in memory, at servers and in files.
#[test]
fn a_mirror() {
    let (_, process) = held(BYTES);
    let at = |server: &TestServer| {
        let served = server.side().server.unwrap();
        SideStore::Nbd(NbdStore::of_side(served, BYTES, process, CONNECTIONS_MAX))
    };
    let file = || SideStore::File(file_store(false));
    let names = || ["A".to_owned(), "B".to_owned()];
    let servers = [Manner::Simple, Manner::Pieces].map(|manner| TestServer::start(BYTES, manner));
    let [one, two] = &servers;
    for (sides, with_threads) in [
        ([file(), file()], false),
        ([file(), at(one)], false),
        ([at(one), at(two)], true),
    ] {
        let (control, _) = held(BYTES);
        let mirror = leak(Mirror::new(sides, names(), BYTES, control.mirror()));
        conforms(mirror);
        assert!(mirror.queue(DEPTH, None).is_err(), "threads serve");
        if with_threads {
            threads_conform(mirror);
        }
        let counters = control.mirror().counters();
        assert_eq!((counters.sides_lost, counters.mended), (0, 0));
    }
}

/// Stripes of sides in memory, at servers and in files.
#[test]
fn a_stripe() {
    let (_, process) = held(BYTES);
    let state = process.sides();
    let names = |sides: Vec<SideStore>| {
        let names = (0..).map(|side: u32| side.to_string());
        names.zip(sides).collect::<Vec<_>>()
    };
    let server = TestServer::start(BYTES, Manner::Pieces);
    let served = server.side().server.unwrap();
    let at_server = SideStore::Nbd(NbdStore::of_side(served, BYTES, process, CONNECTIONS_MAX));
    let file = || SideStore::File(file_store(false));
    let mixed = Sides::new(names(vec![file(), at_server, file()]), state);
    conforms(leak(Stripe::new(mixed, BYTES)));
    let memory = (0..2).map(|side| (side.to_string(), SilentSide::new(BYTES)));
    let store = leak(Stripe::new(Sides::new(memory.collect(), state), BYTES));
    conforms(store);
    assert!(store.queue(DEPTH, None).is_err(), "threads serve");
}

/// A real server with an export of [`BYTES`] bytes.
#[test]
fn at_nbdkit_and_qemu_nbd() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let image = path("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(BYTES)
        .unwrap();
    let mut kit = std::process::Command::new("nbdkit");
    kit.args(["-f", "--exit-with-parent", "-U"])
        .arg(path("kit"))
        .args(["memory", &BYTES.to_string()]);
    let mut qemu = std::process::Command::new("qemu-nbd");
    qemu.args(["-f", "raw", "--persistent", "--shared=0", "-k"])
        .arg(path("qemu"))
        .arg(&image);
    for (mut command, socket) in [(kit, path("kit")), (qemu, path("qemu"))] {
        let name = command.get_program().display().to_string();
        let Ok(mut child) = command.spawn() else {
            eprintln!("SKIPPED: a store at {name}, which is not installed");
            continue;
        };
        // A server binds its socket before it listens: the file is there too early.
        let begun = std::time::Instant::now();
        while UnixStream::connect(&socket).is_err() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let outcome = catch_unwind(|| {
            let store = server_store(NbdServer {
                address: NbdAddress::Unix(socket),
                export: String::new(),
                timeout_ms: 20_000,
                tls: None,
            });
            conforms(store);
        });
        child.kill().unwrap();
        child.wait().unwrap();
        outcome.unwrap();
    }
}

#[test]
fn the_whole_stack() {
    for [stack, without_ring] in [
        [whole_stack, stack_without_ring],
        [encrypted_stack, encrypted_stack_without_ring],
    ] {
        let store = leak(stack(BYTES, None));
        conforms(store);
        own_queue_conforms(store);
        threads_conform(store);
        queue_conforms(Queue::open(store, None).unwrap());
        queue_conforms(Queue::open(leak(without_ring(BYTES, None)), None).unwrap());
    }
}

/// Repeated reads hide rare faults, so the stack conforms with them.
#[test]
fn the_whole_stack_hides_rare_faults() {
    let inject = Inject {
        read_error_ppm: 5_000,
        flip_ppm: 5_000,
        seed: 1,
        ..Inject::default()
    };
    for stack in [
        whole_stack,
        stack_without_ring,
        encrypted_stack,
        encrypted_stack_without_ring,
    ] {
        let store = leak(stack(BYTES, Some(inject)));
        conforms(store);
        own_queue_conforms(store);
    }
    for encrypt in [false, true] {
        conforms(leak(mirror_stack(BYTES, Some(inject), encrypt)));
    }
}

#[test]
fn in_the_time_of_a_device_model() {
    let control = Control::create(&settings(BYTES)).unwrap().0;
    let process = control.register(1, "modelled").unwrap();
    let store = leak(Modelled::new(MemoryStore::new(BYTES), Some(process)));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut asked = Vec::new();
            while !over.load(Ordering::Relaxed) {
                control.take_orders(Duration::from_millis(1), &mut asked);
                for order in &asked {
                    control.answer(order, Nanos(0), true);
                }
            }
        });
        // Catch a failed assertion: the model's thread has to be told to end.
        let outcome = catch_unwind(|| {
            conforms(store);
            assert!(store.queue(DEPTH, None).is_err(), "a ring cannot wait");
            threads_conform(store);
        });
        over.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

#[test]
fn the_mask_of_failed_pages() {
    assert_eq!(Failed::all(1).bits(), 1);
    assert_eq!(Failed::all(PAGE_SIZE + 1).bits(), 0b11);
    assert_eq!(Failed::all(64 * PAGE_SIZE).bits(), u64::MAX);
    assert!(catch_unwind(|| Failed::all(64 * PAGE_SIZE + 1)).is_err());
    assert!(catch_unwind(|| Failed::all(0)).is_err());
    let mut failed = Failed::unless(true, PAGE_SIZE);
    failed.add(63);
    assert!(failed.holds(63) && !failed.holds(0) && !failed.is_none());
}
