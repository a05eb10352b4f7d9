//! Page sampling: the search for victims skips dirty pages with some probability, so that younger
//! clean ones are evicted and fewer pages are written (FlashVM, 4.2.1).
//!
//! - `readings`: the choices that the paper's text leaves.

mod readings;

pub use readings::Readings;
pub(crate) use readings::Skipped;
use readings::{Pressed, Rate, Share, Unit};

use crate::ids::Nanos;
use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How often dirty pages are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Never.
    #[default]
    Off,
    /// One in N.
    Uniform(u32),
    /// One in N on average: more while few pages are written, none while frames are short.
    Adaptive(u32),
}

/// Range of N.
const N_MIN: u32 = 2;
const N_MAX: u32 = 1_000_000;
/// Bound on the probability of a skip, so that victims are always found: 1 / SHARE_MAX, more only near the write limit.
const SHARE_MAX: u64 = 2;
/// The same where all but a sample are skipped.
const SHARE_OF_OTHERS_MAX: u64 = PARTS / 128 * 127;
/// Denominator of probabilities.
const PARTS: u64 = 1 << 32;
/// Percentage of the write limit's burst from which writes are saved.
pub(crate) const WRITES_SAVED_FROM: u8 = 50;
/// Probability of a skip, in PARTS, once the whole burst is used.
const SHARE_UNDER_LIMIT: u64 = PARTS / 8 * 7;
/// Weight of the newest t_n in its moving average: 1 / WEIGHT.
const WEIGHT: u64 = 4;
/// The same where the probability follows t_n itself: the average has to outlast the changes.
const WEIGHT_INTERVAL: u64 = 64;

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Uniform(n) => write!(f, "uniform:{n}"),
            Self::Adaptive(n) => write!(f, "adaptive:{n}"),
        }
    }
}

impl FromStr for Sampling {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let known = ["off", "uniform:N", "adaptive:N (N from 2 to 1000000)"];
        let unknown = || UnknownName::new("page sampling", text, known.into_iter());
        if text == "off" {
            return Ok(Self::Off);
        }
        let (name, n) = text.split_once(':').ok_or_else(unknown)?;
        let n = n.parse::<u32>().ok();
        let n = n
            .filter(|n| (N_MIN..=N_MAX).contains(n))
            .ok_or_else(unknown)?;
        match name {
            "uniform" => Ok(Self::Uniform(n)),
            "adaptive" => Ok(Self::Adaptive(n)),
            _ => Err(unknown()),
        }
    }
}

/// Decides page by page.
///
/// Adaptive sampling keeps a moving average of t_n, the time in which n dirty pages are written.
/// The probability is zero whenever n pages have just been written, and rises with the time since
/// then in proportion to that average: 1 / N on average, higher while pages are written more slowly
/// than before, lower while they are written faster.
pub(crate) struct Sampler {
    sampling: Sampling,
    readings: Readings,
    random: u64,
    /// Pages whose writes are timed together.
    n: u32,
    written: u32,
    since: Nanos,
    /// Zero until n pages have been written.
    average: Nanos,
    /// The last t_n.
    last: Nanos,
    /// Whether this scan skips its dirty pages.
    skips_scan: bool,
    /// Least probability of a skip, because writes are limited.
    under_limit: u64,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling, readings: Readings, n: u32) -> Self {
        Self {
            sampling,
            readings,
            random: 0x9E37_79B9_7F4A_7C15,
            n,
            written: 0,
            since: Nanos(0),
            average: Nanos(0),
            last: Nanos(0),
            skips_scan: false,
            under_limit: 0,
        }
    }

    /// Use of the write limit's burst, in percent: from half of it on, more and more dirty pages
    /// are skipped, even while frames are short, so that clean ones leave.
    pub(crate) fn set_write_limit(&mut self, used: u8) {
        let over = u64::from(used.saturating_sub(WRITES_SAVED_FROM));
        self.under_limit = SHARE_UNDER_LIMIT * over / u64::from(100 - WRITES_SAVED_FROM);
    }

    /// A dirty page has been written.
    pub(crate) fn written(&mut self, now: Nanos) {
        self.written += 1;
        if self.written < self.n {
            return;
        }
        let t_n = now.since(self.since).0;
        let weight = match self.readings.rate {
            Rate::Since => WEIGHT,
            Rate::Interval => WEIGHT_INTERVAL,
        };
        self.average = match self.average {
            Nanos(0) => Nanos(t_n.max(1)),
            Nanos(average) => Nanos((average * (weight - 1) + t_n).div_ceil(weight)),
        };
        self.last = Nanos(t_n);
        self.since = now;
        self.written = 0;
    }

    /// Where skipped pages go.
    pub(crate) fn skipped(&self) -> Skipped {
        self.readings.skipped
    }

    /// A scan for victims begins.
    pub(crate) fn begin_scan(&mut self, now: Nanos, pressed: bool) {
        if self.readings.unit == Unit::Scan {
            self.skips_scan = self.draws(now, pressed);
        }
    }

    /// Whether to skip a dirty victim. `pressed`: frames are short, and dirty pages have to leave.
    pub(crate) fn skips(&mut self, now: Nanos, pressed: bool) -> bool {
        match self.readings.unit {
            Unit::Scan => self.skips_scan,
            Unit::Page => self.draws(now, pressed),
        }
    }

    fn draws(&mut self, now: Nanos, pressed: bool) -> bool {
        let chance = self.chance(now, pressed);
        chance > 0 && self.next_u64() % PARTS < chance
    }

    /// The probability of a skip, in PARTS.
    fn chance(&self, now: Nanos, pressed: bool) -> u64 {
        let waits = pressed && self.readings.pressed == Pressed::No;
        let one_in_n = match self.sampling {
            Sampling::Off => return self.under_limit,
            Sampling::Uniform(n) => PARTS / u64::from(n),
            Sampling::Adaptive(_) if waits || self.average == Nanos(0) => return self.under_limit,
            Sampling::Adaptive(n) => {
                let time = match self.readings.rate {
                    // On average, half of the interval has passed when a page is considered.
                    Rate::Since => 2 * u128::from(now.since(self.since).0),
                    Rate::Interval => u128::from(self.last.0),
                };
                let rate = u128::from(PARTS) * time / u128::from(self.average.0);
                u64::try_from(rate / u128::from(n)).unwrap_or(u64::MAX)
            }
        };
        let chance = match self.readings.share {
            Share::Skip => one_in_n.min(PARTS / SHARE_MAX),
            Share::Write => (PARTS - one_in_n.min(PARTS)).min(SHARE_OF_OTHERS_MAX),
        };
        chance.max(self.under_limit)
    }

    /// Xorshift: reproducible, as every decision of an engine is.
    fn next_u64(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sampler(sampling: Sampling, readings: &str) -> Sampler {
        Sampler::new(sampling, readings.parse().expect(readings), 32)
    }

    fn skipped(sampler: &mut Sampler, now: u64, pressed: bool) -> u32 {
        (0..10_000)
            .map(|_| u32::from(sampler.skips(Nanos(now), pressed)))
            .sum()
    }

    #[test]
    fn a_scan_skips_all_its_pages_or_none() {
        let mut sampler = sampler(Sampling::Uniform(4), "unit=scan");
        let mut scans = 0;
        for _ in 0..1000 {
            sampler.begin_scan(Nanos(0), true);
            match skipped(&mut sampler, 0, true) {
                0 => {}
                10_000 => scans += 1,
                some => panic!("{some} of 10000"),
            }
        }
        assert!((200..300).contains(&scans), "{scans}");
    }

    #[test]
    fn a_sample_is_written_and_the_others_are_skipped() {
        let mut sampler = sampler(Sampling::Uniform(10), "share=write");
        let skipped = skipped(&mut sampler, 0, true);
        assert!((8700..9300).contains(&skipped), "{skipped}");
    }

    #[test]
    fn the_probability_can_follow_the_last_interval_and_ignore_pressure() {
        let mut sampler = sampler(Sampling::Adaptive(20), "rate=interval,pressed=too");
        for _ in 0..100 * 32 {
            let now = sampler.since.plus(Nanos(10 * MS));
            sampler.written(now);
        }
        let now = sampler.since.0;
        let usual = skipped(&mut sampler, now, true);
        assert!((400..600).contains(&usual), "{usual} of 10000, about 500");
        for _ in 0..32 {
            let now = sampler.since.plus(Nanos(40 * MS));
            sampler.written(now);
        }
        let slow = skipped(&mut sampler, now, true);
        assert!(slow > 2 * usual, "{slow}");
    }

    #[test]
    fn texts_parse_and_print() {
        for text in ["off", "uniform:100", "adaptive:20"] {
            let sampling: Sampling = text.parse().expect(text);
            assert_eq!(sampling.to_string(), text);
        }
        for bad in [
            "uniform",
            "uniform:1",
            "uniform:x",
            "adaptive:0",
            "some:3",
            "",
        ] {
            bad.parse::<Sampling>().expect_err(bad);
        }
    }

    #[test]
    fn uniform_skips_one_in_n() {
        let mut sampler = sampler(Sampling::Uniform(100), "");
        let skipped = skipped(&mut sampler, 0, true);
        assert!((60..140).contains(&skipped), "{skipped}");
    }

    #[test]
    fn adaptive_skips_more_the_longer_nothing_is_written_and_none_under_pressure() {
        let mut sampler = sampler(Sampling::Adaptive(20), "");
        assert_eq!(skipped(&mut sampler, MS, false), 0, "no rate is known");
        for _ in 0..5 * 32 {
            let now = sampler.since.plus(Nanos(10 * MS));
            sampler.written(now);
        }
        let now = sampler.since.0;
        assert_eq!(
            skipped(&mut sampler, now, false),
            0,
            "n pages have just gone out"
        );
        let usual = skipped(&mut sampler, now + 5 * MS, false);
        assert!((400..600).contains(&usual), "{usual} of 10000, about 500");
        let rare = skipped(&mut sampler, now + 40 * MS, false);
        assert!(rare > 3 * usual, "{rare}");
        let idle = skipped(&mut sampler, now + 10_000 * MS, false);
        assert!((4500..5500).contains(&idle), "{idle}: half at most");
        assert_eq!(skipped(&mut sampler, now + 40 * MS, true), 0, "pressed");
    }

    #[test]
    fn a_write_limit_raises_the_probability_of_a_skip() {
        let mut sampler = sampler(Sampling::Off, "");
        for (used, about) in [(0, 0), (50, 0), (75, 4375), (100, 8750)] {
            sampler.set_write_limit(used);
            let skipped = skipped(&mut sampler, 0, true);
            assert!(skipped.abs_diff(about) < 150, "{used} %: {skipped}");
        }
    }
}
