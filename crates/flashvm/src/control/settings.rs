//! What was asked for on the command line, as every process of a run reads it.
//!
//! The supervisor writes it once, as JSON, into the control region. Names stay text here: the
//! engine's own registries decide what they mean.

use super::Error;
use super::layout::Geometry;
use crate::space::Delivery;
use flashvm_core::policy::PolicyError;
use flashvm_core::settings::PAGES_MAX;
use flashvm_core::{Discard, EngineConfig, Nanos, PAGE_SIZE, Preset, Settings, UnknownName};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The settings of a run. What is `None` is as the preset has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// Budget of the process tree in bytes.
    pub ram_bytes: u64,
    /// Bytes of the store that may be used.
    pub flash_bytes: u64,
    /// Name of the preset.
    pub preset: String,
    /// Name of the replacement policy.
    pub policy: Option<String>,
    /// Name of the prefetcher.
    pub prefetcher: Option<String>,
    /// Pages read ahead with a contiguous run.
    pub readahead: Option<u32>,
    /// Pages read ahead by stride.
    pub stride: Option<u32>,
    /// Pages cleaned in one batch.
    pub preclean: Option<u32>,
    /// Bytes of a cluster.
    pub cluster_bytes: Option<u64>,
    /// Bytes of an erase block.
    pub erase_block_bytes: Option<u64>,
    /// Whether pages of zeros are kept off the flash.
    pub zero_sharing: Option<bool>,
    /// Page sampling: `off`, `uniform:N` or `adaptive:N`.
    pub sampling: Option<String>,
    /// Discard strategy.
    pub discard: Option<String>,
    /// How long allocator and cleaner wait under congestion, in microseconds.
    pub congestion_timeout_us: Option<u64>,
    /// How faults are delivered: `inline` or `handler`.
    pub fault: String,
    /// Most bytes that may be written in any 24 hours.
    pub write_limit_bytes: Option<u64>,
    /// The device model that the store behaves like.
    pub device_model: Option<ModelSettings>,
    /// The heap of small pages, if it was asked for.
    pub chameleon: Option<ChameleonSettings>,
    /// Faults to make in the store, for tests.
    pub inject: Option<Inject>,
    /// Where to record the engine's events, for tests; the process id is appended.
    pub record: Option<PathBuf>,
    /// The file to which every process appends what it sees ([`super::reference_trace`]).
    pub trace: Option<PathBuf>,
    /// Do as on a kernel without `UFFDIO_MOVE`, for tests.
    pub no_move: bool,
    /// Do without io_uring: where it is blocked, on a device model, and for tests.
    pub no_uring: bool,
    /// Check all invariants again and again: slow, for tests.
    pub check: bool,
}

/// What the processes of a run need to know of its device model, which the supervisor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// Whether it is to be told of every slot that is freed: unmanaged flash (FlashVM, 4.4).
    pub hears_of_frees: bool,
}

/// How the heap of small pages is (`--granularity 512`), and the paper's peers as modes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChameleonSettings {
    /// Bytes of its smallest pages: 512, or 4096 for the paper's Log-Swap.
    pub smallest: u32,
    /// Bytes that are added to every request.
    pub padding: u32,
    /// Most mappings that overlays may take, if fewer than the kernel allows.
    pub overlays: Option<u32>,
    /// The share of RAM, in percent, that is SSDAlloc's page buffer: the program reaches pages in it alone,
    /// each takes a frame, the rest is a cache of objects behind faults.
    pub page_buffer: Option<u32>,
    /// Changed pages go to a log; else to where they were.
    pub log_structuring: bool,
    /// New pages come from the page pager when overlays have used up their mappings.
    pub spill: bool,
}

/// Faults that the store makes of itself, in parts per million of all pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Inject {
    /// Pages whose read fails.
    pub read_error_ppm: u32,
    /// Pages whose write fails.
    pub write_error_ppm: u32,
    /// Pages that are read back with one bit changed.
    pub flip_ppm: u32,
    /// Seed of the choice.
    pub seed: u64,
}

impl RunSettings {
    /// The settings of the engine: the preset with what was changed on the command line.
    ///
    /// # Errors
    /// One line that names the value which cannot be used, and what could.
    pub fn engine_settings(&self) -> Result<Settings, String> {
        let text = |e: UnknownName| e.to_string();
        let mut settings = self.preset.parse::<Preset>().map_err(text)?.settings();
        if let Some(policy) = &self.policy {
            settings.policy = policy.parse().map_err(|e: PolicyError| e.to_string())?;
        }
        if let Some(prefetcher) = &self.prefetcher {
            settings.prefetcher = prefetcher.parse().map_err(text)?;
        }
        settings.readahead = self.readahead.unwrap_or(settings.readahead);
        settings.stride = self.stride.unwrap_or(settings.stride);
        settings.preclean = self.preclean.unwrap_or(settings.preclean);
        settings.zero_sharing = self.zero_sharing.unwrap_or(settings.zero_sharing);
        if let Some(sampling) = &self.sampling {
            settings.sampling = sampling.parse().map_err(text)?;
        }
        if let Some(discard) = &self.discard {
            settings.discard = discard.parse::<Discard>().map_err(|e| e.to_string())?;
        }
        if let Some(bytes) = self.cluster_bytes {
            settings.cluster_pages = pages("a cluster", bytes)?;
        }
        if let Some(bytes) = self.erase_block_bytes {
            settings.erase_block_pages = pages("an erase block", bytes)?;
        }
        if let Some(timeout_us) = self.congestion_timeout_us {
            let timeout = Nanos(timeout_us.saturating_mul(1000));
            settings.congestion_allocator = timeout;
            settings.congestion_cleaner = timeout;
        }
        let config = EngineConfig {
            pages: PAGES_MAX,
            slots: pages("the flash store", self.flash_bytes)?,
            frames: pages("the budget", self.ram_bytes)?,
            shadow: true,
            settings,
        };
        config.check().map_err(|e| e.to_string())?;
        Ok(config.settings)
    }

    /// How faults are delivered.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        if self.fault == "inline" {
            Delivery::Inline
        } else {
            Delivery::Handler
        }
    }

    /// Sizes of the control region for these settings.
    pub(super) fn geometry(&self) -> Result<Geometry, Error> {
        let settings = self.engine_settings().map_err(Error::Settings)?;
        let slots = pages("the flash store", self.flash_bytes).map_err(Error::Settings)?;
        let frames = pages("the budget", self.ram_bytes).map_err(Error::Settings)?;
        Geometry::new(
            frames,
            settings.cluster_pages,
            slots / settings.cluster_pages,
        )
        .ok_or_else(|| Error::Settings(format!("a store of {slots} pages is too large")))
    }
}

/// Whole pages in `bytes`, at most as many as an engine can manage.
fn pages(what: &str, bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes / PAGE_SIZE as u64)
        .ok()
        .filter(|pages| *pages <= PAGES_MAX)
        .ok_or_else(|| format!("{what} of {bytes} bytes is too large: at most 4T can be managed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> RunSettings {
        RunSettings {
            ram_bytes: 64 << 20,
            flash_bytes: 1 << 30,
            preset: "flashvm".to_owned(),
            ..RunSettings::default()
        }
    }

    #[test]
    fn the_preset_decides_what_was_not_asked_for() {
        assert_eq!(settings().engine_settings(), Ok(Preset::Flashvm.settings()));
        let asked = RunSettings {
            policy: Some("fifo".to_owned()),
            cluster_bytes: Some(64 << 10),
            congestion_timeout_us: Some(500),
            ..settings()
        };
        let engine = asked.engine_settings().unwrap();
        assert_eq!(engine.policy.to_string(), "fifo");
        assert_eq!(engine.cluster_pages, 16);
        assert_eq!(engine.congestion_cleaner, Nanos(500_000));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (bad, named) in [
            (
                RunSettings {
                    preset: "fast".to_owned(),
                    ..settings()
                },
                "'fast'",
            ),
            (
                RunSettings {
                    policy: Some("lru2".to_owned()),
                    ..settings()
                },
                "'lru2'",
            ),
            (
                RunSettings {
                    preclean: Some(0),
                    ..settings()
                },
                "preclean",
            ),
            (
                RunSettings {
                    cluster_bytes: Some(12 << 10),
                    ..settings()
                },
                "power of two",
            ),
            (
                RunSettings {
                    flash_bytes: 1 << 50,
                    ..settings()
                },
                "too large",
            ),
            (
                RunSettings {
                    flash_bytes: 4096,
                    ..settings()
                },
                "cluster",
            ),
        ] {
            let line = bad.engine_settings().unwrap_err();
            assert!(line.contains(named) && !line.contains('\n'), "{line}");
        }
    }
}
