//! The servers of these tests, ended when dropped.

use crate::support::Folder;
use crate::support::children::{self, Bounded as _};
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// The array of numbers with this name, the first in a text of JSON.
pub(crate) fn numbers(json: &str, name: &str) -> Vec<u64> {
    let (_, after) = json.split_once(&format!("\"{name}\":[")).expect(name);
    let (list, _) = after.split_once(']').expect("an end");
    let number = |text: &str| text.parse().expect("a number");
    list.split(',').map(number).collect()
}

/// Waits until a server listens.
pub(crate) fn wait_for_tcp(address: SocketAddr) {
    children::wait_until("the server listens", PATIENCE, || {
        TcpStream::connect(address).is_ok()
    });
}

fn spawn(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the server starts")
}

/// nbdkit, on a Unix socket.
pub(crate) struct Kit {
    child: Child,
    folder: Folder,
    words: Vec<String>,
}

impl Kit {
    /// One with these words after its own options: filters, a plugin and its parameters.
    pub(crate) fn start(words: &[&str]) -> Self {
        let folder = Folder::new();
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let child = Self::spawn(&folder, &words);
        Self {
            child,
            folder,
            words,
        }
    }

    /// With a file in its folder as data.
    pub(crate) fn with_file(bytes: u64) -> Self {
        let folder = Folder::new();
        let file = folder.path().join("data");
        File::create(&file)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        let words = vec!["file".to_owned(), file.display().to_string()];
        let child = Self::spawn(&folder, &words);
        Self {
            child,
            folder,
            words,
        }
    }

    fn spawn(folder: &Folder, words: &[String]) -> Child {
        let socket = folder.path().join("socket");
        // A server that was killed leaves it.
        let _ = std::fs::remove_file(&socket);
        let mut command = children::command("nbdkit");
        command
            .args(["-f", "--exit-with-parent", "-U"])
            .arg(&socket);
        let child = spawn(command.args(words));
        // It binds its socket before it listens: the file is there too early.
        children::wait_until("nbdkit listens", PATIENCE, || {
            UnixStream::connect(&socket).is_ok()
        });
        child
    }

    pub(crate) fn uri(&self) -> String {
        format!(
            "nbd+unix:///?socket={}",
            self.folder.path().join("socket").display()
        )
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    /// Makes it answer nothing, or go on.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = children::command("kill");
        kill.args([format!("-{name}"), self.child.id().to_string()]);
        assert!(kill.status_in_time().expect("kill starts").success());
    }

    /// The file of [`Self::with_file`].
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts it again, with the data that its plugin keeps.
    pub(crate) fn restart(&mut self) {
        self.child = Self::spawn(&self.folder, &self.words);
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// qemu-nbd, on a TCP port, with an export of the name `store`.
pub(crate) struct Qemu {
    child: Child,
    folder: Folder,
    address: SocketAddr,
}

impl Qemu {
    pub(crate) fn start(bytes: u64, options: &[&str], ip: IpAddr) -> Self {
        let folder = Folder::new();
        let image = folder.path().join("image");
        File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        // Free a moment ago; a port that another takes meanwhile fails the test.
        let listener = TcpListener::bind((ip, 0)).expect("a port");
        let address = listener.local_addr().expect("a port");
        drop(listener);
        let mut command = children::command("qemu-nbd");
        command
            .args(["-f", "raw", "--persistent", "-x", "store"])
            .args(["-b", &ip.to_string(), "-p", &address.port().to_string()])
            .args(options)
            .arg(&image);
        let child = spawn(&mut command);
        wait_for_tcp(address);
        Self {
            child,
            folder,
            address,
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd://{}/store", self.address)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
