//! Where this process runs: in which kind of container, in a systemd service, or in neither. Remedies differ: a profile
//! is given to Docker on its command line, to Kubernetes in the pod, to a service in its unit.
//!
//! [`Signs::read`] collects the documented signs; [`Environment::of`] decides, from these alone.

mod remedy;

pub(crate) use remedy::Need;

use super::cgroups;
use std::fmt;
use std::path::Path;

/// What surrounds this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    Docker,
    Podman,
    Kubernetes,
    /// LXC, also under Incus or LXD.
    Lxc,
    Nspawn,
    /// A container of another manager: its name.
    Container(String),
    Service(Service),
    /// Neither a container nor a service.
    Bare,
}

/// A systemd service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Its unit; `None`: unknown.
    unit: Option<String>,
    /// It belongs to a user's manager: `systemctl --user`.
    user: bool,
}

/// The signs of an environment, as they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signs {
    /// `$KUBERNETES_SERVICE_HOST` is set: in every pod ("Accessing the Kubernetes API from a Pod", kubernetes.io).
    kubernetes: bool,
    /// `/run/.containerenv` exists: podman-run(1), "a container environment file".
    containerenv: bool,
    /// `/.dockerenv` exists: dockerd makes it in every container (systemd-detect-virt looks for it, too).
    dockerenv: bool,
    /// The manager's name. `/run/host/container-manager` and `container=` in the environment of process 1 have it
    /// (systemd.io/CONTAINER_INTERFACE). Only root can read the latter; systemd as process 1 copies it to
    /// `/run/systemd/container` for others.
    manager: Option<String>,
    /// `$INVOCATION_ID` is set: systemd.exec(5), for every process of a unit.
    invocation: bool,
    /// `/proc/self/cgroup`: its last component names the unit, cgroups(7) and systemd.slice(5).
    cgroup: String,
}

impl Signs {
    /// Reads the signs of this process.
    pub(crate) fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).ok();
        let name = |path| text(path).map(|name| name.trim().to_owned());
        let manager = name("/run/host/container-manager")
            .or_else(|| manager_in(&std::fs::read("/proc/1/environ").ok()?))
            .or_else(|| name("/run/systemd/container"));
        Self {
            kubernetes: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            containerenv: Path::new("/run/.containerenv").exists(),
            dockerenv: Path::new("/.dockerenv").exists(),
            manager: manager.filter(|name| !name.is_empty()),
            invocation: std::env::var_os("INVOCATION_ID").is_some(),
            cgroup: text("/proc/self/cgroup").unwrap_or_default(),
        }
    }
}

/// The value of `container=` in an environment.
fn manager_in(environ: &[u8]) -> Option<String> {
    let mut variables = environ.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"container="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn here() -> Self {
        Self::of(&Signs::read())
    }

    /// The environment with these signs. The outermost that a user can change wins: a pod before the runtime below it, a
    /// container before a service inside it.
    pub(crate) fn of(signs: &Signs) -> Self {
        let manager = signs.manager.as_deref();
        match manager {
            _ if signs.kubernetes => Self::Kubernetes,
            Some("podman") => Self::Podman,
            // Podman's file first: an image made by Docker may contain Docker's.
            _ if signs.containerenv => Self::Podman,
            Some("docker") => Self::Docker,
            Some("lxc" | "lxc-libvirt") => Self::Lxc,
            Some("systemd-nspawn") => Self::Nspawn,
            Some(other) => Self::Container(other.to_owned()),
            None if signs.dockerenv => Self::Docker,
            None if signs.invocation => service(&signs.cgroup).map_or(Self::Bare, Self::Service),
            None => Self::Bare,
        }
    }

    fn is_container(&self) -> bool {
        !matches!(self, Self::Service(_) | Self::Bare)
    }

    /// Who can change what all containers of a machine share.
    pub(crate) fn root(&self) -> &'static str {
        match self {
            Self::Kubernetes => "as root on the node",
            _ if self.is_container() => "as root on the host",
            _ => "as root",
        }
    }
}

/// The service that a process with `$INVOCATION_ID` in these cgroups belongs to. `None`: a session or a scope, whose
/// shell has inherited the variable.
fn service(cgroup: &str) -> Option<Service> {
    let paths = cgroups::lines(cgroup).filter_map(|(controllers, path)| {
        (controllers.is_empty() || controllers == "name=systemd").then_some(path)
    });
    // The version 1 hierarchy of systemd has the unit where version 2 is mounted beside it and unused.
    let path = paths.max_by_key(|path| path.len()).unwrap_or_default();
    let components = || path.split('/').filter(|name| !name.is_empty());
    let last = components().next_back();
    let user = components().any(|name| name.starts_with("user@"));
    match last {
        Some(name) if name.ends_with(".scope") => None,
        Some(name) if name.ends_with(".service") && !name.starts_with("user@") => Some(Service {
            unit: Some(name.to_owned()),
            user,
        }),
        // A service may have cgroups of its own below its unit's (`Delegate=`).
        _ => Some(Service {
            unit: components()
                .rfind(|name| name.ends_with(".service") && !name.starts_with("user@"))
                .map(str::to_owned),
            user,
        }),
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Docker => f.write_str("a Docker container"),
            Self::Podman => f.write_str("a Podman container"),
            Self::Kubernetes => f.write_str("a Kubernetes pod"),
            Self::Lxc => f.write_str("an LXC container"),
            Self::Nspawn => f.write_str("a systemd-nspawn container"),
            Self::Container(manager) => write!(f, "a container of {manager}"),
            Self::Service(Service {
                unit: Some(unit), ..
            }) => {
                write!(f, "the systemd service {unit}")
            }
            Self::Service(_) => f.write_str("a systemd service"),
            Self::Bare => f.write_str("neither a container nor a service"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(change: impl Fn(&mut Signs)) -> Signs {
        let mut signs = Signs::default();
        change(&mut signs);
        signs
    }

    fn service_of(unit: Option<&str>, user: bool) -> Environment {
        let unit = unit.map(str::to_owned);
        Environment::Service(Service { unit, user })
    }

    #[test]
    fn the_signs_name_the_environment() {
        let manager = |name: &'static str| move |s: &mut Signs| s.manager = Some(name.to_owned());
        let in_unit = |cgroup: &'static str| {
            signs(move |s| {
                s.invocation = true;
                cgroup.clone_into(&mut s.cgroup);
            })
        };
        let table = [
            (Signs::default(), Environment::Bare),
            (signs(|s| s.dockerenv = true), Environment::Docker),
            (signs(manager("docker")), Environment::Docker),
            (signs(|s| s.containerenv = true), Environment::Podman),
            (signs(manager("podman")), Environment::Podman),
            // An image with Docker's file, run by Podman.
            (
                signs(|s| (s.dockerenv, s.containerenv) = (true, true)),
                Environment::Podman,
            ),
            (signs(|s| s.kubernetes = true), Environment::Kubernetes),
            (
                signs(|s| (s.kubernetes, s.dockerenv) = (true, true)),
                Environment::Kubernetes,
            ),
            (signs(manager("lxc")), Environment::Lxc),
            (signs(manager("systemd-nspawn")), Environment::Nspawn),
            (signs(manager("rkt")), Environment::Container("rkt".into())),
            // A service inside of a container: the container sets the limits.
            (
                signs(|s| {
                    manager("lxc")(s);
                    s.invocation = true;
                    s.cgroup = "0::/system.slice/a.service\n".into();
                }),
                Environment::Lxc,
            ),
            (
                in_unit("0::/system.slice/flash.service\n"),
                service_of(Some("flash.service"), false),
            ),
            (
                in_unit("1:name=systemd:/system.slice/a.service\n4:memory:/x\n0::/\n"),
                service_of(Some("a.service"), false),
            ),
            (
                in_unit("0::/user.slice/user-1.slice/user@1.service/app.slice/b.service\n"),
                service_of(Some("b.service"), true),
            ),
            (
                in_unit("0::/system.slice/c.service/worker\n"),
                service_of(Some("c.service"), false),
            ),
            (in_unit(""), service_of(None, false)),
            // A terminal of a desktop: its shell has inherited INVOCATION_ID.
            (
                in_unit("0::/user.slice/user-1.slice/user@1.service/app.slice/vte-1.scope\n"),
                Environment::Bare,
            ),
            (
                signs(|s| s.cgroup = "0::/system.slice/cron.service\n".into()),
                Environment::Bare,
            ),
        ];
        for (signs, wanted) in table {
            assert_eq!(Environment::of(&signs), wanted, "{signs:?}");
        }
    }

    #[test]
    fn the_environment_of_process_1_names_the_manager() {
        let environ = b"PATH=/bin\0mycontainer=no\0container=lxc\0TERM=linux\0";
        assert_eq!(manager_in(environ).as_deref(), Some("lxc"));
        assert_eq!(manager_in(b"PATH=/bin\0"), None);
    }
}
