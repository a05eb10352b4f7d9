//! The geometry of a NAND device: blocks, pages, over-provisioning, and whether such a device is
//! possible.

use serde::{Deserialize, Serialize};

/// Most pages of a device: page numbers are 32 bits wide, and one value means none.
const PAGES_MAX: u64 = 1 << 31;
/// Fewest and most pages of a block.
const PAGES_PER_BLOCK: std::ops::RangeInclusive<u32> = 2..=4096;

/// How host writes and the cleaner's copies share the blocks that are being filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frontiers {
    /// One block is filled by both.
    #[default]
    Shared,
    /// Each fills its own block, which separates frequently written pages from others.
    Separate,
}

/// The sizes of a NAND device, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks for data. The cleaner's destination is one more, so cleaning takes none of these.
    pub blocks: u32,
    /// Pages of a block: the unit of erasing.
    pub pages_per_block: u32,
    /// Pages that the host can address.
    pub logical_pages: u32,
    /// Erased blocks kept beyond the cleaner's.
    pub reserve: u32,
    /// Who fills which block.
    pub frontiers: Frontiers,
}

/// Why a device is impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// A block is too small or too large.
    #[error("{0} pages a block: it must lie between 2 and 4096")]
    PagesPerBlock(u32),
    /// Over-provisioning is out of its range.
    #[error("over-provisioning of {0}: it must lie above 0 and be at most 10 (1000 %)")]
    OverProvisioning(f64),
    /// More pages than can be numbered, or none.
    #[error("{blocks} blocks of {pages_per_block} pages: it must be 1 to 2^31 pages in all")]
    Size {
        /// Blocks.
        blocks: u64,
        /// Pages of each.
        pages_per_block: u32,
    },
    /// Too little over-provisioning to clean.
    #[error(
        "{blocks} blocks with over-provisioning leave {spare} blocks to clean with: it must be at \
         least {needed}: more blocks, or more over-provisioning"
    )]
    Spare {
        /// Blocks.
        blocks: u32,
        /// Whole blocks beyond the addressable pages.
        spare: u32,
        /// How many there must be.
        needed: u32,
    },
    /// A setting is out of its range.
    #[error("{name} is {value}: {must}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
}

impl Geometry {
    /// A device of this many blocks of which the host addresses `1 / (1 + over_provisioning)`.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn of_blocks(
        blocks: u32,
        pages_per_block: u32,
        over_provisioning: f64,
    ) -> Result<Self, GeometryError> {
        check_over_provisioning(over_provisioning)?;
        let physical = f64::from(blocks) * f64::from(pages_per_block);
        let geometry = Self {
            blocks,
            pages_per_block,
            logical_pages: (physical / (1.0 + over_provisioning)).min(f64::from(u32::MAX)) as u32,
            reserve: 0,
            frontiers: Frontiers::Shared,
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// A device with `pages` addressable pages.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn of_pages(
        pages: u32,
        pages_per_block: u32,
        over_provisioning: f64,
    ) -> Result<Self, GeometryError> {
        check_over_provisioning(over_provisioning)?;
        let physical = f64::from(pages) * (1.0 + over_provisioning);
        let blocks = (physical / f64::from(pages_per_block.max(1))).ceil() as u64;
        let spare_min = u64::from(pages.div_ceil(pages_per_block.max(1)) + 4);
        let blocks = blocks.max(spare_min);
        let geometry = Self {
            blocks: u32::try_from(blocks).map_err(|_| GeometryError::Size {
                blocks,
                pages_per_block,
            })?,
            pages_per_block,
            logical_pages: pages,
            reserve: 0,
            frontiers: Frontiers::Shared,
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Checks that the host can keep writing every logical page: cleaning always gains a block.
    ///
    /// # Errors
    /// The first value that is impossible.
    pub fn check(&self) -> Result<(), GeometryError> {
        if !PAGES_PER_BLOCK.contains(&self.pages_per_block) {
            return Err(GeometryError::PagesPerBlock(self.pages_per_block));
        }
        let physical = u64::from(self.blocks) * u64::from(self.pages_per_block);
        if physical == 0 || physical > PAGES_MAX || self.logical_pages == 0 {
            return Err(GeometryError::Size {
                blocks: self.blocks.into(),
                pages_per_block: self.pages_per_block,
            });
        }
        let occupied = self.logical_pages.div_ceil(self.pages_per_block);
        let spare = self.blocks.saturating_sub(occupied);
        // Open blocks are never cleaned, so their garbage does not help.
        let needed = self.reserve
            + match self.frontiers {
                Frontiers::Shared => 1,
                Frontiers::Separate => 2,
            };
        if spare < needed {
            return Err(GeometryError::Spare {
                blocks: self.blocks,
                spare,
                needed,
            });
        }
        Ok(())
    }

    /// All blocks: those for data, and the cleaner's.
    #[must_use]
    pub fn blocks_all(&self) -> u32 {
        self.blocks + 1
    }
}

fn check_over_provisioning(share: f64) -> Result<(), GeometryError> {
    if share > 0.0 && share <= 10.0 {
        Ok(())
    } else {
        Err(GeometryError::OverProvisioning(share))
    }
}
