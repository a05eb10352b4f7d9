//! Table 2, Figure 4 and Figure 5(a): the device models alone.

use crate::cli::report::{Axis, Chart, Report, Series, Table};
use flashvm_sim::device::{Range, Request};
use flashvm_sim::{Device, ModelKind, Rng};
use indicatif::ProgressBar;

/// Pages per device: 8 GiB.
const PAGES: u32 = 2 << 20;
const STREAM: u32 = 4000;
const RANDOM: u32 = 4000;
const QUEUE: usize = 32;
/// Requests per stream.
const STREAMS: usize = 4;
/// Blocks per request in Figure 5(a).
const MIXED: u32 = 5;
const PAGE_BYTES: f64 = 4096.0;

/// Seconds for the requests at queue depth `depth`.
fn time(model: ModelKind, depth: usize, requests: impl Iterator<Item = Request>) -> f64 {
    let mut queue = Device::new(model)
        .build(PAGES, 1)
        .expect("a possible device");
    queue.run(depth, requests).0 as f64 / 1e9
}

fn stream(pages: u32) -> impl Iterator<Item = Range> {
    (0..STREAM).map(move |i| Range {
        first: i * pages,
        count: pages,
    })
}

fn random() -> impl Iterator<Item = Range> {
    let mut rng = Rng::new(1);
    (0..RANDOM).map(move |_| Range {
        first: rng.below_u32(PAGES),
        count: 1,
    })
}

pub(super) fn table_2(_: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "device",
        "read MB/s",
        "write MB/s",
        "random reads/s",
        "random writes/s",
        "latency ms",
        "paper",
    ]);
    let paper = |model| match model {
        ModelKind::Seagate7200 => "80, 68, 120-300, 120-300, 4-5",
        ModelKind::IbmSsd => "69, 20, 7 K, 66, 0.2",
        ModelKind::OczVertex => "230, 80, 5.5 K, 4.6 K, 0.2",
        ModelKind::IntelX25m => "250, 70, 35 K, 3.3 K, 0.1",
        _ => "not in it",
    };
    for info in ModelKind::ALL {
        let bytes = f64::from(STREAM) * 128.0 * PAGE_BYTES / 1e6;
        // Flash chips answer at once for unwritten pages: write them first.
        let written = || stream(128).map(Request::Write);
        let writing = time(info.kind, STREAMS, written());
        let both = written().chain(stream(128).map(Request::Read));
        let read = bytes / (time(info.kind, STREAMS, both) - writing);
        let write = bytes / writing;
        let written = || random().map(Request::Write);
        let count = f64::from(RANDOM);
        let before = time(info.kind, QUEUE, written());
        let reads = time(
            info.kind,
            QUEUE,
            written().chain(random().map(Request::Read)),
        ) - before;
        let before = time(info.kind, 1, written());
        let alone = time(info.kind, 1, written().chain(random().map(Request::Read))) - before;
        table.row([
            info.name.to_owned(),
            format!("{read:.0}"),
            format!("{write:.0}"),
            format!("{:.0}", count / reads),
            format!("{:.0}", count / time(info.kind, QUEUE, written())),
            format!("{:.3}", alone * 1e3 / count),
            paper(info.kind).to_owned(),
        ]);
    }
    Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "The four devices of the paper are fitted to this table. Stream requests have 512 KiB, four in \
             flight; random requests 4 KiB, 32 in flight; the latency is that of a single random read."
                .to_owned(),
            "The disk's rotational delay is a quarter of a turn, which fits both its latency and its random \
             rate."
                .to_owned(),

        ],
    }
}

pub(super) fn figure_4(_: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "discarded",
        "ocz-vertex ms",
        "nand ms",
        "nvme ms",
        "paper ms",
    ]);
    let mut series = vec![
        Series::new("ocz-vertex", Vec::new()),
        Series::new("nand", Vec::new()),
        Series::new("nvme", Vec::new()),
    ];
    let paper = [(4.0, 55.0), (1_048_576.0, 417.0)];
    for kib in [
        4,
        128,
        1 << 10,
        10 << 10,
        32 << 10,
        100 << 10,
        512 << 10,
        1 << 20,
    ] {
        let pages = kib / 4;
        let models = [ModelKind::OczVertex, ModelKind::Nand, ModelKind::Nvme];
        let mut row = vec![size(kib)];
        for (model, series) in models.into_iter().zip(&mut series) {
            let range = Range {
                first: 0,
                count: pages,
            };
            let write = || std::iter::once(Request::Write(range));
            let both = write().chain([Request::Discard(vec![range])]);
            let ms = (time(model, 1, both) - time(model, 1, write())) * 1e3;
            series.points.push((f64::from(kib), ms));
            row.push(format!("{ms:.3}"));
        }
        let known = paper.iter().find(|(at, _)| *at == f64::from(kib));
        row.push(known.map_or(String::new(), |(_, ms)| format!("{ms:.0}")));
        table.rows.push(row);
    }
    series.push(Series::paper("paper, OCZ-Vertex", paper.to_vec()));
    let chart = Chart {
        name: String::new(),
        title: "One discard of a range that was written".to_owned(),
        x: Axis::logarithmic("range, KiB"),
        y: Axis::logarithmic("ms"),
        series,
    };
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "The paper gives 55 ms as the fixed cost, 417 ms for 1 GiB (slides), and a knee between 10 and \
             100 MB; the models take the geometric middle, 32 MiB. A drive of today takes 58 us."
                .to_owned(),
        ],
    }
}

fn size(kib: u32) -> String {
    match kib {
        k if k >= 1 << 20 => format!("{} GiB", k >> 20),
        k if k >= 1 << 10 => format!("{} MiB", k >> 10),
        k => format!("{k} KiB"),
    }
}

pub(super) fn figure_5a(_: &ProgressBar) -> Report {
    let models = [
        ModelKind::Seagate7200,
        ModelKind::IbmSsd,
        ModelKind::IntelX25m,
    ];
    let mut table = Table::new(&[
        "writes",
        "seagate-7200 MB/s",
        "ibm-ssd MB/s",
        "intel-x25m MB/s",
    ]);
    let mut series: Vec<_> = models
        .iter()
        .map(|model| Series::new(model.info().name, Vec::new()))
        .collect();
    let mut drops = Vec::new();
    for writes in (0..=100).step_by(10) {
        let mut row = vec![format!("{writes} %")];
        for (model, series) in models.into_iter().zip(&mut series) {
            let mb_s = mixed(model, writes);
            series.points.push((f64::from(writes), mb_s));
            row.push(format!("{mb_s:.1}"));
            if writes == 60 {
                let drop = series.points[0].1 / mb_s;
                drops.push(format!("{} {drop:.1} times", model.info().name));
            }
        }
        table.rows.push(row);
    }
    series.push(Series::paper("paper, disk", vec![(0.0, 80.0), (60.0, 8.0)]));
    let chart = Chart {
        name: String::new(),
        title: "Reads and writes of five blocks, interleaved".to_owned(),
        x: Axis::linear("writes, % of requests"),
        y: Axis::linear("MB/s"),
        series,
    };
    Report {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            format!(
                "With 60 % writes the rate is lower by: {}. Paper: from 80 to 8 MB/s on the disk, by 10 times on \
                 the IBM and 7 times on the Intel SSD. The SSDs' turnarounds are fitted to that; the disk's drop \
                 follows from its seeks, with the two streams a third of the disk apart.",
                drops.join(", ")
            ),
            "Beyond 60 % the write streams get longer, and the rate rises.".to_owned(),
        ],
    }
}

/// MB/s of a read stream and a write stream, a third of the device apart.
fn mixed(model: ModelKind, writes_percent: u32) -> f64 {
    const REQUESTS: u32 = 4000;
    let mut rng = Rng::new(5);
    let mut at = [0, PAGES / 3];
    let requests = (0..REQUESTS).map(|_| {
        let write = rng.below_u32(100) < writes_percent;
        let place = &mut at[usize::from(write)];
        let range = Range {
            first: *place,
            count: MIXED,
        };
        *place += MIXED;
        if write {
            Request::Write(range)
        } else {
            Request::Read(range)
        }
    });
    let bytes = f64::from(REQUESTS * MIXED) * PAGE_BYTES;
    bytes / 1e6 / time(model, 1, requests)
}
