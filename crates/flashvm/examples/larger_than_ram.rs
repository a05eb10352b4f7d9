//! A vector, and a map with its words in an arena, both larger than the RAM of a run: nothing else is paged.
//!
//!     cargo build --release -p flashvm --example larger_than_ram
//!     flashvm run --ram 32M --select api -- target/release/examples/larger_than_ram 4000000
//!
//! Fills the vector with COUNT numbers at random, sorts it, puts every sixteenth number as a word of 100 bytes into the map, and looks all of
//! these words up. Prints what it has found; on standard error what paging cost.

use flashvm::{Arena, FlashVec, stats};
use hashbrown::{DefaultHashBuilder, HashMap};
use std::process::ExitCode;

/// Bytes of a word.
const WORD: usize = 100;

fn mix(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The word of a number. Its bytes do not compress.
fn word(number: u64) -> [u8; WORD] {
    let mut word = [0; WORD];
    for (at, bytes) in word.chunks_mut(8).enumerate() {
        let random = mix(number.wrapping_add(at as u64)).to_le_bytes();
        bytes.copy_from_slice(&random[..bytes.len()]);
    }
    word
}

/// Works on `count` numbers: how many words there are, and the sum of what the map has found.
pub(crate) fn work(count: u64) -> Result<(usize, u64), flashvm::Error> {
    let mut numbers = FlashVec::new();
    numbers.try_extend((1..=count).map(mix))?;
    numbers.sort_unstable();

    let arena = Arena::new()?;
    let mut index = HashMap::with_hasher_in(DefaultHashBuilder::default(), &arena);
    for (rank, &number) in numbers.iter().enumerate().step_by(16) {
        let key: &[u8] = arena.alloc_slice(&word(number))?;
        index.insert(key, rank as u64);
    }
    let numbers = numbers.iter().step_by(16);
    let ranks = numbers.filter_map(|&number| index.get(&word(number)[..]));
    Ok((index.len(), ranks.sum()))
}

fn main() -> ExitCode {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let Some(count) = count else {
        eprintln!("usage: larger_than_ram COUNT");
        return ExitCode::from(2);
    };
    match work(count).and_then(|found| Ok((found, stats()?))) {
        Ok(((words, sum), now)) => {
            println!("{words} words, sum of ranks {sum}");
            eprintln!(
                "{} faults, {} of them from flash; at most {} MiB in RAM",
                now.faults,
                now.major,
                now.resident_bytes_max >> 20
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("larger_than_ram: {error}");
            ExitCode::FAILURE
        }
    }
}
