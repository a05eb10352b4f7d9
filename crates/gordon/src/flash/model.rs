//! The timing of an emulated bank (section 3, Table 3): parallel chips, with addresses striped over
//! them byte by byte. A model charges time to a clock of its own instead of sleeping, so a run
//! under it is deterministic.

/// Bytes that one chip erases at a time (section 3).
pub const BLOCK: u64 = 64 << 10;
/// Erase blocks of one chip (section 3).
pub const BLOCKS: u64 = 32;

/// When a freed segment becomes usable again (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erase {
    /// While the program waits: there is no pre-erased flash.
    Waiting,
    /// In the background. A write waits for the current erase, or suspends it where the chip can.
    Background {
        /// Extra ns for each write that suspends an erase; `None`: the chip cannot suspend (section
        /// 3).
        suspend_ns: Option<u64>,
    },
    /// At once: the "free erase" of Table 6 and Figure 4.
    Free,
}

/// The speed and the endurance of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Parallel chips.
    pub ways: u64,
    /// Nanoseconds before a write begins: a disk's seek and rotation.
    pub access_ns: u64,
    /// Nanoseconds to write one byte to each chip.
    pub write_ns: u64,
    /// Nanoseconds to erase one block of each chip.
    pub erase_ns: u64,
    /// When erases happen.
    pub erase: Erase,
    /// Whether bytes may be updated in place (battery-backed DRAM).
    pub update_in_place: bool,
    /// Erases after which the next one takes twice as long, which retires the segment.
    pub endurance: u32,
}

impl Model {
    /// Intel's 28F016SV, `ways` in parallel: 6 us a byte, 600 ms an erase, a million erases.
    #[must_use]
    pub const fn intel(ways: u64) -> Self {
        Self {
            ways,
            access_ns: 0,
            write_ns: 6_000,
            erase_ns: 600_000_000,
            erase: Erase::Waiting,
            update_in_place: false,
            endurance: 1_000_000,
        }
    }

    /// Battery-backed DRAM of 60 ns (Table 1) in words of `ways` bytes: no erase, update in place.
    #[must_use]
    pub const fn dram(ways: u64) -> Self {
        Self {
            write_ns: 60,
            erase_ns: 0,
            erase: Erase::Free,
            update_in_place: true,
            ..Self::intel(ways)
        }
    }

    /// The paper's disk, as large as a bank of `ways` chips: 6.15 ms access time (Table 1), then
    /// `bytes_per_s` (section 7.3: 6 MB to the raw disk, 2 MB through its file system).
    #[must_use]
    pub const fn disk(ways: u64, bytes_per_s: u64) -> Self {
        Self {
            access_ns: 6_150_000,
            write_ns: 1_000_000_000 * ways / bytes_per_s,
            ..Self::dram(ways)
        }
    }

    /// The same model with its erases at the time that `erase` says.
    #[must_use]
    pub const fn with_erase(self, erase: Erase) -> Self {
        Self { erase, ..self }
    }

    /// Free erases and free writes: the "fast Flash" of Figure 4.
    #[must_use]
    pub const fn fast(self) -> Self {
        Self {
            write_ns: 0,
            erase: Erase::Free,
            ..self
        }
    }

    /// Chips `factor` times as fast.
    #[must_use]
    pub const fn scaled(self, factor: u64) -> Self {
        Self {
            access_ns: self.access_ns / factor,
            write_ns: self.write_ns / factor,
            erase_ns: self.erase_ns / factor,
            ..self
        }
    }

    /// Bytes of an erase: one block of every chip.
    #[must_use]
    pub const fn segment_bytes(&self) -> u64 {
        BLOCK * self.ways
    }

    /// Nanoseconds to write `bytes` at `address`: the access, then one step for each row of chips.
    #[must_use]
    pub const fn write_time(&self, address: u64, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let rows = (address + bytes).div_ceil(self.ways) - address / self.ways;
        self.access_ns + rows * self.write_ns
    }

    /// Nanoseconds of the erase that follows `erases` earlier ones.
    #[must_use]
    pub const fn erase_time(&self, erases: u32) -> u64 {
        if erases >= self.endurance {
            self.erase_ns * 2
        } else {
            self.erase_ns
        }
    }
}

/// Modelled time, and the current erase.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Nanoseconds since the bank was opened.
    pub(crate) now: u64,
    /// Remaining time of the erase at the head of the queue.
    pub(crate) erase_left: Option<u64>,
}

impl Clock {
    /// Lets `ns` pass with the bank idle; returns the rest after the current erase.
    pub(crate) fn pass(&mut self, ns: u64) -> u64 {
        let used = self.erase_left.map_or(ns, |left| left.min(ns));
        self.now += used;
        if let Some(left) = &mut self.erase_left {
            *left -= used;
        }
        ns - used
    }

    /// Charges a write of `ns`.
    pub(crate) fn write(&mut self, ns: u64, erase: Erase) {
        if let (Some(left), Erase::Background { suspend_ns }) = (&mut self.erase_left, erase) {
            match suspend_ns {
                Some(ns) => self.now += ns,
                None => self.now += std::mem::take(left),
            }
        }
        self.now += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidths_are_those_of_table_3() {
        for (ways, write, erase) in [
            (1, 163, 107),
            (4, 651, 427),
            (8, 1302, 853),
            (16, 2604, 1707),
            (32, 5208, 3413),
        ] {
            let model = Model::intel(ways);
            let segment = model.segment_bytes();
            let kib_per_s = |ns: u64| (segment as f64 / 1024.0 / (ns as f64 / 1e9)).round() as u64;
            assert_eq!(
                kib_per_s(model.write_time(0, segment)),
                write,
                "{ways} ways"
            );
            assert_eq!(kib_per_s(model.erase_time(0)), erase, "{ways} ways");
        }
    }

    #[test]
    fn a_write_across_rows_takes_a_step_for_each() {
        let model = Model::intel(4);
        assert_eq!(model.write_time(0, 4), 6_000);
        assert_eq!(model.write_time(2, 4), 12_000);
        assert_eq!(model.write_time(3, 1), 6_000);
    }

    #[test]
    fn a_write_suspends_an_erase_or_waits_for_it() {
        let mut clock = Clock {
            now: 0,
            erase_left: Some(100),
        };
        clock.write(
            5,
            Erase::Background {
                suspend_ns: Some(2),
            },
        );
        assert_eq!((clock.now, clock.erase_left), (7, Some(100)));
        clock.write(5, Erase::Background { suspend_ns: None });
        assert_eq!((clock.now, clock.erase_left), (112, Some(0)));
    }
}
