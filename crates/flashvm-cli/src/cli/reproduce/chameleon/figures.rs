//! The measurements of each figure, with the paper's values.

use super::run::{Measured, System, measure, measure_and_build};
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use flashvm_live::{mappings_allowed, mappings_most};
use indicatif::ProgressBar;

/// Objects of 0.5 KiB: 96 MiB, a hundredth of the paper's 10 GB.
const OBJECTS: &str = "196608";
const IN_RAM: &str = "256M";
const OUT_OF_CORE: &str = "8M";
const ROUNDS: usize = 3;

/// The paper's time over Chameleon's, where it gives one.
type Paper = [Option<f64>; 4];

fn ratio(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn mib(bytes: f64) -> String {
    format!("{:.1}", bytes / (1 << 20) as f64)
}

fn new_table(figure: &str) -> Table {
    Table::new(&[
        "setting",
        "system",
        figure,
        "ratio",
        "paper",
        "from flash",
        "soft",
        "in MiB",
        "out MiB",
        "mappings",
    ])
}

fn add_rows(table: &mut Table, setting: &str, measured: &[Measured], paper: Paper) {
    for (at, (system, one)) in System::ALL.iter().zip(measured).enumerate() {
        table.row([
            setting.to_owned(),
            system.name().to_owned(),
            format!("{:.3}", one.value),
            ratio(one.value / measured[0].value),
            paper[at].map_or("-".to_owned(), ratio),
            format!("{:.0}", one.since_build(&["faults", "major"])),
            format!("{:.0}", one.since_build(&["faults", "soft"])),
            mib(one.since_build(&["bytes_read"])),
            mib(one.since_build(&["bytes_written"])),
            format!("{:.0}", one.stat(&["overlays_max"])),
        ]);
    }
}

/// Bars of ratios, one group per setting.
fn chart(title: &str, settings: &[(&str, Vec<Measured>, Paper)], logarithmic: bool) -> Chart {
    let names: Vec<&str> = settings.iter().map(|(name, ..)| *name).collect();
    let mut series = Vec::new();
    for (at, system) in System::ALL.iter().enumerate() {
        let points = settings.iter().enumerate();
        let points = points.map(|(x, (_, m, _))| (x as f64, m[at].value / m[0].value));
        series.push(Series::new(system.name(), points.collect()));
        let paper = settings.iter().enumerate();
        let paper = paper.filter_map(|(x, (_, _, paper))| Some((x as f64, paper[at]?)));
        let paper: Vec<_> = paper.collect();
        if !paper.is_empty() && at > 0 {
            series.push(Series::paper(&format!("{}, paper", system.name()), paper));
        }
    }
    let y = "time over Chameleon's";
    Chart {
        name: String::new(),
        title: title.to_owned(),
        x: Axis::places(&names),
        y: if logarithmic {
            Axis::logarithmic(y)
        } else {
            Axis::linear(y)
        },
        series,
    }
}

fn compare(
    bar: &ProgressBar,
    title: &str,
    figure: (&str, &str),
    rounds: usize,
    settings: &[(&'static str, &str, &[&str], Paper)],
    logarithmic: bool,
) -> Report {
    let mut table = new_table(figure.1);
    let mut measured = Vec::new();
    for &(setting, ram, words, paper) in settings {
        let all = measure_and_build(bar, ram, words, figure.0, rounds);
        add_rows(&mut table, setting, &all, paper);
        measured.push((setting, all, paper));
    }
    Report {
        charts: vec![chart(title, &measured, logarithmic)],
        tables: vec![table],
        notes: Vec::new(),
    }
}

/// 4.2: the paper's latencies over Chameleon's; where it says "matches", 1.
pub(super) fn figure_5(bar: &ProgressBar) -> Report {
    let same = [Some(1.0), None, Some(1.0), None];
    compare(
        bar,
        "Figure 5: random access to 0.5 KiB objects",
        ("access", "us"),
        ROUNDS,
        &[
            (
                "90:10, in RAM",
                IN_RAM,
                &["random", OBJECTS, "90", "500000"],
                same,
            ),
            (
                "90:10, out of core",
                OUT_OF_CORE,
                &["random", OBJECTS, "90", "30000"],
                [Some(1.0), Some(1.0), Some(1.157), None],
            ),
            (
                "10:90, in RAM",
                IN_RAM,
                &["random", OBJECTS, "10", "500000"],
                same,
            ),
            (
                "10:90, out of core",
                OUT_OF_CORE,
                &["random", OBJECTS, "10", "30000"],
                [Some(1.0), Some(1.0), Some(1.432), None],
            ),
        ],
        false,
    )
}

/// 4.2 and 4.5: "decreases the total data written to flash by 8x". The bytes that building the heap writes are
/// measured separately and subtracted.
pub(super) fn write_volume(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "program",
        "system",
        "operations",
        "MiB written",
        "bytes an operation",
        "ratio",
        "paper",
    ]);
    let random = ["random", OBJECTS, "10"];
    let bloom = ["bloom", "131072"];
    for (name, words, operations) in [
        ("random 10:90", &random[..], 60_000_u32),
        ("bloom", &bloom[..], 10_000),
    ] {
        let count = operations.to_string();
        let words = [words, &[&count]].concat();
        let all = measure_and_build(bar, OUT_OF_CORE, &words, "access", 1);
        let written = |at: usize| all[at].since_build(&["bytes_written"]);
        let paper = [1.0, 1.0, 8.0, f64::NAN];
        for (at, system) in System::ALL.iter().enumerate() {
            table.row([
                name.to_owned(),
                system.name().to_owned(),
                operations.to_string(),
                mib(written(at)),
                format!("{:.0}", written(at) / f64::from(operations)),
                ratio(written(at) / written(0)),
                if paper[at].is_nan() {
                    "-".to_owned()
                } else {
                    ratio(paper[at])
                },
            ]);
        }
    }
    Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "Neither column counts changed pages that are still in RAM at the end.".to_owned(),
        ],
    }
}

/// 4.3: packed, the records to sort fit into RAM; in 4 KiB pages they take eight times as much.
pub(super) fn figure_6(bar: &ProgressBar) -> Report {
    compare(
        bar,
        "Figure 6: quicksort of scattered 0.5 KiB records",
        ("sort", "s"),
        1,
        &[
            (
                "in RAM",
                "12M",
                &["sort", OBJECTS, "12288"],
                [Some(1.0), Some(105.0), Some(475.0), None],
            ),
            (
                "out of core",
                "4M",
                &["sort", OBJECTS, "12288"],
                [Some(1.0), Some(1.024), Some(1.608), None],
            ),
        ],
        true,
    )
}

/// 4.3: gains over the peers by RAM, around the 6 MiB of records to sort.
pub(super) fn figure_7(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "ram MiB",
        "Chameleon s",
        "SSDAlloc s",
        "Log-Swap s",
        "over SSDAlloc",
        "over Log-Swap",
    ]);
    let systems = [System::Chameleon, System::SsdAlloc, System::LogSwap];
    let mut lines = [Vec::new(), Vec::new()];
    for ram in [4, 6, 8, 10, 12, 16] {
        let size = format!("{ram}M");
        let all = measure(bar, &systems, &size, &["sort", OBJECTS, "12288"], "sort", 1);
        let gain = |at: usize| all[at].value / all[0].value;
        for (line, at) in lines.iter_mut().zip([1, 2]) {
            line.push((f64::from(ram), gain(at)));
        }
        table.row([
            ram.to_string(),
            format!("{:.3}", all[0].value),
            format!("{:.3}", all[1].value),
            format!("{:.3}", all[2].value),
            ratio(gain(1)),
            ratio(gain(2)),
        ]);
    }
    let [ssdalloc, log_swap] = lines;
    Report {
        tables: vec![table],
        charts: vec![Chart {
            name: String::new(),
            title: "Figure 7: quicksort of 6 MiB of records out of 96 MiB".to_owned(),
            x: Axis::linear("RAM, MiB"),
            y: Axis::logarithmic("time over Chameleon's"),
            series: vec![
                Series::new("SSDAlloc", ssdalloc),
                Series::new("Log-Swap", log_swap),
            ],
        }],
        notes: vec![
            "The paper: up to 1.72 times over SSDAlloc and 7.32 times over Log-Swap while the records do \
             not fit, two orders of magnitude once they do."
                .to_owned(),
        ],
    }
}

/// Reads of a hot set of scattered objects, one in 8, by RAM: how much more than the hot set it takes.
pub(super) fn hot_set(bar: &ProgressBar) -> Report {
    let mut table = Table::new(&[
        "hot MiB",
        "RAM MiB",
        "RAM / hot",
        "us an access",
        "mappings",
    ]);
    let mut lines = Vec::new();
    for hot_mib in [6_u32, 24, 48] {
        let hot = hot_mib * 2048;
        let words = [hot * 8, hot, hot * 8].map(|number| number.to_string());
        let words = ["hot", &words[0], &words[1], &words[2]];
        let mut line = Vec::new();
        for percent in [100, 105, 110] {
            let ram_kib = hot_mib * 1024 * percent / 100;
            let ram = format!("{ram_kib}K");
            let all = measure(bar, &[System::Chameleon], &ram, &words, "access", 1).swap_remove(0);
            line.push((f64::from(percent) / 100.0, all.value));
            table.row([
                hot_mib.to_string(),
                format!("{:.1}", f64::from(ram_kib) / 1024.0),
                format!("{:.2}", f64::from(percent) / 100.0),
                format!("{:.2}", all.value),
                format!("{:.0}", all.stat(&["overlays_max"])),
            ]);
        }
        lines.push(Series::new(&format!("{hot_mib} MiB hot"), line));
    }
    let allowed = mappings_allowed();
    Report {
        tables: vec![table],
        charts: vec![Chart {
            name: String::new(),
            title: "Access to a hot set by RAM".to_owned(),
            x: Axis::linear("RAM / hot set"),
            y: Axis::logarithmic("us an access"),
            series: lines,
        }],
        notes: vec![format!(
            "vm.max_map_count = {allowed}: {:.0} MiB of scattered objects can be mapped.",
            f64::from(mappings_most(allowed)) / 2048.0
        )],
    }
}

/// 4.4.
pub(super) fn figure_8(bar: &ProgressBar) -> Report {
    compare(
        bar,
        "Figure 8: depth-first search",
        ("search", "s"),
        1,
        &[
            (
                "in RAM",
                IN_RAM,
                &["graph", "17", "16", "30"],
                [Some(1.0), Some(9.85), Some(9.85 / 10.88), None],
            ),
            (
                "out of core",
                OUT_OF_CORE,
                &["graph", "16", "8", "20"],
                [Some(1.0), Some(0.99), Some(1.269), None],
            ),
        ],
        true,
    )
}

/// 4.5.
pub(super) fn figure_9(bar: &ProgressBar) -> Report {
    compare(
        bar,
        "Figure 9: insertions into a bloom filter",
        ("insertion", "us"),
        ROUNDS,
        &[(
            "out of core",
            OUT_OF_CORE,
            &["bloom", "131072", "5000"],
            [Some(1.0), Some(1.0), Some(1.467), None],
        )],
        false,
    )
}

/// 3.6: the paper's accounting beside this implementation's.
pub(super) fn overhead(bar: &ProgressBar) -> Report {
    let words = ["random", OBJECTS, "50", "1"];
    let all = measure(bar, &[System::Chameleon], OUT_OF_CORE, &words, "access", 1);
    let stat = |name| all[0].stat(&["small_pages", name]);
    let pages: f64 = OBJECTS.parse().expect("a number");
    let page = stat("table_bytes") / pages;
    let frame = stat("frame_bytes") / stat("frames");
    let mut table = Table::new(&["for each", "bytes", "paper", "what"]);
    for (each, bytes, paper, what) in [
        ("page", page, "8", "SVMP table, as measured"),
        (
            "page",
            2.0,
            "-",
            "allocator: class, range, in use (its layout)",
        ),
        (
            "page on flash",
            4096.0 / 504.0,
            "10",
            "back-pointers and header, a full block (its layout)",
        ),
        (
            "frame",
            frame,
            "128",
            "owners, checksums, free ranges, references, FIFOs, as measured",
        ),
        (
            "mapping",
            188.0,
            "-",
            "kernel: an isolated overlay (eval/overlays.c)",
        ),
    ] {
        table.row([
            each.to_owned(),
            format!("{bytes:.1}"),
            paper.to_owned(),
            what.to_owned(),
        ]);
    }
    let frame = frame + 8.0 * page;
    let percent = |bytes: f64| bytes / 40.96;
    Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![format!(
            "A frame of eight pages takes {frame:.0} bytes with their entries in the table: {:.1} % of RAM (the \
             paper: 128 and 64, 4.7 %). With the allocator's data: {:.1} %.",
            percent(frame),
            percent(frame + 16.0)
        )],
    }
}
