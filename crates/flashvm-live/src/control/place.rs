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
    /// On two sides: both are written, one is read. A third place, if there is one, is the spare.
    Mirror(Vec<SidePlace>),
    /// On several sides, a part of it on each.
    Stripe(Vec<SidePlace>),
    /// On two sides, a part of it on each, which moves.
    Tier {
        /// The side for what is in use, and the side for the rest.
        sides: [SidePlace; 2],
        /// Bytes of the first side: whole chunks.
        first_bytes: u64,
    },
}

/// Where one side of a store is.
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
    /// The sides of a store that has several.
    #[must_use]
    pub fn sides(&self) -> &[SidePlace] {
        match self {
            Self::Here | Self::Server(_) => &[],
            Self::Mirror(sides) | Self::Stripe(sides) => sides,
            Self::Tier { sides, .. } => sides,
        }
    }

    /// How many files or devices of this machine hold it.
    #[must_use]
    pub fn files(&self) -> usize {
        let of_sides = self.sides().iter().filter(|side| side.server.is_none());
        usize::from(*self == Self::Here) + of_sides.count()
    }

    /// The servers that hold it, or a side of it.
    pub fn servers(&self) -> impl Iterator<Item = &NbdServer> {
        let one = match self {
            Self::Server(server) => Some(server),
            _ => None,
        };
        let of_sides = self.sides().iter();
        let of_sides = of_sides.filter_map(|side| side.server.as_ref());
        one.into_iter().chain(of_sides.map(|side| &side.server))
    }
}
