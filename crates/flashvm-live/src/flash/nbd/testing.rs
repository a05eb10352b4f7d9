//! An NBD server for tests, with the manners and the mishaps that they ask for. It is written from the protocol's
//! document, and shares no code with the client.

use crate::control::{NbdAddress, NbdServer, ServedSide, SidePlace};
use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a server answers reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flash) enum Manner {
    /// It knows no structured replies, and says nothing of block sizes.
    Simple,
    /// One chunk.
    Whole,
    /// Pieces in the opposite order; those of zeros as holes. It takes 8 KiB in a request.
    Pieces,
}

/// What goes wrong at the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flash) enum Mishap {
    /// The connection closes instead of a reply.
    Closes,
    /// It closes in the middle of the data.
    ClosesInside,
    /// The reply has another magic number.
    Magic,
    /// The reply has the cookie of another request.
    Cookie,
    /// The chunk lies far from what was asked for.
    Beyond,
    /// The reply ends without the last bytes.
    Short,
    /// The next greeting is another protocol's, and the connection closes now.
    Greeting,
    /// The server is shutting down.
    Shutdown,
    /// The error EIO: no mishap of the connection.
    Error,
    /// The reply comes after [`LATE`].
    Late,
}

/// Much longer than a reply takes.
pub(in crate::flash) const LATE: Duration = Duration::from_millis(300);

/// A server on a Unix socket; its threads live as long as the process.
pub(in crate::flash) struct TestServer {
    pub(in crate::flash) server: NbdServer,
    state: Arc<State>,
    _folder: tempfile::TempDir,
}

struct State {
    bytes: Mutex<Vec<u8>>,
    manner: Manner,
    flags: u16,
    mishaps: Mutex<VecDeque<Mishap>>,
    greets_wrongly: Mutex<bool>,
    connections: Mutex<u32>,
}

impl TestServer {
    pub(in crate::flash) fn start(bytes: u64, manner: Manner) -> Self {
        // HAS_FLAGS, SEND_FLUSH, SEND_TRIM, CAN_MULTI_CONN.
        Self::with_flags(bytes, manner, 1 | 1 << 2 | 1 << 5 | 1 << 8)
    }

    pub(in crate::flash) fn with_flags(bytes: u64, manner: Manner, flags: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::new(State {
            bytes: Mutex::new(vec![0; bytes as usize]),
            manner,
            flags,
            mishaps: Mutex::default(),
            greets_wrongly: Mutex::default(),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&accepting);
                *state.connections.lock().unwrap() += 1;
                // The end of a connection is an error like any other.
                std::thread::spawn(move || state.serve(&stream.unwrap()));
            }
        });
        Self {
            server: NbdServer {
                address: NbdAddress::Unix(path),
                export: "export".to_owned(),
                timeout_ms: 20_000,
                tls: None,
            },
            state,
            _folder: folder,
        }
    }

    /// The next reads go wrong like this.
    pub(in crate::flash) fn spoil(&self, mishaps: impl IntoIterator<Item = Mishap>) {
        self.state.mishaps.lock().unwrap().extend(mishaps);
    }

    /// What it holds.
    pub(in crate::flash) fn bytes(&self) -> Vec<u8> {
        self.state.bytes.lock().unwrap().clone()
    }

    /// Forgets all that it holds.
    pub(in crate::flash) fn forget(&self) {
        self.state.bytes.lock().unwrap().fill(0);
    }

    /// A side of a mirror there.
    pub(in crate::flash) fn side(&self) -> SidePlace {
        SidePlace {
            name: self.server.to_string(),
            server: Some(ServedSide {
                server: self.server.clone(),
                unit: 512,
                trims: true,
                flushes: true,
            }),
        }
    }

    /// Connections that were made.
    pub(in crate::flash) fn connections(&self) -> u32 {
        *self.state.connections.lock().unwrap()
    }
}

impl State {
    fn serve(&self, mut stream: &UnixStream) -> Result<()> {
        if std::mem::take(&mut *self.greets_wrongly.lock().unwrap()) {
            return stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
        }
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        assert_eq!(array::<4>(stream)?, [0, 0, 0, 3]);
        let mut structured = false;
        loop {
            let option: [u8; 16] = array(stream)?;
            assert_eq!(&option[..8], b"IHAVEOPT");
            let mut data = vec![0; number(&option[12..]) as usize];
            stream.read_exact(&mut data)?;
            let mut reply = |kind: u32, contents: &[u8]| {
                let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
                bytes.extend(&option[8..12]);
                bytes.extend(kind.to_be_bytes());
                bytes.extend((contents.len() as u32).to_be_bytes());
                bytes.extend(contents);
                stream.write_all(&bytes)
            };
            match number(&option[8..12]) {
                8 if self.manner == Manner::Simple => reply(1 << 31 | 1, b"unknown")?,
                8 => {
                    structured = true;
                    reply(1, b"")?;
                }
                7 => {
                    assert_eq!(data, b"\x00\x00\x00\x06export\x00\x01\x00\x03");
                    let size = self.bytes.lock().unwrap().len() as u64;
                    let export = [&[0, 0][..], &size.to_be_bytes(), &self.flags.to_be_bytes()];
                    reply(3, &export.concat())?;
                    match self.manner {
                        Manner::Simple => {}
                        Manner::Whole => reply(
                            3,
                            b"\x00\x03\x00\x00\x00\x01\x00\x00\x10\x00\x02\x00\x00\x00",
                        )?,
                        Manner::Pieces => {
                            reply(
                                3,
                                b"\x00\x03\x00\x00\x08\x00\x00\x00\x10\x00\x00\x00\x20\x00",
                            )?;
                        }
                    }
                    reply(1, b"")?;
                    return self.transmit(stream, structured);
                }
                other => panic!("option {other}"),
            }
        }
    }

    fn transmit(&self, mut stream: &UnixStream, structured: bool) -> Result<()> {
        loop {
            let request: [u8; 28] = array(stream)?;
            assert_eq!(request[..6], [0x25, 0x60, 0x95, 0x13, 0, 0]);
            let cookie = &request[8..16];
            let from = number(&request[16..24]) as usize;
            let len = number(&request[24..28]) as usize;
            let range = from..from + len;
            let simple = |error: u8| [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, error], cookie].concat();
            match request[7] {
                0 => {
                    assert!(self.manner != Manner::Pieces || len <= 8192);
                    let data = self.bytes.lock().unwrap()[range].to_vec();
                    let mishap = self.mishaps.lock().unwrap().pop_front();
                    let mut reply = match (structured, mishap) {
                        (true, Some(Mishap::Error)) => {
                            chunk(cookie, true, 0x8001, b"\x00\x00\x00\x05\x00\x00")
                        }
                        (true, Some(Mishap::Shutdown)) => {
                            chunk(cookie, true, 0x8001, b"\x00\x00\x00\x6c\x00\x00")
                        }
                        (false, Some(Mishap::Error)) => simple(5),
                        (false, Some(Mishap::Shutdown)) => simple(108),
                        (false, _) => [simple(0), data].concat(),
                        (true, _) => self.chunks(cookie, from, &data),
                    };
                    match mishap {
                        None | Some(Mishap::Error | Mishap::Shutdown) => {}
                        Some(Mishap::Late) => std::thread::sleep(LATE),
                        Some(Mishap::Magic) => reply[0] ^= 1,
                        Some(Mishap::Cookie) => reply[15] ^= 0x80,
                        Some(Mishap::Beyond) if structured => reply[25] ^= 0x10,
                        Some(Mishap::Short) if structured => {
                            reply = chunk(cookie, true, 0, b"");
                        }
                        Some(Mishap::ClosesInside | Mishap::Beyond | Mishap::Short) => {
                            let half = reply.len() / 2;
                            return stream.write_all(&reply[..half]);
                        }
                        Some(Mishap::Greeting) => {
                            *self.greets_wrongly.lock().unwrap() = true;
                            return Ok(());
                        }
                        Some(Mishap::Closes) => return Ok(()),
                    }
                    stream.write_all(&reply)?;
                }
                1 => {
                    let mut data = vec![0; len];
                    stream.read_exact(&mut data)?;
                    self.bytes.lock().unwrap()[range].copy_from_slice(&data);
                    stream.write_all(&simple(0))?;
                }
                3 => stream.write_all(&simple(0))?,
                4 => {
                    self.bytes.lock().unwrap()[range].fill(0);
                    let reply = match structured {
                        true => chunk(cookie, true, 0, b""),
                        false => simple(0),
                    };
                    stream.write_all(&reply)?;
                }
                other => panic!("command {other}"),
            }
        }
    }

    fn chunks(&self, cookie: &[u8], from: usize, data: &[u8]) -> Vec<u8> {
        let size = match self.manner {
            Manner::Pieces => 1000,
            _ => data.len(),
        };
        let mut chunks = Vec::new();
        for (at, piece) in data
            .chunks(size)
            .enumerate()
            .collect::<Vec<_>>()
            .iter()
            .rev()
        {
            let offset = (from + at * size) as u64;
            if self.manner == Manner::Pieces && piece.iter().all(|byte| *byte == 0) {
                let hole = [
                    &offset.to_be_bytes()[..],
                    &(piece.len() as u32).to_be_bytes(),
                ];
                chunks.extend(chunk(cookie, false, 2, &hole.concat()));
            } else {
                let contents = [&offset.to_be_bytes()[..], piece].concat();
                chunks.extend(chunk(cookie, self.manner == Manner::Whole, 1, &contents));
            }
        }
        if self.manner == Manner::Pieces {
            chunks.extend(chunk(cookie, true, 0, b""));
        }
        chunks
    }
}

fn chunk(cookie: &[u8], is_last: bool, kind: u16, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x66, 0x8e, 0x33, 0xef, 0, u8::from(is_last)];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie);
    bytes.extend((contents.len() as u32).to_be_bytes());
    bytes.extend(contents);
    bytes
}

fn array<const N: usize>(mut stream: &UnixStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map(|()| bytes)
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
