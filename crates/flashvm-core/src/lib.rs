//! All decisions of FlashVM, without I/O: page states, swap map, replacement, prefetching,
//! write-back, counters.
//!
//! The engine is one state machine, [`Engine::handle`]: events go in, actions come out. It has
//! no clock, no thread and no randomness of its own, so that the live pager and the simulator
//! run the very same code and a recorded run can be replayed ([`record`]).
//!
//! # The life of a page
//!
//! ```text
//!               first touch                    proposed by the policy
//!    Absent ────────────────► Mapped ───────────────────────────────► Leaving
//!       ▲                      ▲  │ unreferenced                      │    │
//!       │ zapped               │  └────────► Shadowed ──── proposed ──┘    │
//!       │                      │ touched          │                        │
//!    (any state)               ◄──────────────────┘      dirty ◄───────────┤
//!                              │                           │               │ clean
//!    Stored ──► Reading ───────┘                       Condemned           │
//!       ▲  fault                                           │ scan for zeros│
//!       │                                              Scanning ── zero ──►│
//!       │                                                  │ write         ▼
//!       │                                              Writing ────────► Standby
//!       │                    a frame is needed                             │
//!       └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! From `Shadowed` to `Standby` a page is in the shadow: a touch is a fault without I/O that takes
//! it back. A page taken back while a scan or a write works on its shadow copy is mapped as a copy
//! ([`PageState::Overtaken`]). A page zapped while a request on it is in flight is
//! [`PageState::Doomed`] until the request has ended. [`PageState::may_become`] has every legal
//! transition; any other is a panic.
//!
//! # Where the mechanisms of the FlashVM paper are
//!
//! | paper | here |
//! | --- | --- |
//! | page pre-cleaning (4.1.1) | `engine::clean`, [`Settings::preclean`] |
//! | runs of writes (5.2.1) | `engine::clean`, [`Settings::write_run`] |
//! | clustering, erase blocks (4.1.1) | `swap`, [`Settings::cluster_pages`] |
//! | page scanning, fine throttling (4.1.2) | `engine::reclaim`, `engine::congestion` |
//! | prefetching over free and bad slots (4.1.3) | `prefetch::contiguous` |
//! | stride prefetching (4.1.3) | `prefetch::stride` |
//! | page sampling (4.2.1) | `sampling`, `engine::reclaim` |
//! | page sharing, zero pages (4.2.2) | `engine::clean`, zero flags in `swap` |
//! | native, merged and dummy discard (4.3) | [`discard`], `engine::discard`, `swap::free` |
//!
//! Chameleon, paging with small pages, is a part of its own: [`chameleon`].
//!
//! # Memory
//!
//! Per page: state, flags, slot, with compression the time of eviction, and the policy's columns (nine
//! bytes with the policies of the presets, at most 40 with any). Per slot: its owner. Per cluster: seven bytes,
//! and four while it is held. All
//! columns are zero-initialised, so untouched parts take no RAM.
#![forbid(unsafe_code)]

pub mod chameleon;
pub mod clusters;
pub mod counters;
pub mod discard;
pub mod engine;
pub mod event;
mod fault_cost;
pub mod gauges;
pub mod grant;
pub mod ids;
mod io;
mod names;
pub mod page;
pub mod policy;
pub mod pool;
pub mod prefetch;
mod queue;
pub mod record;
pub mod sampling;
pub mod settings;
pub mod shards;
pub mod space;
mod swap;
mod write_limit;

pub use clusters::{ClusterSource, LocalClusters};
pub use counters::Counters;
pub use discard::{Discard, DiscardKind};
pub use engine::{Engine, TRANSIT_PAGES_MAX, lock_share};
pub use event::{Access, Action, Advice, ComparedWith, Event, Packed, Place, Sizes};
pub use gauges::Gauges;
pub use ids::{ClusterId, HUGE_PAGES, IoId, Nanos, PAGE_SIZE, PageId, RUN_PAGES_MAX, Run, SlotId};
pub use names::UnknownName;
pub use page::PageState;
pub use policy::{PolicyKind, PolicySpec};
pub use prefetch::PrefetcherKind;
pub use sampling::Sampling;
pub use settings::{
    Codec, Compression, ConfigError, CongestionWait, EngineConfig, FirstStore, Preset, Settings,
};
pub use write_limit::WriteLimit;
