//! Damaged compressed pages: each decoder refuses them or gives a page, writes to no byte beside the page, and is as good as
//! new afterwards. `cargo test` runs the same with bounded mutations (`crates/flashvm-live/src/pager/codec.rs`).
#![no_main]

use flashvm_live::codec::{Decoder, Encoder, ROOM};
use flashvm_core::{Codec, PAGE_SIZE};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

const CODECS: [Codec; 3] = [Codec::Lz4, Codec::Zstd(-1), Codec::Zstd(19)];
/// The bytes on both sides of the page.
const BESIDE: u8 = 0xa5;

thread_local! {
    /// As in a pager, one of each for all pages.
    static MADE: RefCell<Vec<(Encoder, Decoder)>> =
        RefCell::new(CODECS.map(|codec| (Encoder::new(codec), Decoder::new(codec))).into());
}

/// Decompresses into the middle of three pages, which alone may change.
fn decoded(decoder: &mut Decoder, packed: &[u8]) -> Option<[u8; PAGE_SIZE]> {
    let mut room = [BESIDE; 3 * PAGE_SIZE];
    let page: &mut [u8; PAGE_SIZE] = (&mut room[PAGE_SIZE..2 * PAGE_SIZE]).try_into().expect("a page");
    let whole = decoder.decompress(packed, page);
    let page = *page;
    let beside = room[..PAGE_SIZE].iter().chain(&room[2 * PAGE_SIZE..]);
    assert!(beside.copied().all(|byte| byte == BESIDE), "a byte beside the page has changed");
    whole.then_some(page)
}

/// A page of runs: the first bytes as a pattern, with another byte mixed in from time to time.
fn page(pattern: &[u8]) -> [u8; PAGE_SIZE] {
    std::array::from_fn(|at| pattern[at % pattern.len()] ^ (at / 97 * usize::from(at % 5 == 0)) as u8)
}

// Input: 16 bytes of a page's pattern; then what is decoded as it is; and as edits of the compressed page: two bytes of
// offset and one of value each, the rest cut off at the first offset of 0xffff.
fuzz_target!(|input: &[u8]| {
    let Some((pattern, rest)) = input.split_first_chunk::<16>() else { return };
    let page = page(pattern);
    MADE.with_borrow_mut(|made| {
        for (encoder, decoder) in made {
            let mut packed = [0; ROOM];
            let len = encoder.compress(&page, &mut packed).expect("room");
            assert_eq!(decoded(decoder, &packed[..len]), Some(page));
            let _ = decoded(decoder, rest);
            let (mut edited, mut end) = (packed, len);
            for edit in rest.chunks_exact(3) {
                match usize::from(u16::from_le_bytes([edit[0], edit[1]])) {
                    0xffff => end = usize::from(edit[2]) * len / 256,
                    offset => edited[offset % len] ^= edit[2],
                }
            }
            let _ = decoded(decoder, &edited[..end]);
            assert_eq!(decoded(decoder, &packed[..len]), Some(page), "the decoder is as good as new");
        }
    });
});
