//! Table 3: native and stride prefetching.

use super::runs::{SCALE, alone, flashvm, less, seconds};
use crate::cli::report::{Report, Table};
use flashvm_core::{PrefetcherKind, Settings};
use flashvm_sim::{Device, ModelKind, WorkloadKind};
use indicatif::ProgressBar;

pub(super) fn table_3(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "read-ahead",
        "native faults",
        "native s",
        "stride faults",
        "stride s",
        "fewer faults",
        "faster",
        "paper",
    ]);
    let device = Device::new(ModelKind::IntelX25m);
    let kind = WorkloadKind::ImageMagick;
    let papers = ["15 %, 14 %", "17 %, 11 %", "21 %, 7 %", "35 %, 6 %"];
    for (readahead, paper) in [2, 4, 8, 16].into_iter().zip(papers) {
        let [native, stride] =
            [PrefetcherKind::Native, PrefetcherKind::Contiguous].map(|prefetcher| {
                bar.set_message(format!("read-ahead {readahead}, {prefetcher}"));
                let settings = Settings {
                    prefetcher,
                    readahead,
                    ..flashvm()
                };
                let figures = alone(kind, kind.frames(SCALE), &device, settings);
                let faults = figures.counters.faults_major + figures.counters.faults_waited;
                (faults as f64, seconds(figures.elapsed))
            });
        table.row([
            readahead.to_string(),
            format!("{:.0}", native.0),
            format!("{:.2}", native.1),
            format!("{:.0}", stride.0),
            format!("{:.2}", stride.1),
            less(stride.0, native.0),
            less(stride.1, native.1),
            paper.to_owned(),
        ]);
    }
    Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "ImageMagick on the Intel SSD. Hard faults read, or wait for a read in flight. The two systems \
             differ only in their prefetcher."
                .to_owned(),
            "Reproduced for a read-ahead of two only. The model writes its wide image by columns, so neighbours \
             on flash belong to a column, and the aligned window of native read-ahead has the next pages; \
             skipping free slots fetches pages of other columns instead."
                .to_owned(),
        ],
    }
}
