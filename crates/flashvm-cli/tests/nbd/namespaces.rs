//! A server on another network: its own namespace, reached over a pair of virtual interfaces.

use super::failures::{filled, torture_with_outages};
use super::servers::wait_for_tcp;
use super::support::children::{self, Bounded as _};
use super::support::{has_program, say};
use super::{EXPORT, ready, torture};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

const PORT: u16 = 10_809;

/// nbdkit in a network namespace of its own.
struct Far {
    name: String,
    address: SocketAddr,
    server: Option<Child>,
}

/// Calls `ip`; returns what it complains about if it fails.
fn ip(words: &str) -> Result<(), String> {
    let mut ip = children::command("ip");
    let called = ip.args(words.split(' ')).output_in_time();
    let called = called.expect("ip starts");
    let said = String::from_utf8_lossy(&called.stderr);
    let failed = || format!("ip {words}: {}", said.trim());
    called.status.success().then_some(()).ok_or_else(failed)
}

impl Far {
    /// A server with these words after its own options; `None`, and the test is named as skipped, where namespaces
    /// cannot be made.
    fn start(test: &str, words: &[&str]) -> Option<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        if !ready(test, &["cc", "python3", "nbdkit"]) || !has_program(test, "ip") {
            return None;
        }
        // Names of interfaces are short. These addresses are for tests of networks (RFC 2544).
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("fv{process}-{number}");
        let [near, server_ip] =
            [1, 2].map(|host| format!("198.18.{}.{}", process % 256, number % 64 * 4 + host));
        if let Err(why) = ip(&format!("netns add {name}")) {
            say(&format!("SKIPPED: {test}: no network namespaces: {why}"));
            return None;
        }
        let mut far = Self {
            name: name.clone(),
            address: SocketAddr::new(server_ip.parse().expect("an address"), PORT),
            server: None,
        };
        let made = [
            format!("link add {name}n type veth peer name {name}f netns {name}"),
            format!("addr add {near}/30 dev {name}n"),
            format!("link set {name}n up"),
            format!("-n {name} addr add {server_ip}/30 dev {name}f"),
            format!("-n {name} link set {name}f up"),
        ];
        if let Err(why) = made.iter().try_for_each(|words| ip(words)) {
            say(&format!(
                "SKIPPED: {test}: no link between namespaces: {why}"
            ));
            return None;
        }
        let mut server = children::command("ip");
        server.args(["netns", "exec", &name, "nbdkit", "-f", "--exit-with-parent"]);
        server.args(["-p", &PORT.to_string()]).args(words);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        far.server = Some(server.spawn().expect("ip starts"));
        wait_for_tcp(far.address);
        Some(far)
    }

    fn uri(&self) -> String {
        format!("nbd://{}/", self.address)
    }

    /// Cuts the link, or mends it: no packet arrives, and nobody is told.
    fn link(&self, state: &str) {
        let name = &self.name;
        ip(&format!("-n {name} link set {name}f {state}")).expect("the link changes");
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        // The link goes with it.
        let _ = ip(&format!("netns del {}", self.name));
    }
}

#[test]
fn torture_with_memory_on_another_network() {
    let test = "torture_with_memory_on_another_network";
    let words = [
        "--filter=delay",
        "memory",
        EXPORT,
        "rdelay=1ms",
        "wdelay=1ms",
    ];
    if let Some(far) = Far::start(test, &words) {
        let outcome = torture(test, &far.uri(), &[], "rewrite,fork", "0.1");
        let says_so = outcome.stderr.contains(", encrypted\n");
        assert!(says_so, "{}", outcome.stderr);
    }
}

#[test]
fn a_link_that_is_cut_for_a_moment_loses_nothing() {
    let test = "a_link_that_is_cut_for_a_moment_loses_nothing";
    let Some(far) = Far::start(test, &["memory", EXPORT]) else {
        return;
    };
    // Packets are sent again after 0.2 s, 0.4 s, 0.8 s, ...
    torture_with_outages(test, &far.uri(), [100, 1500], |cut| {
        far.link(if cut { "down" } else { "up" });
    });
}

#[test]
fn a_link_that_stays_cut_ends_the_program_with_a_reason() {
    let test = "a_link_that_stays_cut_ends_the_program_with_a_reason";
    let Some(far) = Far::start(test, &["memory", EXPORT]) else {
        return;
    };
    let outcome = filled(test, &far.uri(), &["--flash-timeout", "1s"], || {
        far.link("down")
    });
    let said = &outcome.stderr;
    assert_eq!(outcome.shell_code(), 128 + libc::SIGABRT, "{said}");
    assert!(said.contains("has not answered for 1 s"), "{said}");
    assert!(
        outcome.stats.contains("has not answered for 1 s"),
        "{}",
        outcome.stats
    );
}
