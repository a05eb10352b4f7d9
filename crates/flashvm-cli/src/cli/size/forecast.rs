//! Seconds by RAM: seconds = seconds in RAM + misses * price of a miss.
//!
//! `misses` is the program's curve ([`MissCurve`]). The price depends on RAM: with less of it, fewer misses find their
//! page compressed in RAM, and more come in streams that are read ahead. Between the prices that two runs have measured it
//! is a line: over the logarithm of misses where these differ, else over RAM.

use flashvm_sim::locality::MissCurve;

/// The least budget of a run, in frames: 4 MiB.
pub(super) const FRAMES_MIN: u64 = 1024;
/// A run keeps this share of its frames free or on standby.
const RESERVE_SHARE: u64 = 64;
/// A run that has used so much of its RAM may have needed more.
const FULL: f64 = 0.97;
/// Software of a miss, as long as no run has measured it: docs/performance.md.
const SOFTWARE_S: f64 = 15e-6;
/// Shares of what the program uses at which runs measure the price, until it falls off.
const PAGED_SHARES: [f64; 3] = [0.75, 0.5625, 0.375];
/// Runs with less RAM at most: what is left after these shares goes where two neighbours differ by this ratio.
const PAGED_MAX: usize = 5;
const NEIGHBOURS_DIFFER: f64 = 1.6;
/// Neighbours this share of what the program uses apart are near enough.
const NEAR_SHARE: u64 = 10;
/// Such a run seems to take at most so many times as long as the first.
const PAGED_SLOWDOWN: f64 = 40.0;
/// Misses of two runs differ from this ratio on.
const MISSES_DIFFER: f64 = 1.5;
/// Steps of RAM that advice looks at.
const STEPS: u64 = 512;
/// A run with less RAM is ended after so many times the seconds of the first, and not before `CUT_SECONDS`.
const CUT: f64 = 12.0;
const CUT_SECONDS: f64 = 20.0;
/// Comfortable: at most so many times slower than in RAM.
const COMFORTABLE: f64 = 1.3;
/// Falling off: at least so many times slower.
const FALLEN: f64 = 4.0;

/// A run of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Run {
    /// Frames of its RAM.
    pub(super) frames: u64,
    /// Frames that it used at most.
    pub(super) frames_used: u64,
    /// Its duration.
    pub(super) seconds: f64,
    /// Faults that waited for a read from flash.
    pub(super) waits: u64,
    /// It was ended because it took too long: `seconds` is less than it would have taken.
    pub(super) is_cut: bool,
}

/// A run that checks the forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tried {
    pub(super) run: Run,
    /// The forecast before the run.
    pub(super) forecast_s: f64,
}

/// What a miss costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Price {
    /// In all.
    pub(super) seconds: f64,
    /// How many reads from flash it waits for: at most one.
    pub(super) waits: f64,
}

impl Price {
    /// Before a run has measured it.
    pub(super) fn assumed(read_s: f64) -> Self {
        Self {
            seconds: SOFTWARE_S + read_s,
            waits: 1.0,
        }
    }

    /// The point `at` of the line from this price, at 0, to another, at 1.
    fn towards(self, other: Self, at: f64) -> Self {
        let point = |a: f64, b: f64| a + (b - a) * at;
        Self {
            seconds: point(self.seconds, other.seconds),
            waits: point(self.waits, other.waits),
        }
    }
}

/// The price that a run has measured, or an assumed one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    frames: f64,
    misses: f64,
    price: Price,
}

impl Point {
    /// Where `frames` and `misses` lie on the way from here, 0, to `other`, 1. What lies beyond is at the end.
    fn way(&self, other: &Self, frames: f64, misses: f64) -> f64 {
        let part = |from: f64, to: f64, at: f64| match from == to {
            true => 0.0,
            false => (at - from) / (to - from),
        };
        let ratio = self.misses / other.misses;
        let way = match (1.0 / MISSES_DIFFER..MISSES_DIFFER).contains(&ratio) {
            true => part(self.frames, other.frames, frames),
            false => part(self.misses.ln(), other.misses.ln(), misses.ln()),
        };
        way.clamp(0.0, 1.0)
    }
}

/// What a program's runs with any RAM will take.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    /// Frames that the program uses at most.
    whole: u64,
    /// Seconds with all of them in RAM.
    in_ram_s: f64,
    first: Run,
    /// Runs with less RAM.
    paged: Vec<Run>,
    /// Prices that the paged runs have measured, from many frames to few, or an assumed one.
    points: Vec<Point>,
    is_measured: bool,
    /// What a read from another device takes beyond one here.
    longer_read_s: f64,
    /// The curve at its steps: frames and seconds, from few frames to many.
    steps: Vec<(u64, f64)>,
}

/// What to give the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// It fits into the least budget.
    Small,
    /// It needs all that it uses.
    All,
    /// With `comfortable` frames it runs well; below `fallen` it does not. Both are at most what it uses.
    Between { comfortable: u64, fallen: u64 },
}

/// Misses with so many frames of RAM.
fn misses(curve: &MissCurve, frames: u64) -> f64 {
    curve.misses(frames - frames / RESERVE_SHARE) as f64
}

/// Sizes of memory for a table, from all that a program uses down to a 32nd.
pub(super) fn sizes(whole: u64) -> Vec<u64> {
    const SHARES: [(u64, u64); 11] = [
        (1, 1),
        (7, 8),
        (3, 4),
        (5, 8),
        (1, 2),
        (3, 8),
        (1, 4),
        (3, 16),
        (1, 8),
        (1, 16),
        (1, 32),
    ];
    let sizes = SHARES.iter().map(|(part, of)| whole * part / of);
    let mut sizes = Vec::from_iter(sizes.filter(|&frames| frames >= FRAMES_MIN));
    if sizes.is_empty() {
        sizes.push(whole);
    }
    sizes
}

impl Forecast {
    /// From a run that may have all the RAM that it wants. `price` is assumed.
    pub(super) fn new(curve: &MissCurve, first: Run, price: Price) -> Self {
        let full = first.frames_used as f64 >= FULL * first.frames as f64;
        let whole = match full {
            true => curve.footprint().max(first.frames_used),
            false => first.frames_used,
        };
        let mut forecast = Self {
            whole,
            in_ram_s: first.seconds,
            first,
            paged: Vec::new(),
            points: vec![Point {
                frames: first.frames as f64,
                misses: 1.0,
                price,
            }],
            is_measured: false,
            longer_read_s: 0.0,
            steps: Vec::new(),
        };
        forecast.set_base(curve);
        forecast
    }

    /// Learns the price from a run with less RAM.
    pub(super) fn learn(&mut self, curve: &MissCurve, run: Run) {
        self.paged.push(run);
        self.paged.sort_by_key(|run| std::cmp::Reverse(run.frames));
        let point = |run: &Run| {
            let misses = misses(curve, run.frames);
            let more = misses - self.misses_of_first(curve);
            let waits = run.waits.saturating_sub(self.first.waits) as f64;
            let point = Point {
                frames: run.frames as f64,
                misses,
                price: Price {
                    seconds: (run.seconds - self.first.seconds).max(0.0) / more,
                    waits: (waits / more).min(1.0),
                },
            };
            (more > 0.0).then_some(point)
        };
        let points = Vec::from_iter(self.paged.iter().filter_map(point));
        if !points.is_empty() {
            self.points = points;
            self.is_measured = true;
        }
        self.set_base(curve);
    }

    /// Forecasts for a device whose reads take `there` seconds in place of `here`.
    pub(super) fn change_read_time(&mut self, curve: &MissCurve, here: f64, there: f64) {
        self.longer_read_s = there - here;
        self.set_steps(curve);
    }

    fn misses_of_first(&self, curve: &MissCurve) -> f64 {
        match self.first.frames >= self.whole {
            true => 0.0,
            false => misses(curve, self.first.frames),
        }
    }

    /// The price of a miss with so many frames.
    pub(super) fn price(&self, curve: &MissCurve, frames: u64) -> Price {
        let below = self
            .points
            .partition_point(|point| point.frames > frames as f64);
        match (below.checked_sub(1), self.points.get(below)) {
            (Some(above), Some(b)) => {
                let a = self.points[above];
                let misses = misses(curve, frames).max(1.0);
                a.price.towards(b.price, a.way(b, frames as f64, misses))
            }
            (None, Some(nearest)) => nearest.price,
            (Some(nearest), None) => self.points[nearest].price,
            (None, None) => unreachable!("there is a price, at least an assumed one"),
        }
    }

    fn set_base(&mut self, curve: &MissCurve) {
        let price = self.price(curve, self.first.frames).seconds;
        // The first run computed, too.
        let paging = self.misses_of_first(curve) * price;
        self.in_ram_s = (self.first.seconds - paging).max(self.first.seconds / 100.0);
        self.set_steps(curve);
    }

    fn set_steps(&mut self, curve: &MissCurve) {
        let low = FRAMES_MIN.min(self.whole);
        let step = |at: u64| low + (self.whole - low) * at / STEPS;
        let steps = (0..=STEPS).map(|at| (step(at), self.seconds(curve, step(at))));
        self.steps = steps.collect();
    }

    /// Seconds with so many frames of RAM.
    pub(super) fn seconds(&self, curve: &MissCurve, frames: u64) -> f64 {
        if frames >= self.whole {
            return self.in_ram_s;
        }
        let price = self.price(curve, frames);
        let longer = price.waits * self.longer_read_s;
        self.in_ram_s + misses(curve, frames) * (price.seconds + longer).max(0.0)
    }

    /// Misses with so many frames: none where all fit.
    pub(super) fn misses(&self, curve: &MissCurve, frames: u64) -> u64 {
        match frames >= self.whole {
            true => 0,
            false => curve.misses(frames),
        }
    }

    /// Frames that the program uses at most.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    pub(super) fn in_ram_s(&self) -> f64 {
        self.in_ram_s
    }

    /// Whether runs with less RAM have measured the price.
    pub(super) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The runs behind the forecast.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.first).chain(&self.paged)
    }

    /// How many times slower than in RAM.
    pub(super) fn slowdown(&self, seconds: f64) -> f64 {
        seconds / self.in_ram_s
    }

    /// The most frames with which the program is at least `slowdown` times slower. `None`: it never is.
    pub(super) fn frames_at(&self, slowdown: f64) -> Option<u64> {
        let slow = |&&(_, seconds): &&(u64, f64)| self.slowdown(seconds) >= slowdown;
        self.steps.iter().rev().find(slow).map(|step| step.0)
    }

    /// Seconds after which a run with less RAM is ended: it has fallen off.
    pub(super) fn longest_run_s(&self) -> f64 {
        (CUT * self.in_ram_s).max(CUT_SECONDS)
    }

    /// Whether a forecast is only a lower bound: runs with so few frames took too long.
    pub(super) fn is_bound(&self, frames: u64) -> bool {
        let mut cut = self.paged.iter().filter(|run| run.is_cut);
        cut.any(|run| frames <= run.frames)
    }

    /// Frames of the next run that measures the price. `None`: what is known suffices, or the program does not page.
    pub(super) fn next_to_page(&self, curve: &MissCurve) -> Option<u64> {
        let least = self.frames_at(PAGED_SLOWDOWN).unwrap_or(0).max(FRAMES_MIN);
        let near = self.whole / NEAR_SHARE;
        let is_new = |frames: &u64| {
            let pages = misses(curve, *frames) > 0.0 && *frames < self.first.frames;
            let known = |run: &Run| run.frames.abs_diff(*frames) < near / 2;
            pages && !self.paged.iter().any(known)
        };
        let has_fallen = |run: &Run| self.slowdown(run.seconds) >= FALLEN;
        if !self.paged.iter().any(has_fallen) {
            let shares = PAGED_SHARES.iter();
            let frames = shares.map(|share| ((self.whole as f64 * share) as u64).max(least));
            if let Some(frames) = frames.clone().find(is_new) {
                return Some(frames);
            }
        }
        if self.paged.len() >= PAGED_MAX {
            return None;
        }
        let whole = Run {
            frames: self.whole,
            seconds: self.in_ram_s,
            ..self.first
        };
        let runs = std::iter::once(&whole).chain(&self.paged);
        runs.zip(&self.paged)
            .filter(|(more, less)| {
                !has_fallen(more) && less.seconds > NEIGHBOURS_DIFFER * more.seconds
            })
            .filter(|(more, less)| more.frames.saturating_sub(less.frames) > near)
            .map(|(more, less)| more.frames.midpoint(less.frames))
            .find(is_new)
    }

    /// Frames of three runs that check the forecast, each as far as possible from all other runs: where the program is slower
    /// and has not fallen off; where there is no such place, where it does not take too long.
    pub(super) fn frames_to_try(&self) -> Vec<u64> {
        let mut made = vec![self.whole];
        made.extend(self.paged.iter().map(|run| run.frames));
        let mut chosen: Vec<u64> = Vec::new();
        for slowest in [FALLEN, CUT] {
            let is_apt = |&&(frames, seconds): &&(u64, f64)| {
                self.slowdown(seconds) <= slowest && frames < self.whole && !self.is_bound(frames)
            };
            let apt = Vec::from_iter(self.steps.iter().filter(is_apt).map(|step| step.0));
            while chosen.len() < 3 {
                let distance = |frames: u64| {
                    let others = made.iter().chain(&chosen);
                    others.map(|other| other.abs_diff(frames)).min()
                };
                let farthest = apt.iter().copied().max_by_key(|&frames| distance(frames));
                match farthest.filter(|&frames| distance(frames) > Some(self.whole / 50)) {
                    Some(frames) => chosen.push(frames),
                    None => break,
                }
            }
        }
        chosen.sort_unstable();
        chosen.reverse();
        chosen
    }

    /// What to give the program.
    pub(super) fn advice(&self) -> Advice {
        if self.whole <= FRAMES_MIN {
            return Advice::Small;
        }
        let least = |slowdown: f64| {
            let fits = |&&(_, seconds): &&(u64, f64)| self.slowdown(seconds) <= slowdown;
            self.steps
                .iter()
                .find(fits)
                .map_or(self.whole, |step| step.0)
        };
        let (comfortable, fallen) = (least(COMFORTABLE), least(FALLEN));
        if fallen as f64 > 0.95 * self.whole as f64 {
            return Advice::All;
        }
        Advice::Between {
            comfortable,
            fallen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that goes through its pages `rounds` times in order, then stays in a tenth of them.
    fn cyclic(pages: u64, rounds: u64) -> MissCurve {
        let mut curve = MissCurve::new(0);
        for _ in 0..rounds {
            (0..pages).for_each(|page| curve.add(page));
        }
        for _ in 0..5 * rounds {
            (0..pages / 10).for_each(|page| curve.add(page));
        }
        curve
    }

    /// Where misses differ, the price follows them: 50 us at 100,000 misses and 20 us at 1,000,000.
    #[test]
    fn the_price_follows_misses() {
        let point = |frames, misses, us: f64| Point {
            frames,
            misses,
            price: Price {
                seconds: us / 1e6,
                waits: 0.5,
            },
        };
        let (few, many) = (point(80e3, 1e5, 50.0), point(40e3, 1e6, 20.0));
        let at = |misses: f64| {
            few.price
                .towards(many.price, few.way(&many, 1.0, misses))
                .seconds
        };
        assert!(
            close(at(1e5), 50e-6) && close(at(1e6), 20e-6) && close(at(10_f64.powf(5.5)), 35e-6)
        );
        assert!(close(at(1e3), 50e-6) && close(at(1e9), 20e-6));
        let same = point(40e3, 1.2e5, 20.0);
        assert!(close(few.way(&same, 60e3, 1e5), 0.5));
    }

    fn run(frames: u64, frames_used: u64, seconds: f64) -> Run {
        Run {
            frames,
            frames_used,
            seconds,
            waits: 0,
            is_cut: false,
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// A price of 60 us at 75,000 frames, and of 90 us at 25,000, with reads of 30 us.
    #[test]
    fn the_price_is_a_line_through_two_runs() {
        let curve = cyclic(100_000, 4);
        let first = run(200_000, 100_000, 2.0);
        let mut forecast = Forecast::new(&curve, first, Price::assumed(45e-6));
        let frames = forecast.frames_at(2.0).expect("it pages");
        assert!((95_000..100_000).contains(&frames), "a cycle: {frames}");
        assert_eq!(forecast.next_to_page(&curve), Some(75_000));
        let paged = |frames, seconds, waits| Run {
            waits,
            ..run(frames, frames, seconds)
        };
        forecast.learn(&curve, paged(25_000, 29.0, 210_000));
        forecast.learn(&curve, paged(75_000, 20.0, 90_000));
        for (frames, seconds) in [
            (300_000, 2.0),
            (75_000, 20.0),
            (50_000, 24.5),
            (25_000, 29.0),
        ] {
            let is = forecast.seconds(&curve, frames);
            assert!(close(is, seconds), "{frames}: {is}");
        }
        forecast.change_read_time(&curve, 30e-6, 130e-6);
        for (frames, seconds) in [(300_000, 2.0), (75_000, 29.0), (25_000, 50.0)] {
            let is = forecast.seconds(&curve, frames);
            assert!(close(is, seconds), "{frames}: {is}");
        }
    }

    #[test]
    fn a_first_run_that_paged_is_corrected() {
        let curve = cyclic(100_000, 4);
        let first = run(50_000, 50_000, 8.0);
        let forecast = Forecast::new(&curve, first, Price::assumed(5e-6));
        assert_eq!(forecast.whole(), 100_000);
        // 310,000 misses for 20 us each.
        assert!(close(forecast.seconds(&curve, 100_000), 1.8));
        assert!(close(forecast.seconds(&curve, 50_000), 8.0));
    }

    #[test]
    fn advice_follows_the_curve() {
        let first = run(200_000, 100_000, 1.0);
        let cycle = cyclic(100_000, 4);
        let dear = Forecast::new(&cycle, first, Price::assumed(45e-6));
        assert_eq!(dear.advice(), Advice::All);
        // Eleven references in twelve are to a tenth of the pages.
        let mut skewed = MissCurve::new(0);
        for round in 0..12_u64 {
            let pages = if round == 6 { 0..100_000 } else { 0..10_000 };
            pages.for_each(|page| skewed.add(page));
        }
        let long = run(200_000, 100_000, 10.0);
        let cheap = Forecast::new(&skewed, long, Price::assumed(45e-6));
        let Advice::Between {
            comfortable,
            fallen,
        } = cheap.advice()
        else {
            panic!("{:?}", cheap.advice());
        };
        assert!((9_000..12_000).contains(&comfortable), "{comfortable}");
        assert!(fallen <= comfortable);
        let small = Forecast::new(&skewed, run(4096, 900, 1.0), Price::assumed(45e-6));
        assert_eq!(small.advice(), Advice::Small);
    }

    #[test]
    fn runs_that_check_lie_apart_and_above_the_cliff() {
        let curve = cyclic(100_000, 4);
        let first = run(200_000, 100_000, 2.0);
        let mut forecast = Forecast::new(&curve, first, Price::assumed(45e-6));
        forecast.learn(&curve, run(75_000, 75_000, 4.0));
        forecast.learn(&curve, run(37_500, 37_500, 30.0));
        let tries = forecast.frames_to_try();
        assert_eq!(tries.len(), 3, "{tries:?}");
        for (at, frames) in tries.iter().enumerate() {
            let known = [100_000, 75_000, 37_500].iter().chain(&tries[..at]);
            assert!(
                known.clone().all(|other| frames.abs_diff(*other) > 2000),
                "{tries:?}"
            );
            assert!(forecast.seconds(&curve, *frames) <= 8.0, "{tries:?}");
        }
    }

    /// With few frames a run that would take 40 times as long is not made.
    #[test]
    fn no_run_seems_to_take_too_long() {
        let curve = cyclic(100_000, 4);
        let first = run(200_000, 100_000, 0.1);
        let forecast = Forecast::new(&curve, first, Price::assumed(45e-6));
        let frames = forecast.next_to_page(&curve);
        assert!(frames.is_some_and(|one| one > 95_000), "{frames:?}");
    }

    /// Runs go down until the program falls off, and then to where two neighbours differ most.
    #[test]
    fn a_cliff_is_looked_at_more_closely() {
        let curve = cyclic(100_000, 4);
        let first = run(200_000, 100_000, 10.0);
        let mut forecast = Forecast::new(&curve, first, Price::assumed(45e-6));
        let cliff = |frames: u64| match frames {
            60_000.. => 11.0,
            50_000.. => 20.0,
            _ => 60.0,
        };
        let mut made = Vec::new();
        while let Some(frames) = forecast.next_to_page(&curve) {
            made.push(frames);
            forecast.learn(&curve, run(frames, frames, cliff(frames)));
        }
        assert_eq!(made, [75_000, 56_250, 37_500, 65_625, 46_875]);
        for frames in [70_000, 56_250, 46_875, 37_500] {
            let off = forecast.seconds(&curve, frames) / cliff(frames);
            assert!((0.8..1.2).contains(&off), "{frames}: {off}");
        }
    }

    #[test]
    fn a_program_that_falls_off_at_once_is_not_run_with_less() {
        let curve = cyclic(100_000, 4);
        let first = run(200_000, 100_000, 10.0);
        let mut forecast = Forecast::new(&curve, first, Price::assumed(45e-6));
        let mut made = Vec::new();
        while let Some(frames) = forecast.next_to_page(&curve) {
            made.push(frames);
            forecast.learn(&curve, run(frames, frames, 50.0));
        }
        assert_eq!(made, [75_000, 87_500, 93_750], "and none below");
    }
}
