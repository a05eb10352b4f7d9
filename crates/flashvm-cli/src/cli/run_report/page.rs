//! The page: one file of HTML, with its style and charts inside. It has no scripts and loads nothing.

use super::charts::{self, COLOURS, Curve, Unit, escaped};
use super::heat::Cell;
use super::record::Record;
use super::timeline::{Point, rates};
use crate::cli::units::{Size, count, latency};
use plotters::style::RGBColor;

/// Terabytes written that drives are rated for: a small one, a common one of 1 TB, a durable one.
const RATED_TB: [u64; 3] = [150, 600, 3000];
/// Functions in the table of major faults.
const FUNCTIONS_MAX: usize = 15;

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --pale: #5b6570; --line: #d8dde3; --box: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --paper: #14181d; --pale: #9aa5b1; --line: #333b45; --box: #1d232a }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 960px;
  margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em; margin-bottom: 0.2em } h2 { font-size: 1.15em; margin: 2em 0 0.3em }
p { margin: 0.4em 0 } .pale, caption, figcaption { color: var(--pale) }
figure { margin: 0.6em 0 } svg { max-width: 100%; height: auto; display: block }
svg text { fill: var(--ink); font-family: system-ui, sans-serif; font-size: 12px }
svg.flames text { fill: #20160c; font-size: 12px; font-family: monospace; font-size: 11px }
image { image-rendering: pixelated }
table { border-collapse: collapse; margin: 0.6em 0 } th, td { padding: 0.2em 0.9em 0.2em 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top } td.n, th.n { text-align: right }
td code { overflow-wrap: anywhere }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9em, 1fr)); gap: 0.6em; margin: 1em 0 }
.facts div { background: var(--box); padding: 0.5em 0.8em; border-radius: 6px } .facts b { display: block;
  font-size: 1.25em } .key i { display: inline-block; width: 0.8em; height: 0.8em; margin: 0 0.3em 0 0.9em;
  border-radius: 2px } code { font-size: 0.9em }
";

/// A property of a cell.
type OfCell = fn(&Cell) -> u32;

type DrawError = Box<dyn std::error::Error>;

/// The page of a record.
pub(super) fn page(record: &Record) -> Result<String, DrawError> {
    let about = &record.about;
    let title = format!("flashvm: {}", escaped(&about.command));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    html += &head(record);
    html += &faults(record)?;
    html += &latencies(record)?;
    html += &ram(record)?;
    html += &heat(record)?;
    html += &stacks(record);
    html += &allocations(record);
    html += &cold(record);
    html += &writes(record)?;
    html += &what_if(record);
    html += "</body>\n</html>\n";
    Ok(html)
}

fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n")
}

/// A chart; `points` says how much it shows, for whoever checks the page.
fn figure(svg: &str, points: usize, caption: &str) -> String {
    let label = escaped(caption);
    let svg = svg.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{label}\" "),
        1,
    );
    format!(
        "<figure data-points=\"{points}\">\n{svg}\n<figcaption>{label}</figcaption>\n</figure>\n"
    )
}

fn key(curves: &[Curve]) -> String {
    let entries = curves
        .iter()
        .zip(COLOURS.iter().cycle())
        .map(|(curve, colour)| {
            let RGBColor(r, g, b) = *colour;
            format!(
                "<i style=\"background: rgb({r},{g},{b})\"></i>{}",
                curve.name
            )
        });
    format!("<p class=\"key\">{}</p>\n", entries.collect::<String>())
}

fn table(id: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    // All columns but the first are numbers.
    let line = |tag: &str, cells: Vec<String>| {
        let cells = cells.into_iter().enumerate().map(|(at, cell)| {
            let class = if at > 0 { " class=\"n\"" } else { "" };
            format!("<{tag}{class}>{cell}</{tag}>")
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let head = line("th", columns.iter().map(|&name| name.to_owned()).collect());
    let rows: String = rows.map(|cells| line("td", cells)).collect();
    format!("<table id=\"{id}\">\n{head}{rows}</table>\n")
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / of.max(1) as f64)
}

fn end(record: &Record) -> Point {
    record.timeline.last().cloned().unwrap_or_default()
}

fn head(record: &Record) -> String {
    let (about, end) = (&record.about, end(record));
    let fact = |value: String, name: &str| format!("<div><b>{value}</b>{name}</div>\n");
    let facts = [
        fact(format!("{:.1} s", about.seconds), "run time"),
        fact(Size(about.ram_bytes).to_string(), "RAM allowed"),
        fact(
            Size(record.totals.resident_pages_max * 4096).to_string(),
            "RAM used at most",
        ),
        fact(count(record.totals.faults), "faults"),
        fact(count(end.faults_flash), "of them from flash"),
        fact(Size(end.bytes_read).to_string(), "read"),
        fact(Size(end.bytes_written).to_string(), "written"),
    ];
    format!(
        "<h1><code>{}</code></h1>\n<p class=\"pale\">{}; {} {}; fault mode {}, preset {}, policy {}; flashvm {}</p>\n\
         <div class=\"facts\">\n{}</div>\n",
        escaped(&about.command),
        escaped(&about.end),
        count(about.processes),
        if about.processes == 1 {
            "process"
        } else {
            "processes"
        },
        escaped(&about.mode),
        escaped(&about.preset),
        escaped(&about.policy),
        escaped(&about.version),
        facts.concat()
    )
}

fn faults(record: &Record) -> Result<String, DrawError> {
    let points = &record.timeline;
    let curve = |name, of: fn(&Point) -> u64| Curve {
        name,
        points: rates(points, of),
    };
    let all = [
        curve("from flash", |point| point.faults_flash),
        curve("from the pool of compressed pages", |point| {
            point.faults_pool
        }),
        curve("soft", |point| point.faults_soft),
        curve("zeros", |point| point.faults_zero),
        curve("on their way", |point| point.faults_waited),
        curve("first writes", |point| point.first_stores),
    ];
    let end = end(record);
    let kinds = [
        (
            "from flash",
            end.faults_flash,
            "a read from flash was needed",
        ),
        (
            "from the pool",
            end.faults_pool,
            "the page was compressed in RAM",
        ),
        (
            "soft",
            end.faults_soft,
            "the page was still in RAM, about to leave",
        ),
        (
            "zeros",
            end.faults_zero,
            "a first touch, or a page of zeros",
        ),
        (
            "on their way",
            end.faults_waited,
            "the page was being read already",
        ),
        (
            "first writes",
            end.first_stores,
            "a first store to a page that had been read; not in the total",
        ),
    ];
    let rows = kinds.map(|(name, number, meaning)| {
        vec![
            format!("{name}<br><span class=\"pale\">{meaning}</span>"),
            count(number),
        ]
    });
    let io = [
        curve("read", |point| point.bytes_read),
        curve("written", |point| point.bytes_written),
    ];
    let body = [
        key(&all),
        figure(
            &charts::curves(&all, Unit::Rate, false)?,
            points.len(),
            "Faults each second, by kind",
        ),
        table("fault-kinds", &["kind", "faults"], rows.into_iter()),
        key(&io),
        figure(
            &charts::curves(&io, Unit::BytesRate, false)?,
            points.len(),
            "Bytes each second, from and to flash",
        ),
    ];
    Ok(section("faults", "Faults over time", &body.concat()))
}

fn latencies(record: &Record) -> Result<String, DrawError> {
    let found = &record.latency;
    let text = format!(
        "<p>Half of the faults took at most <b>{}</b>, 99 % at most <b>{}</b>, 99.9 % at most {}, the longest {}. Together \
         the program's threads waited {:.1} s for pages.</p>\n",
        latency(found.p50),
        latency(found.p99),
        latency(found.p999),
        latency(found.max),
        found.sum as f64 / 1e9
    );
    let chart = charts::latencies(&found.octaves)?;
    let caption = "Faults by the time until the thread could go on (both axes logarithmic)";
    let body = text + &figure(&chart, found.octaves.len(), caption);
    Ok(section("latency", "Latency of faults", &body))
}

fn ram(record: &Record) -> Result<String, DrawError> {
    let curve = |name, of: fn(&Point) -> u64| Curve {
        name,
        points: record
            .timeline
            .iter()
            .map(|point| (point.seconds, of(point) as f64))
            .collect(),
    };
    let all = [
        curve("read ahead, not used yet", |point| point.ram_ahead),
        curve("compressed pages", |point| point.ram_compressed),
        curve("plain pages", Point::ram_plain),
    ];
    let totals = &record.totals;
    let zeros = format!(
        "<p>Compression: {} pages went to {} of their size. Read ahead: {} pages, {} of them used, {} of them left RAM \
         unused. Pages of zeros take no place on flash: {} left without a write; {} more had not changed since they came \
         in.</p>\n",
        count(totals.pool_pages),
        percent(totals.pool_bytes, totals.pool_pages * 4096),
        count(totals.prefetch_issued),
        percent(totals.prefetch_used, totals.prefetch_issued),
        percent(totals.prefetch_wasted, totals.prefetch_issued),
        count(totals.zero_pages_skipped),
        count(totals.pages_unchanged)
    );
    let chart = charts::curves(&all, Unit::Bytes, true)?;
    let caption = format!("RAM in use, of {} allowed", Size(record.about.ram_bytes));
    let body = key(&all) + &figure(&chart, record.timeline.len(), &caption) + &zeros;
    Ok(section("ram", "Where RAM went", &body))
}

fn heat(record: &Record) -> Result<String, DrawError> {
    let heat = &record.heat;
    let mut body = format!(
        "<p>Each picture has the addresses of the program's memory from bottom to top, without those to which nothing \
         happened, and time from left to right. Labels are process ids and the place in the process's memory; a process that \
         ended within milliseconds is \"short-lived\". A cell is {} by {:.2} s. The pager sees a touch of a page only if it \
         is a fault or a first write.</p>\n",
        Size(heat.row_bytes * heat.rows.len().div_ceil(180).max(1) as u64),
        heat.column_seconds
    );
    let kinds: [(&str, RGBColor, OfCell); 3] = [
        (
            "Touched: faults of all kinds and first writes",
            COLOURS[2],
            |cell| cell.touched,
        ),
        (
            "Faulted: touches that waited for flash or for a compressed page",
            COLOURS[0],
            |cell| cell.faulted,
        ),
        (
            "Written: faults by stores and first writes",
            COLOURS[3],
            |cell| cell.written,
        ),
    ];
    for (caption, colour, of) in kinds {
        let svg = charts::heat(heat, record.about.seconds, colour, of)?;
        let cells = heat.rows.iter().flat_map(|row| &row.cells);
        let points = cells.filter(|(_, cell)| of(cell) > 0).count();
        body += &figure(&svg, points, caption);
    }
    if heat.lost > 0 {
        body += &format!(
            "<p class=\"pale\">Missing, since they came too fast: {} sightings.</p>\n",
            count(heat.lost)
        );
    }
    Ok(section("heat", "Heat: address by time", &body))
}

fn stacks(record: &Record) -> String {
    let stacks = &record.stacks;
    let body = if stacks.stacks.is_empty() {
        let why = if end(record).faults_flash == 0 {
            "No fault waited for flash."
        } else {
            "There is no sample: stacks are sampled in inline and protect mode, for pages of 4 KiB."
        };
        format!("<p>{why}</p>\n")
    } else {
        let mut own: std::collections::HashMap<&str, u64> = std::collections::HashMap::new();
        for (stack, faults) in &stacks.stacks {
            *own.entry(stack.last().map_or("", String::as_str))
                .or_default() += faults;
        }
        let mut own = Vec::from_iter(own);
        own.sort_by_key(|&(name, faults)| (std::cmp::Reverse(faults), name));
        let rows = own.into_iter().take(FUNCTIONS_MAX).map(|(name, faults)| {
            vec![
                format!("<code>{}</code>", escaped(name)),
                count(faults),
                percent(faults, stacks.faults),
            ]
        });
        let caption =
            "Major faults by stack: the outermost function on top, width is the number of faults";
        format!(
            "<p>{} samples of stacks stand for {} faults that waited for flash.</p>\n{}{}",
            count(stacks.samples),
            count(stacks.faults),
            figure(
                &charts::flame_graph(&stacks.stacks),
                stacks.stacks.len(),
                caption
            ),
            table(
                "functions",
                &["function that touched the page", "faults", "share"],
                rows
            )
        )
    };
    section("stacks", "Which code waits for flash", &body)
}

fn allocations(record: &Record) -> String {
    let all = &record.allocations;
    let rows = all.listed.iter().map(|one| {
        let by = one
            .by
            .iter()
            .map(|frame| format!("<code>{}</code>", escaped(&frame.text())));
        vec![
            by.collect::<Vec<_>>().join(", for "),
            Size(one.bytes).to_string(),
            count(one.pieces),
            format!(
                "{} ({})",
                count(one.faults),
                percent(one.faults, all.faults)
            ),
            one.order().to_string(),
        ]
    });
    let known: u64 = all.listed.iter().map(|one| one.faults).sum();
    let mut body = format!(
        "<p>{} of the faults that waited ({}) were on memory of which at least 1 MiB was asked for at once.</p>\n",
        count(known),
        percent(known, all.faults)
    );
    if !all.listed.is_empty() {
        body += &table(
            "pieces",
            &[
                "asked for by",
                "largest piece",
                "pieces",
                "faults",
                "touched",
            ],
            rows,
        );
    }
    section("allocations", "Which memory waits", &body)
}

fn cold(record: &Record) -> String {
    let cold = &record.cold;
    let mut body = format!(
        "<p>{} of {} ({}) had left RAM, and was not touched in the last tenth of its process's time.</p>\n",
        Size(cold.cold_bytes),
        Size(cold.seen_bytes),
        percent(cold.cold_bytes, cold.seen_bytes)
    );
    if !cold.ranges.is_empty() {
        let rows = cold.ranges.iter().map(|range| {
            vec![
                format!(
                    "process {}, from <code>+{:#x}</code> on",
                    charts::process(range.pid),
                    range.first_byte
                ),
                Size(range.bytes).to_string(),
                format!("{:.1} s", range.touched_at),
            ]
        });
        body += &table(
            "ranges",
            &[
                "largest cold ranges of managed memory",
                "size",
                "last touched at",
            ],
            rows,
        );
    }
    section("cold", "Which memory is cold", &body)
}

fn writes(record: &Record) -> Result<String, DrawError> {
    let written = end(record).bytes_written;
    let curve = Curve {
        name: "written",
        points: record
            .timeline
            .iter()
            .map(|point| (point.seconds, point.bytes_written as f64))
            .collect(),
    };
    let day = written as f64 / record.about.seconds.max(1e-3) * 86_400.0;
    let rows = RATED_TB.iter().map(|&rated| {
        let days = rated as f64 * 1e12 / day.max(1.0);
        let life = match days / 365.25 {
            years if years > 1000.0 => "over 1000 years".to_owned(),
            years if years >= 1.0 => format!("{years:.1} years"),
            _ => format!("{days:.0} days"),
        };
        let runs = rated * 1_000_000_000_000 / written.max(1);
        vec![format!("{rated} TB"), life, count(runs)]
    });
    let body = format!(
        "<p>The run wrote <b>{}</b> to flash; repeated all day, {} a day. A drive's own write amplification is not \
         counted.</p>\n{}{}",
        Size(written),
        Size(day as u64),
        figure(
            &charts::curves(&[curve], Unit::Bytes, false)?,
            record.timeline.len(),
            "Bytes written so far"
        ),
        table(
            "drive-life",
            &["drive rated for", "lasts, if repeated all day", "such runs"],
            rows
        )
    );
    Ok(section(
        "writes",
        "Writes, and what they mean for a drive",
        &body,
    ))
}

fn what_if(record: &Record) -> String {
    let end = end(record);
    let seconds = record.latency.sum as f64 / 1e9;
    let rows = record.what_if.iter().map(|row| {
        let ram = record.about.ram_bytes as f64 * row.eighths as f64 / 8.0;
        vec![
            format!(
                "{} ({:.2} times)",
                Size(ram as u64),
                row.eighths as f64 / 8.0
            ),
            count(end.faults_flash.saturating_sub(row.flash_saved)),
            percent(row.flash_saved.min(end.faults_flash), end.faults_flash),
            count(end.faults_pool.saturating_sub(row.pool_saved)),
            percent(row.pool_saved.min(end.faults_pool), end.faults_pool),
        ]
    });
    let now = vec![
        format!("{} (this run)", Size(record.about.ram_bytes)),
        count(end.faults_flash),
        String::new(),
        count(end.faults_pool),
        String::new(),
    ];
    let body = format!(
        "<p>Estimates: a page that came back after <i>d</i> others had left would not have left with <i>d</i> more frames. A page \
         that leaves twice counts twice, so more RAM may save more than the table says. \
         In this run all faults together cost {seconds:.1} s of waiting.</p>\n{}",
        table(
            "more-ram",
            &[
                "RAM",
                "faults from flash",
                "saved",
                "faults from the pool",
                "saved"
            ],
            std::iter::once(now).chain(rows)
        )
    );
    section("what-if", "What if there were more RAM", &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::run_report::heat::{Heat, HeatRow};
    use crate::cli::run_report::stacks::Stacks;

    /// The largest record: all points, all cells, all stacks, as random as pictures compress worst.
    #[test]
    fn the_largest_page_is_small() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut point = Point::default();
        let mut timeline = vec![point.clone()];
        for _ in 0..480 {
            point.seconds += 7.5;
            point.faults_flash += random(100_000);
            point.faults_pool += random(1_000_000);
            point.bytes_written += random(1 << 30);
            point.ram_used = random(1 << 30);
            point.ram_ahead = point.ram_used / 3;
            timeline.push(point.clone());
        }
        let mut cell = |column| {
            let (touched, faulted, written) = (random(10_000), random(1000), random(100));
            let cell = Cell {
                touched: touched as u32,
                faulted: faulted as u32,
                written: written as u32,
            };
            (column, cell)
        };
        let rows = (0..1024).map(|row| HeatRow {
            pid: 1 + row as u32 / 100,
            row: 3 * row,
            cells: (0..240).map(&mut cell).collect(),
        });
        let heat = Heat {
            row_bytes: 1 << 20,
            column_seconds: 15.0,
            rows: rows.collect(),
            lost: 0,
        };
        let mut name = |depth| format!("module::Type<Vec<u8>>::method_{}_{depth}", random(4));
        let stacks = (0..5000).map(|faults| ((0..60).map(&mut name).collect(), faults));
        let mut record = Record {
            timeline,
            heat,
            stacks: Stacks {
                samples: 5000,
                faults: 12_497_500,
                stacks: stacks.collect(),
                lines: Vec::new(),
            },
            ..Record::default()
        };
        record.about.seconds = 3600.0;
        let page = page(&record).expect("a page");
        assert!((100_000..3 << 20).contains(&page.len()), "{}", page.len());
        assert_eq!(page.matches("<section").count(), 9);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
