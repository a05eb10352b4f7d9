// The sample of docs/rust.md: a test compares the two, and runs this one under `flashvm run`.

use flashvm::{Advice, Arena, FlashVec, advise, stats};
use hashbrown::{DefaultHashBuilder, HashMap};

fn main() -> Result<(), flashvm::Error> {
    // An array that grows; pages move, bytes are not copied.
    let mut samples = FlashVec::new();
    samples.try_extend((0..1_000_000).map(f64::from))?;
    advise(&samples[..1000], Advice::Pin)?;

    // Objects of any size, and the table of a map over them.
    let arena = Arena::new()?;
    let mut lengths = HashMap::with_hasher_in(DefaultHashBuilder::default(), &arena);
    for word in ["paging", "to", "flash"] {
        lengths.insert(arena.alloc_slice(word.as_bytes())?, word.len());
    }

    println!("{} samples, {} words", samples.len(), lengths.len());
    println!("{} MiB of RAM", stats()?.budget_bytes >> 20);
    Ok(())
}
