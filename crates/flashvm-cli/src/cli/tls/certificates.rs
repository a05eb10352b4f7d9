//! Certificates of a client, in files with the names that libnbd, nbdkit and qemu give them: `ca-cert.pem` has the
//! authorities that are trusted, `client-cert.pem` and `client-key.pem` say who the client is.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AUTHORITIES: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";
/// The authorities of the system, where distributions have them.
const OF_SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Where the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Certificates {
    /// The file with the authorities.
    pub(super) authorities: PathBuf,
    /// The folder in which the client's certificate may be.
    folder: Option<PathBuf>,
}

impl Certificates {
    /// Those of a folder (`tls-certificates=DIR`); without one those of the user, of libnbd's folders, or the system's
    /// authorities.
    pub(in crate::cli) fn find(folder: Option<&Path>) -> Result<Self, String> {
        let of_folder = |folder: &Path| Self {
            authorities: folder.join(AUTHORITIES),
            folder: Some(folder.to_owned()),
        };
        if let Some(folder) = folder {
            return Ok(of_folder(folder));
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let of_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let folders = [
            of_home(".pki/libnbd"),
            of_home(".config/pki/libnbd"),
            Some(PathBuf::from("/etc/pki/libnbd")),
        ];
        let mut folders = folders.iter().flatten();
        if let Some(folder) = folders.find(|folder| folder.join(AUTHORITIES).is_file()) {
            return Ok(of_folder(folder));
        }
        let of_system = OF_SYSTEM.iter().map(Path::new).find(|file| file.is_file());
        let authorities = of_system.ok_or(
            "no certificates of authorities are installed: name a folder with ca-cert.pem by tls-certificates=DIR",
        )?;
        Ok(Self {
            authorities: authorities.to_owned(),
            folder: None,
        })
    }

    /// The client's certificate, if there is one.
    pub(super) fn own(&self) -> Option<PathBuf> {
        let own = self.folder.as_ref().map(|folder| folder.join(CERTIFICATE));
        own.filter(|own| own.is_file())
    }

    /// The settings of TLS with these certificates.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(certificates(&self.authorities)?);
        if added == 0 {
            return Err(format!(
                "{}: no certificate of an authority: name a folder with another {AUTHORITIES}",
                self.authorities.display()
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots);
        let Some(own) = self.own() else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let key = own.with_file_name(KEY);
        let pair = PrivateKeyDer::from_pem_file(&key)
            .map_err(|e| unreadable(&key, &e))
            .and_then(|private| {
                builder
                    .with_client_auth_cert(certificates(&own)?, private)
                    .map_err(|e| {
                        format!(
                            "{}: not the key of {CERTIFICATE} ({e}): put both into the folder",
                            key.display()
                        )
                    })
            });
        pair.map(Arc::new)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(file).map_err(|e| unreadable(file, &e))?;
    found
        .collect::<Result<_, _>>()
        .map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &Path, error: &rustls::pki_types::pem::Error) -> String {
    let why = match error {
        rustls::pki_types::pem::Error::Io(error) => error.to_string(),
        rustls::pki_types::pem::Error::NoItemsFound => "nothing of this kind is in it".to_owned(),
        other => format!("{other:?}"),
    };
    format!(
        "{}: {why}: name a folder with PEM files by tls-certificates=DIR",
        file.display()
    )
}
