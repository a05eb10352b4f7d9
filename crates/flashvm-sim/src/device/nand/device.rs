//! A translation layer with timing: every flash operation occupies its channel.
//!
//! Managed flash (`nand`) also keeps its map on flash: it writes a map page for every 512 changed
//! entries. Its discards follow the cost law of FlashVM's paper (4.3.1) and are barriers. Unmanaged
//! flash (`raw-nand`, 4.4) is mapped by the host: the host's swap map is the map. The host knows at
//! once which pages are free, so nothing needs a discard; and since memory is volatile, the map
//! never goes to flash.

use super::ftl::{Counts, Flash, Ftl, WornOut};
use super::geometry::GeometryError;
use super::options::NandOptions;
use crate::device::{Completion, DeviceModel, DiscardCost, Discards, Range, Request, Wear};
use crate::rng::Rng;
use flashvm_core::Nanos;

/// Map entries of eight bytes in a page.
const MAP_ENTRIES_PER_PAGE: u32 = 512;
/// Random writes that age a device before use, as a multiple of its pages.
const AGING_ROUNDS: u32 = 2;

/// Who maps logical pages to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Translation {
    Device,
    Host,
}

/// Flash chips and their translation layer.
pub struct Nand {
    ftl: Ftl,
    chips: Chips,
    translation: Translation,
    depth: usize,
    map_changes: u32,
    map_writes: u64,
    /// Counts when the aging had ended: subtracted from what the host is told.
    aging: Counts,
}

impl Nand {
    /// A device with `pages` addressable pages and its own translation.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn managed(pages: u32, options: &NandOptions, seed: u64) -> Result<Self, GeometryError> {
        Self::new(Translation::Device, pages, options, seed)
    }

    /// Chips on which the host maps `pages` pages.
    ///
    /// # Errors
    /// If there can be no such device.
    pub fn raw(pages: u32, options: &NandOptions, seed: u64) -> Result<Self, GeometryError> {
        Self::new(Translation::Host, pages, options, seed)
    }

    fn new(
        translation: Translation,
        pages: u32,
        options: &NandOptions,
        seed: u64,
    ) -> Result<Self, GeometryError> {
        let geometry = options.geometry(pages)?;
        let mut ftl = Ftl::new(geometry, options.strategy());
        if options.aged {
            // A device that wears out while it is aged is aged enough.
            let _ = age(&mut ftl, seed);
        }
        let aging = *ftl.counts();
        Ok(Self {
            ftl,
            chips: Chips::new(options, seed),
            translation,
            depth: options.queue_depth as usize,
            map_changes: 0,
            map_writes: 0,
            aging,
        })
    }

    fn read(&mut self, range: Range) {
        for page in range.first..range.end() {
            self.ftl.read(page, &mut self.chips);
        }
    }

    fn write(&mut self, range: Range) -> bool {
        let copied = self.ftl.counts().copies;
        let mut done = true;
        for page in range.first..range.end() {
            done &= self.ftl.write(page, &mut self.chips).is_ok();
        }
        let copied = self.ftl.counts().copies - copied;
        self.map_changed(range.count + u32::try_from(copied).unwrap_or(u32::MAX));
        done
    }

    fn discard(&mut self, ranges: &[Range]) -> u32 {
        let pages = ranges.iter().flat_map(|range| range.first..range.end());
        let mut held = 0;
        for page in pages {
            held += u32::from(self.ftl.discard(page));
        }
        self.map_changed(held);
        held
    }

    fn map_changed(&mut self, entries: u32) {
        if self.translation == Translation::Host {
            return;
        }
        self.map_changes = self.map_changes.saturating_add(entries);
        while self.map_changes >= MAP_ENTRIES_PER_PAGE {
            self.map_changes -= MAP_ENTRIES_PER_PAGE;
            self.chips.write_map(self.map_writes);
            self.map_writes += 1;
        }
    }
}

/// Writes every page and then overwrites pages at random, in no simulated time.
fn age(ftl: &mut Ftl, seed: u64) -> Result<(), WornOut> {
    let pages = ftl.geometry().logical_pages;
    for page in 0..pages {
        ftl.write(page, &mut ())?;
    }
    let mut rng = Rng::new(seed);
    for _ in 0..AGING_ROUNDS {
        for _ in 0..pages {
            ftl.write(rng.below_u32(pages), &mut ())?;
        }
    }
    Ok(())
}

impl DeviceModel for Nand {
    fn pages(&self) -> u32 {
        self.ftl.geometry().logical_pages
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn discards(&self) -> Discards {
        match self.translation {
            Translation::Device => Discards::Barrier,
            Translation::Host => Discards::Queued,
        }
    }

    fn issue(&mut self, now: Nanos, request: &Request) -> Completion {
        self.chips.begin(now);
        let mut done = true;
        match request {
            Request::Read(range) => self.read(*range),
            Request::Write(range) => done = self.write(*range),
            Request::Discard(ranges) => {
                let held = self.discard(ranges);
                if self.translation == Translation::Device {
                    let cost = DiscardCost::OCZ_VERTEX.of(request.pages(), held);
                    self.chips.occupy_all(cost);
                }
            }
        }
        Completion {
            end: self.chips.end,
            done,
        }
    }

    fn wear(&self) -> Option<Wear> {
        let counts = self.ftl.counts();
        let (erase_min, erase_mean, erase_max) = self.ftl.erases();
        Some(Wear {
            host_writes: counts.host_writes - self.aging.host_writes,
            copies: counts.copies - self.aging.copies,
            map_writes: self.map_writes,
            erase_min,
            erase_mean,
            erase_max,
            free_blocks: self.ftl.free_blocks(),
            bad_blocks: self.ftl.bad_blocks(),
        })
    }

    fn hears_of_frees(&self) -> bool {
        self.translation == Translation::Host
    }

    fn freed(&mut self, page: u32) {
        self.ftl.discard(page);
    }
}

/// The chips and their channels.
struct Chips {
    busy_until: Vec<Nanos>,
    read: Nanos,
    program: Nanos,
    erase: Nanos,
    transfer: Nanos,
    program_failure_ppm: u32,
    rng: Rng,
    /// Start of the current request, and end of its last operation.
    now: Nanos,
    end: Nanos,
}

impl Chips {
    fn new(options: &NandOptions, seed: u64) -> Self {
        let time = |us: f64| Nanos((us * 1e3) as u64);
        Self {
            busy_until: vec![Nanos(0); options.channels as usize],
            read: time(options.read_us),
            program: time(options.program_us),
            erase: time(options.erase_us),
            transfer: time(options.transfer_us),
            program_failure_ppm: options.program_failure_ppm,
            rng: Rng::new(seed),
            now: Nanos(0),
            end: Nanos(0),
        }
    }

    fn begin(&mut self, now: Nanos) {
        self.now = now;
        self.end = now;
    }

    fn occupy(&mut self, channel: usize, time: Nanos) {
        let busy = &mut self.busy_until[channel];
        *busy = Nanos(busy.0.max(self.now.0)).plus(time);
        self.end = Nanos(self.end.0.max(busy.0));
    }

    fn occupy_all(&mut self, time: Nanos) {
        let start = self.busy_until.iter().map(|busy| busy.0).max().unwrap_or(0);
        self.busy_until
            .fill(Nanos(start.max(self.now.0)).plus(time));
        self.end = self.busy_until[0];
    }

    fn channel(&self, page: u64) -> usize {
        (page % self.busy_until.len() as u64) as usize
    }

    fn write_map(&mut self, number: u64) {
        self.occupy(self.channel(number), self.program.plus(self.transfer));
    }
}

impl Flash for Chips {
    fn read(&mut self, page: u32) {
        self.occupy(self.channel(page.into()), self.read.plus(self.transfer));
    }

    fn program(&mut self, page: u32) -> bool {
        self.occupy(self.channel(page.into()), self.program.plus(self.transfer));
        !self.rng.chance(self.program_failure_ppm)
    }

    fn erase(&mut self, _block: u32) {
        for channel in 0..self.busy_until.len() {
            self.occupy(channel, self.erase);
        }
    }
}
