//! A stripe as flash store (`--flash stripe:A,B[,C...]`): its size, and the part of each side.

use super::options::RunOptions;
use super::refusal::Refusal;
use super::sides::{self, Demand, Sides};
use super::single_store::SingleStore;
use super::store::RAM_MULTIPLE_MIN;
use super::units::Size;
use flashvm_live::control::{STORES_MAX, SidePlace};
use flashvm_live::{STRIPE_UNIT, each_of_stripe, striped};
use rustix::fd::RawFd;

/// What a `--flash` begins with that is a stripe.
pub(super) const SCHEME: &str = "stripe:";

/// Open sides.
#[derive(Debug)]
pub(crate) struct StripeStore {
    sides: Sides,
    /// The store's size: that of the smallest side, times their number.
    pub(crate) bytes: u64,
}

/// Opens all sides, for a budget of `ram` bytes, as the options say.
pub(super) fn open(text: &str, ram: u64, options: &RunOptions) -> Result<StripeStore, Refusal> {
    let count = text.split(',').count();
    let size = options.flash_size;
    let of_each = Demand {
        // Any size of a side will do, and of all together two budgets.
        ram: 1,
        // All of `each_of_stripe`, as the last unit may be the last of any side.
        size: size.map(|size| Size(each_of_stripe(size.0, count))),
    };
    let sides = sides::open(SCHEME, text, 2..=STORES_MAX, of_each, options)?;
    let bytes = striped(sides.bytes_of_each(size.is_some()), sides.len());
    let bytes = size.map_or(bytes, |size| bytes.min(size.0));
    if bytes < ram.saturating_mul(RAM_MULTIPLE_MIN) && size.is_none() {
        return Err(Refusal::new(format!(
            "--flash {SCHEME}{text}: there is room for {} on all sides together, less than twice the budget of {}: make \
             room, or name other sides",
            Size(bytes),
            Size(ram)
        )));
    }
    Ok(StripeStore { sides, bytes })
}

impl StripeStore {
    /// Bytes from the start that have disk space.
    pub(crate) fn backed(&self) -> u64 {
        let backed = self.sides.stores.iter().map(SingleStore::backed);
        let each = backed.min().expect("sides") / STRIPE_UNIT * STRIPE_UNIT;
        striped(each, self.sides.len()).min(self.bytes)
    }

    /// Discards the first page of each side: all have to accept it.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        let mut sides = self.sides.stores.iter();
        sides.try_for_each(SingleStore::try_discard)
    }

    /// Whether each side can read 512 bytes.
    pub(crate) fn reads_sectors(&self) -> bool {
        self.sides.stores.iter().all(SingleStore::reads_sectors)
    }

    /// The descriptors of the sides that are files or devices, in their order.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        self.sides.descriptors()
    }

    /// Where the sides are, for the processes.
    pub(crate) fn places(&self) -> Vec<SidePlace> {
        self.sides.places()
    }
}
