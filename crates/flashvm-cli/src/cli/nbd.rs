//! A flash store on an NBD server: its URI, and the checks before the program starts.
//!
//! The URIs are those of `doc/uri.md` of NetworkBlockDevice/nbd: `nbd://HOST[:PORT]/EXPORT` and
//! `nbd+unix:///EXPORT?socket=PATH`; with TLS (`tls`) `nbds://` and `nbds+unix://`, with `tls-certificates=DIR` and
//! `tls-hostname=NAME` as in libnbd.

use super::refusal::Refusal;
use super::store::{self, HEAD_BYTES, Page};
use super::tls::{Certificates, Relay, Target, TryError};
use super::units::{Micros, Size};
use flashvm_live::control::{NbdAddress, NbdServer};
use flashvm_live::{NbdProbe, NbdTrouble, ProbeError};
use percent_encoding::percent_decode_str;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

/// The port that IANA gave to NBD.
const PORT: u16 = 10809;
/// Longest export name of the protocol, in bytes.
const EXPORT_BYTES_MAX: usize = 4096;
/// How long a process waits for an answer, unless `--flash-timeout` says otherwise.
pub(super) const TIMEOUT: Micros = Micros(30_000_000);
const TIMEOUT_MIN: Micros = Micros(1_000_000);
/// How long the checks before the program wait for an answer.
const PATIENCE_MS: u64 = 5_000;

/// An export that holds a store.
#[derive(Debug)]
pub(crate) struct ServerStore {
    pub(crate) server: NbdServer,
    /// The store's size.
    pub(crate) bytes: u64,
    /// Bytes; requests are multiples.
    pub(crate) unit: u32,
    /// It takes discards.
    pub(crate) trims: bool,
    /// It takes flushes.
    pub(crate) flushes: bool,
}

impl ServerStore {
    /// Discards the first page. For a store without data.
    pub(crate) fn try_discard(&self) -> Result<(), String> {
        let mut probe = NbdProbe::connect(&self.server).map_err(|trouble| trouble.to_string())?;
        let page = Page::zeros().0.len() as u32;
        probe.discard(0, page).map_err(|e| e.to_string())
    }
}

/// An NBD URI, before its host is resolved.
#[derive(Debug, PartialEq, Eq)]
struct Uri {
    place: UriPlace,
    export: String,
    tls: Option<UriTls>,
}

/// What a URI says of TLS.
#[derive(Debug, Default, PartialEq, Eq)]
struct UriTls {
    certificates: Option<PathBuf>,
    host: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum UriPlace {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The text of a `--flash` that is a URI.
pub(crate) fn uri(flash: &Path) -> Option<&str> {
    let text = flash.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    scheme.starts_with("nbd").then_some(text)
}

/// Connects to the server, checks that its export can be a store, and writes a page of zeros at its start. `ram` and
/// `asked` are as for [`store::open`].
pub(super) fn open(
    text: &str,
    ram: u64,
    asked: Option<Size>,
    timeout: Option<Micros>,
) -> Result<ServerStore, Refusal> {
    let refused = |why: String| Refusal::new(format!("--flash {text}: {why}"));
    let timeout = timeout.unwrap_or(TIMEOUT);
    if timeout.0 < TIMEOUT_MIN.0 {
        return Err(Refusal::new(format!(
            "--flash-timeout {timeout}: a server may need longer to start again: at least {TIMEOUT_MIN} is possible"
        )));
    }
    let uri = Uri::parse(text).map_err(&refused)?;
    let addresses = uri.place.addresses().map_err(&refused)?;
    let (server, mut probe) = connect(&addresses, &uri).map_err(|error| {
        refused(match error {
            TryError::Nbd(trouble) => format!("{trouble}{}", remedy(trouble)),
            TryError::Tls(line) => line,
        })
    })?;
    let server = NbdServer {
        timeout_ms: timeout.0 / 1000,
        ..server
    };
    let export = probe.export();
    let bytes = store::bytes_of_device(text, export.bytes, ram, asked)?;
    let failed = |what: &'static str| {
        let refused = &refused;
        move |e: ProbeError| refused(format!("the server {what} ({e}): name another export"))
    };
    let mut head = vec![0; HEAD_BYTES.min(bytes as usize)];
    probe.read(0, &mut head).map_err(failed("reads nothing"))?;
    if let Some(held) = store::holds(&head) {
        return Err(refused(format!(
            "the export holds {held}: name another, or overwrite its first MiB"
        )));
    }
    let zeros = Page::zeros();
    probe
        .write(0, &zeros.0)
        .map_err(failed("refuses a write"))?;
    Ok(ServerStore {
        server,
        bytes,
        unit: export.unit,
        trims: export.trims(),
        flushes: export.flushes(),
    })
}

/// Connects to the first address at which the export is served.
fn connect(addresses: &[NbdAddress], uri: &Uri) -> Result<(NbdServer, NbdProbe), TryError> {
    let mut last = TryError::Nbd(NbdTrouble::NoAnswer);
    for address in addresses {
        match connect_to(address, uri) {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: &NbdAddress, uri: &Uri) -> Result<(NbdServer, NbdProbe), TryError> {
    let relay = match &uri.tls {
        None => None,
        Some(tls) => {
            let certificates = Certificates::find(tls.certificates.as_deref());
            let host = tls.host.as_deref().unwrap_or(uri.place.host());
            let target = certificates.and_then(|own| Target::new(address.clone(), host, own));
            let target = target.map_err(TryError::Tls)?;
            target.try_out()?;
            let relay = Relay::start(target);
            Some(relay.map_err(|e| TryError::Tls(format!("no socket for TLS ({e})")))?)
        }
    };
    let server = NbdServer {
        address: address.clone(),
        export: uri.export.clone(),
        timeout_ms: PATIENCE_MS,
        tls: relay.map(|relay| relay.name),
    };
    let probe = NbdProbe::connect(&server).map_err(TryError::Nbd)?;
    Ok((server, probe))
}

/// What the user can do, where the trouble does not say it.
fn remedy(trouble: NbdTrouble) -> &'static str {
    match trouble {
        NbdTrouble::Connect(_) => ": start the server, or name where it listens",
        NbdTrouble::Transfer(_) | NbdTrouble::Closed | NbdTrouble::NoAnswer => {
            ": see what the server says, or name another"
        }
        NbdTrouble::NotNbd => ": name the port of one",
        NbdTrouble::NoTls => ": write nbd:// or nbd+unix://, or have it serve with TLS",
        NbdTrouble::Refused(5) => "",
        NbdTrouble::Oldstyle | NbdTrouble::Protocol(_) | NbdTrouble::Shutdown => {
            ": take another server"
        }
        NbdTrouble::Refused(_) => ": nbdinfo --list shows what it serves",
        NbdTrouble::Small(_) => ": name a larger one",
        NbdTrouble::ReadOnly
        | NbdTrouble::NotShared
        | NbdTrouble::Unit(_)
        | NbdTrouble::Payload(_) => "",
    }
}

impl Uri {
    fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("no URI")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded("the export", export)?;
        if export.len() > EXPORT_BYTES_MAX {
            return Err(format!(
                "the export's name has {} bytes: at most {EXPORT_BYTES_MAX} are possible",
                export.len()
            ));
        }
        let (is_tls, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => {
                return Err(
                    "write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH".to_owned(),
                );
            }
        };
        let query = Query::parse(query)?;
        let tls = UriTls {
            certificates: query.certificates,
            host: query.host,
        };
        if !is_tls && tls != UriTls::default() {
            return Err(format!(
                "certificates are for TLS: write {scheme} with an s, as in nbds://, or leave them out"
            ));
        }
        let place = match (is_unix, query.socket) {
            (false, None) => UriPlace::tcp(authority)?,
            (false, Some(_)) => {
                return Err("?socket= is for nbd+unix:// and nbds+unix://: leave it out".to_owned());
            }
            (true, _) if !authority.is_empty() => {
                return Err(format!(
                    "{authority} is no part of it: write {scheme}:///EXPORT?socket=PATH"
                ));
            }
            (true, None) => {
                return Err(format!(
                    "no socket is named: write {scheme}:///EXPORT?socket=PATH"
                ));
            }
            (true, Some(path)) => UriPlace::Unix(path),
        };
        Ok(Self {
            place,
            export,
            tls: is_tls.then_some(tls),
        })
    }
}

/// What follows the `?` of a URI.
#[derive(Default)]
struct Query {
    socket: Option<PathBuf>,
    certificates: Option<PathBuf>,
    host: Option<String>,
}

impl Query {
    fn parse(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(name, value)?;
            if value.is_empty() {
                return Err(format!("{name} has no value: write {name}=VALUE"));
            }
            match name {
                "socket" => query.socket = Some(value.into()),
                "tls-certificates" => query.certificates = Some(value.into()),
                "tls-hostname" => query.host = Some(value),
                _ => {
                    return Err(format!(
                        "?{name} is not known: socket, tls-certificates and tls-hostname are"
                    ));
                }
            }
        }
        Ok(query)
    }
}

fn decoded(what: &str, text: &str) -> Result<String, String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        _ => Err(format!("{what} '{text}' is not UTF-8: write it in UTF-8")),
    }
}

impl UriPlace {
    fn tcp(authority: &str) -> Result<Self, String> {
        let form = || format!("'{authority}' is no host: write nbd://HOST[:PORT]/EXPORT");
        // An IPv6 address has colons of its own, and brackets around it.
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(form)?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':').ok_or_else(form)?)),
                }
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() || host.contains(['@', ' ']) {
            return Err(form());
        }
        let port = port.map_or(Ok(PORT), |port| {
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| format!("'{port}' is no port: write 1 to 65535, or none for {PORT}"))
        })?;
        Ok(Self::Tcp(host.to_owned(), port))
    }

    /// The host that a certificate has to be for.
    fn host(&self) -> &str {
        match self {
            Self::Tcp(host, _) => host,
            Self::Unix(_) => "localhost",
        }
    }

    /// Where to look for the server, in this order.
    fn addresses(&self) -> Result<Vec<NbdAddress>, String> {
        match self {
            Self::Tcp(host, port) => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let found = found.map(|all| all.map(NbdAddress::Tcp).collect::<Vec<_>>());
                found.map_err(|e| {
                    format!("{host} cannot be resolved ({e}): name a host that can, or an address")
                })
            }
            // The processes of the run may be in other folders.
            Self::Unix(path) => std::path::absolute(path)
                .map(|path| vec![NbdAddress::Unix(path)])
                .map_err(|e| format!("{e}: name the socket by its absolute path")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Result<Uri, String> {
        Ok(Uri {
            place: UriPlace::Tcp(host.to_owned(), port),
            export: export.to_owned(),
            tls: None,
        })
    }

    #[test]
    fn uris_are_those_of_the_document() {
        for (text, parsed) in [
            ("nbd://host", tcp("host", PORT, "")),
            ("nbd://host/", tcp("host", PORT, "")),
            ("nbd://host:7/a/b%20c", tcp("host", 7, "a/b c")),
            ("nbd://[::1]/x", tcp("::1", PORT, "x")),
            ("nbd://[::1]:7/x", tcp("::1", 7, "x")),
        ] {
            assert_eq!(Uri::parse(text), parsed, "{text}");
        }
        let unix = Uri::parse("nbd+unix:///ex?socket=/tmp/a%3Fb").unwrap();
        assert_eq!(unix.export, "ex");
        assert_eq!(unix.place, UriPlace::Unix("/tmp/a?b".into()));
        assert_eq!(unix.tls, None);
        let tls = Uri::parse("nbds+unix:///ex?tls-certificates=/a%26b&socket=/c").unwrap();
        assert_eq!(tls.place, UriPlace::Unix("/c".into()));
        let certificates = Some("/a&b".into());
        let wanted = UriTls {
            certificates,
            host: None,
        };
        assert_eq!((tls.tls, tls.place.host()), (Some(wanted), "localhost"));
        let tls = Uri::parse("nbds://host:7/ex?tls-hostname=other").unwrap();
        assert_eq!(tls.tls.unwrap().host.as_deref(), Some("other"));
        assert_eq!(tls.place, UriPlace::Tcp("host".to_owned(), 7));
    }

    #[test]
    fn other_texts_are_refused_in_one_line_with_a_remedy() {
        let long = format!("nbd://host/{}", "x".repeat(EXPORT_BYTES_MAX + 1));
        for text in [
            "nbd://",
            "nbd:///export",
            "nbd://user@host/",
            "nbd://host:0/",
            "nbd://host:65536/",
            "nbd://host:port/",
            "nbd://[::1/x",
            "nbd://[::1]7/x",
            "nbd://host/x?socket=/y",
            "nbd://host/%ff",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=",
            "nbd+unix://host/x?socket=/y",
            "nbd://host/x?tls-hostname=y",
            "nbds://host/x?tls-certificates=",
            "nbds://host/x?tls-verify-peer=false",
            "nbds+unix:///x",
            "nbd+vsock://3/x",
            &long,
        ] {
            let line = Uri::parse(text).unwrap_err();
            assert!(line.contains(": ") || line.contains("write "), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn only_uris_of_nbd_are_taken_for_servers() {
        for path in ["/mnt/nvme", "nbd", "./nbd://x", "http://x"] {
            assert_eq!(uri(Path::new(path)), None, "{path}");
        }
        for text in ["nbd://x", "nbds://x", "nbd+unix:///?socket=y"] {
            assert_eq!(uri(Path::new(text)), Some(text));
        }
    }
}
