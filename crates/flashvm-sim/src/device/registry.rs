//! The registry of device models: name, constructor and one line of help each. The command line,
//! the documentation and the conformance tests walk it.

use super::nand::{GeometryError, Nand, NandOptions};
use super::{DeviceModel, block_nand, disk, ibm_ssd, intel_x25m, nvme, ocz_vertex, slc_nand};
use flashvm_core::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A device model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// A disk.
    #[serde(rename = "seagate-7200")]
    Seagate7200,
    /// A first-generation SSD.
    IbmSsd,
    /// A second-generation SSD with discards.
    OczVertex,
    /// A second-generation SSD.
    #[serde(rename = "intel-x25m")]
    IntelX25m,
    /// Flash behind a translation layer.
    Nand,
    /// Flash that the host maps.
    RawNand,
    /// An NVMe drive of today.
    Nvme,
    /// Bare flash, one operation at a time.
    SlcNand,
    /// Bare flash behind a translation layer that maps whole blocks.
    BlockNand,
}

/// The options of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOptions {
    /// Addressable pages.
    pub pages: u32,
    /// Random seed.
    pub seed: u64,
    /// The chips of `nand` and `raw-nand`; of `block-nand` the open blocks.
    pub nand: NandOptions,
    /// Time that the paper's SSDs take between a read and a write; `None`: what fits Figure 5(a).
    pub turnaround: Option<Nanos>,
}

impl ModelOptions {
    /// A device of this many pages, with default options.
    #[must_use]
    pub fn of_pages(pages: u32) -> Self {
        Self {
            pages,
            ..Self::default()
        }
    }
}

type Build = fn(&ModelOptions) -> Result<Box<dyn DeviceModel>, GeometryError>;

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct ModelInfo {
    /// The model.
    pub kind: ModelKind,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    build: Build,
}

impl ModelKind {
    /// All models.
    pub const ALL: &[ModelInfo] = &[
        ModelInfo {
            kind: Self::Seagate7200,
            name: "seagate-7200",
            help: "disk of 7200 turns a minute: seeks of 1 to 6 ms, 80 MB/s (FlashVM, Table 2)",
            build: |options| Ok(Box::new(disk::Disk::new(options.pages))),
        },
        ModelInfo {
            kind: Self::IbmSsd,
            name: "ibm-ssd",
            help: "first-generation SSD: 7 k random reads but 66 random writes a second (Table 2)",
            build: |options| Ok(Box::new(ibm_ssd::build(options))),
        },
        ModelInfo {
            kind: Self::OczVertex,
            name: "ocz-vertex",
            help: "second-generation SSD with discards of 55 ms and more (Table 2, Figure 4)",
            build: |options| Ok(Box::new(ocz_vertex::build(options))),
        },
        ModelInfo {
            kind: Self::IntelX25m,
            name: "intel-x25m",
            help: "second-generation SSD: 35 k random reads a second (Table 2)",
            build: |options| Ok(Box::new(intel_x25m::build(options))),
        },
        ModelInfo {
            kind: Self::Nand,
            name: "nand",
            help: "flash chips behind a translation layer: cleaning, wear, discards (4.2, 4.3)",
            build: |options| {
                let nand = Nand::managed(options.pages, &options.nand, options.seed)?;
                Ok(Box::new(nand))
            },
        },
        ModelInfo {
            kind: Self::RawNand,
            name: "raw-nand",
            help: "the same chips, mapped and cleaned by the swap map itself (4.4)",
            build: |options| {
                let nand = Nand::raw(options.pages, &options.nand, options.seed)?;
                Ok(Box::new(nand))
            },
        },
        ModelInfo {
            kind: Self::Nvme,
            name: "nvme",
            help: "NVMe drive of today: 69 us, 112 k reads a second, 1.6 GB/s",
            build: |options| Ok(Box::new(nvme::Nvme::new(options.pages))),
        },
        ModelInfo {
            kind: Self::SlcNand,
            name: "slc-nand",
            help: "bare SLC flash: 50 us to read, 400 us to write 4 KiB (CRAW, Table 1)",
            build: |options| Ok(Box::new(slc_nand::SlcNand::new(options.pages))),
        },
        ModelInfo {
            kind: Self::BlockNand,
            name: "block-nand",
            help: "the same flash mapped by blocks: a write out of order copies and erases its block",
            build: |options| {
                let open_blocks = options.nand.open_blocks;
                Ok(Box::new(block_nand::BlockNand::new(
                    options.pages,
                    open_blocks,
                )))
            },
        },
    ];

    /// Its line in the registry.
    ///
    /// # Panics
    /// If a model is missing from the list: a bug.
    #[must_use]
    pub fn info(self) -> &'static ModelInfo {
        let info = Self::ALL.iter().find(|info| info.kind == self);
        info.expect("every model is in the list")
    }

    /// A fresh device.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn build(self, options: &ModelOptions) -> Result<Box<dyn DeviceModel>, GeometryError> {
        (self.info().build)(options)
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// An unknown model name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device model '{name}': known are {known}")]
pub struct UnknownModel {
    name: String,
    known: String,
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let found = Self::ALL.iter().find(|info| info.name == name);
        found.map(|info| info.kind).ok_or_else(|| UnknownModel {
            name: name.to_owned(),
            known: Vec::from_iter(Self::ALL.iter().map(|info| info.name)).join(", "),
        })
    }
}
