//! Sizes, durations and switches: parsing and printing.

use flashvm_core::settings::PAGES_MAX;
use flashvm_core::{PAGE_SIZE, WriteLimit};
use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// A number of bytes that is a multiple of 4 KiB, kept as pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholePages(pub(crate) u32);

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Micros(pub(crate) u64);

/// Bytes per day, within the bounds of a [`WriteLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PerDay(pub(crate) u64);

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

/// Splits a text such as `1.5G` into number and unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let digits = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count();
    let (number, unit) = text.split_at(digits);
    number.bytes().next().filter(u8::is_ascii_digit)?;
    // Sizes are shown with a space: `64 KiB`.
    let unit = unit
        .strip_prefix(' ')
        .filter(|unit| !unit.is_empty())
        .unwrap_or(unit);
    Some((number.parse().ok()?, unit))
}

/// `number * unit`, if it is a whole number below 9e15: an f64 is exact up to 2^53.
fn whole(number: f64, unit: f64) -> Option<u64> {
    let value = number * unit;
    (value.fract() == 0.0 && value < 9e15).then_some(value as u64)
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (number, unit) = split(text)?;
            let power = match unit.to_ascii_uppercase().as_str() {
                "" | "B" => 0,
                "K" | "KB" | "KIB" => 10,
                "M" | "MB" | "MIB" => 20,
                "G" | "GB" | "GIB" => 30,
                "T" | "TB" | "TIB" => 40,
                _ => return None,
            };
            whole(number, (1_u64 << power) as f64).map(Self)
        };
        parse().ok_or_else(|| format!("'{text}' is not a size: write 65536, 64K, 512M or 1.5G"))
    }
}

impl FromStr for WholePages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Size(bytes) = text.parse()?;
        if bytes % PAGE_SIZE as u64 != 0 {
            return Err(format!("'{text}' is not a whole number of pages of 4 KiB"));
        }
        let pages = u32::try_from(bytes / PAGE_SIZE as u64).ok();
        let pages = pages.filter(|&pages| pages <= PAGES_MAX);
        pages
            .map(Self)
            .ok_or_else(|| format!("'{text}' is too large: at most 4T can be managed"))
    }
}

impl FromStr for PerDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.strip_suffix("/day").and_then(|size| size.parse().ok());
        let Size(bytes) =
            size.ok_or_else(|| format!("'{text}' is no limit: write 20G/day or 1.5T/day"))?;
        match WriteLimit::new(bytes) {
            Some(_) => Ok(Self(bytes)),
            None => Err(format!(
                "'{text}' is less than {}/day: allow more",
                Size(WriteLimit::BYTES_PER_DAY_MIN)
            )),
        }
    }
}

impl FromStr for Micros {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (number, unit) = split(text)?;
            let micros = match unit {
                "us" => 1.0,
                "ms" => 1e3,
                "s" => 1e6,
                _ => return None,
            };
            whole(number, micros).map(Self)
        };
        parse().ok_or_else(|| format!("'{text}' is not a duration: write 500us, 1ms or 2s"))
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self(true)),
            "off" => Ok(Self(false)),
            _ => Err(format!("'{text}' is neither on nor off")),
        }
    }
}

impl fmt::Display for Size {
    /// Three significant digits and a binary unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0 as f64, "B");
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, next);
        }
        let decimals = if value.fract() == 0.0 || value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

impl fmt::Display for WholePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(u64::from(self.0) * PAGE_SIZE as u64).fmt(f)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us > 0 && us.is_multiple_of(1_000_000) => write!(f, "{}s", us / 1_000_000),
            us if us > 0 && us.is_multiple_of(1000) => write!(f, "{}ms", us / 1000),
            us => write!(f, "{us}us"),
        }
    }
}

impl fmt::Display for PerDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/day", Size(self.0))
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

/// A count with thousands separators.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A latency in nanoseconds, for people.
pub(crate) fn latency(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e4 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("3KiB", 3072),
            ("2MiB", 2 << 20),
            ("64 KiB", 64 << 10),
            ("1T", 1 << 40),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "M",
            "12X",
            "-1",
            "1e3",
            ".5G",
            "1..5G",
            "1.0001K",
            "99999999T",
            "1  G",
            "1 ",
        ] {
            let line = text.parse::<Size>().unwrap_err();
            assert!(line.contains(&format!("'{text}'")), "{line}");
        }
    }

    #[test]
    fn durations_and_switches() {
        assert_eq!("500us".parse(), Ok(Micros(500)));
        assert_eq!("1ms".parse(), Ok(Micros(1000)));
        assert_eq!("1.5s".parse(), Ok(Micros(1_500_000)));
        assert!("1".parse::<Micros>().is_err());
        assert!("1 day".parse::<Micros>().is_err());
        assert_eq!("on".parse(), Ok(Switch(true)));
        assert!("yes".parse::<Switch>().is_err());
    }

    #[test]
    fn shown_for_people() {
        assert_eq!(Size(4096).to_string(), "4 KiB");
        assert_eq!(Size((1 << 30) + (1 << 28)).to_string(), "1.25 GiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(latency(64_000), "64 us");
        assert_eq!(latency(4_100_000), "4.1 ms");
    }
}
