//! A translation layer alone: writes until steady state, then measures.

use super::ftl::{Counts, Ftl, FtlStrategy, WornOut};
use super::geometry::Geometry;
use crate::rng::Rng;

/// Most overwrites of the whole device before write amplification is measured.
const ROUNDS_MAX: u32 = 60;
/// Overwrites that are measured.
const ROUNDS_MEASURED: u32 = 4;
/// Steady state: in three successive overwrites, write amplification differs from the one before by at most this
/// share.
const SETTLED: f64 = 0.003;
/// The hot-cold workload: the share of hot pages, and the share of writes that go to them.
const HOT_PAGES: f64 = 0.2;
const HOT_WRITES_PERCENT: u64 = 80;

/// Which pages are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Any page, each as likely.
    Uniform,
    /// Eight of ten writes go to two of ten pages.
    HotCold,
    /// One page after the other, repeatedly.
    Sequential,
    /// The steps of a trace, repeatedly; pages are those of the device.
    Trace(Vec<TraceStep>),
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// A page is written.
    Write(u32),
    /// A page is discarded.
    Discard(u32),
}

/// The result for a translation layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// Pages programmed for each page written, over the measured overwrites.
    pub write_amplification: f64,
    /// Fewest erases of a block since the device was new.
    pub erase_min: u32,
    /// Mean of the erases of all blocks.
    pub erase_mean: f64,
    /// Most erases of a block.
    pub erase_max: u32,
    /// Erased blocks at the end, including the one that cleaning keeps.
    pub free_blocks: u32,
    /// Bad blocks at the end.
    pub bad_blocks: u32,
    /// All counters.
    pub counts: Counts,
}

/// Fills a new device, overwrites it until its write amplification is steady, and measures.
/// `progress` gets the number of completed overwrites, and the maximum.
///
/// # Errors
/// If the device wears out before the end.
///
/// # Panics
/// If a trace has no write in it.
pub fn simulate(
    geometry: Geometry,
    strategy: FtlStrategy,
    workload: &Workload,
    seed: u64,
    mut progress: impl FnMut(u32, u32),
) -> Result<Settled, WornOut> {
    let mut ftl = Ftl::new(geometry, strategy);
    let mut pages = Pages::new(workload, geometry.logical_pages, seed);
    if !matches!(workload, Workload::Trace(_)) {
        for page in 0..geometry.logical_pages {
            ftl.write(page, &mut ())?;
        }
    }
    let (mut last, mut agreed) = (0.0, 0);
    for round in 0..ROUNDS_MAX {
        progress(round, ROUNDS_MAX + ROUNDS_MEASURED);
        let amplification = overwrite(&mut ftl, &mut pages, 1)?;
        let settled = (amplification - last).abs() <= SETTLED * amplification;
        agreed = if settled { agreed + 1 } else { 0 };
        last = amplification;
        if agreed == 3 {
            break;
        }
    }
    progress(ROUNDS_MAX, ROUNDS_MAX + ROUNDS_MEASURED);
    let write_amplification = overwrite(&mut ftl, &mut pages, ROUNDS_MEASURED)?;
    let (erase_min, erase_mean, erase_max) = ftl.erases();
    Ok(Settled {
        write_amplification,
        erase_min,
        erase_mean,
        erase_max,
        free_blocks: ftl.free_blocks(),
        bad_blocks: ftl.bad_blocks(),
        counts: *ftl.counts(),
    })
}

/// Overwrites all addressable pages `rounds` times; returns the write amplification.
fn overwrite(ftl: &mut Ftl, pages: &mut Pages<'_>, rounds: u32) -> Result<f64, WornOut> {
    let before = *ftl.counts();
    let goal = before.host_writes + u64::from(rounds) * u64::from(ftl.geometry().logical_pages);
    while ftl.counts().host_writes < goal {
        match pages.next() {
            TraceStep::Write(page) => ftl.write(page, &mut ())?,
            TraceStep::Discard(page) => {
                ftl.discard(page);
            }
        }
    }
    Ok(ftl.counts().write_amplification_since(&before))
}

/// The pages of a workload, without end.
struct Pages<'a> {
    workload: &'a Workload,
    pages: u32,
    rng: Rng,
    at: usize,
}

impl<'a> Pages<'a> {
    fn new(workload: &'a Workload, pages: u32, seed: u64) -> Self {
        if let Workload::Trace(steps) = workload {
            let write = |step: &TraceStep| matches!(step, TraceStep::Write(_));
            assert!(steps.iter().any(write), "a trace without writes never ends");
        }
        Self {
            workload,
            pages,
            rng: Rng::new(seed),
            at: 0,
        }
    }

    fn next(&mut self) -> TraceStep {
        let hot = ((f64::from(self.pages) * HOT_PAGES) as u32).max(1);
        TraceStep::Write(match self.workload {
            Workload::Uniform => self.rng.below_u32(self.pages),
            Workload::HotCold if hot >= self.pages => self.rng.below_u32(self.pages),
            Workload::HotCold => match self.rng.below(100) < HOT_WRITES_PERCENT {
                true => self.rng.below_u32(hot),
                false => hot + self.rng.below_u32(self.pages - hot),
            },
            Workload::Sequential => {
                self.at = (self.at + 1) % self.pages as usize;
                self.at as u32
            }
            Workload::Trace(steps) => {
                let step = steps[self.at];
                self.at = (self.at + 1) % steps.len();
                return step;
            }
        })
    }
}
