//! The settings of a run, as every process of the run reads them.
//!
//! The supervisor checks them, resolves names of presets, policies and modes to numbers and enums,
//! and writes them once, as JSON, into the control region.

use super::Error;
use super::decisions::DecisionLevel;
use super::layout::RegionSizes;
use super::place::StorePlace;
use crate::space::Delivery;
use flashvm_core::settings::PAGES_MAX;
use flashvm_core::{EngineConfig, PAGE_SIZE, Preset, Settings};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// Budget of the process tree in bytes.
    pub ram_bytes: u64,
    /// Bytes of the store that may be used.
    pub flash_bytes: u64,
    /// Where the store is.
    pub store: StorePlace,
    /// The preset that `engine` began with.
    pub preset: Preset,
    /// Settings of the engine: the preset with the command line's changes.
    pub engine: Settings,
    /// How faults are delivered.
    pub delivery: Delivery,
    /// Which of the program's memory is managed.
    pub select: Select,
    /// Where the program's objects come from.
    pub malloc: Malloc,
    /// Where the program gets huge pages.
    pub huge_pages: HugePages,
    /// Most bytes that may be written in any 24 hours.
    pub write_limit_bytes: Option<u64>,
    /// The device model that the store imitates.
    pub device_model: Option<ModelSettings>,
    /// The heap of small pages, if requested.
    pub chameleon: Option<ChameleonSettings>,
    /// Encrypt pages on flash.
    pub encrypt: bool,
    /// Faults to inject into the store, for tests.
    pub inject: Option<Inject>,
    /// File prefix for recording the engine's events, for tests; the process id is appended.
    pub record: Option<PathBuf>,
    /// The file to which every process appends its observations ([`super::reference_trace`]).
    pub trace: Option<PathBuf>,
    /// The order of pages that one process of the run follows.
    pub follow: Option<Followed>,
    /// Keep the journal of a report.
    pub report: bool,
    /// Which of its decisions the pager keeps for the summary.
    pub decisions: DecisionLevel,
    /// Behave as on a kernel without `UFFDIO_MOVE`, for tests.
    pub no_move: bool,
    /// Behave as on a kernel without guard regions in shared memory, for tests.
    pub no_markers: bool,
    /// Use no io_uring: where it is blocked, with a device model, and for tests.
    pub no_uring: bool,
    /// Check all invariants periodically: slow, for tests.
    pub check: bool,
}

/// Most pages of an order that is followed (`--prefetch-pages`): 12 MiB of the pager's memory.
pub const FOLLOWED_MAX: usize = 1 << 20;

/// An order in which an earlier run waited for pages. The first process of its program follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Followed {
    /// A file of pages, as numbers of 32 bits in the machine's order of bytes.
    pub path: PathBuf,
    /// The program's name, as it is called.
    pub program: String,
}

/// Which memory of a program is managed (`--select`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Select {
    /// All that it asks for, but small mappings, stacks and what other processes share.
    #[default]
    All,
    /// What it asks this library for (`flashvm_map`); all else is the kernel's, outside of the budget.
    Api,
}

/// Where the program's objects come from (`--malloc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Malloc {
    /// The `malloc` that the program has without us; the guard sees its `brk` and `mmap`.
    Own,
    /// mimalloc, over managed arenas.
    #[default]
    Mimalloc,
}

/// Where the program gets huge pages (`--huge-pages`), as far as they fit: the kernel's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// In every mapping, unless the program advises against them.
    Always,
    /// Where the program asks for them.
    Madvise,
    /// Nowhere.
    #[default]
    Never,
}

/// What the processes of a run need to know of its device model, which runs in the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// Whether the device needs to hear of every freed slot: unmanaged flash (FlashVM, 4.4).
    pub hears_of_frees: bool,
}

/// The heap of small pages (`--granularity 512`), with the paper's peers as modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChameleonSettings {
    /// Bytes of its smallest pages: 512, or 4096 for the paper's Log-Swap.
    pub smallest: u32,
    /// Bytes added to every request.
    pub padding: u32,
    /// Bound on the mappings of overlays, if lower than the kernel's bound.
    pub overlays: Option<u32>,
    /// SSDAlloc's page buffer, in percent of RAM. The program accesses only pages in the buffer
    /// without a fault, and each takes a frame; the rest of RAM caches objects, behind faults.
    pub page_buffer: Option<u32>,
    /// Write changed pages to a log; otherwise write them in place.
    pub log_structuring: bool,
    /// Allocate new pages from the page pager once overlays have used up their mappings.
    pub spill: bool,
}

/// Faults injected into the store, in parts per million of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Inject {
    /// Reads that fail.
    pub read_error_ppm: u32,
    /// Writes that fail.
    pub write_error_ppm: u32,
    /// Reads that come back with one bit flipped in each 512 bytes.
    pub flip_ppm: u32,
    /// Seed of the injection.
    pub seed: u64,
}

impl RunSettings {
    /// Default settings except for sizes, engine and delivery of faults.
    #[must_use]
    pub fn new(ram_bytes: u64, flash_bytes: u64, engine: Settings, delivery: Delivery) -> Self {
        Self {
            ram_bytes,
            flash_bytes,
            store: StorePlace::Here,
            preset: Preset::default(),
            engine,
            delivery,
            select: Select::default(),
            malloc: Malloc::default(),
            huge_pages: HugePages::default(),
            write_limit_bytes: None,
            device_model: None,
            chameleon: None,
            encrypt: false,
            inject: None,
            record: None,
            trace: None,
            follow: None,
            report: false,
            decisions: DecisionLevel::default(),
            no_move: false,
            no_markers: false,
            no_uring: false,
            check: false,
        }
    }

    /// Checks that an engine, a budget and a store can be created with these settings.
    ///
    /// # Errors
    /// One line that names the invalid value and the valid ones.
    pub fn check(&self) -> Result<(), String> {
        let config = EngineConfig {
            pages: PAGES_MAX,
            slots: pages("the flash store", self.flash_bytes)?,
            frames: pages("the budget", self.ram_bytes)?,
            shadow: true,
            protects: true,
            copies_back: false,
            settings: self.engine.clone(),
        };
        config.check().map_err(|e| e.to_string())
    }

    /// Sizes of the control region for these settings.
    pub(super) fn sizes(&self) -> Result<RegionSizes, Error> {
        self.check().map_err(Error::Settings)?;
        let slots = pages("the flash store", self.flash_bytes).map_err(Error::Settings)?;
        let frames = pages("the budget", self.ram_bytes).map_err(Error::Settings)?;
        let cluster = self.engine.cluster_pages;
        RegionSizes::new(frames, cluster, slots / cluster)
            .ok_or_else(|| Error::Settings(format!("a store of {slots} pages is too large")))
    }
}

/// Whole pages in `bytes`; an error if an engine cannot manage that many.
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
        let engine = Preset::Flashvm.settings();
        RunSettings::new(64 << 20, 1 << 30, engine, Delivery::Inline)
    }

    /// Makes a setting invalid.
    type Change = fn(&mut RunSettings);

    #[test]
    fn errors_name_the_invalid_value() {
        assert_eq!(settings().check(), Ok(()));
        let bad: [(Change, &str); 5] = [
            (|s| s.engine.preclean = 0, "preclean"),
            (|s| s.engine.cluster_pages = 3, "power of two"),
            (|s| s.flash_bytes = 1 << 50, "too large"),
            (|s| s.ram_bytes = 1 << 50, "too large"),
            (|s| s.flash_bytes = 4096, "cluster"),
        ];
        for (change, named) in bad {
            let mut settings = settings();
            change(&mut settings);
            let line = settings.check().unwrap_err();
            assert!(line.contains(named) && !line.contains('\n'), "{line}");
        }
    }
}
