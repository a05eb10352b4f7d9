//! The verdict in one line, and what would make programs faster here, in order of gain: pure functions over the facts
//! that `doctor` has found.

use crate::cli::environment::Environment;
use crate::cli::units::latency;
use serde::Serialize;

/// A random read of a solid-state drive, in nanoseconds: docs/performance.md has 37 us, cheap drives take 100.
const FLASH_READ_NS: u64 = 100_000;
/// A read above this is advised against: a disk with heads takes 4 ms and more, a drive behind a network about 1.
const SLOW_READ_NS: u64 = 400_000;
/// How many times as fast passes that read ahead become, at the most, by UFFDIO_MOVE, and by io_uring instead of threads
/// (docs/performance.md, "What a machine lacks").
const MOVE_TIMES: f64 = 3.0;
const IO_URING_TIMES_THREADS: f64 = 2.3;
/// How many times as many reads of 4 KiB, 32 at a time, by io_uring as by `io_submit` (docs/performance.md, "Without
/// io_uring").
const IO_URING_TIMES: f64 = 1.05;

/// What the checks have found.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) place: Environment,
    /// The ways to deliver faults, the fastest first.
    pub(super) ways: Vec<WayHere>,
    /// Pages leave without a copy: the kernel can move them (UFFDIO_MOVE), or the way does without.
    pub(super) moves: bool,
    /// How to allow io_uring; `None`: it works.
    pub(super) io_uring_remedy: Option<String>,
    /// The kernel allows asynchronous I/O (`io_submit`).
    pub(super) io_submit: bool,
    /// What every run needs and is not here, `/proc` or a store, with the remedy; `None`: all is.
    pub(super) lacks: Option<String>,
    /// The median of a random read of the store, in nanoseconds, if it was measured.
    pub(super) read_ns: Option<u64>,
}

/// A way to deliver faults on this machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WayHere {
    pub(super) name: &'static str,
    pub(super) needs: &'static str,
    /// The time of a fault without I/O, as a multiple of the fastest way's.
    pub(super) relative_time: f64,
    /// Whether some Linux on this processor can have it.
    pub(super) exists: bool,
    /// Why it does not work here, with the remedy; null: it works.
    pub(super) lacks: Option<String>,
}

/// A change that makes programs faster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Advice {
    pub(super) what: String,
    /// How many times as fast what it speeds up becomes, at the most.
    pub(super) times: f64,
    /// The command or the setting.
    pub(super) how: String,
}

impl Facts {
    /// The fastest way that works.
    fn way(&self) -> Option<&WayHere> {
        self.ways.iter().find(|way| way.lacks.is_none())
    }

    /// Whether programs can be run.
    pub(super) fn works(&self) -> bool {
        self.way().is_some() && self.lacks.is_none()
    }

    /// One line: whether programs run here, and how fast, or what they lack.
    pub(super) fn verdict(&self) -> String {
        let fastest = self.ways.iter().find(|way| way.exists);
        let way = match (self.way(), &self.lacks) {
            (Some(way), None) => way,
            (_, Some(why)) => return format!("Programs do not run here: {why}"),
            (None, None) => {
                let why = fastest.and_then(|way| way.lacks.as_deref());
                return format!("Programs do not run here: {}", why.unwrap_or_default());
            }
        };
        let io = match self.io_uring_remedy {
            None => "io_uring",
            Some(_) if self.io_submit => "I/O by io_submit",
            Some(_) => "I/O by threads",
        };
        let mut line = format!(
            "Programs run here: faults {}, {io}, cold pages compressed in RAM",
            way.name
        );
        if !self.moves {
            line.push_str(", evicted by copying");
        }
        if let Some(ns) = self.read_ns {
            line.push_str(&format!(", {} a random read of the store", latency(ns)));
        }
        line
    }

    /// What would make programs faster, the largest gain first.
    pub(super) fn advice(&self) -> Vec<Advice> {
        // What does not run has no speed to compare with: the verdict has the remedy.
        let Some(now) = self.way().filter(|_| self.works()) else {
            return Vec::new();
        };
        let mut advice = Vec::new();
        for way in self.ways.iter().filter(|way| way.exists) {
            let Some(lacks) = &way.lacks else { break };
            advice.push(Advice {
                what: format!(
                    "faults {} instead of {}, for each fault",
                    way.name, now.name
                ),
                times: now.relative_time / way.relative_time,
                how: lacks.clone(),
            });
        }
        if let Some(ns) = self.read_ns.filter(|&ns| ns > SLOW_READ_NS) {
            advice.push(Advice {
                what: format!(
                    "a store on a solid-state drive, for faults that read: {} instead of {}",
                    latency(FLASH_READ_NS),
                    latency(ns)
                ),
                times: ns as f64 / FLASH_READ_NS as f64,
                how: self.place.disk(),
            });
        }
        if !self.moves {
            advice.push(Advice {
                what: "pages moved instead of copied on eviction, for passes in order".to_owned(),
                times: MOVE_TIMES,
                how: format!("{}: run Linux 6.8 or later", self.place.root()),
            });
        }
        if let Some(remedy) = &self.io_uring_remedy {
            let (instead, times) = match self.io_submit {
                true => ("io_submit", IO_URING_TIMES),
                false => ("threads", IO_URING_TIMES_THREADS),
            };
            advice.push(Advice {
                what: format!("io_uring instead of {instead}, for what is read ahead"),
                times,
                how: remedy.clone(),
            });
        }
        advice.sort_by(|a, b| b.times.total_cmp(&a.times));
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::environment::Need;

    fn way(name: &'static str, relative_time: f64, lacks: Option<&str>) -> WayHere {
        WayHere {
            name,
            needs: "a kernel",
            relative_time,
            exists: true,
            lacks: lacks.map(str::to_owned),
        }
    }

    /// A machine on which everything works.
    fn good() -> Facts {
        Facts {
            place: Environment::Docker,
            ways: vec![way("inline", 1.0, None), way("handler", 2.5, Some("root"))],
            moves: true,
            io_uring_remedy: None,
            io_submit: true,
            lacks: None,
            read_ns: Some(64_000),
        }
    }

    #[test]
    fn one_line_says_whether_programs_run_and_how_fast() {
        let forbidden = vec![
            way("inline", 1.0, Some("forbidden: allow it")),
            way("handler", 2.5, Some("root")),
        ];
        let table = [
            (
                good(),
                "Programs run here: faults inline, io_uring, cold pages compressed in RAM, 64 us a random read of the \
                 store",
            ),
            (
                Facts {
                    ways: vec![way("inline", 1.0, Some("no")), way("handler", 2.5, None)],
                    moves: false,
                    io_uring_remedy: Some("allow".into()),
                    read_ns: None,
                    ..good()
                },
                "Programs run here: faults handler, I/O by io_submit, cold pages compressed in RAM, \
                 evicted by copying",
            ),
            (
                Facts {
                    io_uring_remedy: Some("allow".into()),
                    io_submit: false,
                    ..good()
                },
                "Programs run here: faults inline, I/O by threads, cold pages compressed in RAM, 64 us a random read of \
                 the store",
            ),
            (
                Facts {
                    ways: forbidden,
                    ..good()
                },
                "Programs do not run here: forbidden: allow it",
            ),
            (
                Facts {
                    lacks: Some("tmpfs: name a disk".into()),
                    ..good()
                },
                "Programs do not run here: tmpfs: name a disk",
            ),
        ];
        for (facts, line) in table {
            assert_eq!(facts.verdict(), line);
            assert_eq!(facts.works(), line.starts_with("Programs run here"));
        }
    }

    #[test]
    fn advice_comes_in_order_of_gain() {
        assert_eq!(good().advice(), []);
        let all = Facts {
            ways: vec![
                way("inline", 1.0, Some("a profile")),
                way("handler", 2.5, None),
            ],
            moves: false,
            io_uring_remedy: Some(Environment::Docker.remedy(Need::Calls)),
            read_ns: Some(8_000_000),
            ..good()
        };
        let advice = all.advice();
        let first: Vec<_> = advice.iter().map(|a| (a.times, a.how.as_str())).collect();
        assert!(advice.is_sorted_by(|a, b| a.times >= b.times), "{advice:?}");
        assert_eq!(first.len(), 4);
        assert!(first[0].1.contains("docker run -v"), "{first:?}");
        assert_eq!(first[0].0, 80.0);
        assert!(first.contains(&(2.5, "a profile")), "{first:?}");
        assert!(advice.iter().any(|a| a.how.contains("seccomp=")));
        assert!(
            advice
                .iter()
                .any(|a| a.how.contains("on the host: run Linux"))
        );
    }

    #[test]
    fn what_the_processor_lacks_is_neither_advised_nor_the_reason() {
        let absent = WayHere {
            exists: false,
            ..way("inline", 1.0, Some("no such Linux"))
        };
        let handler = |lacks| Facts {
            ways: vec![absent.clone(), way("handler", 2.5, lacks)],
            ..good()
        };
        assert_eq!(handler(None).advice(), []);
        let verdict = handler(Some("grant it")).verdict();
        assert_eq!(verdict, "Programs do not run here: grant it");
    }

    #[test]
    fn what_does_not_run_is_not_made_faster() {
        let nothing = Facts {
            ways: vec![way("inline", 1.0, Some("a profile"))],
            moves: false,
            io_uring_remedy: Some("allow".into()),
            ..good()
        };
        assert_eq!(nothing.advice(), []);
        assert!(!nothing.works());
    }
}
