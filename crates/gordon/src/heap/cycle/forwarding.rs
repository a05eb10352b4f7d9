//! Forwarding addresses: a large table in DRAM, because flash cannot be overwritten (section 6.3).
//! It consists of many small tables, since a commit may have to wait while one grows.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Log2 of the number of tables.
const TABLES_LOG2: u32 = 10;

/// Addresses are multiples of eight: multiply and take the upper bits.
#[derive(Debug, Default)]
struct AddressHasher(u64);

fn spread(address: u64) -> u64 {
    (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("addresses are hashed as numbers")
    }

    fn write_u64(&mut self, address: u64) {
        // The top bits have chosen the table.
        self.0 = spread(address).rotate_left(26);
    }
}

type Table = HashMap<u64, u64, BuildHasherDefault<AddressHasher>>;

/// The addresses of the copies.
#[derive(Debug)]
pub(super) struct Forwarding(Vec<Table>);

impl Default for Forwarding {
    fn default() -> Self {
        Self((0..1 << TABLES_LOG2).map(|_| Table::default()).collect())
    }
}

impl Forwarding {
    /// No table at all.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Drops some tables; returns whether there are more.
    pub(super) fn shrink(&mut self) -> bool {
        self.0.truncate(self.0.len().saturating_sub(64));
        !self.0.is_empty()
    }

    fn table(address: u64) -> usize {
        (spread(address) >> (64 - TABLES_LOG2)) as usize
    }

    pub(super) fn get(&self, address: u64) -> Option<u64> {
        self.0[Self::table(address)].get(&address).copied()
    }

    pub(super) fn insert(&mut self, address: u64, copy: u64) {
        self.0[Self::table(address)].insert(address, copy);
    }
}
