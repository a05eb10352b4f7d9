//! A simple model of a flash device: a latency, a time per page, requests served side by side,
//! and the faults it is to make.

use flashvm_core::Nanos;

/// Speeds of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Time of a request before its first page.
    pub latency: Nanos,
    /// Time of each page.
    pub per_page: Nanos,
    /// Requests served at the same time.
    pub depth: usize,
}

impl Default for Device {
    /// About a virtio disk on NVMe: 70 us for a page, 1.6 GB/s when requests overlap.
    fn default() -> Self {
        Self {
            latency: Nanos(65_000),
            per_page: Nanos(5_000),
            depth: 8,
        }
    }
}

/// Faults to be injected, each as a chance in a million for every page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read that fails.
    pub reads: u32,
    /// A write that fails; the slot's contents are lost.
    pub writes: u32,
    /// A move into the shadow that is refused.
    pub refusals: u32,
}

/// When the requests in flight will have ended.
pub(crate) struct Channels {
    device: Device,
    busy_until: Vec<Nanos>,
}

impl Channels {
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            busy_until: vec![Nanos(0); device.depth.max(1)],
        }
    }

    /// When a request of `pages` pages that is issued now will end.
    pub(crate) fn issue(&mut self, now: Nanos, pages: u32) -> Nanos {
        let free = self.busy_until.iter_mut().min();
        let free = free.expect("at least one channel");
        let start = Nanos(free.0.max(now.0));
        let transfer = Nanos(self.device.per_page.0 * u64::from(pages));
        *free = start.plus(self.device.latency).plus(transfer);
        *free
    }
}
