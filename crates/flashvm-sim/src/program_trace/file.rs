//! The file of a program trace:
//!
//! ```text
//! file = "FLASHVMP" version:u32 zstd(length:u32 origin steps:u64 step*)
//! step = varint(zigzag(page - page before) << 3 | other << 2 | touch) [varint(thread)] varint(work in us)
//! ```
//!
//! Numbers are little-endian; the origin is a JSON object of `length` bytes, at most 64 KiB; touch is 0 for a
//! load, 1 for a store, 2 for a store of zeros, 3 for a zap; `other` is 1 where the thread is another than that of the step
//! before (the first: than 0), and its number follows. The zstd frame has a checksum, and `steps` says how many there are:
//! truncation and damage are detected, in the origin too.

use super::{Origin, ProgramTrace};
use crate::replay::{Step, Touch};
use flashvm_core::{Nanos, PageId};
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"FLASHVMP";
const VERSION: u32 = 1;
const ORIGIN_BYTES_MAX: u32 = 64 * 1024;
const LEVEL: i32 = 9;
/// The unit of work. What is left over is added to the next step.
const UNIT_NS: u64 = 1000;
const TOUCHES: [Touch; 4] = [Touch::Read, Touch::Write, Touch::Clear, Touch::Zap];
/// More steps are refused: a trace is held in memory.
const STEPS_MAX: u64 = 1 << 26;
/// Threads of a trace.
const THREADS_MAX: u16 = 4096;

/// Why a file is no program trace.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It cannot be read, or is cut short.
    #[error("{0}: copy it again, it is damaged or cut short")]
    Read(#[from] io::Error),
    /// It begins otherwise.
    #[error("not a program trace: name a file that flashvm reproduce record has written")]
    Other,
    /// It was written by another version.
    #[error(
        "a program trace of version {0}, and this flashvm reads version {VERSION}: record it again"
    )]
    Version(u32),
    /// Its contents are invalid.
    #[error("step {step}: {why}: copy it again, it is damaged")]
    Step {
        /// Which step, from 0.
        step: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// Its head is invalid.
    #[error("{0}: copy it again, it is damaged")]
    Head(&'static str),
}

impl ProgramTrace {
    /// Writes the file. Work is in whole microseconds there: what is left over is added to the next step.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let origin = serde_json::to_vec(&self.origin)?;
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut out = zstd::stream::write::Encoder::new(out, LEVEL)?;
        out.include_checksum(true)?;
        out.write_all(&(origin.len() as u32).to_le_bytes())?;
        out.write_all(&origin)?;
        out.write_all(&(self.steps.len() as u64).to_le_bytes())?;
        let (mut before, mut left_ns, mut bytes) = (0_i64, 0, Vec::new());
        let mut running = 0;
        for (step, &thread) in self.steps.iter().zip(&*self.threads) {
            let delta = i64::from(step.page.0) - before;
            before = i64::from(step.page.0);
            let zigzag = (delta << 1 ^ delta >> 63) as u64;
            let other = thread != running;
            push_varint(
                &mut bytes,
                zigzag << 3 | u64::from(other) << 2 | step.touch as u64,
            );
            if other {
                push_varint(&mut bytes, thread.into());
                running = thread;
            }
            left_ns += step.work.0;
            push_varint(&mut bytes, left_ns / UNIT_NS);
            left_ns %= UNIT_NS;
            if bytes.len() > 1 << 16 {
                out.write_all(&bytes)?;
                bytes.clear();
            }
        }
        out.write_all(&bytes)?;
        out.finish()?.flush()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it is no program trace, of another version, or damaged.
    pub fn read(mut input: impl Read) -> Result<Self, Damage> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(Damage::Other);
        }
        let version = read_u32(&mut input)?;
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let mut input = io::BufReader::new(zstd::stream::read::Decoder::new(input)?);
        let length = read_u32(&mut input)?;
        if length > ORIGIN_BYTES_MAX {
            return Err(Damage::Head("its origin is too long"));
        }
        let mut origin = vec![0; length as usize];
        input.read_exact(&mut origin)?;
        let origin: Origin =
            serde_json::from_slice(&origin).map_err(|_| Damage::Head("its origin is damaged"))?;
        let mut count = [0; 8];
        input.read_exact(&mut count)?;
        let count = u64::from_le_bytes(count);
        if count > STEPS_MAX {
            return Err(Damage::Head("it has too many steps"));
        }
        let mut steps = Vec::new();
        let (mut page, mut thread) = (0_i64, 0);
        for step in 0..count {
            let bad = |why| Damage::Step { step, why };
            let coded = read_varint(&mut input)?.ok_or(bad("a number is too long"))?;
            let zigzag = coded >> 3;
            if coded & 4 != 0 {
                let other = read_varint(&mut input)?.and_then(|other| u16::try_from(other).ok());
                thread = other
                    .filter(|&other| other < THREADS_MAX)
                    .ok_or(bad("there is no such thread"))?;
            }
            let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            page = page.saturating_add(delta);
            let number = u32::try_from(page).ok().filter(|&number| number < u32::MAX);
            let work = read_varint(&mut input)?.ok_or(bad("a number is too long"))?;
            let work = work.checked_mul(UNIT_NS).ok_or(bad("it works too long"))?;
            let step = Step {
                page: PageId(number.ok_or(bad("there is no such page"))?),
                touch: TOUCHES[(coded & 3) as usize],
                work: Nanos(work),
            };
            steps.push((thread, step));
        }
        if input.read(&mut [0])? != 0 {
            return Err(Damage::Head("something follows its last step"));
        }
        Ok(Self::of_threads(steps, origin))
    }
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// `None`: the number has more than 64 bits.
fn read_varint(input: &mut impl Read) -> io::Result<Option<u64>> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let mut byte = [0];
        input.read_exact(&mut byte)?;
        let bits = u64::from(byte[0] & 0x7f);
        if shift > 63 || bits << shift >> shift != bits {
            return Ok(None);
        }
        number |= bits << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(Some(number));
        }
        shift += 7;
    }
}

fn read_u32(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_step() -> impl Strategy<Value = Step> {
        (
            0..u32::MAX - 1,
            0..TOUCHES.len(),
            0..u64::MAX / UNIT_NS / UNIT_NS,
        )
            .prop_map(|(page, touch, work)| Step {
                page: PageId(page),
                touch: TOUCHES[touch],
                work: Nanos(work * UNIT_NS),
            })
    }

    fn file_of(steps: Vec<(u16, Step)>) -> Vec<u8> {
        let mut file = Vec::new();
        let trace = ProgramTrace::of_threads(steps, Origin::default());
        trace.write(&mut file).unwrap();
        file
    }

    fn any_steps(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u16, Step)>> {
        proptest::collection::vec((0..THREADS_MAX, any_step()), count)
    }

    proptest! {
        #[test]
        fn steps_come_back(steps in any_steps(0..50)) {
            let again = ProgramTrace::read(&file_of(steps.clone())[..]).unwrap();
            for thread in 0..again.threads() {
                let own = steps.iter().filter(|(of, _)| *of == thread).map(|(_, step)| *step);
                prop_assert_eq!(Vec::from_iter(again.of_thread(thread)), Vec::from_iter(own));
            }
            prop_assert_eq!(again, ProgramTrace::of_threads(steps, Origin::default()));
        }

        #[test]
        fn a_file_cut_short_or_changed_is_an_error_or_the_same(
            steps in any_steps(1..20), at in any::<prop::sample::Index>(), flip in 1_u8..
        ) {
            let whole = file_of(steps);
            let at = at.index(whole.len());
            prop_assert!(ProgramTrace::read(&whole[..at]).is_err());
            let mut changed = whole.clone();
            changed[at] ^= flip;
            if let Ok(trace) = ProgramTrace::read(&changed[..]) {
                // The frame's head has bits without a meaning.
                prop_assert_eq!(trace, ProgramTrace::read(&whole[..]).unwrap());
            }
        }
    }

    #[test]
    fn errors_name_the_remedy() {
        let error = |bytes: &[u8]| ProgramTrace::read(bytes).unwrap_err().to_string();
        assert!(error(b"FLASHVMT").contains("flashvm reproduce record"));
        let mut other = file_of(Vec::new());
        other[8] = 9;
        assert!(error(&other).contains("version 9"));
        assert!(error(b"FLASH").contains("cut short"));
    }
}
