//! Memory on flash for Rust programs: what a program under `flashvm run` asks for by name.
//!
//! `flashvm run --ram 2G -- PROGRAM` pages an unmodified program. One that is written for it can say what is paged, and see what
//! that costs:
//!
//! ```
//! use flashvm::{Arena, FlashVec};
//! use hashbrown::{DefaultHashBuilder, HashMap};
//!
//! fn main() -> Result<(), flashvm::Error> {
//! #   let done = work();
//! #   assert!(matches!(done, Ok(()) | Err(flashvm::Error::NotARun)));
//! #   Ok(())
//! # }
//! # fn work() -> Result<(), flashvm::Error> {
//!     // An array that grows. Its pages go to flash when RAM is short.
//!     let mut samples = FlashVec::new();
//!     samples.try_extend((0..1_000_000).map(f64::from))?;
//!
//!     // Objects of any size, and the table of a map, in an arena.
//!     let arena = Arena::new()?;
//!     let mut index = HashMap::with_hasher_in(DefaultHashBuilder::default(), &arena);
//!     index.insert(arena.alloc_slice(b"flash")?, samples.len());
//!
//!     println!("{} faults from flash", flashvm::stats()?.major);
//!     Ok(())
//! }
//! ```
//!
//! ```sh
//! flashvm run --ram 64M --select api -- target/release/program
//! ```
//!
//! With `--select api` only this crate's memory is paged, within `--ram`; everything else is the kernel's. Without it everything is
//! paged, and the crate works as well.
//!
//! - [`FlashVec`] grows, [`Mapping`] is bytes, [`Arena`] has objects of any size.
//! - `&Arena` and [`Flash`] are allocators of [`allocator_api2`]: for `hashbrown`, for the boxes and vectors of that crate, and by its
//!   adapter for `bump-scope`.
//! - [`advise`] reads ahead, evicts or pins; [`stats()`] says what paging costs.
//! - [`Run`] starts the command, from any program.
//!
//! # Outside of a run
//!
//! The crate finds the pager while the program runs, so the same binary starts everywhere. Without a pager every function that would map
//! memory is an [`Error::NotARun`], whose text names the command: no memory ever lies in plain RAM instead. [`is_run`] asks. The program has to be
//! linked dynamically, as Rust's are on glibc.
#![deny(missing_docs, unsafe_code)]

mod advice;
mod allocator;
mod arena;
#[cfg(feature = "capi")]
mod capi;
mod error;
mod flash_vec;
mod mapping;
mod pages;
mod preloaded;
mod run;
mod stats;
mod vector;

pub use advice::{Advice, advise};
pub use allocator::Flash;
/// The crate whose trait [`Flash`] and `&Arena` implement, in the version that they do.
pub use allocator_api2;
pub use arena::{Arena, ArenaBuilder};
pub use error::{Error, Result};
pub use flash_vec::FlashVec;
pub use mapping::Mapping;
pub use preloaded::is_run;
pub use run::{Finished, Run, command};
pub use stats::{Stats, stats};

/// The samples of the document compile here; a live test runs the first one.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Document;
