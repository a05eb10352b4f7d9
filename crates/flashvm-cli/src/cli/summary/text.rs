//! The summary at the end of a run: a line per subject, on standard error.

use super::causes::causes;
use super::{Names, PAGE, Several, svmp_zero_faults, totals, write_amplification};
use crate::cli::outcome::{End, Outcome};
use crate::cli::units::{Size, count, latency};
use flashvm_live::control::Control;

/// The summary of a run, for standard error.
pub(crate) fn lines(outcome: &Outcome, control: Control, names: &Names) -> String {
    let sum = totals(outcome, control);
    let end = match outcome.end {
        End::Exited(code) => format!("exit code {code}"),
        End::Signalled(signal) => format!("ended by signal {signal}"),
    };
    let budget_pages = u64::from(control.budget_frames());
    let mut lines = format!(
        "flashvm: {}: {end} after {:.1} s in {} of RAM ({} mode, preset {}, policy {})\n",
        names.program,
        outcome.elapsed.as_secs_f64(),
        Size(budget_pages * PAGE),
        sum.deliveries,
        names.preset,
        names.policy,
    );
    let mut line = |name: &str, text: String| {
        lines.push_str(&format!("  {name:<10}{text}\n"));
    };
    if outcome.records.processes() == 0 {
        line("processes", "no process was paged".to_owned());
        return lines;
    }
    if let Some(store) = &names.store {
        line("store", store.clone());
    }
    if names.several == Some(Several::Mirror) {
        let mirror = control.mirror().counters();
        let [a, b] = mirror.reads;
        line(
            "mirror",
            format!(
                "{} and {} reads, {} of both sides, {} failed over; {} pages mended, {} brought up to date; a side lost \
                 {} times",
                count(a),
                count(b),
                count(mirror.hedged),
                count(mirror.failed_over),
                count(mirror.mended),
                Size(mirror.resynced_bytes),
                count(mirror.sides_lost)
            ),
        );
    }
    if let Some(Several::Stripe(sides)) = names.several {
        let counters = control.sides().counters(sides);
        let all = |counts: &[u64]| {
            counts
                .iter()
                .map(|&n| count(n))
                .collect::<Vec<_>>()
                .join(", ")
        };
        line(
            "stripe",
            format!(
                "reads by side: {}; writes: {}; a side given up {} times",
                all(&counters.reads),
                all(&counters.writes),
                count(counters.given_up)
            ),
        );
    }
    if names.several == Some(Several::Tier) {
        let (sides, moved) = (control.sides().counters(2), control.tier().counters());
        let both = |counts: &[u64]| format!("{} and {}", count(counts[0]), count(counts[1]));
        line(
            "tier",
            format!(
                "{} reads, {} writes; {} moved away, {} moved back; a side given up {} times",
                both(&sides.reads),
                both(&sides.writes),
                Size(moved.demoted_bytes),
                Size(moved.promoted_bytes),
                count(sides.given_up)
            ),
        );
    }
    line(
        "faults",
        format!(
            "{}: {} from flash, {} soft, {} zero, {} first writes",
            count(sum.faults_total + sum.svmp_faults),
            count(sum.faults_major + sum.svmp_major),
            count(sum.faults_soft + sum.svmp_soft),
            count(sum.faults_zero + svmp_zero_faults(&sum)),
            count(sum.faults_write_protect)
        ),
    );
    line(
        "latency",
        format!(
            "p50 {}, p99 {}, max {}",
            latency(sum.latency.quantile(0.5)),
            latency(sum.latency.quantile(0.99)),
            latency(sum.latency.max())
        ),
    );
    line(
        "in",
        format!("{} pages, {}", count(sum.pages_in), Size(sum.bytes_read)),
    );
    line(
        "out",
        format!(
            "{} pages, {}; {} pages of zeros not written",
            count(sum.pages_out),
            Size(sum.bytes_written),
            count(sum.zero_pages_skipped)
        ),
    );
    if sum.pool_pages > 0 {
        line(
            "pool",
            format!(
                "{} pages compressed to {:.1} % of their size, {} not; {} faults served from it, {} blocks written",
                count(sum.pool_pages),
                sum.pool_bytes as f64 * 100.0 / (sum.pool_pages * PAGE) as f64,
                count(sum.pool_refused),
                count(sum.faults_pool),
                count(sum.pool_blocks_out)
            ),
        );
    }
    if sum.svmp_fresh > 0 {
        line(
            "small",
            format!(
                "{} pages in, {}; {} out, {}; {} mappings at most",
                count(sum.svmp_pages_in),
                Size(sum.svmp_bytes_in),
                count(sum.log_pages),
                Size(sum.log_bytes_changed),
                count(sum.overlays_max)
            ),
        );
        line(
            names.organization,
            format!(
                "{} written, {} read to clean: {:.2} times the changed bytes",
                Size(sum.log_bytes_written),
                Size(sum.log_bytes_cleaned),
                write_amplification(&sum)
            ),
        );
    }
    if sum.zero_pages_skipped > 0 {
        let moved = sum.pages_out + sum.zero_pages_skipped;
        line(
            "zeros",
            format!(
                "{:.1} % of page writes and {} reads saved",
                sum.zero_pages_skipped as f64 * 100.0 / moved as f64,
                count(sum.zero_pages_not_read)
            ),
        );
    }
    if sum.sampled > 0 {
        line("sampled", format!("{} dirty pages", count(sum.sampled)));
    }
    if sum.writes_held_back_ns > 0 {
        line(
            "limit",
            format!(
                "writes held back for {:.1} s in total",
                sum.writes_held_back_ns as f64 / 1e9
            ),
        );
    }
    if sum.discard_commands + sum.discards_elided > 0 {
        line(
            "discards",
            format!(
                "{} commands, {}, {:.1} s; {} clusters overwritten instead",
                count(sum.discard_commands),
                Size(sum.discard_pages * PAGE),
                sum.discard_ns as f64 / 1e9,
                count(sum.discards_elided)
            ),
        );
    }
    if let Some(model) = &names.device {
        let wear = outcome.wear.as_ref().map_or(String::new(), |wear| {
            format!(
                ": write amplification {:.2}, blocks erased {:.1} times ({} to {})",
                wear.write_amplification(),
                wear.erase_mean,
                wear.erase_min,
                wear.erase_max
            )
        });
        line("device", format!("{model}{wear}"));
    }
    let share = match sum.prefetch_issued {
        0 => String::new(),
        issued => format!(
            " ({:.1} %)",
            sum.prefetch_used as f64 * 100.0 / issued as f64
        ),
    };
    let pool = match sum.prefetch_pool {
        0 => String::new(),
        pages => format!(", {} of them from the pool", count(pages)),
    };
    line(
        "prefetch",
        format!(
            "{} pages{pool}, {} used{share}, {} wasted",
            count(sum.prefetch_issued),
            count(sum.prefetch_used),
            count(sum.prefetch_wasted)
        ),
    );
    line(
        "resident",
        format!(
            "{} of {} pages at most",
            count(sum.resident_pages_max),
            count(budget_pages)
        ),
    );
    let read_errors = sum.read_errors + sum.svmp_read_errors;
    let write_errors = sum.write_errors + sum.log_write_errors;
    if read_errors + write_errors > 0 {
        line(
            "errors",
            format!("{read_errors} pages not read, {write_errors} writes repeated"),
        );
    }
    if outcome.records.processes() > 1 {
        line("processes", count(outcome.records.processes()));
    }
    for (name, text) in causes(outcome, control, &sum) {
        line(name, text);
    }
    lines
}
