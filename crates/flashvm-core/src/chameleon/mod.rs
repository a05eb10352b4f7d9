//! Chameleon: virtual pages of 512 bytes to 4 KiB, packed into frames, over a log on flash.
//!
//! After Badam, Pai and Nellans, *Better Flash Access via Shape-shifting Virtual Memory Pages*
//! (TRIOS 2013). A *shape-shifting virtual memory page* (SVMP) is a 4 KiB page of addresses that
//! uses only one range of it, its [`Shape`]. Pages whose ranges do not overlap share a frame: only
//! used ranges take RAM, and only used ranges are read and written.
//!
//! | paper | here |
//! | --- | --- |
//! | allowed shapes (3.1, Table 2) | [`Shape`] |
//! | fine granularity free list (3.2) | [`Frames`] |
//! | fine granularity TF-Clock (3.2) | [`Clocks`] |
//! | SVMP table (3.3, 3.6) | [`Table`] |
//! | flash organization (3.3) | [`Organization`] |
//! | log, rounds, cleaning (3.3) | [`Log`], [`block`] |
//! | log structuring switched off (3.3) | [`InPlace`] |
//! | heap and fault handler (3.4, 3.5, Figure 4) | [`engine`] |
//!
//! [`Engine`] takes all decisions; its [`Host`] maps pages and moves bytes.

pub mod block;
pub mod clock;
pub mod engine;
pub mod frames;
pub mod in_place;
pub mod log;
pub mod organization;
pub mod record;
pub mod shape;
pub mod table;

pub use block::{BLOCK_BYTES, BLOCK_SECTORS, BackPointer, BlockLayout, DATA_SECTORS};
pub use clock::{Clocks, Step};
pub use engine::{
    Action, Config, Engine, Event, Failure, Host, Outcome, PageList, RUN_PAGES, Refused, Request,
    Task,
};
pub use frames::{FrameId, Frames};
pub use in_place::InPlace;
pub use log::{BlockRound, Full, Log};
pub use organization::{FlashCounters, Organization};
pub use shape::{SECTOR_BYTES, SECTORS, SIZES, Shape};
pub use table::{Check, Location, Svmp, SvmpState, Table};
