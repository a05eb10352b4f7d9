//! The text: names, help and units after the conventions of Prometheus and of the kubelet.

use crate::cli::outcome::Records;
use crate::cli::summary::{bytes_read, bytes_written};
use flashvm_core::PAGE_SIZE;
use flashvm_live::control::{Control, ProcessRecord, StatsSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The histogram's bounds: powers of two from 512 ns to 8.6 s.
const OCTAVES: std::ops::RangeInclusive<u32> = 9..=33;

/// All counters of a run at one time.
#[derive(Debug)]
pub(super) struct Reading {
    sum: StatsSnapshot,
    processes: u64,
    budget: u64,
    used: u64,
    used_max: u64,
    compressed: u64,
    store: u64,
    store_used: u64,
    started_s: f64,
}

impl Reading {
    pub(super) fn new(
        control: Control,
        gone: &Records,
        alive: &[ProcessRecord],
        started: SystemTime,
    ) -> Self {
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        let gauge = |of: fn(&ProcessRecord) -> u64| bytes(alive.iter().map(of).sum());
        Self {
            sum: gone.sum_with(alive),
            processes: alive.len() as u64,
            budget: bytes(control.budget_frames().into()),
            used: bytes(control.used_frames().into()),
            used_max: bytes(control.used_frames_max().into()),
            compressed: gauge(|record| record.stats.gauges.pool_frames),
            store: bytes(control.store_slots().into()),
            store_used: gauge(|record| record.stats.gauges.slots_used),
            started_s: started
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |since| since.as_secs_f64()),
        }
    }
}

/// The text of a reading; `labels` describe the run.
pub(super) fn text(reading: Reading, labels: &[(&'static str, String)]) -> String {
    let mut registry = Registry::with_prefix("flashvm");
    registry.register_collector(Box::new(Page {
        reading,
        labels: labels.to_vec(),
    }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes all text");
    text
}

/// The text in the older format of Prometheus, which node_exporter's textfile collector reads: it has no infos and no
/// units, and names counters as their samples.
pub(super) fn older(text: &str) -> String {
    let mut older = String::new();
    let mut counters = Vec::new();
    for line in text.lines() {
        let words = Vec::from_iter(line.splitn(4, ' '));
        match words[..] {
            ["#", "EOF"] | ["#", "UNIT", ..] => continue,
            ["#", "TYPE", name, "counter"] => counters.push(name),
            _ => {}
        }
        older += line;
        older.push('\n');
    }
    for name in counters {
        for word in ["HELP", "TYPE"] {
            older = older.replacen(
                &format!("# {word} {name} "),
                &format!("# {word} {name}_total "),
                1,
            );
        }
    }
    older
        .replacen("# HELP flashvm_run ", "# HELP flashvm_run_info ", 1)
        .replacen(
            "# TYPE flashvm_run info",
            "# TYPE flashvm_run_info gauge",
            1,
        )
}

#[derive(Debug)]
struct Page {
    reading: Reading,
    labels: Vec<(&'static str, String)>,
}

impl Collector for Page {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        let (reading, sum) = (&self.reading, &self.reading.sum);
        to.encode_descriptor("run", "The run", None, MetricType::Info)?
            .encode_info(&self.labels)?;
        gauge(
            &mut to,
            "start_time",
            "When the run began, since 1970",
            Some(&Unit::Seconds),
            reading.started_s,
        )?;
        counters(
            &mut to,
            "faults",
            "Page faults by what served them: a read from flash, the compressed pages in RAM, a page that had been taken back, a \
             page of zeros; first stores to clean pages",
            None,
            "kind",
            &[
                ("flash", sum.faults_major + sum.svmp_major),
                ("compressed", sum.faults_pool),
                ("soft", sum.faults_soft + sum.svmp_soft),
                ("zero", sum.faults_zero),
                ("first_store", sum.faults_write_protect),
            ],
        )?;
        latency(&mut to, sum)?;
        counter(
            &mut to,
            "read",
            "Read from flash",
            Some(&Unit::Bytes),
            bytes_read(sum),
        )?;
        counter(
            &mut to,
            "written",
            "Written to flash",
            Some(&Unit::Bytes),
            bytes_written(sum),
        )?;
        counters(
            &mut to,
            "evicted_pages",
            "Pages that left RAM",
            None,
            "state",
            &[("clean", sum.evicted_clean), ("dirty", sum.evicted_dirty)],
        )?;
        counters(
            &mut to,
            "prefetched_pages",
            "Pages brought in ahead, and what became of them",
            None,
            "outcome",
            &[
                ("issued", sum.prefetch_issued),
                ("used", sum.prefetch_used),
                ("wasted", sum.prefetch_wasted),
            ],
        )?;
        let shrunk = sum.pool_pages * PAGE_SIZE as u64;
        counter(
            &mut to,
            "compression_in",
            "Pages that were compressed",
            Some(&Unit::Bytes),
            shrunk,
        )?;
        counter(
            &mut to,
            "compression_out",
            "What they were compressed to",
            Some(&Unit::Bytes),
            sum.pool_bytes,
        )?;
        let mut memory = to.encode_descriptor(
            "memory",
            "RAM in use, by what it holds",
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        let compressed = reading.compressed.min(reading.used);
        for (kind, bytes) in [
            ("plain", reading.used - compressed),
            ("compressed", compressed),
        ] {
            memory
                .encode_family(&[("kind", kind)])?
                .encode_gauge(&bytes)?;
        }
        for (name, help, bytes) in [
            ("memory_limit", "RAM that the run may use", reading.budget),
            ("memory_peak", "RAM in use at most", reading.used_max),
            ("flash_used", "Flash in use", reading.store_used),
            ("flash_limit", "Flash that the run may use", reading.store),
        ] {
            gauge(&mut to, name, help, Some(&Unit::Bytes), bytes as f64)?;
        }
        gauge(
            &mut to,
            "processes",
            "Processes that run",
            None,
            reading.processes as f64,
        )?;
        for (name, help, value) in [
            (
                "lost_pages",
                "Pages whose contents were lost; a touch of one is SIGBUS",
                sum.pages_lost,
            ),
            ("read_errors", "Failed reads", sum.read_errors),
            ("write_errors", "Failed writes", sum.write_errors),
        ] {
            counter(&mut to, name, help, None, value)?;
        }
        Ok(())
    }
}

fn counter(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: u64,
) -> fmt::Result {
    to.encode_descriptor(name, help, unit, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn counters(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, unit, MetricType::Counter)?;
    for &(kind, value) in values {
        family
            .encode_family(&[(label, kind)])?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn gauge(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: f64,
) -> fmt::Result {
    to.encode_descriptor(name, help, unit, MetricType::Gauge)?
        .encode_gauge(&value)
}

/// How long threads waited for their pages.
fn latency(to: &mut DescriptorEncoder<'_>, sum: &StatsSnapshot) -> fmt::Result {
    let (count, sum_ns) = sum.latency.total();
    let mut buckets = Vec::from_iter(OCTAVES.map(|octave| ((2_u64 << octave) as f64 / 1e9, 0)));
    buckets.push((f64::INFINITY, 0));
    let last = buckets.len() - 1;
    for (octave, number) in sum.latency.octaves() {
        let at = octave.saturating_sub(*OCTAVES.start()) as usize;
        buckets[at.min(last)].1 += number;
    }
    to.encode_descriptor(
        "fault_wait",
        "How long threads waited for their pages",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?
    .encode_histogram::<NoLabelSet>(sum_ns as f64 / 1e9, count, &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_live::control::Histogram;

    fn reading(sum: StatsSnapshot) -> Reading {
        Reading {
            sum,
            processes: 2,
            budget: 64 << 20,
            used: 48 << 20,
            used_max: 50 << 20,
            compressed: 16 << 20,
            store: 1 << 30,
            store_used: 4096,
            started_s: 1.5,
        }
    }

    #[test]
    fn the_text_has_names_units_and_all_faults() {
        let mut sum = StatsSnapshot {
            faults_major: 5,
            faults_pool: 7,
            pool_pages: 2,
            pool_bytes: 900,
            ..StatsSnapshot::default()
        };
        sum.latency = Histogram::from_iter([100, 700, 50_000, 20_000_000_000]);
        let text = text(reading(sum), &[("program", "a \"b\"\n".to_owned())]);
        for line in [
            "# TYPE flashvm_faults counter",
            "flashvm_faults_total{kind=\"flash\"} 5",
            "flashvm_faults_total{kind=\"compressed\"} 7",
            "# UNIT flashvm_memory_bytes bytes",
            "flashvm_memory_bytes{kind=\"plain\"} 33554432",
            "flashvm_memory_limit_bytes 67108864.0",
            "flashvm_compression_in_bytes_total 8192",
            "flashvm_run_info{program=\"a \\\"b\\\"\\n\"} 1",
            "flashvm_start_time_seconds 1.5",
            "flashvm_fault_wait_seconds_bucket{le=\"0.000001024\"} 2",
            "flashvm_fault_wait_seconds_bucket{le=\"0.000065536\"} 3",
            "flashvm_fault_wait_seconds_bucket{le=\"+Inf\"} 4",
            "flashvm_fault_wait_seconds_count 4",
            "flashvm_lost_pages_total 0",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line}\n---\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        let older = older(&text);
        for line in [
            "# TYPE flashvm_faults_total counter",
            "# TYPE flashvm_run_info gauge",
            "# TYPE flashvm_memory_bytes gauge",
            "flashvm_faults_total{kind=\"flash\"} 5",
        ] {
            assert!(
                older.lines().any(|other| other == line),
                "{line}\n---\n{older}"
            );
        }
        assert!(
            !older.contains("EOF") && !older.contains("# UNIT"),
            "{older}"
        );
    }

    /// The dashboard asks for metrics that are there.
    #[test]
    fn the_dashboard_names_what_exists() {
        let dashboard = include_str!("../../../../../contrib/grafana/flashvm.json");
        let object: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
        assert!(
            object["panels"]
                .as_array()
                .is_some_and(|panels| panels.len() > 5)
        );
        let reading = reading(StatsSnapshot::default());
        let text = text(reading, &[("program", String::new())]);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named = dashboard.match_indices("flashvm_").map(|(at, _)| {
            let rest = &dashboard[at..];
            &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
        });
        for name in named {
            let sample = |line: &str| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            assert!(text.lines().any(sample), "{name}");
        }
    }
}
