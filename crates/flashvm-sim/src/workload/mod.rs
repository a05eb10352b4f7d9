//! Models of the programs of FlashVM's evaluation (5.1): the order in which they touch pages, at
//! any scale.
//!
//! The paper names the programs but not their inputs. A model has the structure of its program
//! (which data it walks, in which order, how often) and the paper's ratio of footprint to memory.
//! Shares taken from the paper are marked. A program is one file and one line in the registry.

mod imagemagick;
mod memcached;
mod specjbb;
mod spin;

use crate::replay::{Program, Step, Touch};
use flashvm_core::{Nanos, PageId};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// ImageMagick, resizing an image by 500 %.
    ImageMagick,
    /// Spin, checking a model.
    Spin,
    /// SpecJBB: 16 warehouses in a Java heap.
    SpecJbb,
    /// memcached, storing.
    MemcachedStore,
    /// memcached, looking up.
    MemcachedLookup,
}

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct WorkloadInfo {
    /// The program.
    pub kind: WorkloadKind,
    /// Its name in FlashVM's Table 4.
    pub name: &'static str,
    /// What the model does, in a line.
    pub help: &'static str,
    /// Its memory in Table 4 as DiskVM, in MB.
    pub table_4_mb: u32,
    /// Pages that the program touches, as a multiple of [`WorkloadKind::frames`].
    footprint: f64,
    build: fn(Layout) -> Program<'static>,
}

/// The pages of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The first page.
    pub(crate) base: u32,
    /// Number of pages.
    pub(crate) pages: u32,
    pub(crate) seed: u64,
}

impl WorkloadKind {
    /// All programs, in the order of Table 4.
    pub const ALL: &[WorkloadInfo] = &[
        WorkloadInfo {
            kind: Self::ImageMagick,
            name: "ImageMagick",
            help: "columns of an image into a wider one, rows of that into a larger one, one reading",
            table_4_mb: 814,
            footprint: 1.35,
            build: imagemagick::steps,
        },
        WorkloadInfo {
            kind: Self::Spin,
            name: "Spin",
            help: "a table cleared in advance, then states at random in a part of it, and a stack",
            table_4_mb: 795,
            footprint: 1.4,
            build: spin::steps,
        },
        WorkloadInfo {
            kind: Self::SpecJbb,
            name: "SpecJBB",
            help: "16 warehouses with hot and cold objects, a nursery, and now and then a collection",
            table_4_mb: 710,
            footprint: 1.3,
            build: specjbb::steps,
        },
        WorkloadInfo {
            kind: Self::MemcachedStore,
            name: "memcached-store",
            help: "items into slabs one after the other, buckets at random",
            table_4_mb: 706,
            footprint: 1.5,
            build: memcached::store,
        },
        WorkloadInfo {
            kind: Self::MemcachedLookup,
            name: "memcached-lookup",
            help: "items stored, then most of them looked up at random",
            table_4_mb: 837,
            footprint: 1.3,
            build: memcached::lookup,
        },
    ];

    /// Its line in the registry.
    ///
    /// # Panics
    /// If a program is missing from the list: a bug.
    #[must_use]
    pub fn info(self) -> &'static WorkloadInfo {
        let info = Self::ALL.iter().find(|info| info.kind == self);
        info.expect("every program is in the list")
    }

    /// Frames that correspond to the program's memory in Table 4, divided by `scale`.
    #[must_use]
    pub fn frames(self, scale: u32) -> u32 {
        self.info().table_4_mb * 256 / scale
    }

    /// Pages that the program touches at this scale.
    #[must_use]
    pub fn pages(self, scale: u32) -> u32 {
        (f64::from(self.frames(scale)) * self.info().footprint) as u32
    }

    /// The program at this scale, its pages from `base` on.
    #[must_use]
    pub fn program(self, base: u32, scale: u32, seed: u64) -> Program<'static> {
        (self.info().build)(Layout {
            base,
            pages: self.pages(scale),
            seed,
        })
    }

    /// `runs` runs of the program, one after the other; each zaps all its memory when it ends.
    #[must_use]
    pub fn runs(self, runs: u32, scale: u32) -> Program<'static> {
        let pages = self.pages(scale);
        let gone = move || {
            (0..pages).map(|page| Step {
                page: PageId(page),
                touch: Touch::Zap,
                work: Nanos(100),
            })
        };
        let run = move |seed| self.program(0, scale, u64::from(seed) + 1).chain(gone());
        Box::new((0..runs).flat_map(run))
    }
}
