//! Serves the device model of a run: computes when each request of the processes would end on the modelled device.

use super::device::ModelName;
use super::refusal::Refusal;
use flashvm_core::Nanos;
use flashvm_live::control::{Asked, Control, ModelSettings, Work};
use flashvm_sim::Device;
use flashvm_sim::device::{Discards, InOrder, Range, Request, Wear};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest sleep without an order; also the interval at which orders of dead processes are freed.
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
    /// What the processes need to know of it.
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

    pub(crate) fn name(&self) -> String {
        self.device.model.to_string()
    }

    /// Makes a fresh device, as large as the store of the run.
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
    /// Ranges of discards whose last part has not arrived yet, by owner.
    parts: HashMap<u32, Vec<Range>>,
}

/// A device that is serving.
pub(crate) struct Attending {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Wear>>,
}

impl Attendant {
    /// Starts a thread that serves until `Attending::end`. It inherits the blocked signals of the calling thread.
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

    /// Carries an order out: its end, and whether the device did it.
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
    /// Stops the thread and returns the device's wear, if the model has any. Takes up to [`IDLE`].
    pub(crate) fn end(self) -> Option<Wear> {
        self.over.store(true, Ordering::Release);
        self.thread.join().expect("the model does not panic")
    }
}
