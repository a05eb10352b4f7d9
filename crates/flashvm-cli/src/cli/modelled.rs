//! The device of a run that has a device model: answers what the processes ask of it, in real time.

use super::device;
use super::refusal::Refusal;
use flashvm::control::{Asked, Control, ModelSettings, Work};
use flashvm_core::Nanos;
use flashvm_sim::Device;
use flashvm_sim::device::{Discards, InOrder, Range, Request, Wear};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long it sleeps where nothing is asked.
const IDLE: Duration = Duration::from_millis(250);
/// Pages of a device that is built to see whether there can be such a one.
const TRIAL_PAGES: u32 = 1 << 12;
/// Of what a device leaves to chance.
const SEED: u64 = 0;

/// A device model that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Modelled {
    device: Device,
    /// Whether it can be sent discards.
    pub(crate) discards: bool,
    /// What the processes need to know.
    pub(crate) settings: ModelSettings,
}

impl Modelled {
    /// The device that `--device-model` names, if there can be such a one.
    pub(crate) fn named(name: &str) -> Result<Self, Refusal> {
        let device = device::named("--device-model", name)?;
        let model = device
            .bare(TRIAL_PAGES, SEED)
            .map_err(|e| Refusal::new(format!("--device-model {name}: {e}")))?;
        Ok(Self {
            discards: model.discards() != Discards::Refused,
            settings: ModelSettings {
                hears_of_frees: model.hears_of_frees(),
            },
            device,
        })
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        self.device.model.to_string()
    }

    /// A fresh device as large as the store of a run.
    pub(crate) fn attend(self, control: Control) -> Result<Attendant, Refusal> {
        let slots = control.store_slots();
        let model = self
            .device
            .bare(slots, SEED)
            .map_err(|e| Refusal::new(format!("--device-model {}: {e}", self.device.model)))?;
        Ok(Attendant {
            control,
            device: InOrder::new(model),
            parts: HashMap::new(),
        })
    }
}

/// A device, and whom it serves.
pub(crate) struct Attendant {
    control: Control,
    device: InOrder,
    /// Ranges of discards that are not complete, by their owner.
    parts: HashMap<u32, Vec<Range>>,
}

/// A device that is serving.
pub(crate) struct Attending {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Wear>>,
}

impl Attendant {
    /// Serves from now on, in a thread of its own. Signals are blocked in it if they are in this one.
    pub(crate) fn begin(mut self) -> std::io::Result<Attending> {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("flashvm-device".to_owned())
            .spawn(move || {
                let mut asked = Vec::new();
                while !until.load(Ordering::Acquire) {
                    self.control.take_orders(IDLE, &mut asked);
                    if asked.is_empty() {
                        self.control.free_orders_of_the_dead();
                    }
                    for order in &asked {
                        let (end, done) = self.carry_out(order);
                        self.control.answer(order, end, done);
                    }
                }
                self.device.wear()
            })?;
        Ok(Attending { over, thread })
    }

    /// When an order ends, and whether it is done.
    fn carry_out(&mut self, order: &Asked) -> (Nanos, bool) {
        let range = Range {
            first: order.first,
            count: order.count,
        };
        let request = match order.work {
            Work::Read => Request::Read(range),
            Work::Write => Request::Write(range),
            Work::DiscardPart => {
                self.parts.entry(order.owner).or_default().push(range);
                return (order.since, true);
            }
            Work::Discard => {
                let mut ranges = self.parts.remove(&order.owner).unwrap_or_default();
                ranges.push(range);
                Request::Discard(ranges)
            }
            Work::Freed => {
                (range.first..range.end()).for_each(|page| self.device.freed(page));
                return (order.since, true);
            }
        };
        let completion = self.device.issue(order.since, &request);
        (completion.end, completion.done)
    }
}

impl Attending {
    /// Ends it: what writing has done to the device, if it knows.
    pub(crate) fn end(self) -> Option<Wear> {
        self.over.store(true, Ordering::Release);
        self.thread.join().expect("the model does not panic")
    }
}
