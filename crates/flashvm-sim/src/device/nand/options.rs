//! The options of a NAND device, on the command line or in a model file.

use super::ftl::{Cleaning, FtlStrategy, Levelling};
use super::geometry::{Frontiers, Geometry, GeometryError};
use serde::{Deserialize, Serialize};

/// A NAND device. Everything has a default; a model file lists the differences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NandOptions {
    /// `(physical - logical) / logical`.
    pub over_provisioning: f64,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Who fills which block.
    pub frontiers: Frontiers,
    /// Erased blocks kept beyond the cleaner's one.
    pub reserve: u32,
    /// Which block is cleaned next.
    pub cleaning: Cleaning,
    /// How erases are spread.
    pub levelling: Levelling,
    /// Erases by which a block may lag behind (static levelling).
    pub levelling_gap: u32,
    /// Erases that a block endures.
    pub endurance: u32,
    /// Channels that work side by side.
    pub channels: u32,
    /// Requests that the device takes at once.
    pub queue_depth: u32,
    /// Reading a page from its cells, in microseconds.
    pub read_us: f64,
    /// Programming a page, in microseconds.
    pub program_us: f64,
    /// Erasing a block, in microseconds.
    pub erase_us: f64,
    /// Transferring a page over its channel, in microseconds.
    pub transfer_us: f64,
    /// Program operations that fail, in a million; the block is then taken out of use.
    pub program_failure_ppm: u32,
    /// Blocks of `block-nand` that may be half rewritten at once.
    pub open_blocks: u32,
    /// Whether the device is written full and overwritten at random before use.
    pub aged: bool,
}

impl Default for NandOptions {
    /// CRAW's times to read (25 us) and program (200 us), FlashVM's to erase (2 ms), and a channel of
    /// 133 MB/s (ONFI 2).
    fn default() -> Self {
        let strategy = FtlStrategy::default();
        Self {
            over_provisioning: 0.07,
            pages_per_block: 64,
            frontiers: Frontiers::Shared,
            reserve: 0,
            cleaning: strategy.cleaning,
            levelling: strategy.levelling,
            levelling_gap: strategy.levelling_gap,
            endurance: strategy.endurance,
            channels: 4,
            queue_depth: 32,
            read_us: 25.0,
            program_us: 200.0,
            erase_us: 2000.0,
            transfer_us: 30.8,
            program_failure_ppm: 0,
            open_blocks: 1,
            aged: false,
        }
    }
}

impl NandOptions {
    /// The geometry of a device with `pages` addressable pages.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn geometry(&self, pages: u32) -> Result<Geometry, GeometryError> {
        self.shaped(Geometry::of_pages(
            pages,
            self.pages_per_block,
            self.over_provisioning,
        )?)
    }

    /// The sizes of a device of `blocks` blocks.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn geometry_of_blocks(&self, blocks: u32) -> Result<Geometry, GeometryError> {
        self.shaped(Geometry::of_blocks(
            blocks,
            self.pages_per_block,
            self.over_provisioning,
        )?)
    }

    fn shaped(&self, geometry: Geometry) -> Result<Geometry, GeometryError> {
        self.check()?;
        let geometry = Geometry {
            reserve: self.reserve,
            frontiers: self.frontiers,
            ..geometry
        };
        geometry.check()?;
        Ok(geometry)
    }

    fn check(&self) -> Result<(), GeometryError> {
        let whole = "it must be at least 1";
        let time = "it must be a time in microseconds, 0 to 1 s";
        let at_least_one = [
            ("channels", self.channels),
            ("queue-depth", self.queue_depth),
            ("endurance", self.endurance),
            ("open-blocks", self.open_blocks),
        ];
        let times = [
            ("read-us", self.read_us),
            ("program-us", self.program_us),
            ("erase-us", self.erase_us),
            ("transfer-us", self.transfer_us),
        ];
        let bad = at_least_one
            .into_iter()
            .filter(|(_, value)| *value == 0)
            .map(|(name, value)| (name, f64::from(value), whole));
        let bad_times = times
            .into_iter()
            .filter(|(_, value)| !(0.0..=1e6).contains(value))
            .map(|(name, value)| (name, value, time));
        match bad.chain(bad_times).next() {
            Some((name, value, must)) => Err(GeometryError::Value { name, value, must }),
            None => Ok(()),
        }
    }

    /// The decisions of the translation layer.
    #[must_use]
    pub fn strategy(&self) -> FtlStrategy {
        FtlStrategy {
            cleaning: self.cleaning,
            levelling: self.levelling,
            levelling_gap: self.levelling_gap,
            endurance: self.endurance,
        }
    }
}
