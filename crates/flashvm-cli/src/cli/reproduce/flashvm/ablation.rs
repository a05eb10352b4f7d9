//! Ablation: each mechanism of the paper alone, in virtual time. `ablation_live` does the same live.

use super::mechanisms::{ALL, System, WRITE_RUN, systems};
use crate::cli::refusal::Refusal;
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use crate::cli::reproduce::programs::live::Run;
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{alone, seconds};
use flashvm_sim::Device;
use indicatif::ProgressBar;

/// Table 4's memory, and a smaller one, in permille of it.
const MEMORIES: [u32; 2] = [1000, 500];

/// The table of an ablation, and charts of the times with and without each mechanism.
pub(super) struct Ablation {
    pub(super) table: Table,
    /// With each mechanism alone over Linux, and without it in FlashVM: a series for each program.
    charts: [Vec<Series>; 2],
    /// Times with runs of writes, in percent of those without.
    with_runs: Vec<f64>,
}

impl Ablation {
    pub(super) fn new() -> Self {
        let columns = [
            "program",
            "RAM MB",
            "system",
            "device",
            "s",
            "of the base",
            "faults",
            "pages in",
            "pages out",
        ];
        Self {
            table: Table::new(&columns),
            charts: Default::default(),
            with_runs: Vec::new(),
        }
    }

    /// Adds the runs of a program in a memory, one for each system.
    pub(super) fn add(&mut self, program: &str, mb: f64, systems: &[System], runs: &[Run]) {
        let title = format!("{program}, {mb:.0} MB");
        for charts in &mut self.charts {
            charts.push(Series::new(&title, Vec::new()));
        }
        for (at, (system, run)) in systems.iter().zip(runs).enumerate() {
            let share = run.seconds * 100.0 / runs[system.base].seconds;
            self.table.row([
                program.to_owned(),
                format!("{mb:.0}"),
                system.name.clone(),
                system.model.to_string(),
                format!("{:.2}", run.seconds),
                format!("{share:.1} %"),
                run.faults.to_string(),
                run.pages_in.to_string(),
                run.pages_out.to_string(),
            ]);
            match system.changed {
                Some((at, is_on)) => {
                    let series = self.charts[usize::from(!is_on)].last_mut();
                    series.expect("just added").points.push((at as f64, share));
                }
                None if at == system.base => {}
                None => self.with_runs.push(share),
            }
        }
    }

    /// What runs of writes save, in a sentence.
    fn saved_by_runs(&self) -> String {
        let least = self.with_runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.with_runs.iter().copied().fold(0.0, f64::max);
        format!(
            "Runs of writes ({WRITE_RUN} pages or up to reclaim's upper mark, `--write-run`), which neither preset has: {least:.0} to \
             {most:.0} % of the time without them. Linux 2.6.28 writes in such runs, from one watermark to the next."
        )
    }

    pub(super) fn report(self, mut notes: Vec<String>) -> Report {
        if !self.with_runs.is_empty() {
            notes.push(self.saved_by_runs());
        }
        let names = ALL.each_ref().map(|mechanism| mechanism.name);
        let titles = [
            ("on", "Linux with one mechanism, time in % of Linux's"),
            (
                "off",
                "FlashVM without one mechanism, time in % of FlashVM's",
            ),
        ];
        let charts = titles.into_iter().zip(self.charts);
        let charts = charts.map(|((name, title), series)| Chart {
            name: name.to_owned(),
            title: title.to_owned(),
            x: Axis::places(&names),
            y: Axis::linear("%"),
            series,
        });
        Report {
            tables: vec![self.table],
            charts: charts.collect(),
            notes,
        }
    }
}

pub(super) fn ablation(programs: &RecordedPrograms, bar: &ProgressBar) -> Result<Report, Refusal> {
    let systems = systems();
    let mut ablation = Ablation::new();
    for program in programs.all()? {
        for memory in MEMORIES {
            let frames = program.frames() * memory / 1000;
            let runs = systems.iter().map(|system| {
                bar.set_message(format!("{}, {}", program.info.title, system.name));
                let device = Device::new(system.model);
                let figures = alone(program, frames, &device, system.settings.clone());
                Run::of(seconds(figures.elapsed), &figures.counters)
            });
            let runs = Vec::from_iter(runs);
            ablation.add(
                program.info.title,
                f64::from(frames) / 256.0,
                &systems,
                &runs,
            );
        }
    }
    Ok(ablation.report(vec![
        "Each row differs from its base, Linux's or FlashVM's preset on the same drive, in one mechanism; in Table 4's memory and in half of \
         it. Discards are tried on the OCZ-Vertex, as the Intel SSD takes none."
            .to_owned(),
        "In Table 4's memory FlashVM is as fast as Linux or faster. In half of it Linux is faster in three programs: SpecJBB (by 5 %), \
         memcached-store (3 %) and memcached-lookup (2 %). The cause is prefetching over free slots: it alone costs Linux 4 to 8 % there. It \
         always brings in seven pages, which programs that refer to pages at random evict unused (memcached-lookup reads 573,000 pages \
         in place of 496,000), and only pages behind the target, so that memcached-store has a third more faults than with Linux's window \
         around it. Without it FlashVM takes 9 % less than Linux in memcached-lookup."
            .to_owned(),
        "Spin writes fewer pages with FlashVM, all through page sharing. Prefetching over free slots and by stride each add 4 to 5 % to Linux's \
         writes there: pages that come in unused push out dirty ones."
            .to_owned(),
        "With runs of writes in both, FlashVM is faster than Linux in eight of the ten cases and 1 % slower at most: they save the turnarounds \
         that cost it most, beside more reads. The presets write each batch at once all the same, as with runs two effects of the paper are gone: \
         few pre-cleaned pages are as fast as many (Figure 6(a)), and the cleaner's timeout saves nothing (5.3.1)."
            .to_owned(),
    ]))
}
