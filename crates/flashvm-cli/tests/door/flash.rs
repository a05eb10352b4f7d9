//! Refusals of flash paths: unsuitable folders, files, devices and file systems.

use super::children::{self, Bounded as _};
use super::{flashvm, folder, is_root, refused, skipped};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn flash_paths() {
    let folder = folder();
    let full = folder.path().join("full");
    fs::write(&full, "something that is mine").expect("a file");
    let full = full.to_str().expect("a path in UTF-8");
    for (args, named) in [
        (
            &["--flash", "/nowhere/at/all"][..],
            &["/nowhere/at/all", "create it"][..],
        ),
        (&["--flash", full], &[full, "not empty"]),
        (&["--flash", "/dev/null"], &["/dev/null", "block device"]),
        (&["--flash", "/dev/shm"], &["/dev/shm", "RAM", "/var/tmp"]),
        (&["--flash", "/proc"], &["/proc"]),
        (&["--flash-size", "900T"], &["flash store", "too large"]),
        (&["--flash-size", "3T"], &["--flash-size 3 TiB", "free"]),
    ] {
        let args = [&["run", "--ram", "64M"], args, &["--", "true"]].concat();
        refused(&flashvm(&args), 2, named);
    }
    assert_eq!(fs::read(full).expect("the file"), b"something that is mine");
}

/// A loop device over a file, detached when dropped.
struct Loop {
    device: String,
    mounted: Option<PathBuf>,
}

impl Loop {
    fn over(file: &Path, bytes: u64) -> Option<Self> {
        fs::File::create(file)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        let output = children::command("losetup")
            .arg("--find")
            .arg("--show")
            .arg(file)
            .output_in_time()
            .ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !device.is_empty()).then_some(Self {
            device,
            mounted: None,
        })
    }

    fn mount(&mut self, at: &Path) {
        fs::create_dir_all(at).expect("a folder");
        run_tool(
            "mount",
            &[&self.device, at.to_str().expect("a path in UTF-8")],
        );
        self.mounted = Some(at.to_owned());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(at) = &self.mounted {
            let _ = children::command("umount").arg(at).status_in_time();
        }
        let _ = children::command("losetup")
            .args(["--detach", &self.device])
            .status_in_time();
    }
}

fn run_tool(name: &str, args: &[&str]) {
    let output = children::command(name)
        .args(args)
        .output_in_time()
        .expect(name);
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn devices_and_file_systems() {
    let folder = folder();
    let image = folder.path().join("image");
    let Some(mut device) = is_root().then(|| Loop::over(&image, 64 << 20)).flatten() else {
        skipped("devices_and_file_systems", "needs root and loop devices");
        return;
    };
    let name = device.device.clone();
    let run = |args: &[&str]| flashvm(&[&["run", "--ram", "64M"], args, &["--", "true"]].concat());
    refused(&run(&["--flash", &name]), 2, &[&name, "64 MiB", "twice"]);
    refused(
        &run(&["--flash", &name, "--flash-size", "65M"]),
        2,
        &["--flash-size 65 MiB", "64 MiB"],
    );
    run_tool("mkfs.ext4", &["-q", "-F", &name]);
    refused(&run(&["--flash", &name]), 2, &[&name, "ext4", "wipefs"]);
    let at = folder.path().join("mounted");
    device.mount(&at);
    refused(&run(&["--flash", &name]), 2, &[&name, "mounted or in use"]);

    let inside = at.to_str().expect("a path in UTF-8");
    refused(&run(&["--flash", inside]), 2, &[inside, "free", "twice"]);
    refused(
        &run(&["--flash", inside, "--flash-size", "63M"]),
        2,
        &["63 MiB", "free"],
    );
    let empty = at.join("empty");
    fs::write(&empty, "").expect("a file");
    refused(
        &run(&["--flash", empty.to_str().expect("a path")]),
        2,
        &["free", "twice"],
    );
    assert!(empty.exists(), "a refused run keeps the file");
    run_tool("mount", &["-o", "remount,ro", inside]);
    refused(
        &run(&["--flash", inside, "--flash-size", "16M"]),
        2,
        &[inside, "read-only file system", "--flash"],
    );
}
