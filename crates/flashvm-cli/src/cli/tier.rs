//! A tier as flash store (`--flash tier:LOCAL,REMOTE`): the sizes of both sides, and the thread that moves chunks.

use super::options::RunOptions;
use super::refusal::Refusal;
use super::sides::{self, Demand, Sides};
use super::single_store::SingleStore;
use super::store::{self, RAM_MULTIPLE_MIN};
use super::units::Size;
use flashvm_live::control::{STORES_MAX, SidePlace};
use flashvm_live::{StoreKind, TIER_CHUNK, TierMover, control::Control, tiered};
use rustix::fd::RawFd;

/// What a `--flash` begins with that is a tier.
pub(super) const SCHEME: &str = "tier:";

/// Sizes of sides that are files, in budgets, unless `--flash-size` says otherwise for the first: all of it is allocated.
const FIRST_BUDGETS: u64 = 4;
const SECOND_BUDGETS: u64 = 16;

/// Two open sides.
#[derive(Debug)]
pub(crate) struct TierStore {
    sides: Sides,
    /// Bytes of the first side.
    first_bytes: u64,
    /// The store's size.
    pub(crate) bytes: u64,
}

/// Opens both sides, for a budget of `ram` bytes, as the options say.
pub(super) fn open(text: &str, ram: u64, options: &RunOptions) -> Result<TierStore, Refusal> {
    let refused = |why: String| Refusal::new(format!("--flash {SCHEME}{text}: {why}"));
    // Any size of a side will do, and of both together two budgets.
    let any = |size| Demand { ram: 1, size };
    let demands = [any(options.flash_size), any(None)];
    let names: Vec<_> = text.split(',').collect();
    let mut sides = sides::open_each(SCHEME, text, &names, 2..=2, &demands, options)?;
    let asked = options.flash_size.is_some();
    let most = [
        if asked {
            u64::MAX
        } else {
            ram.saturating_mul(FIRST_BUDGETS)
        },
        ram.saturating_mul(SECOND_BUDGETS),
    ];
    let mut bytes = [0; 2];
    for (side, store) in sides.stores.iter_mut().enumerate() {
        bytes[side] = match store {
            SingleStore::File(file) if StoreKind::of(&file.fd) == Ok(StoreKind::File) => {
                let wanted = file.bytes.min(most[side]) / TIER_CHUNK * TIER_CHUNK;
                store::allocate(file, wanted).map_err(|e| {
                    refused(format!(
                        "{} cannot be allocated on side {} ({e}): make room, or ask for less with --flash-size",
                        Size(wanted),
                        side + 1
                    ))
                })?;
                wanted
            }
            other => other.bytes(),
        };
    }
    let bytes_of_all = tiered(bytes[0], bytes[1]);
    if bytes[0] < TIER_CHUNK || bytes_of_all < ram.saturating_mul(RAM_MULTIPLE_MIN) {
        return Err(refused(format!(
            "there is room for {} and {}, less than twice the budget of {} together: make room, or name other sides",
            Size(bytes[0]),
            Size(bytes[1]),
            Size(ram)
        )));
    }
    Ok(TierStore {
        sides,
        first_bytes: bytes[0] / TIER_CHUNK * TIER_CHUNK,
        bytes: bytes_of_all,
    })
}

impl TierStore {
    /// Discards the first page of each side: both have to accept it.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        let mut sides = self.sides.stores.iter();
        sides.try_for_each(SingleStore::try_discard)
    }

    /// Whether both sides can read 512 bytes.
    pub(crate) fn reads_sectors(&self) -> bool {
        self.sides.stores.iter().all(SingleStore::reads_sectors)
    }

    /// The descriptors of the sides that are files or devices, in their order.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        self.sides.descriptors()
    }

    /// Where the sides are, for the processes, and the bytes of the first.
    pub(crate) fn places(&self) -> ([SidePlace; 2], u64) {
        let sides = self.sides.places();
        (sides.try_into().expect("two sides"), self.first_bytes)
    }

    /// The thread that moves chunks between the sides.
    pub(crate) fn attend(&self, control: Control) -> Result<TierMover, Refusal> {
        let sides = self.sides.twins()?;
        let sides = sides.try_into().expect("two sides");
        Ok(TierMover::new(control, sides, self.first_bytes))
    }
}
