//! Throughput of reading and measuring traces: references a second of a trace in this repository.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use flashvm_sim::locality::Locality;
use flashvm_sim::trace::cpu_cache::{CpuCache, CpuCacheOptions};
use flashvm_sim::trace::flashvm::Writer;
use flashvm_sim::trace::{Provenance, Reference, Trace, read};
use std::hint::black_box;
use std::io::Cursor;

const FILE: &[u8] = include_bytes!("../../../traces/tar-gzip.fvt");

fn opened() -> Trace {
    read("tar-gzip.fvt".as_ref(), Cursor::new(FILE), None).expect("a trace")
}

fn all() -> Vec<Reference> {
    opened()
        .map(|reference| reference.expect("a good one"))
        .collect()
}

fn traces(criterion: &mut Criterion) {
    let references = all();
    let granularity = opened().granularity();
    let mut group = criterion.benchmark_group("traces");
    group.throughput(Throughput::Elements(references.len() as u64));
    group.sample_size(20);
    group.bench_function("read in batches", |bencher| {
        bencher.iter(|| {
            let mut trace = opened();
            while let [first, ..] = trace.batch().expect("a good one") {
                black_box(first);
            }
        });
    });
    group.bench_function("read one by one", |bencher| {
        bencher.iter(|| opened().for_each(|reference| drop(black_box(reference))));
    });
    group.bench_function("write", |bencher| {
        bencher.iter(|| {
            let writer = Writer::new(Vec::new(), granularity, &Provenance::default());
            let mut writer = writer.expect("memory");
            references
                .iter()
                .for_each(|&reference| writer.push(reference).expect("memory"));
            writer.finish().expect("memory")
        });
    });
    group.bench_function("locality", |bencher| {
        bencher.iter_batched(
            Locality::default,
            |mut locality| {
                references
                    .iter()
                    .for_each(|&reference| locality.add(granularity, reference));
                locality
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("CPU caches", |bencher| {
        bencher.iter_batched(
            || CpuCache::new(&CpuCacheOptions::default()),
            |mut caches| {
                let mut memory = Vec::new();
                references
                    .iter()
                    .for_each(|&reference| caches.access(reference, &mut memory));
                memory
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, traces);
criterion_main!(benches);
