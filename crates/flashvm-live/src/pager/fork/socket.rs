//! The socket between a parent's handler and its forked child. The parent sends the child's userfaultfd; the child
//! sends a request of one byte; the parent answers with the faults that it has resolved for the child until then.

use crate::sys::descriptors::PagerFd;
use crate::sys::spare_descriptors::with_room;
use flashvm_core::{Access, Event, PageId};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Resolved faults in one message to the child.
pub(super) const REPLY_MAX: usize = 1024;

/// A fault that was resolved while the engine was frozen, packed for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResolvedFault(u32);

impl ResolvedFault {
    const STOPPED_STORE: u32 = 1 << 31;

    pub(super) fn new(page: PageId, stopped_store: bool) -> Self {
        Self(
            page.0
                | if stopped_store {
                    Self::STOPPED_STORE
                } else {
                    0
                },
        )
    }

    pub(super) fn page(self) -> PageId {
        PageId(self.0 & !Self::STOPPED_STORE)
    }

    pub(super) fn is_stopped_store(self) -> bool {
        self.0 & Self::STOPPED_STORE != 0
    }

    /// The engine's event for this fault. The page is writable now, so it counts as stored to.
    pub(super) fn event(self) -> Event {
        let page = self.page();
        if self.is_stopped_store() {
            Event::WriteProtectFault { page }
        } else {
            Event::Fault {
                page,
                access: Access::Write,
                huge: false,
            }
        }
    }
}

/// What the child has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildAsks {
    /// Nothing yet.
    None,
    /// The child resolves its faults from here on, and asks for the faults that were resolved for it.
    TakeOver,
    /// Nobody holds the other end: there is no child, or it has died.
    Gone,
}

/// Makes the two ends: the parent's and the child's.
///
/// # Errors
/// The kernel cannot make a socket pair.
pub(super) fn pair() -> Result<(PagerFd, PagerFd), Errno> {
    let (parent, child) = with_room(|| {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
    })?;
    Ok((PagerFd::keep(parent)?, PagerFd::keep(child)?))
}

/// In the parent: what the child has asked for. Does not wait.
pub(super) fn request(socket: &OwnedFd) -> ChildAsks {
    let mut request = [0];
    match recv(socket, &mut request, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => ChildAsks::None,
        Ok((1.., _)) => ChildAsks::TakeOver,
        Ok((0, _)) | Err(_) => ChildAsks::Gone,
    }
}

/// In the child: takes its faults over. Returns those that the parent has resolved for it.
///
/// # Errors
/// `EPIPE` if the parent has died.
pub(super) fn take_over(socket: &OwnedFd) -> Result<Vec<ResolvedFault>, Errno> {
    send(socket, &[0], SendFlags::NOSIGNAL)?;
    receive_resolved(socket)
}

/// In the parent: tells the child what was resolved for it, as a count and then the faults, at most [`REPLY_MAX`]
/// a message. Allocates nothing.
///
/// # Errors
/// The child has died.
pub(super) fn send_resolved(socket: &OwnedFd, resolved: &[ResolvedFault]) -> Result<(), Errno> {
    let count = u32::try_from(resolved.len()).expect("fewer faults than pages");
    send(socket, &count.to_ne_bytes(), SendFlags::NOSIGNAL)?;
    let mut bytes = [0; 4 * REPLY_MAX];
    for part in resolved.chunks(REPLY_MAX) {
        for (bytes, fault) in bytes.chunks_exact_mut(4).zip(part) {
            bytes.copy_from_slice(&fault.0.to_ne_bytes());
        }
        send(socket, &bytes[..4 * part.len()], SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

fn receive_resolved(socket: &OwnedFd) -> Result<Vec<ResolvedFault>, Errno> {
    let mut count = [0; 4];
    if recv(socket, &mut count, RecvFlags::empty())?.0 != count.len() {
        return Err(Errno::PIPE);
    }
    let count = u32::from_ne_bytes(count) as usize;
    let mut resolved = Vec::with_capacity(count);
    let mut bytes = [0; 4 * REPLY_MAX];
    while resolved.len() < count {
        let (len, _) = recv(socket, &mut bytes, RecvFlags::empty())?;
        if len == 0 {
            return Err(Errno::PIPE);
        }
        let (words, _) = bytes[..len].as_chunks::<4>();
        resolved.extend(
            words
                .iter()
                .map(|&word| ResolvedFault(u32::from_ne_bytes(word))),
        );
    }
    Ok(resolved)
}

/// In the parent: passes the child's userfaultfd on.
///
/// # Errors
/// The child has died.
pub(super) fn send_descriptor(socket: &OwnedFd, fd: &OwnedFd) -> Result<(), Errno> {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(
        ancillary.push(SendAncillaryMessage::ScmRights(&fds)),
        "room for one descriptor"
    );
    sendmsg(
        socket,
        &[IoSlice::new(&[0])],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// In the child: waits for its userfaultfd.
///
/// # Errors
/// `EBADF` if the parent has died.
pub(super) fn receive_descriptor(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let received = with_room(|| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        // Peeks: a message that is taken loses a descriptor without a number for it.
        let message = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC,
        )?;
        if message.bytes == 0 {
            return Err(Errno::BADF);
        }
        ancillary
            .drain()
            .find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            })
            .ok_or(Errno::MFILE)
    })?;
    recv(socket, &mut [0], RecvFlags::empty())?;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn the_child_learns_of_every_fault_in_order() {
        let (parent, child) = pair().expect("sockets");
        assert_eq!(request(&parent), ChildAsks::None);
        let faults: Vec<ResolvedFault> = (0..2 * REPLY_MAX as u32 + 7)
            .map(|page| ResolvedFault::new(PageId(page), page % 3 == 0))
            .collect();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| take_over(&child));
            while request(&parent) != ChildAsks::TakeOver {
                std::thread::yield_now();
            }
            send_resolved(&parent, &faults).expect("a child");
            assert_eq!(taken.join().expect("no panic"), Ok(faults.clone()));
        });
        assert_eq!(faults[3].page(), PageId(3));
        assert!(faults[3].is_stopped_store() && !faults[4].is_stopped_store());
        drop(child);
        assert_eq!(request(&parent), ChildAsks::Gone);
        drop(parent);
    }

    #[test]
    fn a_descriptor_passes_and_a_dead_parent_is_noticed() {
        let (parent, child) = pair().expect("sockets");
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        send_descriptor(&parent, &event).expect("a child");
        let received = receive_descriptor(&child).expect("a parent");
        rustix::io::write(&received, &7u64.to_ne_bytes()).expect("the same event");
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&event, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 7);
        drop(parent);
        assert_eq!(take_over(&child), Err(Errno::PIPE));
        drop(child);
    }
}
