//! The object of `flashvm size --json`.

use super::forecast::{Advice, Tried};
use super::touches::Compared;
use super::{Found, SizeArgs};
use flashvm_core::PAGE_SIZE;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Object {
    /// Program and arguments, or the trace.
    subject: Vec<String>,
    sample: Sample,
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<ForecastObject>,
    curve: Vec<Point>,
    tried: Vec<Try>,
}

#[derive(Serialize)]
struct Sample {
    share: f64,
    pages: u64,
    footprint_bytes: u64,
    references: u64,
}

#[derive(Serialize)]
struct ForecastObject {
    in_ram_s: f64,
    used_bytes: u64,
    /// Whether runs with less RAM have measured the price of a miss.
    is_measured: bool,
    /// The least RAM with which it runs at most 1.3 times slower.
    comfortable_bytes: u64,
    /// With less it runs 4 times slower and more.
    falls_off_below_bytes: u64,
}

#[derive(Serialize)]
struct Point {
    ram_bytes: u64,
    misses: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times_slower: Option<f64>,
    /// `seconds` is a lower bound: a run with as much RAM or more was ended because it took too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_bound: Option<bool>,
    /// The price of a miss with so much RAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_us: Option<f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    misses_by_policy: BTreeMap<String, Option<u64>>,
}

#[derive(Serialize)]
struct Try {
    ram_bytes: u64,
    forecast_s: f64,
    measured_s: f64,
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

/// The object, in one line.
pub(super) fn object(
    args: &SizeArgs,
    found: &Found,
    sizes: &[u64],
    compared: &[Compared],
) -> String {
    let curve = found.touches.curve();
    let subject = match &args.from {
        Some(path) => vec![path.display().to_string()],
        None => args
            .program
            .iter()
            .map(|word| word.display().to_string())
            .collect(),
    };
    let forecast = found.forecast.as_ref();
    let point = |(at, &frames): (usize, &u64)| {
        let seconds = forecast.map(|forecast| forecast.seconds(curve, frames));
        let misses = forecast.map_or_else(
            || curve.misses(frames),
            |forecast| forecast.misses(curve, frames),
        );
        let by_policy = compared
            .iter()
            .map(|one| (one.policy.to_string(), one.misses[at]));
        Point {
            ram_bytes: bytes(frames),
            misses,
            seconds,
            times_slower: forecast
                .zip(seconds)
                .map(|(forecast, seconds)| forecast.slowdown(seconds)),
            is_bound: forecast.map(|forecast| forecast.is_bound(frames)),
            miss_us: forecast.map(|forecast| forecast.price(curve, frames).seconds * 1e6),
            misses_by_policy: by_policy.collect(),
        }
    };
    let tried = |tried: &Tried| Try {
        ram_bytes: bytes(tried.run.frames),
        forecast_s: tried.forecast_s,
        measured_s: tried.run.seconds,
    };
    let object = Object {
        subject,
        sample: Sample {
            share: 1.0 / (1_u64 << curve.shard_bits()) as f64,
            pages: curve.sampled_pages(),
            footprint_bytes: bytes(curve.footprint()),
            references: curve.references(),
        },
        forecast: forecast.map(|forecast| {
            let (comfortable, fallen) = match forecast.advice() {
                Advice::Small | Advice::All => (forecast.whole(), forecast.whole()),
                Advice::Between {
                    comfortable,
                    fallen,
                } => (comfortable, fallen),
            };
            ForecastObject {
                in_ram_s: forecast.in_ram_s(),
                used_bytes: bytes(forecast.whole()),
                is_measured: forecast.is_measured(),
                comfortable_bytes: bytes(comfortable),
                falls_off_below_bytes: bytes(fallen),
            }
        }),
        curve: sizes.iter().enumerate().map(point).collect(),
        tried: found.tried.iter().map(tried).collect(),
    };
    serde_json::to_string(&object).expect("numbers and texts") + "\n"
}
