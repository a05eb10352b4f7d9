//! Drives FlashVM's engine with modelled devices and a virtual clock.
//!
//! [`Simulator`] is an executor of `flashvm_core::Engine`, as the live pager is: what is tested
//! here is the code that runs there. It knows the contents of every page and checks them; under
//! one seed every run is the same. [`device`] has the models of devices, from a disk to flash
//! chips behind a translation layer, [`chameleon`] drives the engine of small pages, [`scheduler`] what stands in front of them, and [`trace`] reads
//! what programs referenced, in the formats of many tools; [`locality`] measures it, and [`sweep`] runs
//! replacement policies over it, many at once.
#![forbid(unsafe_code)]

pub mod chameleon;
pub mod device;
pub mod locality;
pub mod memory;
pub mod replay;
pub mod rng;
pub mod scheduler;
pub mod setup;
pub mod simulator;
pub mod store;
pub mod sweep;
pub mod trace;
pub mod workload;

pub use device::{DeviceModel, ModelKind, ModelOptions};
pub use replay::{Replay, Step, Touch};
pub use rng::Rng;
pub use scheduler::{BlockQueue, SchedulerKind};
pub use setup::Device;
pub use simulator::{Faults, KernelFaults, Layout, Outcome, Simulator};
pub use workload::WorkloadKind;
