//! A device by name: the model, what it is made of, and the scheduler in front of it.

use crate::device::nand::{GeometryError, NandOptions};
use crate::device::{DeviceModel, ModelKind, ModelOptions};
use crate::scheduler::{BlockQueue, SchedulerKind};

/// What kind of device a simulation runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The model.
    pub model: ModelKind,
    /// In front of it.
    pub scheduler: SchedulerKind,
    /// What `nand` and `raw-nand` are made of.
    pub nand: NandOptions,
}

impl Device {
    /// A model as it comes, behind `noop`.
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
