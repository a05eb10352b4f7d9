//! Throughput of reading and measuring traces: references a second of a trace in this repository.

mod timing;

use flashvm_sim::locality::Locality;
use flashvm_sim::trace::cpu_cache::{CpuCache, CpuCacheOptions};
use flashvm_sim::trace::flashvm::Writer;
use flashvm_sim::trace::{Provenance, Reference, Trace, read};
use std::hint::black_box;
use std::io::Cursor;
use timing::bench;

const FILE: &[u8] = include_bytes!("../../../traces/tar-gzip.fvt");

fn opened() -> Trace {
    read("tar-gzip.fvt".as_ref(), Cursor::new(FILE), None).expect("a trace")
}

fn all() -> Vec<Reference> {
    opened()
        .map(|reference| reference.expect("a good one"))
        .collect()
}

fn main() {
    let references = all();
    let granularity = opened().granularity();
    let count = references.len() as u64;
    bench("read in batches", count, 20, opened, |mut trace| {
        while let [first, ..] = trace.batch().expect("a good one") {
            black_box(first);
        }
    });
    bench("read one by one", count, 20, opened, |trace| {
        trace.for_each(|reference| drop(black_box(reference)));
    });
    let writer = || Writer::new(Vec::new(), granularity, &Provenance::default()).expect("memory");
    bench("write", count, 20, writer, |mut writer| {
        let mut references = references.iter();
        references
            .try_for_each(|&reference| writer.push(reference))
            .expect("memory");
        writer.finish().expect("memory")
    });
    bench("locality", count, 20, Locality::default, |mut locality| {
        references
            .iter()
            .for_each(|&reference| locality.add(granularity, reference));
        locality
    });
    let caches = || CpuCache::new(&CpuCacheOptions::default());
    bench("CPU caches", count, 20, caches, |mut caches| {
        let mut memory = Vec::new();
        references
            .iter()
            .for_each(|&reference| caches.access(reference, &mut memory));
        memory
    });
}
