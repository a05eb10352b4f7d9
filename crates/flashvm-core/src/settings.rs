//! Settings: the presets, and the engine's configuration.

use crate::discard::{Discard, DiscardKind};
use crate::ids::Nanos;
use crate::names::UnknownName;
use crate::policy::{PolicyKind, PolicySpec};
use crate::prefetch::PrefetcherKind;
use crate::sampling::{Readings, Sampling};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Most pages that can be managed: 4 TiB. Numbers of pages and slots keep a bit for flags.
pub const PAGES_MAX: u32 = (1 << 30) - 1;
/// Fewest frames an engine works with.
pub const FRAMES_MIN: u32 = 4;

/// The settings of the engine's decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Page replacement.
    pub policy: PolicySpec,
    /// Prefetching.
    pub prefetcher: PrefetcherKind,
    /// Pages read around a fault (native, flashvm), or the longest window (modern).
    pub readahead: u32,
    /// Stride pages read at a fault (flashvm).
    pub stride: u32,
    /// Pages cleaned in one batch.
    pub preclean: u32,
    /// Pages that the cleaner collects before it writes them, in batches one right after the other; fewer only when reclaim
    /// has reached its upper mark, or a fault waits. Up to `preclean`: a batch is written as soon as it is whole. Linux
    /// 2.6.28 reclaims from its lower to its upper watermark in one go, 256 pages with 1 GB of RAM, and FlashVM's runs of
    /// writes have 170 to 230 pages (5.2.1).
    #[serde(default)]
    pub write_run: u32,
    /// Slots in a cluster: a power of two, 2 to 1024 (8 KiB to 4 MiB).
    pub cluster_pages: u32,
    /// Slots in an erase block: a power of two.
    pub erase_block_pages: u32,
    /// How a store to a clean page is noticed.
    #[serde(default)]
    pub first_store: FirstStore,
    /// Whether pages of zeros are detected and not written.
    pub zero_sharing: bool,
    /// How often the search for victims skips dirty pages.
    pub sampling: Sampling,
    /// How the paper's text on sampling is read.
    #[serde(default)]
    pub sampling_readings: Readings,
    /// Which free clusters are discarded.
    pub discard: Discard,
    /// How long a fault without a frame waits for a write to end before it searches again.
    pub congestion_allocator: Nanos,
    /// With its maximum of requests in flight, the cleaner waits this long for one to end before it
    /// issues one more.
    pub congestion_cleaner: Nanos,
    /// What else ends these waits.
    #[serde(default)]
    pub congestion_wait: CongestionWait,
    /// Cleaning requests (scans and writes) in flight at which the cleaner waits.
    pub write_requests_max: u32,
    /// Frames kept free or on standby ahead of need: max(limit / reserve_share, min(reserve_min, limit / 16)).
    pub reserve_share: u32,
    /// See `reserve_share`.
    pub reserve_min: u32,
    /// Compression of pages before they go to flash.
    #[serde(default)]
    pub compress: Compression,
    /// Whether a sample of the pages is observed at each touch ([`crate::shards`]). Needs a shadow.
    #[serde(default)]
    pub shards: bool,
}

/// How a store to a clean page is noticed: `fault`, `compare` or `auto`.
///
/// Policies that tell clean pages from dirty ones ([`Policy::ignores_stores`](crate::policy::Policy::ignores_stores))
/// and address spaces without a shadow always have faults; those that cannot stop stores always compare
/// ([`EngineConfig::protects`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstStore {
    /// By a fault: a clean page is write-protected.
    #[default]
    Fault,
    /// When the page leaves, by comparing it with the checksum of its slot.
    Compare,
    /// By what costs less for the pages that have left.
    Auto,
}

impl FirstStore {
    /// All ways with their names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Fault, "fault"),
        (Self::Compare, "compare"),
        (Self::Auto, "auto"),
    ];
}

impl fmt::Display for FirstStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(way, _)| way == self);
        f.write_str(name.expect("every way has a name").1)
    }
}

impl FromStr for FirstStore {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.iter().find(|(_, n)| *n == name);
        found.map(|(way, _)| *way).ok_or_else(|| {
            let names = Self::ALL.iter().map(|(_, n)| *n);
            UnknownName::new("way to notice a first store", name, names)
        })
    }
}

/// What ends a wait besides its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CongestionWait {
    /// The end of a request: "or until a write completes" (FlashVM, 4.1.2).
    #[default]
    UntilWriteEnds,
    /// Nothing: "the system idles even when there is no congestion" (5.3.1). For experiments.
    Whole,
}

/// Whether and how pages are compressed before they go to flash: `off`, `auto`, `lz4`, `zstd` or `zstd:LEVEL`.
///
/// ```
/// use flashvm_core::Compression;
/// let compress: Compression = "zstd:3".parse()?;
/// assert_eq!(compress, Compression::Zstd(3));
/// assert_eq!(compress.to_string(), "zstd:3");
/// # Ok::<(), flashvm_core::UnknownName>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    Off,
    /// With the codec that serves most programs best: [`Compression::AUTO_CODEC`].
    Auto,
    /// With LZ4, page by page.
    Lz4,
    /// With Zstandard of this level, page by page.
    Zstd(i8),
}

/// How a page is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4.
    Lz4,
    /// Zstandard of this level.
    Zstd(i8),
}

impl Compression {
    /// The codec of [`Self::Auto`].
    pub const AUTO_CODEC: Codec = Codec::Zstd(Self::ZSTD_LEVEL);
    /// The level of `zstd`.
    pub const ZSTD_LEVEL: i8 = -1;
    /// The accepted levels of Zstandard.
    pub const ZSTD_LEVELS: RangeInclusive<i8> = -7..=19;
    /// The accepted names, for messages.
    const NAMES: [&str; 4] = [
        "off",
        "auto",
        "lz4",
        "zstd[:LEVEL] with LEVEL from -7 to 19",
    ];

    /// How pages are compressed; `None`: they are not.
    #[must_use]
    pub fn codec(self) -> Option<Codec> {
        match self {
            Self::Off => None,
            Self::Auto => Some(Self::AUTO_CODEC),
            Self::Lz4 => Some(Codec::Lz4),
            Self::Zstd(level) => Some(Codec::Zstd(level)),
        }
    }

    /// Whether pages may be compressed.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(Self::ZSTD_LEVEL) => f.write_str("zstd"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let level = |level: &str| {
            let level = level.parse().ok();
            level.filter(|level| Self::ZSTD_LEVELS.contains(level))
        };
        match name.split_once(':') {
            None if name == "off" => Some(Self::Off),
            None if name == "auto" => Some(Self::Auto),
            None if name == "lz4" => Some(Self::Lz4),
            None if name == "zstd" => Some(Self::Zstd(Self::ZSTD_LEVEL)),
            Some(("zstd", text)) => level(text).map(Self::Zstd),
            _ => None,
        }
        .ok_or_else(|| UnknownName::new("compression", name, Self::NAMES.into_iter()))
    }
}

/// A named set of settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Linux 2.6.28, as the FlashVM paper describes it.
    Native,
    /// The paper's system.
    Flashvm,
    /// The best settings for today's flash.
    #[default]
    Modern,
}

impl Preset {
    /// All presets with their names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Native, "native"),
        (Self::Flashvm, "flashvm"),
        (Self::Modern, "modern"),
    ];

    /// The settings of this preset.
    #[must_use]
    pub fn settings(self) -> Settings {
        let native = Settings {
            policy: PolicyKind::TwoList.into(),
            prefetcher: PrefetcherKind::Native,
            readahead: 8,
            stride: 0,
            preclean: 32,
            write_run: 0,
            cluster_pages: 256,
            erase_block_pages: 32,
            first_store: FirstStore::Fault,
            zero_sharing: false,
            sampling: Sampling::Off,
            sampling_readings: Readings::default(),
            discard: Discard::new(DiscardKind::Off),
            congestion_allocator: Nanos(20_000_000),
            congestion_cleaner: Nanos(100_000_000),
            congestion_wait: CongestionWait::default(),
            write_requests_max: 4,
            reserve_share: 64,
            reserve_min: 1,
            compress: Compression::Off,
            shards: false,
        };
        match self {
            Self::Native => native,
            Self::Flashvm => Settings {
                prefetcher: PrefetcherKind::Contiguous,
                stride: 2,
                cluster_pages: 32,
                zero_sharing: true,
                sampling: Sampling::Adaptive(20),
                discard: Discard::new(DiscardKind::Auto),
                congestion_allocator: Nanos(1_000_000),
                congestion_cleaner: Nanos(1_000_000),
                ..native
            },
            Self::Modern => Settings {
                policy: PolicySpec::new(PolicyKind::Tenure),
                prefetcher: PrefetcherKind::Modern,
                readahead: 256,
                stride: 2,
                preclean: 64,
                cluster_pages: 256,
                first_store: FirstStore::Auto,
                zero_sharing: true,
                congestion_allocator: Nanos(1_000_000),
                congestion_cleaner: Nanos(1_000_000),
                write_requests_max: 16,
                reserve_min: 64,
                compress: Compression::Auto,
                ..native
            },
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(preset, _)| preset == self);
        f.write_str(name.expect("every preset has a name").1)
    }
}

impl FromStr for Preset {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(preset, _)| *preset)
            .ok_or_else(|| UnknownName::new("preset", name, Self::ALL.iter().map(|(_, n)| *n)))
    }
}

/// The configuration of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Pages of the managed address range.
    pub pages: u32,
    /// Slots of the store. A partial last cluster is unused.
    pub slots: u32,
    /// Frames that may be in use.
    pub frames: u32,
    /// Whether the executor has a shadow region to move pages to (`UFFDIO_MOVE`). Without one,
    /// `Shadow` write-protects in place: reads of such pages are not reported, stores are
    /// write-protect faults.
    pub shadow: bool,
    /// Whether the executor can stop stores to a page in the region (write-protection). Without it a
    /// page counts as stored to as soon as the program may touch it ([`FirstStore::Compare`]), and a fork copies all
    /// pages instead of sharing their frames.
    pub protects: bool,
    /// Whether a soft fault copies its page back into the region, and leaves a copy in the shadow, to be dropped with
    /// others. Otherwise it moves the page. Needs a shadow.
    #[serde(default)]
    pub copies_back: bool,
    /// The settings.
    pub settings: Settings,
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of range.
    #[error("{name} is {value}: it must lie between {min} and {max}")]
    Range {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A number is not a power of two.
    #[error("{name} is {value}: it must be a power of two")]
    PowerOfTwo {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u32,
    },
    /// A policy that works on traces only.
    #[error("policy '{0}' needs to know future references: use it in flashvm sim, on traces")]
    Offline(PolicySpec),
    /// A sample of pages cannot be observed where loads of withdrawn pages do not fault.
    #[error("touches of pages cannot be observed without a shadow")]
    NoShadow,
    /// The store is smaller than one cluster.
    #[error("the store has {slots} pages: it must have at least one cluster of {cluster}")]
    StoreTooSmall {
        /// Slots of the store.
        slots: u32,
        /// Slots of a cluster.
        cluster: u32,
    },
}

impl EngineConfig {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let s = &self.settings;
        let ranges: [(&'static str, u32, u32, u32); 11] = [
            ("pages", self.pages, 1, PAGES_MAX),
            ("slots", self.slots, 1, PAGES_MAX),
            ("frames", self.frames, FRAMES_MIN, PAGES_MAX),
            ("readahead", s.readahead, 0, 1024),
            ("stride", s.stride, 0, 64),
            ("preclean", s.preclean, 1, 1024),
            ("write run", s.write_run, 0, 8192),
            ("cluster pages", s.cluster_pages, 2, 1024),
            ("write requests", s.write_requests_max, 1, 1024),
            ("reserve share", s.reserve_share, 2, 65536),
            ("least reserve", s.reserve_min, 1, 65536),
        ];
        for (name, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(ConfigError::Range {
                    name,
                    value: value.into(),
                    min: min.into(),
                    max: max.into(),
                });
            }
        }
        for (name, value) in [
            ("cluster pages", s.cluster_pages),
            ("erase block pages", s.erase_block_pages),
        ] {
            if !value.is_power_of_two() {
                return Err(ConfigError::PowerOfTwo { name, value });
            }
        }
        if s.policy.kind().is_offline() {
            return Err(ConfigError::Offline(s.policy));
        }
        if s.shards && !self.shadow {
            return Err(ConfigError::NoShadow);
        }
        if self.slots < s.cluster_pages {
            return Err(ConfigError::StoreTooSmall {
                slots: self.slots,
                cluster: s.cluster_pages,
            });
        }
        Ok(())
    }
}
