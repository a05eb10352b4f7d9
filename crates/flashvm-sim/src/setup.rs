//! A device by name: its model, options and scheduler.

use crate::device::nand::{GeometryError, NandOptions};
use crate::device::{DeviceModel, ModelKind, ModelOptions};
use crate::scheduler::{BlockQueue, SchedulerKind};

/// The device of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The model.
    pub model: ModelKind,
    /// The scheduler in front of it.
    pub scheduler: SchedulerKind,
    /// The chips of `nand` and `raw-nand`.
    pub nand: NandOptions,
}

impl Device {
    /// A model with default options, behind `noop`.
    #[must_use]
    pub fn new(model: ModelKind) -> Self {
        Self {
            model,
            scheduler: SchedulerKind::Noop,
            nand: NandOptions::default(),
        }
    }

    /// A fresh device of `pages` pages, behind its scheduler.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn build(&self, pages: u32, seed: u64) -> Result<BlockQueue, GeometryError> {
        Ok(BlockQueue::new(self.bare(pages, seed)?, self.scheduler))
    }

    /// A fresh device of `pages` pages, without the scheduler.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn bare(&self, pages: u32, seed: u64) -> Result<Box<dyn DeviceModel>, GeometryError> {
        self.model.build(&ModelOptions {
            pages,
            seed,
            nand: self.nand.clone(),
        })
    }
}

impl Default for Device {
    fn default() -> Self {
        Self::new(ModelKind::Nvme)
    }
}
