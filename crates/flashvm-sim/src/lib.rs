//! Drives FlashVM's engine with a modelled device and a virtual clock.
//!
//! [`Simulator`] is an executor of `flashvm_core::Engine`, as the live pager is: what is tested
//! here is the code that runs there. Under one seed every run is the same.
#![forbid(unsafe_code)]

pub mod device;
pub mod memory;
pub mod rng;
pub mod simulator;
pub mod store;

pub use device::{Device, Faults};
pub use rng::Rng;
pub use simulator::{Outcome, Simulator};
