//! A connected socket: whole transfers with a deadline, by direct system calls.
//!
//! A faulting thread calls this: nothing here allocates, uses thread-local storage, or calls the C library.
//!
//! A lost peer is noticed in three ways: the kernel hears that the port is closed or the connection reset; it gets no
//! acknowledgement for [`SILENCE`], of data or of a probe of an idle connection; or the deadline passes. The first two
//! tell a server that is gone from one that is slow.

use super::super::store::Part;
use super::trouble::Trouble;
use crate::control::{NbdAddress, NbdServer};
use crate::sys::crowd::CROWD;
use crate::sys::descriptors::PagerFd;
use crate::sys::{now, raw};
use flashvm_core::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// Without an acknowledgement for this long, a TCP connection is lost.
const SILENCE: Duration = Duration::from_secs(5);
/// An idle TCP connection is probed this often.
const PROBE: Duration = Duration::from_secs(2);
/// How long to poll before the thread sleeps: longer than a server nearby takes.
const POLL: Nanos = Nanos(200_000);
/// A wait that may end early looks so often whether it should.
const SERVES_EVERY: Nanos = Nanos(50_000_000);
/// Looks at the socket between two offers to yield the processor.
const LOOKS: u32 = 16;

/// Parts of one `sendmsg`: a header, and those of a request.
pub(super) const PARTS_MAX: usize = 1 + super::super::store::REQUEST_PAGES_MAX;

/// How a transfer waits for its peer.
#[derive(Clone, Copy)]
pub(super) struct Wait<'a> {
    /// When it gives up.
    pub(super) until: Nanos,
    /// Whether it polls before it sleeps.
    pub(super) polls: bool,
    /// Gives up earlier, once this says that the peer does not serve any more.
    pub(super) serves: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Wait<'a> {
    /// Sleeps until `until` at the latest.
    pub(super) fn asleep(until: Nanos) -> Self {
        Self {
            until,
            polls: false,
            serves: None,
        }
    }

    /// Gives up earlier, once `serves` does not hold.
    pub(super) fn while_serving(self, serves: &'a dyn Fn() -> bool) -> Self {
        Self {
            serves: Some(serves),
            ..self
        }
    }
}

/// A connected stream socket. Closed without a word on drop: the kernel throws away what it has not sent.
#[derive(Debug)]
pub(super) struct Socket(PagerFd);

impl Socket {
    /// Connects to a server, or to what speaks TLS with it.
    pub(super) fn connect(server: &NbdServer, until: Nanos) -> Result<Self, Trouble> {
        let family = match (&server.tls, &server.address) {
            (Some(_), _) | (None, NbdAddress::Unix(_)) => AddressFamily::UNIX,
            (None, NbdAddress::Tcp(address)) if address.is_ipv4() => AddressFamily::INET,
            (None, NbdAddress::Tcp(_)) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = PagerFd::open(|| socket_with(family, SocketType::STREAM, flags, None))
            .map_err(Trouble::Connect)?;
        let unix = |address: Result<SocketAddrUnix, Errno>| {
            address.and_then(|address| connect(&socket, &address))
        };
        let begun = match (&server.tls, &server.address) {
            (Some(relay), _) => unix(SocketAddrUnix::new_abstract_name(relay.as_bytes())),
            (None, NbdAddress::Unix(path)) => unix(SocketAddrUnix::new(path)),
            (None, NbdAddress::Tcp(address)) => {
                tune(&socket).map_err(Trouble::Connect)?;
                connect(&socket, address)
            }
        };
        let socket = Self(socket);
        match begun {
            Ok(()) => Ok(socket),
            Err(Errno::INPROGRESS) => {
                socket.ready(PollFlags::OUT, Wait::asleep(until))?;
                sockopt::socket_error(&socket.0)
                    .unwrap_or_else(Err)
                    .map(|()| socket)
                    .map_err(Trouble::Connect)
            }
            Err(error) => Err(Trouble::Connect(error)),
        }
    }

    /// Sends all parts, one after the other.
    ///
    /// # Safety
    /// The parts are readable, and nobody changes them until the call returns.
    pub(super) unsafe fn send(&self, parts: &mut [Part], wait: Wait) -> Result<(), Trouble> {
        let mut rest = parts;
        loop {
            while rest.first().is_some_and(|part| part.len == 0) {
                rest = &mut rest[1..];
            }
            if rest.is_empty() {
                return Ok(());
            }
            let message = libc::msghdr {
                msg_name: std::ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: rest.as_mut_ptr().cast(),
                msg_iovlen: rest.len().min(PARTS_MAX),
                msg_control: std::ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            };
            let args = [
                self.0.as_raw_fd() as usize,
                &raw const message as usize,
                libc::MSG_NOSIGNAL as usize,
                0,
                0,
                0,
            ];
            // SAFETY: `message` is a local that names `rest`, borrowed and laid out as the vector that the kernel reads.
            // The caller guarantees that the memory of the parts is readable and that nobody changes it.
            match raw::result(unsafe { raw::syscall(libc::SYS_sendmsg, args) }) {
                Ok(mut sent) => {
                    for part in rest.iter_mut() {
                        let of_this = sent.min(part.len);
                        part.address += of_this;
                        part.len -= of_this;
                        sent -= of_this;
                    }
                }
                Err(Errno::AGAIN) => self.ready(PollFlags::OUT, wait)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Trouble::Transfer(error)),
            }
        }
    }

    /// Sends bytes.
    pub(super) fn send_bytes(&self, bytes: &[u8], wait: Wait) -> Result<(), Trouble> {
        let part = Part {
            address: bytes.as_ptr() as usize,
            len: bytes.len(),
        };
        // SAFETY: `bytes` is borrowed over the call.
        unsafe { self.send(&mut [part], wait) }
    }

    /// Fills `to`.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it until the call returns.
    pub(super) unsafe fn receive(&self, to: Part, wait: Wait) -> Result<(), Trouble> {
        let mut got = 0;
        let mut polling: Option<Nanos> = None;
        let mut looks = 0;
        while got < to.len {
            let args = [
                self.0.as_raw_fd() as usize,
                to.address + got,
                to.len - got,
                0,
                0,
                0,
            ];
            // SAFETY: the kernel stores at most the rest of `to`. The caller guarantees that `to` is writable and that
            // nobody else uses it.
            match raw::result(unsafe { raw::syscall(libc::SYS_recvfrom, args) }) {
                Ok(0) => return Err(Trouble::Closed),
                Ok(bytes) => got += bytes,
                Err(Errno::AGAIN) => {
                    let since = *polling.get_or_insert_with(now);
                    let mut sleep = !wait.polls || CROWD.wants_the_processor(since);
                    looks += 1;
                    if !sleep && looks % LOOKS == 0 {
                        sleep = CROWD.yield_to() || now().since(since) >= POLL;
                    }
                    if sleep {
                        self.ready(PollFlags::IN, wait)?;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Trouble::Transfer(error)),
            }
        }
        Ok(())
    }

    /// Receives as many bytes as an array has.
    pub(super) fn receive_array<const N: usize>(&self, wait: Wait) -> Result<[u8; N], Trouble> {
        let mut bytes = [0; N];
        let to = Part {
            address: bytes.as_mut_ptr() as usize,
            len: N,
        };
        // SAFETY: `to` is `bytes`, a local that nothing else uses.
        unsafe { self.receive(to, wait) }.map(|()| bytes)
    }

    /// Receives bytes and forgets them.
    pub(super) fn skip(&self, mut bytes: u32, wait: Wait) -> Result<(), Trouble> {
        const STEP: u32 = 512;
        while bytes >= STEP {
            self.receive_array::<{ STEP as usize }>(wait)?;
            bytes -= STEP;
        }
        for _ in 0..bytes {
            self.receive_array::<1>(wait)?;
        }
        Ok(())
    }

    /// Whether something has come, or the peer is gone.
    pub(super) fn is_readable(&self) -> bool {
        let mut byte = 0_u8;
        let args = [
            self.0.as_raw_fd() as usize,
            &raw mut byte as usize,
            1,
            libc::MSG_PEEK as usize,
            0,
            0,
        ];
        // SAFETY: the kernel stores at most a byte, in a local.
        let peeked = raw::result(unsafe { raw::syscall(libc::SYS_recvfrom, args) });
        !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Sleeps until the socket is ready, or the wait is over.
    fn ready(&self, flags: PollFlags, wait: Wait) -> Result<(), Trouble> {
        loop {
            let left = wait.until.since(now()).0;
            if left == 0 || wait.serves.is_some_and(|serves| !serves()) {
                return Err(Trouble::NoAnswer);
            }
            let left = match wait.serves {
                Some(_) => left.min(SERVES_EVERY.0),
                None => left,
            };
            let timeout = Timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            };
            let mut ready = [PollFd::from_borrowed_fd(self.0.as_fd(), flags)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(Trouble::Transfer(error)),
            }
        }
    }
}

/// Waits until one of the sockets [`Socket::is_readable`], and returns its index; `None`: none was by `wait.until`.
pub(super) fn first_readable(sockets: &[&Socket], wait: Wait) -> Option<usize> {
    let since = now();
    let mut looks = 0;
    let mut sleep = !wait.polls;
    loop {
        let found = sockets.iter().position(|socket| socket.is_readable());
        if found.is_some() {
            return found;
        }
        let left = wait.until.since(now()).0;
        if left == 0 {
            return None;
        }
        sleep |= CROWD.wants_the_processor(since);
        looks += 1;
        if !sleep && looks % LOOKS == 0 {
            sleep = CROWD.yield_to() || now().since(since) >= POLL;
        }
        if sleep {
            let timeout = Timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            };
            let fds = |at: usize| PollFd::from_borrowed_fd(sockets[at].0.as_fd(), PollFlags::IN);
            // An error is an early look.
            let _ = match sockets.len() {
                1 => poll(&mut [fds(0)], Some(&timeout)),
                _ => poll(&mut [fds(0), fds(1)], Some(&timeout)),
            };
        }
    }
}

/// Sends small requests at once, notices a peer that is gone, and throws unsent bytes away at the end: a request of a
/// process that has been killed must not arrive when its place belongs to another.
fn tune(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PROBE)?;
    sockopt::set_tcp_keepintvl(socket, PROBE)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE.as_millis() as u32)?;
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))
}
