//! A side of a store as the supervisor reaches it, to copy pages.

use super::nbd::NbdProbe;
use crate::control::{NbdServer, SidePlace};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// How long a server may take to answer, in milliseconds. The end of the run waits for that, too.
const KNOCK_MS: u64 = 500;

/// A side.
pub(super) enum Link {
    File(File),
    Server(NbdServer, Option<Box<NbdProbe>>),
}

impl Link {
    /// The side at a place, with its file if it has one.
    pub(super) fn of(place: SidePlace, file: Option<OwnedFd>) -> Self {
        match (file, place.server) {
            (Some(file), _) => Self::File(file.into()),
            (None, server) => {
                let served = server.expect("a side is a file or at a server");
                Self::Server(served.server, None)
            }
        }
    }

    /// Connects, if it is at a server and there is no connection. The export still has to have `bytes` bytes.
    pub(super) fn connect(&mut self, bytes: u64) -> bool {
        match self {
            Self::File(_) => true,
            Self::Server(_, Some(_)) => true,
            Self::Server(server, place) => {
                let server = NbdServer {
                    timeout_ms: KNOCK_MS,
                    ..server.clone()
                };
                *place = NbdProbe::connect(&server)
                    .ok()
                    .filter(|probe| probe.export().bytes >= bytes)
                    .map(Box::new);
                place.is_some()
            }
        }
    }

    /// Forgets a connection that may be old.
    pub(super) fn disconnect(&mut self) {
        if let Self::Server(_, place) = self {
            *place = None;
        }
    }

    pub(super) fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
        match self {
            Self::File(file) => file.read_exact_at(to, at).is_ok(),
            Self::Server(_, None) => false,
            Self::Server(_, Some(probe)) => probe.read(at, to).is_ok(),
        }
    }

    pub(super) fn write(&mut self, at: u64, from: &[u8]) -> bool {
        match self {
            Self::File(file) => file.write_all_at(from, at).is_ok(),
            Self::Server(_, None) => false,
            Self::Server(_, Some(probe)) => probe.write(at, from).is_ok(),
        }
    }
}
