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
    /// Clients that look up, and threads of the server; it has two at least.
    clients: u32,
}

pub(super) fn store(folder: &Path, scale: u32) -> Prepared {
    prepare(folder, scale, Load::Store, 1)
}

pub(super) fn lookup(folder: &Path, scale: u32) -> Prepared {
    prepare(folder, scale, Load::Lookup, 1)
}

/// With four clients.
pub(super) fn threads(folder: &Path, scale: u32) -> Prepared {
    prepare(folder, scale, Load::Lookup, 4)
}

fn prepare(folder: &Path, scale: u32, load: Load, clients: u32) -> Prepared {
    let server = find("memcached", "memcached")?;
    let socket = folder.join("socket");
    Ok(Box::new(Memcached {
        server,
        socket,
        load,
        items: ITEMS / scale,
        clients,
    }))
}

impl Program for Memcached {
    fn what(&self) -> String {
        let items = format!("{} pairs of {VALUE_BYTES} bytes are stored", self.items);
        match self.load {
            Load::Store => format!("{items}."),
            Load::Lookup => {
                let by = match self.clients {
                    1 => String::new(),
                    clients => format!(" by {clients} clients, with as many threads"),
                };
                format!("{items}, then as many are looked up at random{by}: this is timed.")
            }
        }
    }

    fn run_within(&self, prefix: &[String], within: Duration) -> Result<Option<Duration>, Failure> {
        let socket = self.socket.to_string_lossy();
        let threads = self.clients.max(2).to_string();
        // The paper's million pairs take 1.2 GB: with less, memcached drops the oldest.
        let words = ["-u", "root", "-m", "2048", "-t", &threads, "-s", &socket];
        let mut command = command(prefix, &self.server, &words);
        let server = command.stderr(Stdio::null()).spawn();
        let mut server = server.map_err(|e| format!("memcached: {e}"))?;
        let took = self.talk(&mut server, within);
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
    /// The time of the load, or `None` once it has taken longer than `within`.
    fn talk(&self, server: &mut Child, within: Duration) -> Result<Option<Duration>, Failure> {
        let failed = |e| format!("memcached: {e}");
        let mut client = self.client(server)?;
        let mut started = Instant::now();
        let goes_on = |started: Instant| started.elapsed() <= within;
        match self.load {
            Load::Store => client.store(&|| goes_on(started)).map_err(failed)?,
            Load::Lookup => {
                client.store(&|| true).map_err(failed)?;
                let others = (1..self.clients).map(|_| self.client(server));
                let others: Vec<_> = others.collect::<Result<_, _>>()?;
                started = Instant::now();
                let count = self.items / self.clients;
                let looked_up: std::io::Result<()> = std::thread::scope(|scope| {
                    let all = std::iter::once(client).chain(others).zip(1..);
                    let all = all.map(|(mut client, seed)| {
                        scope.spawn(move || client.look_up(seed, count, &|| goes_on(started)))
                    });
                    let all = Vec::from_iter(all);
                    let ends = all
                        .into_iter()
                        .map(|one| one.join().expect("it does not panic"));
                    ends.collect()
                });
                looked_up.map_err(failed)?;
            }
        }
        let took = started.elapsed();
        Ok((took <= within).then_some(took))
    }

    fn client(&self, server: &mut Child) -> Result<Client, Failure> {
        let link = self.connect(server)?;
        let lines = link.try_clone().map_err(|e| e.to_string())?;
        Ok(Client {
            lines: BufReader::new(lines),
            link,
            items: self.items,
        })
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

    fn store(&mut self, goes_on: &dyn Fn() -> bool) -> std::io::Result<()> {
        for first in (0..self.items).step_by(BATCH as usize) {
            if !goes_on() {
                break;
            }
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

    fn look_up(
        &mut self,
        seed: u32,
        count: u32,
        goes_on: &dyn Fn() -> bool,
    ) -> std::io::Result<()> {
        let mut state = seed;
        for _ in 0..count {
            if !goes_on() {
                break;
            }
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
