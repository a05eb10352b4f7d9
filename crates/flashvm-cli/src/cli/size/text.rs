//! The page for a terminal: a table with bars, and advice in a sentence.

use super::forecast::{Advice, Forecast};
use super::touches::Compared;
use super::{Found, SizeArgs};
use crate::cli::report::Table;
use crate::cli::units::{Size, count};
use flashvm_core::PAGE_SIZE;
use std::fmt::Write;

/// Characters of the longest bar.
const BAR: f64 = 30.0;

fn size(pages: u64) -> Size {
    Size(pages * PAGE_SIZE as u64)
}

/// RAM in words: three digits are enough for advice.
fn about(pages: u64) -> String {
    let bytes = (pages * PAGE_SIZE as u64) as f64;
    let mib = bytes / f64::from(1 << 20);
    match mib {
        _ if mib >= 10_000.0 => format!("{:.1} GiB", mib / 1024.0),
        _ if mib >= 10.0 => format!("{mib:.0} MiB"),
        _ => format!("{mib:.1} MiB"),
    }
}

/// The page.
pub(super) fn page(args: &SizeArgs, found: &Found, sizes: &[u64], compared: &[Compared]) -> String {
    let curve = found.touches.curve();
    let mut text = String::new();
    let subject = match &args.from {
        Some(path) => path.display().to_string(),
        None => args.program[0].display().to_string(),
    };
    let sample = match curve.shard_bits() {
        0 => "all its pages".to_owned(),
        bits => format!(
            "1/{} of its pages, {}",
            1_u64 << bits,
            count(curve.sampled_pages())
        ),
    };
    let _ = writeln!(text, "{subject}: touches of {sample}");
    if let Some(forecast) = &found.forecast {
        let _ = writeln!(
            text,
            "  in RAM    {:.2} s, {} at most",
            forecast.in_ram_s(),
            size(forecast.whole())
        );
        let whole = forecast.whole();
        let [most, least] =
            [whole * 3 / 4, whole / 4].map(|frames| forecast.price(curve, frames).seconds * 1e6);
        let _ = match forecast.is_measured() {
            true => writeln!(
                text,
                "  a miss    {most:.1} us with 3/4 of that, {least:.1} us with 1/4"
            ),
            false => writeln!(text, "  a miss    {most:.1} us, assumed"),
        };
    }
    text.push('\n');
    text += &table(found, sizes, compared);
    if !found.tried.is_empty() {
        text.push('\n');
        text += &tried(found);
    }
    text.push('\n');
    text += &match &found.forecast {
        Some(forecast) => sentence(forecast),
        None => sentence_of_trace(found, sizes),
    };
    text
}

fn table(found: &Found, sizes: &[u64], compared: &[Compared]) -> String {
    let curve = found.touches.curve();
    let mut columns = vec!["RAM".to_owned(), "misses".to_owned()];
    if found.forecast.is_some() {
        columns.extend(["seconds".to_owned(), "times slower".to_owned()]);
    }
    columns.extend(compared.iter().map(|one| format!("misses, {}", one.policy)));
    columns.push(String::new());
    let mut table = Table {
        name: String::new(),
        columns,
        rows: Vec::new(),
    };
    let values = sizes.iter().map(|&frames| match &found.forecast {
        Some(forecast) => forecast.seconds(curve, frames),
        None => curve.misses(frames) as f64,
    });
    let values = Vec::from_iter(values);
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    for (at, (&frames, value)) in sizes.iter().zip(&values).enumerate() {
        let mut row = vec![size(frames).to_string()];
        match &found.forecast {
            Some(forecast) => {
                row.push(count(forecast.misses(curve, frames)));
                let more = if forecast.is_bound(frames) { "> " } else { "" };
                row.push(format!("{more}{value:.2}"));
                row.push(format!("{more}{:.2}", forecast.slowdown(*value)));
            }
            None => row.push(count(curve.misses(frames))),
        }
        row.extend(
            compared
                .iter()
                .map(|one| one.misses[at].map_or("-".to_owned(), count)),
        );
        row.push("#".repeat((value / most * BAR).round() as usize));
        table.rows.push(row);
    }
    table.text()
}

fn tried(found: &Found) -> String {
    let mut table = Table::new(&["tried", "forecast, s", "measured, s", "forecast / measured"]);
    for tried in &found.tried {
        table.row([
            size(tried.run.frames).to_string(),
            format!("{:.2}", tried.forecast_s),
            format!("{:.2}", tried.run.seconds),
            format!("{:.2}", tried.forecast_s / tried.run.seconds),
        ]);
    }
    table.text()
}

/// Advice in a sentence.
fn sentence(forecast: &Forecast) -> String {
    let whole = about(forecast.whole());
    match forecast.advice() {
        Advice::Small => format!("It fits into {whole}, less than the least budget of 4 MiB.\n"),
        Advice::All => {
            format!("It needs all of its {whole}: with 5 % less it runs 4 times slower or worse.\n")
        }
        Advice::Between {
            comfortable,
            fallen,
        } if comfortable == fallen && comfortable <= super::forecast::FRAMES_MIN => {
            format!("It uses {whole}, and runs well in 4 MiB.\n")
        }
        Advice::Between {
            comfortable,
            fallen,
        } if about(comfortable) == whole => format!(
            "It needs all of its {whole}: with less it runs more than 1.3 times slower; below {} it falls off: 4 times slower and more.\n",
            about(fallen)
        ),
        Advice::Between {
            comfortable,
            fallen,
        } => format!(
            "With {} it runs at most 1.3 times slower than with {whole}; below {} it falls off: 4 times slower and more.\n",
            about(comfortable),
            about(fallen)
        ),
    }
}

/// The least memory with at most a hundredth of the references missing.
fn sentence_of_trace(found: &Found, sizes: &[u64]) -> String {
    const RATIO: f64 = 0.01;
    let curve = found.touches.curve();
    let whole = sizes.first().copied().unwrap_or_default();
    let allowed = (curve.references() as f64 * RATIO) as u64;
    let (mut low, mut high) = (0, whole);
    while low < high {
        let middle = low.midpoint(high);
        match curve.misses(middle) <= allowed {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    format!(
        "With {} at most 1 % of its {} references miss; it uses {}.\n",
        about(low),
        count(curve.references()),
        about(whole)
    )
}
