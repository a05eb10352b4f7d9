//! `--metrics` and `--metrics-file`: a run's counters for Prometheus, in the text format of OpenMetrics.
//!
//! The supervisor makes the text once a second ([`Metrics::look`]), so a scrape costs the program nothing.
//!
//! - `address`: where the text is served; `server`: serves it; `text`: makes it.

mod address;
mod server;
mod text;

pub(crate) use address::MetricsAddress;

use super::outcome::Records;
use super::refusal::Refusal;
use super::result_file::ResultFile;
use super::summary::Names;
use flashvm_live::control::{Control, ProcessRecord};
use server::Server;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use text::Reading;

/// Interval of new texts.
const EVERY: Duration = Duration::from_secs(1);

/// Where a run's metrics go; checked and bound before the run.
#[derive(Debug)]
pub(crate) struct Targets {
    server: Option<Server>,
    file: Option<ResultFile>,
}

impl Targets {
    /// Binds the address, and checks that the file can be written. `None`: neither is asked for.
    pub(crate) fn check(
        address: Option<&MetricsAddress>,
        insecure: bool,
        file: Option<&Path>,
    ) -> Result<Option<Self>, Refusal> {
        if address.is_none() && file.is_none() {
            return match insecure {
                true => Err(Refusal::new(
                    "--metrics-insecure goes with --metrics ADDRESS: name the address",
                )),
                false => Ok(None),
            };
        }
        let server = address.map(|address| Server::bind(address, insecure));
        let file = file.map(|path| ResultFile::check("--metrics-file", path));
        Ok(Some(Self {
            server: server.transpose()?,
            file: file.transpose()?,
        }))
    }

    /// Where the text is served: the port as bound.
    pub(crate) fn served_at(&self) -> Option<String> {
        self.server.as_ref().map(Server::to_string)
    }
}

/// Makes the text while the run goes on.
pub(crate) struct Metrics {
    control: Control,
    targets: Targets,
    labels: [(&'static str, String); 4],
    started: SystemTime,
    text: Arc<Mutex<String>>,
    next: Duration,
    /// The file could not be written: said once.
    has_failed: bool,
}

impl Metrics {
    pub(crate) fn new(control: Control, targets: Targets, names: &Names) -> Self {
        Self {
            control,
            targets,
            labels: [
                ("program", names.program.clone()),
                ("preset", names.preset.to_string()),
                ("policy", names.policy.to_string()),
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ],
            started: SystemTime::now(),
            text: Arc::default(),
            next: Duration::ZERO,
            has_failed: false,
        }
    }

    /// Starts the server's thread. Signals of the run are blocked by now: it inherits that.
    pub(crate) fn begin(&mut self) -> std::io::Result<()> {
        let text = Arc::clone(&self.text);
        self.targets
            .server
            .as_mut()
            .map_or(Ok(()), |server| server.begin(text))
    }

    /// Makes a new text if it is due. `gone` are the records of ended processes; `alive` gives those of the others.
    pub(crate) fn look(
        &mut self,
        elapsed: Duration,
        gone: &Records,
        alive: impl FnOnce() -> Vec<ProcessRecord>,
    ) {
        if elapsed < self.next {
            return;
        }
        self.next = elapsed + EVERY;
        self.publish(gone, &alive());
    }

    /// Makes the text of the end of the run.
    pub(crate) fn finish(&mut self, gone: &Records) {
        self.publish(gone, &[]);
    }

    fn publish(&mut self, gone: &Records, alive: &[ProcessRecord]) {
        let reading = Reading::new(self.control, gone, alive, self.started);
        let text = text::text(reading, &self.labels);
        if let Some(file) = &self.targets.file
            && let Err(e) = file.write(text::older(&text).as_bytes())
            && !std::mem::replace(&mut self.has_failed, true)
        {
            eprintln!("flashvm: --metrics-file: {e}: the run goes on without it");
        }
        *self
            .text
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = text;
    }
}
