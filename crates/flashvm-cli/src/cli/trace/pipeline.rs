//! The steps between a reference and the trace: caches, kinds, a part, pages.

use super::output::Output;
use crate::cli::refusal::Refusal;
use flashvm_sim::trace::cpu_cache::{CpuCache, CpuCacheOptions};
use flashvm_sim::trace::{Granularity, Kind, Reference};

/// The steps that were asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Filtered by these caches.
    pub(super) caches: Option<CpuCacheOptions>,
    /// Without instruction fetches.
    pub(super) data: bool,
    /// As page numbers.
    pub(super) pages: bool,
    /// Leave out `skip`, then keep `take`.
    pub(super) skip: u64,
    pub(super) take: Option<u64>,
}

impl Wanted {
    /// The steps in words, for the provenance.
    pub(super) fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        steps.extend(self.caches.map(|caches| caches.to_string()));
        if self.data {
            steps.push("without instruction fetches".to_owned());
        }
        match (self.skip, self.take) {
            (0, None) => {}
            (0, Some(take)) => steps.push(format!("at most {take} references")),
            (skip, None) => steps.push(format!("without the first {skip} references")),
            (skip, Some(take)) => {
                steps.push(format!("at most {take} references from number {skip} on"))
            }
        }
        if self.pages {
            steps.push("pages of 4096 bytes".to_owned());
        }
        steps
    }
}

/// References on their way into a file.
pub(super) struct Pipeline {
    wanted: Wanted,
    from: Granularity,
    caches: Option<CpuCache>,
    /// References fed.
    seen: u64,
    /// References that reached the selection of the part.
    reached: u64,
    memory: Vec<Reference>,
}

impl Pipeline {
    /// Takes references of granularity `from`.
    pub(super) fn new(wanted: Wanted, from: Granularity) -> Result<Self, Refusal> {
        if let Some(caches) = &wanted.caches {
            caches.check().map_err(Refusal::new)?;
            if from == Granularity::Pages {
                let line = "--filter: the trace is one of pages: caches need addresses of bytes";
                return Err(Refusal::new(line));
            }
        }
        Ok(Self {
            caches: wanted.caches.as_ref().map(CpuCache::new),
            wanted,
            from,
            seen: 0,
            reached: 0,
            memory: Vec::new(),
        })
    }

    /// The granularity of the output.
    pub(super) fn granularity(&self) -> Granularity {
        match self.wanted.pages {
            true => Granularity::Pages,
            false => self.from,
        }
    }

    /// References fed.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Feeds a reference. False: the trace is complete.
    #[inline]
    pub(super) fn feed(
        &mut self,
        reference: Reference,
        output: &mut Output,
    ) -> Result<bool, Refusal> {
        self.seen += 1;
        let Some(caches) = &mut self.caches else {
            return self.keep(reference, output);
        };
        caches.access(reference, &mut self.memory);
        if self.memory.is_empty() {
            return Ok(true);
        }
        let mut more = true;
        let mut memory = std::mem::take(&mut self.memory);
        for reference in memory.drain(..) {
            more = self.keep(reference, output)?;
            if !more {
                break;
            }
        }
        self.memory = memory;
        Ok(more)
    }

    fn keep(&mut self, reference: Reference, output: &mut Output) -> Result<bool, Refusal> {
        if self.wanted.data && reference.kind == Kind::Instruction {
            return Ok(true);
        }
        let end = self
            .wanted
            .take
            .map(|take| self.wanted.skip.saturating_add(take));
        self.reached += 1;
        if self.reached > self.wanted.skip && end.is_none_or(|end| self.reached <= end) {
            if self.wanted.pages {
                for address in self.from.pages(reference) {
                    output.push(Reference {
                        address,
                        bytes: 0,
                        ..reference
                    })?;
                }
            } else {
                output.push(reference)?;
            }
        }
        Ok(end.is_none_or(|end| self.reached < end))
    }
}
