//! The erased pool (section 4.1): freed segments are erased while the program waits, in the
//! background, or at no cost; the least worn erased ones are allocated first. A segment that takes
//! too long to erase is retired.

use super::bank::Bank;
use super::model::{Erase, Model};
use super::table::SegmentState;
use crate::error::{Error, Result};

impl Bank {
    /// Lets `ns` of modelled time pass with the bank idle: background erases continue.
    pub(crate) fn pass(&mut self, mut ns: u64) -> Result<()> {
        while ns > 0 {
            ns = self.clock.pass(ns);
            if self.clock.erase_left == Some(0) {
                self.finish_erase()?;
            } else {
                self.clock.now += ns;
                ns = 0;
            }
        }
        Ok(())
    }

    /// Makes the medium long enough for `segments` segments. The bank is as before.
    pub(crate) fn extend(&self, segments: u64) -> Result<()> {
        let (from, to) = (
            self.identity.length(),
            self.identity.with_segments(segments).length(),
        );
        self.medium.extend(from, to).map_err(|error| {
            let what = format!("growing the bank from {from} to {to} bytes");
            Error::io(what, error)
        })
    }

    /// Takes the new segments of an extended medium; stable when this returns. Until its identity is written the bank is as
    /// it was.
    pub(crate) fn grow(&mut self, segments: u64) -> Result<()> {
        let grown = self.identity.with_segments(segments);
        self.table.grow(&self.identity, &grown, &*self.medium)?;
        grown.write(&*self.medium)?;
        self.identity = grown;
        self.written.resize(segments as usize, 0);
        self.sync()
    }

    /// Takes the least worn erased segment for `address`; waits for an erase if there is none.
    pub(super) fn take_erased(&mut self, address: u64, continues: bool) -> Result<usize> {
        loop {
            let least = (self.table.segments.iter().enumerate())
                .filter(|(_, segment)| segment.state == SegmentState::Erased)
                .min_by_key(|(_, segment)| segment.erases)
                .map(|(index, _)| index);
            if let Some(index) = least {
                self.table.segments[index].state = SegmentState::Allocated {
                    key: self.identity.key,
                    address,
                    continues,
                };
                return Ok(index);
            }
            if self.dirty.is_empty() {
                return Err(self.exhausted());
            }
            self.clock.now += self.clock.erase_left.take().unwrap_or(0);
            self.finish_erase()?;
        }
    }

    pub(super) fn exhausted(&self) -> Error {
        let segments = self.table.segments.len() as u64;
        let count = |f: fn(&SegmentState) -> bool| {
            self.table.segments.iter().filter(|s| f(&s.state)).count() as u64
        };
        match count(|state| *state == SegmentState::Retired) {
            0 => Error::Full {
                live: count(|state| matches!(state, SegmentState::Allocated { .. }))
                    * self.identity.segment_bytes,
                capacity: segments * self.identity.segment_bytes,
            },
            retired => Error::WornOut { retired, segments },
        }
    }

    pub(super) fn release(&mut self, segment: usize) -> Result<()> {
        self.table.segments[segment].state = SegmentState::Dirty;
        self.counters.erased_bytes_written += self.written[segment];
        self.dirty.push_back(segment);
        match self.model {
            Some(Model {
                erase: Erase::Background { .. },
                ..
            }) => {
                if self.clock.erase_left.is_none() {
                    self.clock.erase_left = Some(self.erase_time(segment));
                }
                Ok(())
            }
            Some(Model {
                erase: Erase::Waiting,
                ..
            }) => {
                self.clock.now += self.erase_time(segment);
                self.finish_erase()
            }
            Some(Model {
                erase: Erase::Free, ..
            })
            | None => self.finish_erase(),
        }
    }

    fn erase_time(&self, segment: usize) -> u64 {
        self.model.map_or(0, |model| {
            model.erase_time(self.table.segments[segment].erases)
        })
    }

    /// The segment at the head of the queue is erased, or retired if that took too long.
    fn finish_erase(&mut self) -> Result<()> {
        let segment = self.dirty.pop_front().expect("an erase was under way");
        let took = self.erase_time(segment);
        let line = &mut self.table.segments[segment];
        line.erases += 1;
        self.counters.erases += 1;
        self.written[segment] = 0;
        let slow = self.model.is_some_and(|model| took > model.erase_ns);
        line.state = if slow {
            SegmentState::Retired
        } else {
            SegmentState::Erased
        };
        if self.model.is_some() && !slow {
            let ones = vec![0xFF; self.identity.segment_bytes as usize];
            self.medium
                .write(self.identity.offset(segment), &ones)
                .map_err(|error| Error::io("erasing the bank", error))?;
        }
        self.clock.erase_left = self.dirty.front().map(|&next| self.erase_time(next));
        Ok(())
    }
}
