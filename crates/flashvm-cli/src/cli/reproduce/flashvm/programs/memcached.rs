//! memcached: a client stores objects through its socket, or looks them up at random, and is timed.

use super::{Failure, Prepared, Program, command, find};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The paper's pairs, stored and looked up.
const ITEMS: u32 = 1_000_000;
const VALUE_BYTES: usize = 1000;
/// Requests in flight.
const BATCH: u32 = 64;
/// Longest start of the server.
const PATIENCE: Duration = Duration::from_secs(20);

/// The timed part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Store,
    Lookup,
}

pub(super) struct Memcached {
    server: PathBuf,
    socket: PathBuf,
    load: Load,
    items: u32,
}

pub(super) fn store(folder: &Path, scale: u32) -> Prepared {
    prepare(folder, scale, Load::Store)
}

pub(super) fn lookup(folder: &Path, scale: u32) -> Prepared {
    prepare(folder, scale, Load::Lookup)
}

fn prepare(folder: &Path, scale: u32, load: Load) -> Prepared {
    let server = find("memcached", "memcached")?;
    let socket = folder.join("socket");
    Ok(Box::new(Memcached {
        server,
        socket,
        load,
        items: ITEMS / scale,
    }))
}

impl Program for Memcached {
    fn what(&self) -> String {
        let items = format!("{} pairs of {VALUE_BYTES} bytes are stored", self.items);
        match self.load {
            Load::Store => format!("{items}."),
            Load::Lookup => {
                format!("{items}, then as many are looked up at random: this is timed.")
            }
        }
    }

    fn run(&self, prefix: &[String]) -> Result<Duration, Failure> {
        let socket = self.socket.to_string_lossy();
        let words = ["-u", "root", "-m", "1024", "-t", "2", "-s", &socket];
        let mut command = command(prefix, &self.server, &words);
        let server = command.stderr(Stdio::null()).spawn();
        let mut server = server.map_err(|e| format!("memcached: {e}"))?;
        let took = self.talk(&mut server);
        // A service manager sends this signal; `flashvm run` passes it on.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&server),
            rustix::process::Signal::TERM,
        );
        let ended = server.wait().map_err(|e| format!("memcached: {e}"))?;
        let _ = std::fs::remove_file(&self.socket);
        match took {
            Ok(took) if ended.success() => Ok(took),
            Ok(_) => Err(format!("memcached ended with {ended}")),
            Err(why) => Err(why),
        }
    }
}

impl Memcached {
    fn talk(&self, server: &mut Child) -> Result<Duration, Failure> {
        let link = self.connect(server)?;
        let mut client = Client {
            lines: BufReader::new(link.try_clone().map_err(|e| e.to_string())?),
            link,
            items: self.items,
        };
        let mut started = Instant::now();
        client.store().map_err(|e| format!("memcached: {e}"))?;
        if self.load == Load::Lookup {
            started = Instant::now();
            client.look_up().map_err(|e| format!("memcached: {e}"))?;
        }
        Ok(started.elapsed())
    }

    fn connect(&self, server: &mut Child) -> Result<UnixStream, Failure> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(link) => return Ok(link),
                Err(e) if begun.elapsed() > PATIENCE => return Err(format!("memcached: {e}")),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
            if let Ok(Some(status)) = server.try_wait() {
                return Err(format!("memcached ended with {status}"));
            }
        }
    }
}

struct Client {
    link: UnixStream,
    lines: BufReader<UnixStream>,
    items: u32,
}

/// The contents of an item.
fn value(item: u32) -> Vec<u8> {
    let word = format!("{:08x}", item.wrapping_mul(2_654_435_761));
    word.bytes().cycle().take(VALUE_BYTES).collect()
}

impl Client {
    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    fn store(&mut self) -> std::io::Result<()> {
        for first in (0..self.items).step_by(BATCH as usize) {
            let batch = first..(first + BATCH).min(self.items);
            let mut request = Vec::new();
            for item in batch.clone() {
                request.extend(format!("set k{item} 0 0 {VALUE_BYTES}\r\n").bytes());
                request.extend(value(item));
                request.extend(b"\r\n");
            }
            self.link.write_all(&request)?;
            for item in batch {
                let answer = self.line()?;
                if answer != "STORED\r\n" {
                    return Err(std::io::Error::other(format!("item {item}: {answer:?}")));
                }
            }
        }
        Ok(())
    }

    fn look_up(&mut self) -> std::io::Result<()> {
        let mut state = 1_u32;
        for _ in 0..self.items {
            // Numerical Recipes' generator: the upper bits decide.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let item = ((u64::from(state) * u64::from(self.items)) >> 32) as u32;
            self.link.write_all(format!("get k{item}\r\n").as_bytes())?;
            let head = self.line()?;
            let mut found = vec![0; VALUE_BYTES + "\r\nEND\r\n".len()];
            if head != format!("VALUE k{item} 0 {VALUE_BYTES}\r\n") {
                return Err(std::io::Error::other(format!("item {item}: {head:?}")));
            }
            self.lines.read_exact(&mut found)?;
            if found[..VALUE_BYTES] != value(item) {
                return Err(std::io::Error::other(format!(
                    "item {item} has a wrong value"
                )));
            }
        }
        Ok(())
    }
}
