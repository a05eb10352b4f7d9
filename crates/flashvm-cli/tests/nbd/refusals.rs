//! What cannot be a store is refused before the program starts: one line, exit code 2.

use super::servers::{Kit, Qemu};
use super::support::Folder;
use super::{EXPORT, ready, run};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::thread::scope;

fn refused(flash: &str, options: &[&str], reason: &str) {
    let outcome = run("a refusal", flash, options, &["echo", "started"]);
    let line = outcome.stderr.trim_end();
    assert_eq!(outcome.status.code(), Some(2), "{flash}: {line}");
    assert!(
        line.contains(reason) && !line.contains('\n'),
        "{flash}: {line}"
    );
    assert_eq!(outcome.stdout, "", "{flash}");
}

#[test]
fn addresses_without_a_server() {
    if !ready("addresses_without_a_server", &[]) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("a port");
    drop(listener);
    for (uri, reason) in [
        (
            format!("nbd://{closed}/x"),
            "connection refused: start the server",
        ),
        (
            "nbd://nowhere.invalid/x".to_owned(),
            "nowhere.invalid cannot be resolved",
        ),
        (
            "nbd+unix:///x?socket=/nowhere".to_owned(),
            "no such socket: start the server",
        ),
        (
            format!("nbds://{closed}/x"),
            "connection refused: start the server",
        ),
        ("nbd+ssh://localhost/x".to_owned(), "write nbd://HOST"),
        ("nbd://localhost:0/x".to_owned(), "'0' is no port"),
    ] {
        refused(&uri, &[], reason);
    }
    let short = ["--flash-timeout", "10ms"];
    refused("nbd://localhost/x", &short, "--flash-timeout 10ms: ");
    refused(
        "/var/tmp",
        &["--flash-timeout", "10s"],
        "--flash-timeout 10s is for a store at a server",
    );
}

#[test]
fn a_server_of_another_protocol() {
    if !ready("a_server_of_another_protocol", &[]) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("a port");
    scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("the command connects");
            // The command may have left by now.
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
        });
        refused(
            &format!("nbd://{address}/x"),
            &[],
            "not an NBD server: name the port of one",
        );
    });
}

#[test]
fn exports_of_nbdkit() {
    if !ready("exports_of_nbdkit", &["nbdkit"]) {
        return;
    }
    let policy = ["--filter=blocksize-policy", "memory", EXPORT];
    let large = [
        &policy[..],
        &["blocksize-minimum=64k", "blocksize-preferred=64k"],
    ]
    .concat();
    let alone = [
        "--filter=multi-conn",
        "memory",
        EXPORT,
        "multi-conn-mode=disable",
    ];
    for (words, reason) in [
        (&["-r", "memory", EXPORT][..], "read-only"),
        (
            &["memory", "1M"],
            "1 MiB is less than twice the budget of 8 MiB",
        ),
        (&large, "multiples of 65536 bytes"),
        (
            &alone,
            "does not promise that all connections see the same bytes",
        ),
        (
            &["data", "size=256M", "@0x438 0x53 0xef"],
            "holds an ext2, ext3 or ext4 file system",
        ),
        (
            &["--filter=error", "memory", EXPORT, "error-pwrite-rate=100%"],
            "refuses a write",
        ),
        (
            &["--filter=error", "memory", EXPORT, "error-pread-rate=100%"],
            "reads nothing",
        ),
    ] {
        let kit = Kit::start(words);
        refused(&kit.uri(), &[], reason);
    }
    let kit = Kit::start(&["memory", EXPORT]);
    refused(
        &kit.uri(),
        &["--flash-size", "1G"],
        "has only 256 MiB: ask for less",
    );
}

#[test]
fn exports_of_qemu_nbd() {
    if !ready("exports_of_qemu_nbd", &["qemu-nbd"]) {
        return;
    }
    let qemu = Qemu::start(256 << 20, &["--shared=0"], Ipv4Addr::LOCALHOST.into());
    let other = qemu.uri().replace("/store", "/other");
    refused(&other, &[], "the server has no such export");
    let alone = Qemu::start(256 << 20, &[], Ipv4Addr::LOCALHOST.into());
    refused(&alone.uri(), &[], "qemu-nbd --shared=0");
}

#[test]
fn mirrors_without_two_good_sides() {
    if !ready("mirrors_without_two_good_sides", &["nbdkit"]) {
        return;
    }
    let kit = Kit::start(&["memory", EXPORT]);
    let small = Kit::start(&["memory", "1M"]);
    let here = Folder::new();
    let path = here.path().display().to_string();
    let file = here.path().join("file");
    let (kit, small, file_path) = (kit.uri(), small.uri(), file.display().to_string());
    std::fs::File::create(&file).expect("a file");
    for (sides, options, reason) in [
        (path.clone(), &[][..], "a mirror has two sides"),
        (format!("{path},{kit},{kit}"), &[], "a mirror has two sides"),
        (
            format!("{path},{kit},spare={kit}"),
            &[],
            "two sides are the same",
        ),
        (
            format!("{file_path},{kit},spare={small}"),
            &[],
            "1 MiB is less than twice the budget",
        ),
        (format!("{path},"), &[], "a side is empty"),
        (format!("mirror:{path},{kit}"), &[], "no side of another"),
        (format!("{path},{path}/."), &[], "two sides are the same"),
        (format!("{kit},{kit}"), &[], "two sides are the same"),
        (
            format!("{file_path},/nowhere/at/all"),
            &[],
            "no such folder, file or device",
        ),
        (
            format!("/nowhere/at/all,{kit}"),
            &[],
            "no such folder, file or device",
        ),
        (format!("{file_path},/dev/shm"), &[], "which is RAM"),
        (
            format!("{file_path},nbd+unix:///x?socket=/nowhere"),
            &[],
            "no such socket: start the server",
        ),
        (
            format!("{file_path},{small}"),
            &[],
            "1 MiB is less than twice the budget",
        ),
        (
            format!("{file_path},{path}"),
            &["--flash-timeout", "10s"],
            "all sides are here: leave it out",
        ),
        (
            format!("{path},{kit}"),
            &["--granularity", "512", "--fault", "inline"],
            "small pages cannot be mirrored",
        ),
        (
            format!("{path},{kit}"),
            &["--flash-size", "900T"],
            "too large",
        ),
    ] {
        refused(&format!("mirror:{sides}"), options, reason);
        let left: Vec<_> = std::fs::read_dir(here.path())
            .expect("the folder")
            .collect();
        assert_eq!(left.len(), 1, "{sides}: {left:?}");
    }
}

#[test]
fn stripes_without_good_sides() {
    if !ready("stripes_without_good_sides", &["nbdkit"]) {
        return;
    }
    let kit = Kit::start(&["memory", EXPORT]);
    let small = Kit::start(&["memory", "4M"]);
    let here = Folder::new();
    let path = here.path().display().to_string();
    let (kit, small) = (kit.uri(), small.uri());
    for (sides, options, reason) in [
        (path.clone(), &[][..], "a stripe has 2 to 8 sides"),
        (["/x"; 9].join(","), &[], "a stripe has 2 to 8 sides"),
        (format!("{path},"), &[], "a side is empty"),
        (
            format!("{path},mirror:{kit}"),
            &[],
            "a mirror is no side of another store",
        ),
        (
            format!("{kit},{path},{path}/."),
            &[],
            "two sides are the same",
        ),
        (
            format!("{kit},{small}"),
            &[],
            "there is room for 8 MiB on all sides together, less than twice the budget of 8 MiB",
        ),
        (
            format!("{path},/nowhere/at/all"),
            &[],
            "no such folder, file or device",
        ),
        (
            format!("{kit},nbd+unix:///x?socket=/nowhere"),
            &[],
            "no such socket: start the server",
        ),
        (
            format!("{kit},{path}"),
            &["--flash-size", "900T"],
            "too large",
        ),
    ] {
        refused(&format!("stripe:{sides}"), options, reason);
        let left = std::fs::read_dir(here.path()).expect("the folder");
        assert_eq!(left.count(), 0, "{sides}");
    }
}

#[test]
fn tiers_without_two_good_sides() {
    if !ready("tiers_without_two_good_sides", &["nbdkit"]) {
        return;
    }
    let kit = Kit::start(&["memory", EXPORT]);
    let small = Kit::start(&["memory", "4M"]);
    let here = Folder::new();
    let path = here.path().display().to_string();
    let (kit, small) = (kit.uri(), small.uri());
    for (sides, options, reason) in [
        (path.clone(), &[][..], "a tier has two sides"),
        (format!("{path},{kit},{kit}"), &[], "a tier has two sides"),
        (
            format!("{path},stripe:{kit}"),
            &[],
            "a stripe is no side of another store",
        ),
        (format!("{kit},{kit}"), &[], "two sides are the same"),
        (
            format!("{path},{small}"),
            &["--flash-size", "4M"],
            "there is room for 4 MiB and 4 MiB, less than twice the budget of 8 MiB together",
        ),
        (
            format!("{path},/nowhere/at/all"),
            &[],
            "no such folder, file or device",
        ),
        (
            format!("{path},{kit}"),
            &["--flash-size", "900T"],
            "too large",
        ),
    ] {
        refused(&format!("tier:{sides}"), options, reason);
        let left = std::fs::read_dir(here.path()).expect("the folder");
        assert_eq!(left.count(), 0, "{sides}");
    }
}
