//! The codecs of compressed pages: LZ4 and Zstandard, page by page.
//!
//! Neither allocates once it is made, nor touches thread-local storage: both run where faults are resolved. (C code
//! would read the stack protector's canary there: `.cargo/config.toml` compiles it without.) Both decoders check their
//! bounds. A frame of Zstandard here has no magic number, no checksum and no content size: the store's checksum
//! covers it, and a page's size is known.
//!
//! Both are public for the fuzz target of the decoders (`fuzz/fuzz_targets/page_decoders.rs`).

use flashvm_core::{Codec, PAGE_SIZE};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

/// The contents of a page.
type Page = [u8; PAGE_SIZE];

/// Bytes that the compressed form of any page fits in.
pub const ROOM: usize = PAGE_SIZE + PAGE_SIZE / 8;
/// A page is its own window: no table needs to reach farther.
const WINDOW_LOG: u32 = PAGE_SIZE.ilog2();

/// Compresses pages.
pub enum Encoder {
    /// LZ4, with its table.
    Lz4(Box<CompressTable>),
    /// Zstandard, with its context.
    Zstd(CCtx<'static>),
}

impl Encoder {
    /// An encoder for a codec.
    pub fn new(codec: Codec) -> Self {
        match codec {
            Codec::Lz4 => Self::Lz4(Box::new(CompressTable::small())),
            Codec::Zstd(level) => Self::Zstd(zstd_context(level.into())),
        }
    }

    /// Compresses a page; returns the length in bytes. `None`: it would take more than [`ROOM`], or the codec has no
    /// memory.
    pub fn compress(&mut self, page: &Page, into: &mut [u8; ROOM]) -> Option<usize> {
        match self {
            Self::Lz4(table) => compress_into_with_table(page, into, table).ok(),
            Self::Zstd(context) => context.compress2(&mut into[..], page).ok(),
        }
    }
}

/// A context that has compressed a page: its memory is allocated.
fn zstd_context(level: i32) -> CCtx<'static> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::WindowLog(WINDOW_LOG),
        CParameter::ContentSizeFlag(false),
    ] {
        let set = context.set_parameter(parameter);
        set.expect("a parameter that Zstandard knows");
    }
    let done = context.compress2(&mut [0; ROOM][..], &[0; PAGE_SIZE]);
    done.expect("memory for the codec");
    context
}

/// Decompresses pages.
pub enum Decoder {
    /// LZ4.
    Lz4,
    /// Zstandard, with its context.
    Zstd(DCtx<'static>),
}

impl Decoder {
    /// A decoder for what a codec has compressed.
    pub fn new(codec: Codec) -> Self {
        match codec {
            Codec::Lz4 => Self::Lz4,
            Codec::Zstd(_) => {
                let mut context = DCtx::create();
                let set = context.set_parameter(DParameter::Format(FrameFormat::Magicless));
                set.expect("a parameter that Zstandard knows");
                Self::Zstd(context)
            }
        }
    }

    /// Decompresses a page. Returns whether the bytes were the compressed form of a whole page.
    pub fn decompress(&mut self, packed: &[u8], into: &mut Page) -> bool {
        match self {
            Self::Lz4 => matches!(decompress_into(packed, into), Ok(PAGE_SIZE)),
            Self::Zstd(context) => {
                matches!(context.decompress(&mut into[..], packed), Ok(PAGE_SIZE))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const CODECS: [Codec; 4] = [
        Codec::Lz4,
        Codec::Zstd(-7),
        Codec::Zstd(-1),
        Codec::Zstd(19),
    ];

    /// A page of runs: of one byte, or of copies of what came before.
    fn page(runs: &[(u8, u16)]) -> Page {
        let mut page = [0; PAGE_SIZE];
        let mut at = 0;
        for &(byte, len) in runs.iter().cycle() {
            let end = (at + 1 + usize::from(len)).min(PAGE_SIZE);
            for to in at..end {
                page[to] = match byte {
                    0..128 => byte,
                    distance => page[to.saturating_sub(usize::from(distance))] ^ (to & 1) as u8,
                };
            }
            at = end;
            if at == PAGE_SIZE {
                return page;
            }
        }
        page
    }

    fn round(encoder: &mut Encoder, decoder: &mut Decoder, page: &Page) -> usize {
        let mut packed = [0; ROOM];
        let bytes = encoder.compress(page, &mut packed).expect("room");
        let mut back = [1; PAGE_SIZE];
        assert!(decoder.decompress(&packed[..bytes], &mut back));
        assert_eq!(&back, page);
        bytes
    }

    proptest! {
        #[test]
        fn pages_come_back(runs in vec(any::<(u8, u16)>(), 1..300), noise in vec(any::<u8>(), PAGE_SIZE)) {
            for codec in CODECS {
                let (mut encoder, mut decoder) = (Encoder::new(codec), Decoder::new(codec));
                round(&mut encoder, &mut decoder, &page(&runs));
                // A context is used again after pages of another kind.
                round(&mut encoder, &mut decoder, noise.first_chunk().expect("a page"));
                round(&mut encoder, &mut decoder, &page(&runs));
            }
        }

        /// Damaged bytes give an error, or a page; never a crash. The store's checksum tells the two apart.
        #[test]
        fn damage_is_no_crash(
            runs in vec(any::<(u8, u16)>(), 1..50),
            flips in vec((any::<prop::sample::Index>(), 1..=255_u8), 1..8),
            cut in any::<prop::sample::Index>(),
            noise in vec(any::<u8>(), 0..ROOM),
        ) {
            for codec in CODECS {
                let (mut encoder, mut decoder) = (Encoder::new(codec), Decoder::new(codec));
                let mut packed = [0; ROOM];
                let bytes = encoder.compress(&page(&runs), &mut packed).expect("room");
                let mut back = [0; PAGE_SIZE];
                decoder.decompress(&packed[..cut.index(bytes)], &mut back);
                for (at, flip) in &flips {
                    packed[at.index(bytes)] ^= flip;
                }
                decoder.decompress(&packed[..bytes], &mut back);
                decoder.decompress(&noise, &mut back);
                // The context is as good as new.
                round(&mut encoder, &mut decoder, &page(&runs));
            }
        }
    }

    #[test]
    fn a_part_of_a_page_is_refused() {
        let page = page(&[(1, 40), (200, 100)]);
        for codec in CODECS {
            let (mut encoder, mut decoder) = (Encoder::new(codec), Decoder::new(codec));
            let mut packed = [0; ROOM];
            let bytes = encoder.compress(&page, &mut packed).expect("room");
            let mut back = [0; PAGE_SIZE];
            assert!(
                !decoder.decompress(&packed[..bytes - 1], &mut back),
                "{codec:?}"
            );
            assert!(!decoder.decompress(&[], &mut back), "{codec:?}");
        }
    }

    #[test]
    fn zstandard_shrinks_more() {
        let page = page(&[(7, 3), (9, 1), (130, 60), (3, 2), (200, 20)]);
        let size = |codec| round(&mut Encoder::new(codec), &mut Decoder::new(codec), &page);
        let (lz4, zstd) = (size(Codec::Lz4), size(Codec::Zstd(1)));
        assert!(zstd < lz4, "{zstd} and {lz4} bytes");
    }
}
