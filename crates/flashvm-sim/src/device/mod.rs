//! Models of storage devices: when a request issued now will end, and what it does to the device.
//!
//! A model is one file and one line in `registry`; command line, conformance tests and evaluation
//! walk that list. A model holds no data. A [`crate::scheduler::BlockQueue`] or [`InOrder`] in
//! front of it enforces the model's depth, and the barrier of a discard on ATA devices.
//! Addresses are pages of 4 KiB.

mod block_nand;
mod disk;
mod drive;
mod ibm_ssd;
mod in_order;
mod intel_x25m;
pub mod nand;
mod nvme;
mod ocz_vertex;
mod registry;
mod slc_nand;

pub use in_order::InOrder;
pub use registry::{ModelInfo, ModelKind, ModelOptions, UnknownModel};

use flashvm_core::Nanos;
use flashvm_core::policy::Costs;
use serde::Serialize;

/// Pages of the erase block of FlashVM's devices: 128 KiB (5.3.1).
pub const ERASE_BLOCK_PAGES: u32 = 32;

/// Contiguous pages of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First page.
    pub first: u32,
    /// Pages; at least one.
    pub count: u32,
}

impl Range {
    /// The page after the last one.
    #[must_use]
    pub fn end(self) -> u32 {
        self.first + self.count
    }
}

/// A request to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read a range.
    Read(Range),
    /// Write a range.
    Write(Range),
    /// One command that discards ranges.
    Discard(Vec<Range>),
}

impl Request {
    /// The first page.
    #[must_use]
    pub fn first(&self) -> u32 {
        match self {
            Self::Read(range) | Self::Write(range) => range.first,
            Self::Discard(ranges) => ranges.first().map_or(0, |range| range.first),
        }
    }

    /// Pages of all ranges.
    #[must_use]
    pub fn pages(&self) -> u32 {
        match self {
            Self::Read(range) | Self::Write(range) => range.count,
            Self::Discard(ranges) => ranges.iter().map(|range| range.count).sum(),
        }
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Time of the end.
    pub end: Nanos,
    /// `false`: the request failed (the device is worn out, or does not support discards).
    pub done: bool,
}

impl Completion {
    /// A request at `now` that the device does not take, which costs no time.
    fn refused(now: Nanos) -> Self {
        Self {
            end: now,
            done: false,
        }
    }
}

/// The device's support for discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discards {
    /// None.
    Refused,
    /// Untagged: nothing else is in flight during a discard (ATA; FlashVM, 4.3.1).
    Barrier,
    /// Executed beside other requests.
    Queued,
}

/// The wear of a device. Pages count from its creation, erases also from the aging before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wear {
    /// Pages written by the host.
    pub host_writes: u64,
    /// Pages copied by the device.
    pub copies: u64,
    /// Pages written for the persistent map.
    pub map_writes: u64,
    /// Fewest erases of a block.
    pub erase_min: u32,
    /// Mean of the erases of all blocks.
    pub erase_mean: f64,
    /// Most erases of a block.
    pub erase_max: u32,
    /// Erased blocks.
    pub free_blocks: u32,
    /// Blocks taken out of use.
    pub bad_blocks: u32,
}

impl Wear {
    /// Pages programmed with data for each page that the host wrote; 1 if it wrote none.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.host_writes == 0 {
            return 1.0;
        }
        (self.host_writes + self.copies) as f64 / self.host_writes as f64
    }
}

/// A device.
pub trait DeviceModel: Send {
    /// Pages that the host can address.
    fn pages(&self) -> u32;

    /// Requests that may be in flight at once.
    fn depth(&self) -> usize;

    /// Its support for discards.
    fn discards(&self) -> Discards;

    /// Takes a request at `now`, no earlier than the previous one; returns when it will end. Ranges
    /// are within [`Self::pages`].
    fn issue(&mut self, now: Nanos, request: &Request) -> Completion;

    /// Its wear, if known.
    fn wear(&self) -> Option<Wear> {
        None
    }

    /// Whether the host reports every page that it frees, at no cost: unmanaged flash.
    fn hears_of_frees(&self) -> bool {
        false
    }

    /// The host has freed a page; for devices that [hear of frees](Self::hears_of_frees).
    fn freed(&mut self, page: u32) {
        let _ = page;
    }
}

/// The cost of one page on a fresh device: the mean over pages scattered over it, one at a time.
#[must_use]
pub fn page_costs(model: &mut dyn DeviceModel) -> Costs {
    const PROBES: u32 = 64;
    let pages = model.pages();
    let mut now = Nanos(0);
    let mut mean = |write: bool| {
        let begin = now;
        for probe in 0..PROBES.min(pages) {
            // A long stride, so that no probe continues the previous one.
            let first = (u64::from(probe) * 0x9E37_79B1 % u64::from(pages)) as u32;
            let range = Range { first, count: 1 };
            let request = match write {
                true => Request::Write(range),
                false => Request::Read(range),
            };
            now = model.issue(now, &request).end;
        }
        Nanos(now.since(begin).0 / u64::from(PROBES.min(pages).max(1)))
    };
    // Writes first: flash reads pages that were never written in no time.
    let write = mean(true);
    let read = mean(false);
    Costs { read, write }
}

/// The cost of a discard command (FlashVM, 4.3.1): c_o + m x max(0, blocks - B_o) x the share of the
/// command's pages that had contents. Blocks are erase blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardCost {
    /// c_o, for every command.
    pub fixed: Nanos,
    /// B_o, in pages.
    pub knee_pages: u32,
    /// m, for each erase block beyond the knee.
    pub per_block: Nanos,
}

impl DiscardCost {
    /// The OCZ-Vertex as measured in Figure 4: 55 ms for 4 KiB, 417 ms for 1 GiB, flat up to a knee
    /// between 10 and 100 MB. The model's knee is near the geometric mean of those two.
    pub const OCZ_VERTEX: Self = Self {
        fixed: Nanos(55_000_000),
        knee_pages: (32 << 20) / 4096,
        per_block: Nanos(362_000_000 / ((1 << 30) / (128 << 10) - (32 << 20) / (128 << 10))),
    };

    /// The cost of a command over `pages` pages of which `held` had contents.
    #[must_use]
    pub fn of(&self, pages: u32, held: u32) -> Nanos {
        let beyond = u64::from(pages.saturating_sub(self.knee_pages));
        if beyond == 0 {
            return self.fixed;
        }
        let used = f64::from(held) / f64::from(pages);
        let blocks = beyond as f64 / f64::from(ERASE_BLOCK_PAGES);
        let marginal = self.per_block.0 as f64 * used * blocks;
        self.fixed.plus(Nanos(marginal as u64))
    }
}
