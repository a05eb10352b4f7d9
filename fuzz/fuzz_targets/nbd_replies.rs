//! An NBD server that says anything: the client refuses it or reads a page from it, stores to no byte beside the page, and ends
//! when the server does.
#![no_main]

use flashvm_live::NbdProbe;
use flashvm_live::control::{NbdAddress, NbdServer};
use libfuzzer_sys::fuzz_target;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::OnceLock;

const PAGE: usize = 4096;
/// The bytes on both sides of the page.
const BESIDE: u8 = 0xa5;

/// The socket of this process, in place of a folder for each input.
static LISTENER: OnceLock<(UnixListener, PathBuf)> = OnceLock::new();

/// A good handshake: structured replies, and an export of 1 MiB for all connections.
fn handshake() -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
    let mut reply = |option: u32, kind: u32, contents: &[u8]| {
        bytes.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((contents.len() as u32).to_be_bytes());
        bytes.extend(contents);
    };
    reply(8, 1, b"");
    reply(7, 3, b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x01\x01");
    reply(7, 1, b"");
    bytes
}

// Input: a byte that chooses whether a good handshake comes first; then what the server says before it closes.
fuzz_target!(|input: &[u8]| {
    let Some((first, says)) = input.split_first() else { return };
    let (listener, path) = LISTENER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("nbd-replies-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        (UnixListener::bind(&path).expect("a socket"), path)
    });
    let server = NbdServer {
        address: NbdAddress::Unix(path.clone()),
        export: String::new(),
        timeout_ms: 10_000,
        tls: None,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("the client connects");
            let mut bytes = if first & 1 == 1 { handshake() } else { Vec::new() };
            bytes.extend(says);
            // The client may have left by now.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // Listens to the end, as an early close would fail the client's requests.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let Ok(mut probe) = NbdProbe::connect(&server) else { return };
        let mut room = [BESIDE; 3 * PAGE];
        let _ = probe.read(0, &mut room[PAGE..2 * PAGE]);
        let beside = room[..PAGE].iter().chain(&room[2 * PAGE..]);
        assert!(beside.copied().all(|byte| byte == BESIDE), "a byte beside the page has changed");
    });
});
