//! Where the bytes of a run's store are, as every process of the run reads it.

use super::nbd::NbdServer;
use serde::{Deserialize, Serialize};

/// Where the bytes of a store are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum StorePlace {
    /// In a file or on a device of this machine.
    #[default]
    Here,
    /// In an export of a server.
    Server(NbdServer),
    /// On two sides: both are written, one is read.
    Mirror([SidePlace; 2]),
}

/// Where one side of a mirror is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidePlace {
    /// As the user named it.
    pub name: String,
    /// Its server; `None`: a file or device of this machine.
    pub server: Option<ServedSide>,
}

/// A side's export, and what a process that starts while the server is away needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedSide {
    /// The export.
    pub server: NbdServer,
    /// Bytes; requests are multiples.
    pub unit: u32,
    /// It takes discards.
    pub trims: bool,
    /// It takes flushes.
    pub flushes: bool,
}

impl StorePlace {
    /// How many files or devices of this machine hold it.
    #[must_use]
    pub fn files(&self) -> usize {
        match self {
            Self::Here => 1,
            Self::Server(_) => 0,
            Self::Mirror(sides) => sides.iter().filter(|side| side.server.is_none()).count(),
        }
    }

    /// The servers that hold it, or a side of it.
    pub fn servers(&self) -> impl Iterator<Item = &NbdServer> {
        let (one, sides) = match self {
            Self::Here => (None, &[][..]),
            Self::Server(server) => (Some(server), &[][..]),
            Self::Mirror(sides) => (None, &sides[..]),
        };
        let of_sides = sides
            .iter()
            .filter_map(|side| side.server.as_ref().map(|served| &served.server));
        one.into_iter().chain(of_sides)
    }
}
