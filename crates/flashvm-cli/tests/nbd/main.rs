//! Runs with their store at real NBD servers, nbdkit and qemu-nbd: torture, failures of the server and of the network,
//! TLS, mirrors, stripes, tiers, refusals.

#[path = "../torture/compiled.rs"]
mod compiled;
mod failures;
mod mirror;
mod namespaces;
mod refusals;
mod servers;
mod stripe;
#[path = "../support/mod.rs"]
mod support;
mod tier;
mod tls;

use compiled::compiled;
use servers::{Kit, Qemu};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;
use support::{Folder, Outcome, can_page, flashvm_run_at, has_program, say};

/// Longer than any run here on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Bytes of each export.
const EXPORT: &str = "256M";

/// Whether this machine can page and has these programs.
fn ready(test: &str, programs: &[&str]) -> bool {
    can_page(test) && programs.iter().all(|program| has_program(test, program))
}

/// Runs a program in 8 MiB of RAM, with pages that are not compressed, so that they go to the server.
fn run(test: &str, flash: &str, options: &[&str], program: &[&str]) -> Outcome {
    let folder = Folder::new();
    let options = [&["--ram", "8M", "--compress", "off"], options].concat();
    flashvm_run_at(test, &folder, flash, &options, program, LIMIT)
}

/// Runs parts of the torture program for so many seconds each.
fn torture(test: &str, flash: &str, options: &[&str], parts: &str, seconds: &str) -> Outcome {
    let program = compiled("torture").display().to_string();
    let program = [
        &program,
        "--only",
        parts,
        "--mib",
        "16",
        "--seconds",
        seconds,
        "--seed",
        "20261120",
    ];
    let outcome = run(test, flash, options, &program).expect_success(test);
    assert!(
        outcome.stdout.contains("all checks held") && outcome.stat("pages_out") > 1000,
        "{test}: {}",
        outcome.stdout
    );
    outcome
}

#[test]
fn torture_with_memory_at_nbdkit() {
    let test = "torture_with_memory_at_nbdkit";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    let kit = Kit::start(&["memory", EXPORT]);
    let outcome = torture(test, &kit.uri(), &[], "rewrite,fork", "0.1");
    assert!(
        outcome
            .stderr
            .contains(&format!("store     {}\n", kit.uri()))
    );
}

#[test]
fn torture_with_an_image_at_qemu_nbd_over_tcp() {
    let test = "torture_with_an_image_at_qemu_nbd_over_tcp";
    if !ready(test, &["cc", "qemu-nbd"]) {
        return;
    }
    let qemu = Qemu::start(
        256 << 20,
        &["--shared=0", "--discard=unmap"],
        Ipv4Addr::LOCALHOST.into(),
    );
    let options = ["--discard", "merged"];
    let outcome = torture(test, &qemu.uri(), &options, "rewrite", "0.1");
    assert!(
        !outcome.stderr.contains("refuses discards"),
        "{}",
        outcome.stderr
    );
}

/// Programs that execute others, with much more data than RAM.
#[test]
fn a_shell_sorts_with_its_memory_at_nbdkit() {
    let test = "a_shell_sorts_with_its_memory_at_nbdkit";
    if !ready(test, &["nbdkit", "sort"]) {
        return;
    }
    let kit = Kit::start(&["memory", EXPORT]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sort.sh");
    let outcome = run(test, &kit.uri(), &[], &["sh", script, "200000"]).expect_success(test);
    assert!(outcome.stdout.contains("sorted and checked: 200000 lines"));
    assert!(outcome.stat("pages_in") > 1000, "{}", outcome.stderr);
}

/// An address of this machine that is not its loopback.
fn outer_address() -> Option<IpAddr> {
    // Connecting a datagram socket sends nothing: it only chooses an address.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn pages_that_leave_the_machine_are_encrypted() {
    const MARK: &str = "a page that nobody may read on its way";
    let test = "pages_that_leave_the_machine_are_encrypted";
    if !ready(test, &["qemu-nbd", "python3"]) {
        return;
    }
    let script = format!("a = [b'{MARK}' * 100 for _ in range(3000)]; print(len(set(map(id, a))))");
    let program = [
        "python3",
        "-c",
        script.replace("* 100", "* (100 + _ % 2)").as_str(),
    ]
    .map(str::to_owned);
    let program: Vec<_> = program.iter().map(String::as_str).collect();
    let Some(outer) = outer_address() else {
        say(&format!("SKIPPED: {test}: no address besides the loopback"));
        return;
    };
    for (address, encrypted) in [(outer, true), (Ipv4Addr::LOCALHOST.into(), false)] {
        let qemu = Qemu::start(64 << 20, &["--shared=0"], address);
        let outcome = run(test, &qemu.uri(), &[], &program).expect_success(test);
        assert!(outcome.stat("pages_out") > 1000, "{}", outcome.stderr);
        let says_so = outcome.stderr.contains(", encrypted\n");
        assert_eq!(says_so, encrypted, "{}", outcome.stderr);
        let image = std::fs::read(qemu.image()).expect("the image");
        let found = image
            .windows(MARK.len())
            .any(|bytes| bytes == MARK.as_bytes());
        assert_eq!(found, !encrypted, "{address}");
    }
}
