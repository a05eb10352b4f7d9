//! Amounts in five characters, for the cells of the table.

/// A count or a rate: `0.2`, `12345`, `123k`, `1.2M`.
pub(super) fn count(number: f64) -> String {
    match number {
        n if n < 9.95 && n.fract() != 0.0 => format!("{n:.1}"),
        n if n < 99_999.5 => format!("{n:.0}"),
        n => scaled(n, 1000.0, &["", "k", "M", "G", "T"]),
    }
}

/// An amount of bytes: `0`, `512`, `4.0K`, `128M`, `1.5G`.
pub(super) fn bytes(number: u64) -> String {
    match number {
        0..1024 => number.to_string(),
        n => scaled(n as f64, 1024.0, &["", "K", "M", "G", "T", "P", "E"]),
    }
}

/// A latency in nanoseconds: `650ns`, `5.1us`, `240us`, `1.2ms`.
pub(super) fn latency(ns: u64) -> String {
    scaled(ns as f64, 1000.0, &["ns", "us", "ms", "s", "ks"])
}

/// At most three characters before the unit, except in the last one; below 9.95 a divided number has one decimal.
fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let decimals = usize::from(number < 9.95 && unit > 0);
    format!("{number:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_five_characters() {
        for power in 0..=48 {
            let number = 1_u64 << power;
            for number in [number, number + number / 3, 2 * number - 1] {
                for text in [count(number as f64), bytes(number), latency(number)] {
                    assert!(text.len() <= 5, "{number}: {text}");
                }
            }
        }
    }

    #[test]
    fn units() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(0.25), "0.2");
        assert_eq!(count(12345.4), "12345");
        assert_eq!(count(123_456.0), "123k");
        assert_eq!(bytes(1023), "1023");
        assert_eq!(bytes(4096), "4.0K");
        assert_eq!(bytes(128 << 20), "128M");
        assert_eq!(bytes(1023 << 20), "1.0G");
        assert_eq!(latency(650), "650ns");
        assert_eq!(latency(5120), "5.1us");
        assert_eq!(latency(1_234_567), "1.2ms");
    }
}
