//! The programs of the Chameleon paper's evaluation (4.2 to 4.5), scaled. `flashvm reproduce chameleon` runs them
//! with and without small pages. They are ordinary programs that know nothing of FlashVM.
//!
//! The column of the objects' addresses lies in shared memory, outside the heap, so that only the objects are measured.
//! ```text
//! flashvm-workload random OBJECTS READS_PERCENT OPERATIONS   0.5 KiB objects at random (4.2)
//! flashvm-workload hot OBJECTS HOT OPERATIONS                the same over a scattered, warm part
//! flashvm-workload sort OBJECTS SORTED                       quicksort of a scattered part (4.3)
//! flashvm-workload graph SCALE EDGES SEARCHES                depth-first searches (4.4)
//! flashvm-workload bloom PAGES INSERTIONS                    insertions into a bloom filter (4.5)
//! flashvm-workload trace FILE                                the references of a trace, on pages of 4 KiB
//! ```
//!
//! Each prints lines `NAME NUMBER UNIT`; `graph` adds a line that starts with `#`. The first three check what they
//! read.

use flashvm_sim::trace::{Kind, TraceError, open};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// An object of 0.5 KiB.
#[repr(C)]
struct Object {
    key: u64,
    words: [u64; 63],
}

impl Object {
    /// A new object on the heap, all its words `fill`.
    fn new(key: u64, fill: u64) -> Box<Self> {
        Box::new(Self {
            key,
            words: [fill; 63],
        })
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A column of words in shared memory, never unmapped.
struct Column {
    words: &'static mut [usize],
}

impl Column {
    fn new(len: usize) -> Self {
        let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let bytes = len.max(1) * size_of::<usize>();
        // SAFETY: the kernel chose a free place, so mmap replaced no memory. The mapping has room for `len` words, is
        // page-aligned, zeroed, never unmapped, and known to no other code.
        #[allow(unsafe_code, reason = "memory outside the heap")]
        let words = unsafe {
            let flags = rustix::mm::MapFlags::SHARED;
            let at = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags)
                .expect("address space for a column");
            std::slice::from_raw_parts_mut(at.cast(), len)
        };
        Self { words }
    }
}

impl Deref for Column {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.words
    }
}

impl DerefMut for Column {
    fn deref_mut(&mut self) -> &mut [usize] {
        self.words
    }
}

/// Objects by number; the column holds their addresses.
struct Objects {
    places: Column,
}

impl Objects {
    fn new(count: usize) -> Self {
        let mut places = Column::new(count);
        for (number, place) in places.iter_mut().enumerate() {
            *place = Box::into_raw(Object::new(number as u64, mix(number as u64))) as usize;
        }
        Self { places }
    }

    #[allow(
        unsafe_code,
        reason = "the column keeps addresses of objects as numbers"
    )]
    fn get(&mut self, number: usize) -> &mut Object {
        // SAFETY: only `new` writes the column: each word is the address of an object of its own that `new` leaked
        // from a box. All access is through this borrow of `self`, so this is the only reference.
        unsafe { &mut *(self.places[number] as *mut Object) }
    }
}

fn say(name: &str, value: f64, unit: &str) {
    println!("{name} {value:.4} {unit}");
}

/// Stores to the last word of an object, which no check reads.
fn touch(object: &mut Object, value: u64) {
    object.words[62] = value;
    std::hint::black_box(&mut object.words[62]);
}

fn random(count: usize, reads_percent: usize, operations: usize) {
    let start = Instant::now();
    let mut objects = Objects::new(count);
    say("build", start.elapsed().as_secs_f64(), "s");
    let mut rng = Rng(1);
    let start = Instant::now();
    for _ in 0..operations {
        let number = rng.below(count);
        one(&mut objects, number, &mut rng, reads_percent);
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / operations as f64;
    say("access", us, "us");
}

/// One operation: checks key and word, and with probability 1 - `reads_percent` / 100 stores to the object.
fn one(objects: &mut Objects, number: usize, rng: &mut Rng, reads_percent: usize) {
    let word = rng.below(62);
    let object = objects.get(number);
    assert_eq!(object.key, number as u64, "object {number} is another one");
    assert_eq!(
        object.words[word],
        mix(number as u64),
        "a word of object {number}"
    );
    if rng.below(100) >= reads_percent {
        touch(object, rng.next());
    }
}

fn hot(count: usize, part: usize, operations: usize) {
    let mut objects = Objects::new(count);
    let mut rng = Rng(2);
    let mut chosen = Column::new(part);
    chosen
        .iter_mut()
        .for_each(|number| *number = rng.below(count));
    for &number in chosen.iter() {
        one(&mut objects, number, &mut rng, 50);
    }
    for &number in chosen.iter() {
        one(&mut objects, number, &mut rng, 50);
    }
    let start = Instant::now();
    for _ in 0..operations {
        let number = chosen[rng.below(part)];
        one(&mut objects, number, &mut rng, 50);
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / operations as f64;
    say("access", us, "us");
}

/// Sorts a random part of all objects in place, by their keys, moving whole objects.
fn sort(count: usize, part: usize) {
    let mut objects = Objects::new(count);
    let mut rng = Rng(3);
    let mut chosen = Column::new(part);
    // One from each stretch of count / part objects: none is chosen twice.
    for (at, number) in chosen.iter_mut().enumerate() {
        *number = at * (count / part) + rng.below(count / part);
        objects.get(*number).key = rng.next();
    }
    let start = Instant::now();
    quicksort(&mut objects, &chosen);
    say("sort", start.elapsed().as_secs_f64(), "s");
    let mut before = 0;
    for &number in chosen.iter() {
        let key = objects.get(number).key;
        assert!(before <= key, "not in order");
        before = key;
    }
}

fn quicksort(objects: &mut Objects, part: &[usize]) {
    let mut rest = part;
    while rest.len() > 1 {
        // Hoare's partition: the pivot is not the last element, so both sides are smaller than the whole.
        let pivot = objects.get(rest[(rest.len() - 1) / 2]).key;
        let (mut low, mut high) = (0, rest.len() - 1);
        loop {
            while objects.get(rest[low]).key < pivot {
                low += 1;
            }
            while objects.get(rest[high]).key > pivot {
                high -= 1;
            }
            if low >= high {
                break;
            }
            swap(objects, rest[low], rest[high]);
            low += 1;
            high -= 1;
        }
        let (left, right) = rest.split_at(high + 1);
        let (small, large) = if left.len() < right.len() {
            (left, right)
        } else {
            (right, left)
        };
        quicksort(objects, small);
        rest = large;
    }
}

fn swap(objects: &mut Objects, one: usize, other: usize) {
    let mut copy = Object {
        key: 0,
        words: [0; 63],
    };
    std::mem::swap(objects.get(one), &mut copy);
    std::mem::swap(objects.get(other), &mut copy);
    std::mem::swap(objects.get(one), &mut copy);
}

/// Builds a graph as Graph500's generator does (Kronecker, A 0.57, B 0.19, C 0.19), then searches it for keys, depth
/// first. A vertex is an object: its key, the number of its neighbours, the first 62 of them.
fn graph(scale: u32, edges: usize, searches: usize) {
    let count = 1_usize << scale;
    let mut objects = Objects::new(count);
    for number in 0..count {
        let object = objects.get(number);
        object.words = [0; 63];
    }
    let mut rng = Rng(4);
    for _ in 0..edges * count {
        let (mut from, mut to) = (0, 0);
        for _ in 0..scale {
            let roll = rng.below(100);
            from = from << 1 | usize::from(roll >= 76);
            to = to << 1 | usize::from((57..76).contains(&roll) || roll >= 95);
        }
        // Shuffled numbers are independent of degrees. Edges lead to larger numbers: there is no cycle.
        let shuffled = |n: usize| (n.wrapping_mul(0x9e37_79b1) ^ (n >> 3)) & (count - 1);
        let (one, other) = (shuffled(from), shuffled(to));
        let (low, high) = (one.min(other), one.max(other));
        let object = objects.get(low);
        let degree = object.words[0] as usize;
        if low != high && degree < 62 {
            object.words[1 + degree] = high as u64;
            object.words[0] += 1;
        }
    }
    let start = Instant::now();
    let mut found = 0;
    let mut visited = Column::new(count);
    let mut stack = Column::new(count * 2);
    for search in 1..=searches {
        let mut depth = 1;
        stack[0] = rng.below(count / 4);
        let wanted = rng.below(count) as u64;
        while depth > 0 {
            depth -= 1;
            let vertex = stack[depth];
            if std::mem::replace(&mut visited[vertex], search) == search {
                continue;
            }
            let object = objects.get(vertex);
            found += u64::from(object.key == wanted);
            for &next in &object.words[1..=object.words[0] as usize] {
                if visited[next as usize] != search && depth < stack.len() {
                    stack[depth] = next as usize;
                    depth += 1;
                }
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    say("search", seconds / searches as f64, "s");
    let visits = visited.iter().filter(|&&last| last > 0).count();
    println!("# {visits} vertices visited, {found} keys found");
}

/// Inserts 20-byte keys into a bloom filter over pages of 512 bytes, with eight hash functions.
fn bloom(pages: usize, insertions: usize) {
    let mut objects = Objects::new(pages);
    for number in 0..pages {
        let object = objects.get(number);
        (object.key, object.words) = (0, [0; 63]);
    }
    let mut rng = Rng(5);
    let start = Instant::now();
    for _ in 0..insertions {
        let key = [rng.next(), rng.next(), rng.next() >> 32];
        for function in 0..8 {
            let hash = key.iter().fold(function, |hash, word| mix(hash ^ word));
            let bit = ((u128::from(hash) * (pages as u128 * 4032)) >> 64) as usize;
            let (page, bit) = (bit / 4032, bit % 4032);
            objects.get(page).words[bit / 64] |= 1 << (bit % 64);
        }
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / insertions as f64;
    say("insertion", us, "us");
}

/// Touches the pages of a trace in its order. All that this program itself works with lies outside of its heap, so that
/// a pager sees the trace's pages alone.
fn trace(path: &Path) -> Result<(), TraceError> {
    let each = |f: &mut dyn FnMut(u64, bool)| {
        let mut trace = open(path, None)?;
        let granularity = trace.granularity();
        loop {
            let batch = trace.batch()?;
            if batch.is_empty() {
                return Ok::<_, TraceError>(());
            }
            for &reference in batch {
                for page in granularity.pages(reference) {
                    f(page, reference.kind == Kind::Write);
                }
            }
        }
    };
    let mut len = 0;
    each(&mut |_, _| len += 1)?;
    let (mut touched, mut stores, mut pages) =
        (Column::new(len), Column::new(len), Column::new(len));
    let mut at = 0;
    each(&mut |page, store| {
        (touched[at], stores[at], pages[at]) = (page as usize, store.into(), page as usize);
        at += 1;
    })?;
    pages.sort_unstable();
    let mut footprint = 0;
    for at in 0..len {
        if at == 0 || pages[at] != pages[footprint - 1] {
            pages[footprint] = pages[at];
            footprint += 1;
        }
    }
    let mut memory = Memory::new(footprint);
    let start = Instant::now();
    for (&page, &store) in touched.iter().zip(stores.iter()) {
        let number = pages[..footprint].binary_search(&page);
        memory.touch(number.expect("a page of the trace"), store != 0);
    }
    say("trace", start.elapsed().as_secs_f64(), "s");
    println!("# {len} references to {footprint} pages");
    Ok(())
}

/// Private pages.
struct Memory {
    words: &'static mut [u64],
}

impl Memory {
    const WORDS: usize = 4096 / size_of::<u64>();

    fn new(pages: usize) -> Self {
        let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: the kernel chose a free place, so mmap replaced no memory. The mapping has `pages` pages, zeroed, is never
        // unmapped, and known to no other code.
        #[allow(unsafe_code, reason = "pages outside the heap")]
        let words = unsafe {
            let flags = rustix::mm::MapFlags::PRIVATE;
            let at =
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), pages.max(1) * 4096, prot, flags)
                    .expect("address space for the pages of a trace");
            std::slice::from_raw_parts_mut(at.cast(), pages * Self::WORDS)
        };
        Self { words }
    }

    /// A load of a page, or a load and a store.
    fn touch(&mut self, page: usize, store: bool) {
        let words = &mut self.words[page * Self::WORDS..][..Self::WORDS];
        if store {
            words[0] = words[0].wrapping_add(1);
        }
        std::hint::black_box(words[0]);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, numbers) = arguments
        .split_first()
        .map_or(("", &[][..]), |(n, r)| (n.as_str(), r));
    if let ("trace", [file]) = (name, numbers) {
        return match trace(Path::new(file)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("flashvm-workload: {error}");
                ExitCode::from(2)
            }
        };
    }
    let numbers: Option<Vec<usize>> = numbers.iter().map(|text| text.parse().ok()).collect();
    match (name, numbers.as_deref()) {
        ("random", Some(&[objects, reads, operations])) => random(objects, reads, operations),
        ("hot", Some(&[objects, part, operations])) => hot(objects, part, operations),
        ("sort", Some(&[objects, part])) => sort(objects, part),
        ("graph", Some(&[scale, edges, searches])) => graph(scale as u32, edges, searches),
        ("bloom", Some(&[pages, insertions])) => bloom(pages, insertions),
        _ => {
            eprintln!("usage: flashvm-workload random|hot|sort|graph|bloom NUMBERS, or trace FILE");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
