//! The abstract socket to which processes connect, and a thread for each connection, which passes bytes on.
//!
//! Processes of the run and of its user are served. Nothing is left behind: an abstract socket ends with its process.

use super::stream::{Target, TlsStream};
use flashvm_live::control::Control;
use flashvm_live::{NBD_GREETING, Uninterrupted};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes on their way in one direction, at most.
const ROOM: usize = 256 << 10;
/// How long a process may take for its first bytes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a refused `accept`: descriptors are used up.
const PAUSE: Duration = Duration::from_millis(50);

/// The run whose processes are served.
static RUN: OnceLock<Control> = OnceLock::new();

/// Lets the processes of this run connect, whatever user they have become.
pub(in crate::cli) fn allow(run: Control) {
    let _ = RUN.set(run);
}

/// A socket that leads to a server, as long as this process lives.
#[derive(Debug)]
pub(in crate::cli) struct Relay {
    /// Its abstract name.
    pub(in crate::cli) name: String,
}

impl Relay {
    /// Opens the socket, and starts the thread that accepts connections.
    pub(in crate::cli) fn start(target: Target) -> Result<Self> {
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("flashvm-tls-{:032x}", u128::from_ne_bytes(random));
        let address = SocketAddr::from_abstract_name(&name)?;
        let listener = UnixListener::bind_addr(&address)?;
        let target = Arc::new(target);
        // Signals are for the supervisor's own thread.
        let _blocked = Uninterrupted::begin();
        std::thread::Builder::new()
            .name("flashvm-tls".to_owned())
            .spawn(move || accept(&listener, &target))?;
        Ok(Self { name })
    }
}

fn accept(listener: &UnixListener, target: &Arc<Target>) {
    loop {
        let Ok((local, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let target = Arc::clone(target);
        let name = "flashvm-tls-io".to_owned();
        // The end of a connection, and the lack of a thread, are to the process the end of its server's: it says so, and
        // connects again.
        let _ = std::thread::Builder::new().name(name).spawn(move || {
            if is_ours(&local) {
                let _ = serve(&local, &target);
            }
        });
    }
}

/// Whether the process at the other end belongs to this user, or to the run.
fn is_ours(local: &UnixStream) -> bool {
    let Ok(peer) = socket_peercred(local) else {
        return false;
    };
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    peer.uid == rustix::process::geteuid() || RUN.get().is_some_and(|run| run.has_process(pid))
}

/// Serves a connection until one of its ends closes.
fn serve(mut local: &UnixStream, target: &Target) -> Result<()> {
    let failed = |_| Error::from(ErrorKind::ConnectionAborted);
    let stream = target.connect().map_err(failed)?;
    local.set_read_timeout(Some(PATIENCE))?;
    local.write_all(&NBD_GREETING)?;
    // The flags, which the server has had from us.
    local.read_exact(&mut [0; 4])?;
    local.set_nonblocking(true)?;
    stream.wire.set_timeout(None)?;
    stream.wire.set_nonblocking()?;
    pass_on(local, stream)
}

/// Bytes that one side has sent, and the other has still to take.
struct Buffer {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Buffer {
    fn new() -> Self {
        Self {
            bytes: vec![0; ROOM].into(),
            from: 0,
            to: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Takes what there is to read. Only an empty buffer does.
    fn fill(&mut self, from: &mut impl Read) -> Result<usize> {
        (self.from, self.to) = (0, from.read(&mut self.bytes)?);
        Ok(self.to)
    }

    /// Gives away as much as is taken.
    fn drain(&mut self, to: &mut impl Write) -> Result<()> {
        while !self.is_empty() {
            match to.write(&self.bytes[self.from..self.to])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => self.from += written,
            }
        }
        Ok(())
    }
}

/// Whether there was something to do.
fn did<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Passes bytes on in both directions. Ends with an error, or when one end closes.
fn pass_on(mut local: &UnixStream, stream: TlsStream) -> Result<()> {
    let TlsStream { mut wire, mut tls } = stream;
    // Plain bytes that are not encrypted yet are in `up`; encrypted ones wait in `tls`, without a limit of its own.
    tls.set_buffer_limit(None);
    let (mut up, mut down) = (Buffer::new(), Buffer::new());
    let (mut local_is_ready, mut wire_is_ready) = (true, true);
    loop {
        let takes = up.is_empty() && !tls.wants_write();
        if local_is_ready && takes && did(up.fill(&mut local))? == Some(0) {
            return Ok(());
        }
        up.drain(&mut tls.writer())?;
        while tls.wants_write() && did(tls.write_tls(&mut wire))?.is_some() {}
        // What has been decrypted goes before more is read.
        if down.is_empty() && did(down.fill(&mut tls.reader()))? == Some(0) {
            return Ok(());
        }
        let is_stuck = did(down.drain(&mut local))?.is_none();
        if wire_is_ready && !is_stuck {
            match did(tls.read_tls(&mut wire))? {
                Some(0) => return Ok(()),
                Some(_) => {
                    tls.process_new_packets().map_err(Error::other)?;
                    continue;
                }
                None => {}
            }
        }
        let mut of_local = PollFlags::empty();
        of_local.set(PollFlags::IN, up.is_empty() && !tls.wants_write());
        of_local.set(PollFlags::OUT, is_stuck);
        let mut of_wire = PollFlags::empty();
        of_wire.set(PollFlags::IN, !is_stuck);
        of_wire.set(PollFlags::OUT, tls.wants_write());
        let mut fds = [PollFd::new(local, of_local), PollFd::new(&wire, of_wire)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        local_is_ready = !fds[0].revents().is_empty();
        wire_is_ready = !fds[1].revents().is_empty();
        // Closed, with nothing asked of it: without this, the loop would turn for nothing.
        let gone = PollFlags::HUP | PollFlags::ERR;
        if of_local.is_empty() && fds[0].revents().intersects(gone) {
            return Ok(());
        }
    }
}
