//! How a program finds its run.
//!
//! The supervisor names its descriptors, and the first program opens them through `/proc`. The programs that it
//! executes inherit them: a program that has changed its user, or given up a capability, may no longer look into the
//! supervisor's `/proc`.

use std::fmt;
use std::os::fd::RawFd;
use std::str::FromStr;

/// The descriptors of a run, by their numbers in some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The control region.
    pub region: RawFd,
    /// The store. `None`: at a server.
    pub store: Option<RawFd>,
    /// The preloaded object. `None`: programs load it from a named file.
    pub object: Option<RawFd>,
}

/// The value of [`super::VARIABLE`]: `PID:FDS` or `PID:FDS:FDS`, where `FDS` is `REGION:STORE:OBJECT`, and a `STORE` or
/// an `OBJECT` of -1 means none.
///
/// ```
/// use flashvm::control::{RunAddress, Descriptors};
///
/// let address: RunAddress = "4711:5:4:3".parse().unwrap();
/// assert_eq!(address.path(address.supervisors.region), "/proc/4711/fd/5");
/// let inherited = Descriptors { region: 901, store: Some(902), object: None };
/// let next = RunAddress { inherited: Some(inherited), ..address };
/// assert_eq!(next.to_string(), "4711:5:4:3:901:902:-1");
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
        let [store, object] = [self.store, self.object].map(|fd| fd.unwrap_or(-1));
        write!(f, "{}:{store}:{object}", self.region)
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
        let numbers: Result<Vec<i32>, _> = text.split(':').map(str::parse).collect();
        let descriptors = |numbers: &[i32]| Descriptors {
            region: numbers[0],
            store: Some(numbers[1]).filter(|&fd| fd >= 0),
            object: Some(numbers[2]).filter(|&fd| fd >= 0),
        };
        match &numbers.map_err(|_| wrong())?[..] {
            [supervisor, rest @ ..] if matches!(rest.len(), 3 | 6) && *supervisor > 0 => Ok(Self {
                supervisor: *supervisor,
                supervisors: descriptors(&rest[..3]),
                inherited: (rest.len() == 6).then(|| descriptors(&rest[3..])),
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptors() -> impl Strategy<Value = Descriptors> {
        let fd = || proptest::option::of(0..4096);
        (0..4096, fd(), fd()).prop_map(|(region, store, object)| Descriptors {
            region,
            store,
            object,
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
        fn any_text_is_read_or_refused(text in "[-0-9:x ]{0,40}") {
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
