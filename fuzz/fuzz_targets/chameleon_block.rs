//! A damaged block of the log: its back-pointers stay inside the block, and the cleaner either
//! moves every live page undamaged, or leaves the block as it is.
#![no_main]

use flashvm_core::LocalClusters;
use flashvm_core::chameleon::block::back_pointers;
use flashvm_core::chameleon::{
    BLOCK_BYTES, BackPointer, BlockBuffer, Check, FrameId, Location, Log, Place, Shape, Svmp, Table,
};
use libfuzzer_sys::fuzz_target;

/// Any hash that detects damage: FNV-1a.
fn check(bytes: &[u8]) -> Check {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash: u64 = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    Check::of(hash ^ hash >> 32)
}

/// A log whose first block holds a page of each shape, some of them garbage; the block's bytes and number.
fn written(garbage: u16) -> (Log, Table, LocalClusters, Vec<u8>, u32) {
    let (mut log, mut table, mut clusters) = (Log::new(8), Table::new(), LocalClusters::new(8));
    let round = log.begin(&mut clusters, 3).expect("an empty store");
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut buffer = BlockBuffer::new(&mut bytes);
    for (page, shape) in (0..).map(Svmp).zip(Shape::ALL) {
        table.set(page, shape, Place::Condemned(FrameId(page.0), None));
        buffer.push(page, shape, &vec![page.0 as u8 + 1; shape.size()]).expect("an empty block");
    }
    let (len, pointers) = buffer.finish();
    log.commit(&mut table, &mut clusters, len, &pointers, |_, _| {});
    for pointer in &pointers {
        let (shape, place) = table.get(pointer.page);
        let at = place.location().expect("committed");
        let place = if garbage & shape.bit() != 0 {
            log.release(&mut clusters, at, shape);
            Place::Fresh
        } else {
            Place::OnFlash(at, check(&bytes[pointer.range()]))
        };
        table.set(pointer.page, shape, place);
    }
    (log, table, clusters, bytes, round.target)
}

// Input: two bytes of garbage flags; then edits: four bytes of offset, one of length, the bytes.
fuzz_target!(|input: &[u8]| {
    let Some((garbage, edits)) = input.split_first_chunk::<2>() else { return };
    let (mut log, mut table, mut clusters, good, block) = written(u16::from_le_bytes(*garbage));
    let mut bytes = good.clone();
    let mut rest = edits;
    while let Some((offset, tail)) = rest.split_first_chunk::<4>() {
        let Some((&length, tail)) = tail.split_first() else { break };
        let length = usize::from(length).min(tail.len());
        let offset = u32::from_le_bytes(*offset) as usize;
        // Most interesting bytes are in the header.
        let offset = if offset % 4 == 0 { offset % (BLOCK_BYTES - 255) } else { offset % 4096 };
        bytes[offset..offset + length].copy_from_slice(&tail[..length]);
        rest = &tail[length..];
    }
    for pointer in back_pointers(&bytes).unwrap_or_default() {
        assert!(pointer.range().end <= BLOCK_BYTES && pointer.range().start >= 4096);
    }
    let Ok(round) = log.begin(&mut clusters, 3) else { return };
    let mut target = vec![0; BLOCK_BYTES];
    let mut buffer = BlockBuffer::new(&mut target);
    let Some(source) = round.source else { return };
    assert_eq!(source, block);
    let live: Vec<_> = table.pages().filter(|(.., place)| place.location().is_some()).collect();
    let matches = |_: &BackPointer, place: Place, bytes: &[u8]| matches!(place, Place::OnFlash(_, there) if there == check(bytes));
    let kept = log.keep_live(&table, Some(&bytes), matches, &mut buffer);
    let (len, pointers) = buffer.finish();
    assert_eq!(pointers.len(), if kept { live.len() } else { 0 });
    log.commit(&mut table, &mut clusters, len, &pointers, |_, _| unreachable!("nothing has changed"));
    for (page, shape, _) in live {
        let (_, place) = table.get(page);
        let at = place.location().expect("it is still live");
        let there = if kept { &target } else { &good };
        assert_eq!(at, Location::new(if kept { round.target } else { block }, at.sector()));
        let start = at.sector() as usize * 512;
        assert_eq!(there[start..start + shape.size()], vec![page.0 as u8 + 1; shape.size()], "{page:?} is lost");
    }
});
