//! The store of a run: a store at one place, or of several sides: a `mirror`, a `stripe` or a `tier`.

use super::mirror::{self, MirrorStore};
use super::nbd;
use super::options::RunOptions;
use super::refusal::Refusal;
use super::sides;
use super::single_store::SingleStore;
use super::store;
use super::stripe::{self, StripeStore};
use super::tier::{self, TierStore};
use flashvm_live::control::{STORES_MAX, StorePlace};
use rustix::fd::RawFd;
use std::path::Path;

/// An open store.
#[derive(Debug)]
pub(crate) enum RunStore {
    Single(SingleStore),
    Mirror(MirrorStore),
    Stripe(StripeStore),
    Tier(TierStore),
}

impl RunStore {
    /// Opens the store at a path or URI, for a budget of `ram` bytes, as the options say.
    pub(crate) fn open(flash: &Path, ram: u64, options: &RunOptions) -> Result<Self, Refusal> {
        let (size, timeout) = (options.flash_size, options.flash_timeout);
        if let Some(uri) = nbd::uri(flash) {
            let server = nbd::open(uri, ram, size, timeout)?;
            return Ok(Self::Single(SingleStore::Server(server)));
        }
        if let Some(text) = sides::after(flash, mirror::SCHEME) {
            return mirror::open(text, ram, options).map(Self::Mirror);
        }
        if let Some(text) = sides::after(flash, stripe::SCHEME) {
            return stripe::open(text, ram, options).map(Self::Stripe);
        }
        if let Some(text) = sides::after(flash, tier::SCHEME) {
            return tier::open(text, ram, options).map(Self::Tier);
        }
        if let Some(timeout) = timeout {
            return Err(Refusal::new(format!(
                "--flash-timeout {timeout} is for a store at a server, and {} is here: leave it out",
                flash.display()
            )));
        }
        if !options.flash_in_ram.is_some_and(|flag| flag.0) {
            store::refuse_ram(flash)?;
        }
        let file = store::open(flash, ram, size)?;
        Ok(Self::Single(SingleStore::File(file)))
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Single(store) => store.bytes(),
            Self::Mirror(mirror) => mirror.bytes,
            Self::Stripe(stripe) => stripe.bytes,
            Self::Tier(tier) => tier.bytes,
        }
    }

    /// Bytes from the start that have disk space.
    pub(crate) fn backed(&self) -> u64 {
        match self {
            Self::Single(store) => store.backed(),
            Self::Mirror(mirror) => mirror.backed(),
            Self::Stripe(stripe) => stripe.backed(),
            // All is allocated.
            Self::Tier(tier) => tier.bytes,
        }
    }

    /// Discards the first page, to see whether the store accepts discards. For a store without data.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        match self {
            Self::Single(store) => store.try_discard(),
            Self::Mirror(mirror) => mirror.try_discard(),
            Self::Stripe(stripe) => stripe.try_discard(),
            Self::Tier(tier) => tier.try_discard(),
        }
    }

    /// Whether it can read 512 bytes.
    pub(crate) fn reads_sectors(&self) -> bool {
        match self {
            Self::Single(store) => store.reads_sectors(),
            // Small pages, which ask for this, cannot be mirrored.
            Self::Mirror(_) => false,
            Self::Stripe(stripe) => stripe.reads_sectors(),
            Self::Tier(tier) => tier.reads_sectors(),
        }
    }

    /// The descriptors of files or devices.
    pub(crate) fn descriptors(&self) -> [Option<RawFd>; STORES_MAX] {
        match self {
            Self::Single(store) => {
                let mut descriptors = [None; STORES_MAX];
                descriptors[0] = store.descriptor();
                descriptors
            }
            Self::Mirror(mirror) => mirror.descriptors(),
            Self::Stripe(stripe) => stripe.descriptors(),
            Self::Tier(tier) => tier.descriptors(),
        }
    }

    /// Where it is, for the processes.
    pub(crate) fn place(&self) -> StorePlace {
        match self {
            Self::Single(SingleStore::File(_)) => StorePlace::Here,
            Self::Single(SingleStore::Server(store)) => StorePlace::Server(store.server.clone()),
            Self::Mirror(mirror) => StorePlace::Mirror(mirror.places()),
            Self::Stripe(stripe) => StorePlace::Stripe(stripe.places()),
            Self::Tier(tier) => {
                let (sides, first_bytes) = tier.places();
                StorePlace::Tier { sides, first_bytes }
            }
        }
    }
}
