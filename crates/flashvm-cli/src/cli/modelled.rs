//! The device-model server of a run: answers the processes' requests in real time.

use super::device::ModelName;
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

/// Longest sleep without a request.
const IDLE: Duration = Duration::from_millis(250);
/// Pages of the trial device that checks a model's options.
const TRIAL_PAGES: u32 = 1 << 12;
/// Seed of a device's random choices.
const SEED: u64 = 0;

/// A device model of a run.
#[derive(Clone, Debug)]
pub(crate) struct Modelled {
    device: Device,
    /// Whether it accepts discards.
    pub(crate) discards: bool,
    /// The part that the processes need.
    pub(crate) settings: ModelSettings,
}

impl Modelled {
    /// The device that `--device-model` names.
    pub(crate) fn named(name: &ModelName) -> Result<Self, Refusal> {
        let device = name.device("--device-model")?;
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

/// A device before it serves.
pub(crate) struct Attendant {
    control: Control,
    device: InOrder,
    /// Ranges of incomplete discards, by owner.
    parts: HashMap<u32, Vec<Range>>,
}

/// A device that is serving.
pub(crate) struct Attending {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Wear>>,
}

impl Attendant {
    /// Serves in a thread of its own, which inherits the blocked signals of this one.
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

    /// The end of an order, and whether it was done.
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
    /// Stops the thread: the device's wear, if the model has any.
    pub(crate) fn end(self) -> Option<Wear> {
        self.over.store(true, Ordering::Release);
        self.thread.join().expect("the model does not panic")
    }
}
