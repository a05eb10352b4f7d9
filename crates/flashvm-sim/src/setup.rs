//! A device by name: its model, options and scheduler.

use crate::device::nand::{GeometryError, NandOptions};
use crate::device::{DeviceModel, ModelKind, ModelOptions};
use crate::scheduler::{BlockQueue, DeadlineTuning, IDLE, SchedulerKind};
use flashvm_core::Nanos;

/// The device of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The model.
    pub model: ModelKind,
    /// The scheduler in front of it.
    pub scheduler: SchedulerKind,
    /// How long the scheduler leaves the device idle for a process's next request, if it does so at all.
    pub idle: Nanos,
    /// What can be tuned in the deadline scheduler.
    pub deadline: DeadlineTuning,
    /// Most requests in flight; `None`: as many as the device takes.
    pub depth: Option<usize>,
    /// Time that the paper's SSDs take between a read and a write; `None`: what fits Figure 5(a).
    pub turnaround: Option<Nanos>,
    /// The chips of `nand` and `raw-nand`; of `block-nand` the open blocks.
    pub nand: NandOptions,
}

impl Device {
    /// A model with default options, behind `noop`.
    #[must_use]
    pub fn new(model: ModelKind) -> Self {
        Self {
            model,
            scheduler: SchedulerKind::Noop,
            idle: IDLE,
            deadline: DeadlineTuning::default(),
            depth: None,
            turnaround: None,
            nand: NandOptions::default(),
        }
    }

    /// A fresh device of `pages` pages, behind its scheduler.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn build(&self, pages: u32, seed: u64) -> Result<BlockQueue, GeometryError> {
        let scheduler = self.scheduler.build(self.idle, self.deadline);
        Ok(BlockQueue::new(
            self.bare(pages, seed)?,
            scheduler,
            self.depth,
        ))
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
            turnaround: self.turnaround,
        })
    }
}

impl Default for Device {
    fn default() -> Self {
        Self::new(ModelKind::Nvme)
    }
}
