//! `gordon-groundstation HEAP --host ADDRESS`: receives packets over UDP, makes each stable, relays
//! it to the host, and keeps it until the host has acknowledged its number or a later one. A
//! restarted station relays again all packets without an acknowledgement.
//!
//! A packet to the host is its number, eight bytes big-endian, and the data. The host answers with
//! the number. The sender gets the number as its answer as soon as the packet is stable.

use gordon::{Heap, Options};
use gordon_programs::groundstation::{acknowledge, pending, receive};
use gordon_programs::write_out;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
Relays packets over UDP, each of them stable before it is relayed.

Usage: gordon-groundstation HEAP --host ADDRESS [--listen ADDRESS]

  HEAP              the queue; made (64 MiB) if it does not exist
  --host ADDRESS    where packets are relayed to, as 127.0.0.1:7001
  --listen ADDRESS  where packets come in [default: 127.0.0.1:0]; the port is printed

Example:
  gordon-groundstation queue.heap --listen 127.0.0.1:7000 --host 127.0.0.1:7001";

struct Arguments {
    heap: PathBuf,
    host: SocketAddr,
    listen: SocketAddr,
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help" || argument == "-h") {
        return done(write_out(&format!("{HELP}\n")).map_err(Into::into));
    }
    let ran = arguments()
        .map_err(Into::into)
        .and_then(|arguments| run(&arguments));
    done(ran)
}

fn done(ran: Result<(), Box<dyn Error>>) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gordon-groundstation: {error}");
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut heap = None;
    let mut host = None;
    let mut listen = "127.0.0.1:0".to_owned();
    let mut rest = std::env::args_os().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = |name: &str| {
            let value = rest.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{name} needs an address, as 127.0.0.1:7001"))
        };
        match argument.to_str() {
            Some("--host") => host = Some(value("--host")?),
            Some("--listen") => listen = value("--listen")?,
            Some(option) if option.starts_with('-') => {
                return Err(format!(
                    "unknown option '{option}': see gordon-groundstation --help"
                ));
            }
            _ => heap = Some(PathBuf::from(argument)),
        }
    }
    let address = |text: &str| {
        text.parse()
            .map_err(|_| format!("'{text}' is no address: write 127.0.0.1:7001"))
    };
    Ok(Arguments {
        heap: heap.ok_or("no heap: see gordon-groundstation --help")?,
        host: address(&host.ok_or("no host: give --host ADDRESS")?)?,
        listen: address(&listen)?,
    })
}

fn open(path: &Path) -> Result<Heap, gordon::Error> {
    if path.exists() {
        Heap::open(path, Options::default())
    } else {
        Heap::create(path, 64 << 20, Options::default())
    }
}

fn relay(socket: &UdpSocket, host: SocketAddr, number: u64, data: &[u8]) -> std::io::Result<()> {
    let mut packet = number.to_be_bytes().to_vec();
    packet.extend_from_slice(data);
    socket.send_to(&packet, host).map(|_| ())
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let heap = open(&arguments.heap)?;
    let socket = UdpSocket::bind(arguments.listen)
        .map_err(|error| format!("{}: {error}", arguments.listen))?;
    write_out(&format!("{}\n", socket.local_addr()?))?;
    let mut acknowledged = 0;
    let mut waiting = heap.view(pending)?.1;
    for (number, data) in &waiting {
        relay(&socket, arguments.host, *number, data)?;
    }
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut buffer = vec![0; 65536];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {
                // No packets arrive: record the host's acknowledgements, and resend the rest.
                acknowledge(&heap, acknowledged)?;
                waiting.retain(|(number, _)| *number > acknowledged);
                for (number, data) in &waiting {
                    relay(&socket, arguments.host, *number, data)?;
                }
                continue;
            }
            // The host is not running yet.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::ConnectionRefused) => continue,
            Err(error) => return Err(error.into()),
        };
        if from == arguments.host {
            if let Ok(number) = buffer[..length].try_into() {
                // The host acknowledges in order, so a number covers all earlier ones.
                acknowledged = acknowledged.max(u64::from_be_bytes(number));
            }
            continue;
        }
        let data = &buffer[..length];
        let number = receive(&heap, data, acknowledged)?;
        waiting.retain(|(number, _)| *number > acknowledged);
        waiting.push((number, data.to_vec()));
        socket.send_to(&number.to_be_bytes(), from)?;
        relay(&socket, arguments.host, number, data)?;
    }
}
