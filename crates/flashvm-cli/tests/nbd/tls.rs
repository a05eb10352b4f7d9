//! TLS (`nbds://`) with real servers: certificates of all kinds, failures behind TLS, and mirrors.

use super::failures::told;
use super::servers::{Kit, wait_for_tcp};
use super::support::children::{self, Bounded as _};
use super::support::{Folder, has_program};
use super::{EXPORT, compiled, ready, run, torture};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::{scope, sleep};
use std::time::Duration;

/// An authority, certificates of a server for localhost and of a client, and what other authorities have signed.
struct Pki {
    folder: Folder,
}

/// Whether this machine can page and has a server and what makes certificates.
fn can(test: &str, server: &str) -> bool {
    ready(test, &[server]) && has_program(test, "openssl")
}

impl Pki {
    fn new() -> Self {
        let pki = Self {
            folder: Folder::new(),
        };
        for name in ["server", "client", "stranger"] {
            fs::create_dir(pki.path(name)).expect("a folder");
        }
        pki.authority("ca");
        pki.authority("other");
        let localhost = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        pki.signed("ca", "server/server", localhost);
        pki.signed("ca", "client/client", "subjectAltName=DNS:client");
        pki.signed("other", "stranger/client", "subjectAltName=DNS:client");
        for name in ["server", "client", "stranger"] {
            fs::copy(pki.path("ca-cert.pem"), pki.path(name).join("ca-cert.pem")).expect("a copy");
        }
        pki
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, words: &[&str]) {
        let mut openssl = children::command("openssl");
        openssl.args(words).current_dir(self.folder.path());
        let made = openssl.output_in_time().expect("openssl starts");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "openssl {words:?}: {said}");
    }

    /// A key and a certificate that signs others.
    fn authority(&self, name: &str) {
        let (key, cert) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
        let subject = format!("/CN=authority {name}");
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout";
        let words: Vec<_> = words.split(' ').collect();
        self.openssl(&[&words[..], &[&key, "-out", &cert, "-subj", &subject]].concat());
    }

    /// A key and a certificate that an authority has signed.
    fn signed(&self, authority: &str, name: &str, extension: &str) {
        let [key, cert, request] =
            ["key", "cert", "request"].map(|what| format!("{name}-{what}.pem"));
        let words = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout";
        let words: Vec<_> = words.split(' ').collect();
        self.openssl(&[&words[..], &[&key, "-out", &request]].concat());
        fs::write(self.path("extension"), extension).expect("a file");
        let ca = ["cert", "key"].map(|what| format!("{authority}-{what}.pem"));
        let words = ["x509", "-req", "-days", "2", "-CAcreateserial", "-extfile"];
        let rest = ["extension", "-in", &request, "-out", &cert];
        let by = ["-CA", &ca[0], "-CAkey", &ca[1]];
        self.openssl(&[&words[..], &rest, &by].concat());
    }

    /// nbdkit behind TLS that takes clients of its authority only.
    fn kit(&self, words: &[&str]) -> Kit {
        let certificates = format!("--tls-certificates={}", self.path("server").display());
        let tls = ["--tls=require", "--tls-verify-peer", &certificates];
        Kit::start(&[&tls[..], words].concat())
    }

    /// The URI of a server, with the certificates in a folder.
    fn uri(&self, kit: &Kit, certificates: &str) -> String {
        let uri = kit.uri().replace("nbd+unix:", "nbds+unix:");
        format!(
            "{uri}&tls-certificates={}",
            self.path(certificates).display()
        )
    }
}

fn refused(flash: &str, reason: &str) {
    let outcome = run("a refusal", flash, &[], &["echo", "started"]);
    let line = outcome.stderr.trim_end();
    assert_eq!(outcome.status.code(), Some(2), "{flash}: {line}");
    assert!(
        line.contains(reason) && !line.contains('\n'),
        "{flash}: {line}"
    );
}

#[test]
fn torture_behind_tls_at_nbdkit() {
    let test = "torture_behind_tls_at_nbdkit";
    if !can(test, "nbdkit") || !has_program(test, "cc") {
        return;
    }
    let pki = Pki::new();
    let kit = pki.kit(&["memory", EXPORT]);
    let outcome = torture(test, &pki.uri(&kit, "client"), &[], "rewrite,fork", "0.2");
    let named = "store     nbds+unix:///?socket=";
    assert!(outcome.stderr.contains(named), "{}", outcome.stderr);
    assert_eq!(outcome.stat("pages_lost"), 0, "{}", outcome.stats);
}

/// Programs that execute others, over TCP, at qemu-nbd; the host's name is the certificate's.
#[test]
fn torture_behind_tls_at_qemu_nbd() {
    let test = "torture_behind_tls_at_qemu_nbd";
    if !can(test, "qemu-nbd") || !has_program(test, "cc") {
        return;
    }
    let pki = Pki::new();
    let image = pki.path("image");
    let file = fs::File::create(&image).expect("a file");
    file.set_len(256 << 20).expect("a size");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("a port");
    drop(listener);
    let server = pki.path("server").display().to_string();
    let tls = format!("tls-creds-x509,id=tls0,endpoint=server,verify-peer=yes,dir={server}");
    let mut qemu = children::command("qemu-nbd");
    qemu.args(["-f", "raw", "--persistent", "--shared=0", "-x", "store"])
        .args(["-b", "127.0.0.1", "-p", &address.port().to_string()])
        .args(["--object", &tls, "--tls-creds", "tls0"])
        .arg(&image);
    let mut child = qemu.spawn().expect("the server starts");
    wait_for_tcp(address);
    let client = pki.path("client").display().to_string();
    let uri = format!(
        "nbds://localhost:{}/store?tls-certificates={client}",
        address.port()
    );
    let outcome = torture(test, &uri, &[], "rewrite", "1");
    let plain = format!("nbd://{address}/store");
    refused(&plain, "the server demands TLS: write nbds://");
    let other = uri.replace("localhost:", "127.0.0.2:");
    let missing = run(test, &other, &[], &["echo", "started"]);
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    let outcome = outcome.expect_success(test);
    assert!(outcome.stat("pages_in") > 100, "{}", outcome.stderr);
    assert_eq!(missing.status.code(), Some(2), "{}", missing.stderr);
}

#[test]
fn wrong_certificates_are_refused_in_one_line() {
    let test = "wrong_certificates_are_refused_in_one_line";
    if !can(test, "nbdkit") {
        return;
    }
    let pki = Pki::new();
    let kit = pki.kit(&["memory", EXPORT]);
    let good = pki.uri(&kit, "client");
    let with = |name: &str, certificates: &Path| {
        fs::create_dir_all(pki.path(name)).expect("a folder");
        let to = pki.path(name).join("ca-cert.pem");
        fs::copy(certificates, to).expect("a copy");
        pki.uri(&kit, name)
    };
    let no_folder = good.replace("/client", "/nowhere");
    for (uri, reason) in [
        (
            with("other", &pki.path("other-cert.pem")),
            "the server's certificate is of no authority in ",
        ),
        (
            format!("{good}&tls-hostname=elsewhere.example"),
            "the server's certificate is not for elsewhere.example",
        ),
        (
            with("nobody", &pki.path("ca-cert.pem")),
            "put client-cert.pem and client-key.pem into the folder",
        ),
        (
            pki.uri(&kit, "stranger"),
            "use a client-cert.pem that an authority of the server has signed",
        ),
        (no_folder, "ca-cert.pem: No such file or directory"),
        (
            with("broken", &pki.path("extension")),
            "no certificate of an authority: name a folder with another ca-cert.pem",
        ),
        (
            good.replace("nbds+unix", "nbd+unix"),
            "certificates are for TLS",
        ),
    ] {
        refused(&uri, reason);
    }
    let plain = Kit::start(&["memory", EXPORT]);
    refused(
        &pki.uri(&plain, "client"),
        "the server does not speak TLS: write nbd://",
    );
    let bare = kit.uri();
    refused(&bare, "the server demands TLS: write nbds://");
}

#[test]
fn a_server_behind_tls_that_is_killed_and_started_again_loses_nothing() {
    let test = "a_server_behind_tls_that_is_killed_and_started_again_loses_nothing";
    if !can(test, "nbdkit") || !has_program(test, "cc") {
        return;
    }
    // Before the clock runs.
    compiled("torture");
    let pki = Pki::new();
    let data = pki.path("data");
    let file = fs::File::create(&data).expect("a file");
    file.set_len(256 << 20).expect("a size");
    let mut kit = pki.kit(&["file", &data.display().to_string()]);
    let uri = pki.uri(&kit, "client");
    scope(|scope| {
        let run = scope.spawn(|| torture(test, &uri, &[], "rewrite", "2"));
        sleep(Duration::from_millis(800));
        kit.kill();
        sleep(Duration::from_millis(300));
        kit.restart();
        assert!(!run.is_finished(), "killed too late");
        run.join().expect("the run");
    });
}

#[test]
fn a_mirror_behind_tls_outlives_a_side() {
    let test = "a_mirror_behind_tls_outlives_a_side";
    if !can(test, "nbdkit") || !has_program(test, "cc") {
        return;
    }
    compiled("torture");
    let pki = Pki::new();
    let mut kits = [pki.kit(&["memory", EXPORT]), pki.kit(&["memory", EXPORT])];
    let flash = format!(
        "mirror:{},{}",
        pki.uri(&kits[0], "client"),
        pki.uri(&kits[1], "client")
    );
    scope(|scope| {
        let run = scope.spawn(|| torture(test, &flash, &[], "rewrite", "1.5"));
        sleep(Duration::from_millis(900));
        kits[0].kill();
        assert!(!run.is_finished(), "killed too late");
        let outcome = run.join().expect("the run");
        assert_eq!(outcome.stat("sides_lost"), 1, "{}", outcome.stats);
    });
}

/// A program that changes its user still reaches the socket of its run; others do not.
#[test]
fn only_the_run_may_use_its_connection() {
    const CHANGES_ITS_USER: &str = "
import hashlib, os, sys, time
folder = sys.argv[1]
data = bytearray(os.urandom(24 << 20))
right = hashlib.sha1(data).hexdigest()
open(folder + '/ready', 'w').close()
while not os.path.exists(folder + '/go'):
    time.sleep(0.01)
os.setuid(65534)
assert hashlib.sha1(data).hexdigest() == right
print('all bytes are right')
";
    // Prints the greetings that another user gets.
    const ASKS: &str = "
import os, socket
names = {line.split()[-1][1:] for line in open('/proc/net/unix') if '@flashvm-tls-' in line}
os.setuid(65534)
for name in names:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    try:
        s.connect('\\0' + name)
        print('greeting', s.recv(18))
    except ConnectionError as error:
        print('refused', error)
";
    let test = "only_the_run_may_use_its_connection";
    if !can(test, "nbdkit") || !has_program(test, "python3") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        super::say(&format!("SKIPPED: {test}: only root can change its user"));
        return;
    }
    let pki = Pki::new();
    let kit = pki.kit(&["memory", EXPORT]);
    let uri = pki.uri(&kit, "client");
    let mut heard = String::new();
    let outcome = told(test, &uri, &[], CHANGES_ITS_USER, |_| {
        let mut python = children::command("python3");
        let asked = python.args(["-c", ASKS]).output_in_time();
        heard = String::from_utf8_lossy(&asked.expect("python3 starts").stdout).into_owned();
    });
    let outcome = outcome.expect_success(test);
    assert_eq!(outcome.stdout, "all bytes are right\n");
    let lines: Vec<_> = heard.lines().collect();
    let is_nothing = |line: &&str| *line == "greeting b''" || line.starts_with("refused");
    assert!(!lines.is_empty() && lines.iter().all(is_nothing), "{heard}");
}
