//! `--ram`: a size, a share of the memory limit, or `auto`; and what the limit says of the budget.

use crate::cli::environment::{Environment, Need};
use crate::cli::memory::{
    MemoryLimit, Read, Source, available_bytes, available_of_machine, headroom, memory_limit,
};
use crate::cli::refusal::Refusal;
use crate::cli::units::Size;
use std::fmt;
use std::str::FromStr;

/// The least budget, in bytes.
pub(super) const RAM_BYTES_MIN: u64 = 4 << 20;

/// What a run takes at the least beside its budget, in bytes: 8 MiB + budget / 32. Real programs took 9 MiB with a budget
/// of 48, 14 to 36 with one of 128, and 36 to 47 with one of 512 (docs/containers.md).
fn beside(ram_bytes: u64) -> u64 {
    (8 << 20) + ram_bytes / 32
}

/// The budget of a run, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Bytes(Size),
    /// This share of the memory limit, in percent: 1 to 100.
    Percent(u32),
    /// The memory limit less [`headroom`].
    Auto,
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(number) = text.strip_suffix('%') {
            let percent = number.parse().ok().filter(|n| (1..=100).contains(n));
            return percent.map(Self::Percent).ok_or_else(|| {
                format!("'{text}' is no share of the memory limit: write 1% to 100%")
            });
        }
        text.parse().map(Self::Bytes).map_err(|_| {
            format!(
                "'{text}' is no size: write 65536, 64K, 512M or 1.5G, a share such as 80%, or auto"
            )
        })
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl Budget {
    /// The budget in bytes.
    ///
    /// # Errors
    /// It is below the least budget or above a cgroup's limit, or there is no limit to take a share of.
    pub(crate) fn bytes(self, read: Read, place: &Environment) -> Result<u64, Refusal> {
        let limit = memory_limit(read);
        let none = || {
            Refusal::new(format!(
                "--ram {self}: neither a memory limit (/sys/fs/cgroup) nor the RAM (/proc/meminfo) can be read: name a \
                 size such as --ram 512M, or: {}",
                place.remedy(Need::Proc)
            ))
        };
        let of_limit = || limit.as_ref().ok_or_else(none);
        let bytes = match self {
            Self::Bytes(Size(bytes)) => bytes,
            Self::Percent(percent) => {
                let share = u128::from(of_limit()?.bytes) * u128::from(percent) / 100;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            Self::Auto => {
                // Without a cgroup the limit is all RAM; others use some of it.
                let free = available_of_machine(read).unwrap_or(u64::MAX);
                let bytes = of_limit()?.bytes.min(free);
                bytes - headroom(bytes)
            }
        };
        let shown = match self {
            Self::Bytes(_) => format!("--ram {self}"),
            _ => format!("--ram {self}, which is {}", Size(bytes)),
        };
        if bytes < RAM_BYTES_MIN {
            let remedy = match self {
                Self::Bytes(_) => "ask for 4M or more".to_owned(),
                _ => format!(
                    "ask for 4M or more, or raise the limit: {}",
                    place.remedy(Need::Memory)
                ),
            };
            return Err(Refusal::new(format!("{shown}: less than 4 MiB: {remedy}")));
        }
        match &limit {
            Some(limit) if limit.is_cgroup() && bytes > limit.bytes => Err(Refusal::new(format!(
                "{shown}: more than {limit}, so the kernel would end the program before the pager evicts a page: ask \
                 for --ram auto, or raise the limit: {}",
                place.remedy(Need::Memory)
            ))),
            _ => Ok(bytes),
        }
    }

    /// The budget in bytes without `--ram`: half of the available RAM; `None`: unknown.
    pub(super) fn default_bytes(read: Read) -> Option<u64> {
        available_bytes(read).map(|bytes| bytes / 2)
    }
}

/// The warning for a budget that leaves too little of its memory limit for what programs need besides, as a line.
/// `None`: it fits.
///
/// [`Budget::bytes`] has refused a budget above a cgroup's limit: the pager would never evict. A budget above the machine's
/// RAM is only warned of: there may be swap.
pub(crate) fn warning(ram_bytes: u64, read: Read, place: &Environment) -> Option<String> {
    let limit = memory_limit(read)?;
    let size = Size(ram_bytes);
    if !limit.is_cgroup() {
        return (ram_bytes > limit.bytes).then(|| {
            format!("a budget of {size} is more than {limit}: ask for less with --ram, or for --ram auto")
        });
    }
    let beside = beside(ram_bytes);
    (ram_bytes.saturating_add(beside) > limit.bytes).then(|| {
        format!(
            "a budget of {size} and the {} or more that a run takes besides are more than {limit}: the kernel may end \
             the program before the pager evicts: ask for --ram auto, or raise the limit: {}",
            Size(beside >> 20 << 20),
            place.remedy(Need::Memory)
        )
    })
}

impl MemoryLimit {
    fn is_cgroup(&self) -> bool {
        matches!(self.source, Source::Cgroup(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const MIB: u64 = 1 << 20;

    #[test]
    fn budgets_are_sizes_shares_or_auto() {
        assert_eq!("512M".parse(), Ok(Budget::Bytes(Size(512 * MIB))));
        assert_eq!("80%".parse(), Ok(Budget::Percent(80)));
        assert_eq!("100%".parse(), Ok(Budget::Percent(100)));
        assert_eq!("auto".parse(), Ok(Budget::Auto));
        for text in [
            "0%", "120%", "101%", "-5%", "1.5%", "%", "half", "Auto", "12X", "",
        ] {
            let line = text.parse::<Budget>().unwrap_err();
            assert!(line.contains(&format!("'{text}'")), "{line}");
        }
    }

    /// A machine with 4 GiB of RAM, of which `available` MiB are, and a cgroup with this limit.
    fn machine(limit: &'static str, available: u64) -> impl Fn(&Path) -> Option<String> {
        move |path| match path.to_str()? {
            "/proc/meminfo" => Some(format!(
                "MemTotal: 4194304 kB\nMemAvailable: {} kB\n",
                available << 10
            )),
            "/proc/self/cgroup" => Some("0::/a\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some(limit.to_owned()),
            _ => None,
        }
    }

    #[test]
    fn shares_and_auto_follow_the_limit() {
        const GIB: &str = "1073741824\n";
        let table = [
            (Budget::Percent(80), GIB, 4000, (1 << 30) / 5 * 4),
            (Budget::Percent(100), GIB, 4000, 1 << 30),
            (Budget::Percent(50), "max\n", 1000, 2 << 30),
            (Budget::Auto, GIB, 4000, 896 * MIB),
            // The machine has less to give than the cgroup allows.
            (Budget::Auto, GIB, 512, 448 * MIB),
            (Budget::Auto, "max\n", 2048, 1792 * MIB),
            (Budget::Auto, "67108864\n", 4000, 32 * MIB),
            (Budget::Bytes(Size(64 * MIB)), GIB, 4000, 64 * MIB),
            (Budget::Bytes(Size(8 << 30)), "max\n", 4000, 8 << 30),
        ];
        for (budget, limit, available, wanted) in table {
            let bytes = budget.bytes(&machine(limit, available), &Environment::Bare);
            // The share is rounded down.
            let bytes = bytes.unwrap_or_else(|refusal| panic!("{budget}, {limit}: {refusal}"));
            assert!(bytes.abs_diff(wanted) < 5, "{budget}, {limit}: {bytes}");
        }
    }

    #[test]
    fn a_budget_that_cannot_be_is_refused_with_the_remedy() {
        let tiny = machine("6291456\n", 4000);
        let small = machine("104857600\n", 4000);
        let nothing = |_: &Path| None;
        let table: [(Budget, Read, &[&str]); 5] = [
            (
                Budget::Auto,
                &nothing,
                &["--ram auto", "/proc/meminfo", "--ram 512M"],
            ),
            (
                Budget::Percent(5),
                &nothing,
                &["--ram 5%", "/sys/fs/cgroup"],
            ),
            (
                Budget::Auto,
                &tiny,
                &["--ram auto", "3 MiB", "docker run --memory"],
            ),
            (
                Budget::Bytes(Size(101 * MIB)),
                &small,
                &[
                    "--ram 101 MiB",
                    "100 MiB (/sys/fs/cgroup/a/memory.max)",
                    "--ram auto",
                    "docker run --memory SIZE",
                ],
            ),
            (
                Budget::Bytes(Size(MIB)),
                &small,
                &["--ram 1 MiB", "4M or more"],
            ),
        ];
        for (budget, read, named) in table {
            let refusal = budget.bytes(read, &Environment::Docker);
            let line = refusal.expect_err("it cannot be").to_string();
            assert!(named.iter().all(|part| line.contains(part)), "{line}");
        }
    }

    #[test]
    fn a_tight_limit_is_warned_of() {
        let place = Environment::Podman;
        let small = machine("104857600\n", 4000);
        assert_eq!(warning(89 * MIB, &small, &place), None);
        let line = warning(90 * MIB, &small, &place).expect("too tight");
        for part in [
            "90 MiB",
            "/sys/fs/cgroup/a/memory.max",
            "podman run --memory",
            "auto",
        ] {
            assert!(line.contains(part), "{line}");
        }
        // What auto leaves is never too little.
        for mib in [32, 64, 100, 1000, 4000] {
            let read = |path: &Path| match path.ends_with("memory.max") {
                true => Some((mib * MIB).to_string()),
                false => machine("", 4096)(path),
            };
            let auto = Budget::Auto.bytes(&read, &place).expect("a budget");
            assert_eq!(warning(auto, &read, &place), None, "{mib} MiB");
        }
        let unlimited = machine("max\n", 4000);
        assert_eq!(warning(4 << 30, &unlimited, &place), None);
        assert!(warning(5 << 30, &unlimited, &place).is_some());
    }
}
