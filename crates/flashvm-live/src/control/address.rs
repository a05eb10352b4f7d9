//! How a program finds its run.
//!
//! The supervisor names its descriptors, and the first program opens them through `/proc`. The programs that it
//! executes inherit them: a program that has changed its user, or given up a capability, may no longer look into the
//! supervisor's `/proc`.

use std::fmt;
use std::os::fd::RawFd;
use std::str::FromStr;

pub use crate::sys::STORES_MAX;

/// The files or devices of a store, in the order in which it names them: none at a server.
pub type Stores<T> = [Option<T>; STORES_MAX];

/// The descriptors of a run, by their numbers in some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The control region.
    pub region: RawFd,
    /// The files or devices of the store.
    pub stores: Stores<RawFd>,
    /// The preloaded object. `None`: programs load it from a named file.
    pub object: Option<RawFd>,
}

/// The value of [`super::VARIABLE`]: `PID:FDS` or `PID:FDS:FDS`, where `FDS` is `REGION:STORES:OBJECT`. `STORES` are
/// numbers with commas between them; -1 means none.
///
/// ```
/// use flashvm_live::control::{RunAddress, Descriptors};
///
/// let address: RunAddress = "4711:5:4,6:3".parse().unwrap();
/// assert_eq!(address.path(address.supervisors.region), "/proc/4711/fd/5");
/// let inherited = Descriptors { region: 901, stores: [None; 8], object: None };
/// let next = RunAddress { inherited: Some(inherited), ..address };
/// assert_eq!(next.to_string(), "4711:5:4,6:3:901:-1:-1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAddress {
    /// The supervisor's process id.
    pub supervisor: i32,
    /// The descriptors in the supervisor.
    pub supervisors: Descriptors,
    /// The descriptors that a program inherits from the one that executed it.
    pub inherited: Option<Descriptors>,
}

impl RunAddress {
    /// The path of one of the supervisor's descriptors.
    #[must_use]
    pub fn path(&self, fd: RawFd) -> String {
        format!("/proc/{}/fd/{fd}", self.supervisor)
    }

    /// The entries of `LD_PRELOAD` by which a program that inherits the descriptors loads the object; `None` if it
    /// loads the object from a named file. In handler mode a program may close descriptors, or execute another, unseen.
    /// So there are two paths to the object then: the dynamic linker ignores one that leads nowhere.
    #[must_use]
    pub fn object_paths(&self, handler: bool) -> Option<String> {
        let inherited = format!("/proc/self/fd/{}", self.inherited?.object?);
        match self.supervisors.object {
            Some(fd) if handler => Some(format!("{inherited}:{}", self.path(fd))),
            _ => Some(inherited),
        }
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.region)?;
        match self.stores {
            [None, ..] => f.write_str("-1")?,
            stores => {
                for (at, store) in stores.into_iter().flatten().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{store}")?;
                }
            }
        }
        write!(f, ":{}", self.object.unwrap_or(-1))
    }
}

impl fmt::Display for RunAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.supervisor, self.supervisors)?;
        self.inherited
            .map_or(Ok(()), |inherited| write!(f, ":{inherited}"))
    }
}

/// A value that no `flashvm run` of this version has set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={0:?} is not of this version", name = super::VARIABLE)]
pub struct NotAnAddress(String);

impl FromStr for RunAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let wrong = || NotAnAddress(text.to_owned());
        let descriptors = |fields: &[&str]| {
            Some(Descriptors {
                region: open(fields[0])??,
                stores: stores(fields[1])?,
                object: open(fields[2])?,
            })
        };
        let read = || match &text.split(':').collect::<Vec<_>>()[..] {
            [supervisor, rest @ ..] if matches!(rest.len(), 3 | 6) => Some(Self {
                supervisor: supervisor.parse().ok().filter(|&pid: &i32| pid > 0)?,
                supervisors: descriptors(&rest[..3])?,
                inherited: match rest.len() {
                    3 => None,
                    _ => Some(descriptors(&rest[3..])?),
                },
            }),
            _ => None,
        };
        read().ok_or_else(wrong)
    }
}

/// A descriptor, or none; `None`: no number.
fn open(text: &str) -> Option<Option<RawFd>> {
    let number: RawFd = text.parse().ok()?;
    Some(Some(number).filter(|&fd| fd >= 0))
}

/// Descriptors with commas between them.
fn stores(text: &str) -> Option<Stores<RawFd>> {
    let mut stores = [None; STORES_MAX];
    if text == "-1" {
        return Some(stores);
    }
    for (at, number) in text.split(',').enumerate() {
        *stores.get_mut(at)? = Some(open(number)??);
    }
    Some(stores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptors() -> impl Strategy<Value = Descriptors> {
        let stores = proptest::collection::vec(0..4096, 0..=STORES_MAX);
        let object = proptest::option::of(0..4096);
        (0..4096, stores, object).prop_map(|(region, list, object)| {
            let mut stores = [None; STORES_MAX];
            for (place, fd) in stores.iter_mut().zip(list) {
                *place = Some(fd);
            }
            Descriptors {
                region,
                stores,
                object,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            supervisor in 1..i32::MAX,
            supervisors in descriptors(),
            inherited in proptest::option::of(descriptors()),
        ) {
            let address = RunAddress { supervisor, supervisors, inherited };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9:,x ]{0,60}") {
            let _ = text.parse::<RunAddress>();
        }
    }

    #[test]
    fn other_values_are_refused() {
        for text in [
            "",
            "1",
            "1:2:3",
            "1:2:3:4:5",
            "0:2:3:4",
            "a:2:3:4",
            "1:-1:3:4",
            "1:2:3,:4",
            "1:2:3,-1:4",
            "1:2:1,2,3,4,5,6,7,8,9:4",
            "1:2:3:4:5:6:7:8",
        ] {
            assert!(text.parse::<RunAddress>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_object_has_a_second_path_where_nobody_sees_what_is_closed() {
        let address: RunAddress = "7:5:4:3:901:902:903".parse().unwrap();
        assert_eq!(address.object_paths(false).unwrap(), "/proc/self/fd/903");
        let paths = address.object_paths(true).unwrap();
        assert_eq!(paths, "/proc/self/fd/903:/proc/7/fd/3");
        let file: RunAddress = "7:5:4:-1:901:902:-1".parse().unwrap();
        assert_eq!(file.object_paths(true), None);
    }
}
