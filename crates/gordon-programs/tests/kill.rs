//! `kill -9` in a loop on the real editor and the real groundstation: every answered operation
//! survives.

#[path = "../../flashvm-cli/tests/support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;

use children::{Bounded as _, Lines};
use gordon_programs::editor::{Key, typing};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 25;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test")
}

fn text(heap: &Path) -> String {
    let output = children::command(env!("CARGO_BIN_EXE_gordon-editor"))
        .arg("--text")
        .arg(heap)
        .output_in_time()
        .expect("the editor");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_editor_resumes_after_the_last_key() {
    let folder = folder();
    let heap = folder.path().join("heap");
    let source = "The quick brown fox\njumps over the lazy dog.\n".repeat(400);
    let mut expected = String::new();
    for round in 0..ROUNDS {
        let mut editor = children::command(env!("CARGO_BIN_EXE_gordon-editor"))
            .arg("--keys")
            .arg(&heap)
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the editor");
        let mut keys = editor.stdin.take().expect("its input");
        let answers = Lines::of(editor.stdout.take().expect("its output"));
        let rest = source[expected.len()..].to_owned();
        let typist = std::thread::spawn(move || {
            for key in typing(&rest) {
                let line = match key {
                    Key::Insert(c) => format!("{c}\n"),
                    _ => "[enter]\n".to_owned(),
                };
                if keys.write_all(line.as_bytes()).is_err() {
                    return; // It has been killed.
                }
            }
        });
        // Each kill comes at another moment, also while the heap is being created or opened.
        let wanted = [0, 1, 7, 40, 150][round % 5];
        let mut answered = 0;
        while answered < wanted {
            let line = answers.next("the editor's answer").expect("an answer");
            answered = line.parse().expect("a number");
        }
        editor.kill().expect("alive until now");
        children::wait_for("the editor", &mut editor, children::PATIENCE);
        typist.join().expect("the typist");
        // Answers in flight count as well.
        while let Some(line) = answers.next("the editor's last answers") {
            answered = line.parse().unwrap_or(answered);
        }
        if !heap.exists() {
            assert_eq!(
                answered, 0,
                "round {round}: nothing is answered before it is stable"
            );
            continue;
        }
        let found = text(&heap);
        let least = expected.len() + answered;
        assert!(
            source.starts_with(&found),
            "round {round}: the keys in their order"
        );
        assert!(
            found.len() == least || found.len() == least + 1,
            "round {round}: {} keys are there, {least} were answered",
            found.len()
        );
        expected = found;
    }
    assert!(
        expected.len() > 200,
        "the loop typed something: {}",
        expected.len()
    );
}

struct Station {
    child: Child,
    address: String,
}

impl Station {
    fn start(heap: &Path, host: &str) -> Self {
        let mut child = children::command(env!("CARGO_BIN_EXE_gordon-groundstation"))
            .arg(heap)
            .args(["--host", host])
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the groundstation");
        let lines = Lines::of(child.stdout.take().expect("its output"));
        let address = lines.next("the groundstation's address");
        Self {
            child,
            address: address.expect("its address").trim().to_owned(),
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_groundstation_loses_no_packet_that_it_has_answered() {
    let folder = folder();
    let heap = folder.path().join("heap");
    let host = UdpSocket::bind("127.0.0.1:0").expect("a host");
    host.set_nonblocking(true).expect("a socket");
    let aircraft = UdpSocket::bind("127.0.0.1:0").expect("an aircraft");
    aircraft
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    let host_address = host.local_addr().expect("an address").to_string();
    let mut answered = BTreeSet::new();
    let mut relayed = BTreeSet::new();
    let mut message = 0_u64;
    let mut buffer = [0; 2048];
    // Whether all answered packets have been relayed. Others may have been relayed as well.
    let mut deliver = |acknowledge: bool, answered: &BTreeSet<u64>| {
        while let Ok((length, from)) = host.recv_from(&mut buffer) {
            let (number, data) = buffer[..length].split_at(8);
            relayed.insert(u64::from_be_bytes(
                data[..8].try_into().expect("eight bytes"),
            ));
            if acknowledge {
                let _ = host.send_to(number, from);
            }
        }
        answered.is_subset(&relayed)
    };
    for round in 0..ROUNDS {
        let mut station = Station::start(&heap, &host_address);
        for _ in 0..[1, 3, 20, 60][round % 4] {
            message += 1;
            let mut packet = message.to_be_bytes().to_vec();
            packet.resize(1000, round as u8);
            aircraft.send_to(&packet, &station.address).expect("sent");
            let mut answer = [0; 8];
            aircraft.recv(&mut answer).expect("an answer");
            answered.insert(message);
            deliver(!message.is_multiple_of(3), &answered);
        }
        // One more that may or may not arrive.
        message += 1;
        let mut packet = message.to_be_bytes().to_vec();
        packet.resize(1000, 0xAA);
        aircraft.send_to(&packet, &station.address).expect("sent");
        station.child.kill().expect("alive until now");
        children::wait_for("the groundstation", &mut station.child, children::PATIENCE);
        // An answer may have been in flight.
        aircraft
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a socket");
        while aircraft.recv(&mut [0; 8]).is_ok() {}
        aircraft
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
    }
    let _station = Station::start(&heap, &host_address);
    let patience = Instant::now();
    while !deliver(true, &answered) && patience.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let missing: Vec<_> = answered.difference(&relayed).collect();
    assert!(
        missing.is_empty(),
        "answered, but never relayed: {missing:?}"
    );
}
