//! A mirror as flash store (`--flash mirror:A,B[,spare=C]`): its size, and its attendant.

use super::nbd;
use super::options::RunOptions;
use super::refusal::Refusal;
use super::sides::{self, Demand, Sides};
use super::single_store::SingleStore;
use super::store::RAM_MULTIPLE_MIN;
use super::units::Size;
use flashvm_live::control::{STORES_MAX, SidePlace};
use flashvm_live::{MirrorAttendant, control::Control};
use rustix::fd::RawFd;
use std::time::Duration;

/// What a `--flash` begins with that is a mirror.
pub(super) const SCHEME: &str = "mirror:";

/// What the name of the spare begins with.
const SPARE: &str = "spare=";

/// Two open sides, and the spare, if there is one.
#[derive(Debug)]
pub(crate) struct MirrorStore {
    sides: Sides,
    /// The store's size: that of the smallest side.
    pub(crate) bytes: u64,
    /// How long a side may stay away before the spare takes its place.
    patience: Duration,
}

/// Opens all sides, for a budget of `ram` bytes, as the options say.
pub(super) fn open(text: &str, ram: u64, options: &RunOptions) -> Result<MirrorStore, Refusal> {
    let size = options.flash_size;
    let mut names: Vec<_> = text.split(',').collect();
    let mut count = 2..=2;
    if let [_, _, last] = &mut names[..]
        && let Some(spare) = last.strip_prefix(SPARE)
    {
        *last = spare;
        count = 2..=3;
    }
    let demands = vec![Demand { ram, size }; names.len()];
    let sides = sides::open_each(SCHEME, text, &names, count, &demands, options)?;
    let bytes = sides.bytes_of_each(size.is_some());
    if bytes < ram.saturating_mul(RAM_MULTIPLE_MIN) && size.is_none() {
        return Err(Refusal::new(format!(
            "--flash {SCHEME}{text}: there is room for {} on each side, less than twice the budget of {}: make room, or \
             name another side",
            Size(bytes),
            Size(ram)
        )));
    }
    Ok(MirrorStore {
        sides,
        bytes,
        patience: Duration::from_micros(options.flash_timeout.unwrap_or(nbd::TIMEOUT).0),
    })
}

impl MirrorStore {
    /// Bytes from the start that have disk space on all sides.
    pub(crate) fn backed(&self) -> u64 {
        let backed = self.sides.stores.iter().map(SingleStore::backed);
        backed.fold(self.bytes, u64::min)
    }

    /// Discards the first page of each side; one that accepts it suffices.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        let mut tried = self.sides.stores.iter().map(SingleStore::try_discard);
        let first = tried.next().expect("two sides");
        first.or(tried.next().expect("two sides"))
    }

    /// The descriptors of the sides that are files or devices, in their order.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        self.sides.descriptors()
    }

    /// Where the sides are, for the processes.
    pub(crate) fn places(&self) -> Vec<SidePlace> {
        self.sides.places()
    }

    /// The thread that brings its sides up to date.
    pub(crate) fn attend(&self, control: Control) -> Result<MirrorAttendant, Refusal> {
        let mut sides = self.sides.twins()?.into_iter();
        let mut next = || sides.next().expect("two sides");
        let both = [next(), next()];
        let attendant = MirrorAttendant::new(control, both);
        Ok(attendant.with_spare(sides.next(), self.patience))
    }
}
