//! What gives a process here what it needs: one line for each environment and need.

use super::{Environment, Service};

/// What a run may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The system calls `userfaultfd` and `io_uring_*`, which a filter forbids.
    Calls,
    /// `CAP_SYS_PTRACE`, for handler mode.
    Trace,
    /// A folder on a disk that can be written to, for the store.
    Disk,
    /// A larger memory limit.
    Memory,
    /// `/proc`.
    Proc,
}

impl Need {
    #[cfg(test)]
    const ALL: [Self; 5] = [
        Self::Calls,
        Self::Trace,
        Self::Disk,
        Self::Memory,
        Self::Proc,
    ];
}

/// The system calls that FlashVM takes from a filter.
const CALLS: &str = "userfaultfd io_uring_setup io_uring_enter io_uring_register";

impl Environment {
    /// What to do, as an imperative or a command.
    pub(crate) fn remedy(&self, need: Need) -> String {
        match self {
            Self::Docker => engine("docker", need),
            Self::Podman => engine("podman", need),
            Self::Kubernetes => pod(need).to_owned(),
            Self::Lxc => lxc(need).to_owned(),
            Self::Nspawn => nspawn(need),
            Self::Container(manager) => other(manager, need),
            Self::Service(service) => service.remedy(need),
            Self::Bare => bare(need).to_owned(),
        }
    }

    /// What to do for a store's folder: name one, or give the environment one.
    pub(crate) fn disk(&self) -> String {
        let remedy = self.remedy(Need::Disk);
        match self {
            Self::Bare => remedy,
            _ => format!("{}, or: {remedy}", bare(Need::Disk)),
        }
    }
}

/// `contrib/containers/seccomp.py` writes the profile.
fn engine(command: &str, need: Need) -> String {
    match need {
        Need::Calls => format!(
            "{command} run --security-opt seccomp=flashvm-seccomp.json (contrib/containers/seccomp.py writes it)"
        ),
        Need::Trace => format!("{command} run --cap-add SYS_PTRACE"),
        Need::Disk => format!("{command} run -v /var/tmp:/var/tmp"),
        Need::Memory => format!("{command} run --memory SIZE"),
        Need::Proc => format!(
            "{command} run mounts /proc: leave out the option or the command that removes it"
        ),
    }
}

fn pod(need: Need) -> &'static str {
    match need {
        Need::Calls => {
            "in the container's securityContext: seccompProfile: {type: Localhost, localhostProfile: \
             flashvm-seccomp.json}"
        }
        Need::Trace => "in the container's securityContext: capabilities: {add: [SYS_PTRACE]}",
        Need::Disk => "mount an emptyDir volume (without medium: Memory) at /var/tmp",
        Need::Memory => "in the container's resources: limits: {memory: SIZE}",
        Need::Proc => "pods have /proc: leave out the command that unmounts it",
    }
}

fn lxc(need: Need) -> &'static str {
    match need {
        Need::Calls => {
            "in the container's configuration: lxc.seccomp.profile = a profile that allows userfaultfd and io_uring_*"
        }
        Need::Trace => "run the container privileged, without lxc.cap.drop = sys_ptrace",
        Need::Disk => {
            "in the container's configuration: lxc.mount.entry = /var/tmp var/tmp none bind,create=dir"
        }
        Need::Memory => "in the container's configuration: lxc.cgroup2.memory.max = SIZE",
        Need::Proc => "in the container's configuration: lxc.mount.auto = proc",
    }
}

fn nspawn(need: Need) -> String {
    match need {
        Need::Calls => format!("systemd-nspawn --system-call-filter='{CALLS}'"),
        Need::Trace => {
            "systemd-nspawn --capability=CAP_SYS_PTRACE, without --private-users".to_owned()
        }
        Need::Disk => "systemd-nspawn --bind=/var/tmp".to_owned(),
        Need::Memory => "systemd-nspawn --property=MemoryMax=SIZE".to_owned(),
        Need::Proc => {
            "systemd-nspawn mounts /proc: leave out the command that unmounts it".to_owned()
        }
    }
}

fn other(manager: &str, need: Need) -> String {
    let what = match need {
        Need::Calls => "userfaultfd and io_uring_* in its seccomp profile",
        Need::Trace => "CAP_SYS_PTRACE",
        Need::Disk => "a writable folder on a disk, mounted at /var/tmp",
        Need::Memory => "a larger memory limit",
        Need::Proc => "/proc",
    };
    format!("let {manager} give the container {what}")
}

impl Service {
    fn remedy(&self, need: Need) -> String {
        let unit = self.unit.as_deref().unwrap_or("UNIT");
        let systemctl = match self.user {
            true => "systemctl --user",
            false => "systemctl",
        };
        let edit = |line: &str| format!("{systemctl} edit {unit}, with [Service] {line}");
        match need {
            Need::Calls => edit(&format!("SystemCallFilter={CALLS}")),
            Need::Trace => edit("AmbientCapabilities=CAP_SYS_PTRACE"),
            Need::Disk => edit("ReadWritePaths=/var/tmp"),
            Need::Memory => format!("{systemctl} set-property {unit} MemoryMax=SIZE"),
            Need::Proc => edit("ProcSubset=all"),
        }
    }
}

fn bare(need: Need) -> &'static str {
    match need {
        Need::Calls => "start flashvm without the seccomp filter that forbids it",
        Need::Trace => "run flashvm as root",
        Need::Disk => "name a writable folder on a disk with --flash",
        Need::Memory => "write a larger number to that file",
        Need::Proc => "mount -t proc proc /proc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every environment has one line for every need, and its own: a remedy for another place would mislead.
    #[test]
    fn every_environment_has_a_remedy_of_its_own() {
        let service = Service {
            unit: Some("a.service".into()),
            user: false,
        };
        let all = [
            Environment::Docker,
            Environment::Podman,
            Environment::Kubernetes,
            Environment::Lxc,
            Environment::Nspawn,
            Environment::Container("rkt".into()),
            Environment::Service(service),
            Environment::Bare,
        ];
        for need in Need::ALL {
            let lines: std::collections::BTreeSet<_> =
                all.iter().map(|place| place.remedy(need)).collect();
            assert_eq!(lines.len(), all.len(), "{need:?}: {lines:?}");
            for line in lines {
                assert!(!line.is_empty() && !line.contains('\n') && !line.contains("  "));
            }
        }
    }

    #[test]
    fn the_commands_are_those_of_the_place() {
        let unit = |user| {
            Environment::Service(Service {
                unit: Some("db.service".into()),
                user,
            })
        };
        let table = [
            (
                Environment::Docker,
                Need::Calls,
                "docker run --security-opt seccomp=",
            ),
            (
                Environment::Podman,
                Need::Memory,
                "podman run --memory SIZE",
            ),
            (Environment::Kubernetes, Need::Memory, "limits: {memory:"),
            (Environment::Kubernetes, Need::Disk, "emptyDir"),
            (Environment::Lxc, Need::Memory, "lxc.cgroup2.memory.max"),
            (Environment::Nspawn, Need::Disk, "--bind=/var/tmp"),
            (
                unit(false),
                Need::Memory,
                "systemctl set-property db.service MemoryMax=SIZE",
            ),
            (
                unit(true),
                Need::Calls,
                "systemctl --user edit db.service, with [Service] SystemCallFilter=userfaultfd",
            ),
            (Environment::Bare, Need::Disk, "--flash"),
        ];
        for (place, need, wanted) in table {
            let line = place.remedy(need);
            assert!(line.contains(wanted), "{line}");
        }
    }
}
