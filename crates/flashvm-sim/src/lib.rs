//! Drives FlashVM's engine with modelled devices and a virtual clock.
//!
//! [`Simulator`] is an executor of `flashvm_core::Engine`, like the live pager: the simulated
//! decisions are the live ones. It knows the contents of every page and checks them; a run is
//! determined by its seed. [`device`] has the models of devices, from a disk to flash chips behind
//! a translation layer; [`scheduler`] the I/O schedulers in front of them; [`chameleon`] drives the
//! engine of small pages; [`replay`] replays programs as [`program_trace`] has recorded them; [`block_trace`] keeps their requests; [`trace`] reads reference traces in the formats of many tools;
//! [`locality`] measures them, and [`sweep`] runs many replacement policies over them at once.
#![forbid(unsafe_code)]

pub mod block_trace;
pub mod chameleon;
pub mod device;
pub mod locality;
pub mod memory;
mod pool;
pub mod program_trace;
pub mod replay;
pub mod rng;
pub mod scheduler;
pub mod setup;
pub mod simulator;
pub mod store;
pub mod sweep;
pub mod trace;

pub use block_trace::BlockTrace;
pub use device::{DeviceModel, ModelKind, ModelOptions};
pub use program_trace::ProgramTrace;
pub use replay::{Replay, Step, Touch};
pub use rng::Rng;
pub use scheduler::{BlockQueue, SchedulerKind};
pub use setup::Device;
pub use simulator::{Faults, KernelFaults, Layout, Outcome, Simulator};
