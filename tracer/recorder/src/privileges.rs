//! The privileges that recording needs, and how to get them.
//!
//! Facts ([`PrivilegeFacts::gather`]) are separate from rules ([`PrivilegeError::from_facts`], its text and remedy);
//! rules are pure. `gctrace_ebpf::KernelSupport` covers features of the kernel.

mod credentials;
mod facts;

pub use credentials::{
    is_root_without_ptrace, keep_what_is_needed, may_inspect_all_users, renounce, too_few_files,
};
pub use facts::{Lockdown, PrivilegeFacts};

use crate::text::shell_line;
use std::ffi::OsStr;
use std::fmt;

/// A capability that recording needs, and its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Name as in capabilities(7), but without `CAP_`: `BPF`.
    pub name: &'static str,
    /// Bit in the sets of `/proc/PID/status` (include/uapi/linux/capability.h).
    bit: u32,
    /// The action that the capability permits, as a verb phrase.
    pub purpose: &'static str,
}

/// Always needed. CAP_SYS_ADMIN includes them (capabilities(7)).
pub const NEEDED: [Capability; 2] = [
    Capability { name: "BPF", bit: 39, purpose: "load BPF programs" },
    Capability { name: "PERFMON", bit: 38, purpose: "place probes and read kernel structs" },
];

/// Needed for processes of other users, and for the user's own in containers or with privileges. With
/// file capabilities they are dropped: otherwise anyone who may run the file would have them over all
/// processes.
pub const FOR_OTHERS: [Capability; 2] = [
    Capability {
        name: "SYS_PTRACE",
        bit: 19,
        purpose: "see which files the processes of other users map",
    },
    Capability {
        name: "DAC_READ_SEARCH",
        bit: 2,
        purpose: "read them in directories that are closed to others",
    },
];

const SYS_ADMIN: u32 = 21;
/// CAP_BPF. Before Linux 5.8 the newest capability is CAP_AUDIT_READ, and there is no ring buffer.
const NEWEST_NEEDED: u32 = 39;

/// A set of capabilities, one bit each, as in `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    fn has(self, bit: u32) -> bool {
        self.0 & (1 << bit) != 0
    }

    /// Whether the set contains the capability, or CAP_SYS_ADMIN instead.
    pub fn allow(self, needed: Capability) -> bool {
        self.has(needed.bit) || (needed.bit >= 38 && self.has(SYS_ADMIN))
    }

    /// The capabilities of [`NEEDED`] that the set lacks.
    fn missing(self) -> Vec<Capability> {
        self.lacking(NEEDED)
    }

    /// The capabilities of a list that the set lacks.
    pub fn lacking(self, list: [Capability; 2]) -> Vec<Capability> {
        list.into_iter().filter(|needed| !self.allow(*needed)).collect()
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: Vec<_> = NEEDED.iter().filter(|needed| self.allow(**needed)).map(cap).collect();
        match held.as_slice() {
            [] => formatter.write_str("none of these"),
            held => write!(formatter, "only {}", held.join(", ")),
        }
    }
}

/// `CAP_BPF`.
pub fn cap(needed: &Capability) -> String {
    format!("CAP_{}", needed.name)
}

/// The obstacle to recording; of several, the first in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrivilegeObstacle {
    /// Kernel lockdown forbids the functions that recording needs.
    Lockdown,
    /// The kernel predates the capabilities.
    OldKernel,
    /// Capabilities in a user namespace do not count for BPF.
    UserNamespace,
    /// The bounding set excludes the capabilities, even for root.
    BoundingSet,
    /// BPF sees other pids than this process.
    PidNamespace,
    /// sudo and setcap have no effect.
    NoNewPrivileges,
    /// The process was not granted the capabilities.
    NotGranted,
}

/// The reason why recording by kernel probes is not permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivilegeError {
    obstacle: PrivilegeObstacle,
    missing: Vec<Capability>,
    facts: Box<PrivilegeFacts>,
}

/// The reason why this process may not record by kernel probes; `None` if it may.
pub fn denied() -> Option<PrivilegeError> {
    PrivilegeError::from_facts(PrivilegeFacts::gather())
}

impl PrivilegeError {
    /// Evaluates the facts; `None` if they permit recording.
    pub fn from_facts(facts: PrivilegeFacts) -> Option<Self> {
        use PrivilegeObstacle as Obstacle;
        let missing = facts.effective.missing();
        let obstacles = [
            (facts.lockdown == Lockdown::Confidentiality, Obstacle::Lockdown),
            (matches!(facts.newest_capability, Some(..NEWEST_NEEDED)), Obstacle::OldKernel),
            (facts.foreign_user_namespace, Obstacle::UserNamespace),
            (!facts.bounding.missing().is_empty() && !missing.is_empty(), Obstacle::BoundingSet),
            (facts.foreign_pid_namespace, Obstacle::PidNamespace),
            (facts.no_new_privileges && !missing.is_empty(), Obstacle::NoNewPrivileges),
            (!missing.is_empty(), Obstacle::NotGranted),
        ];
        let (_, obstacle) = obstacles.into_iter().find(|(applies, _)| *applies)?;
        Some(Self { obstacle, missing, facts: Box::new(facts) })
    }

    /// Whether the rights were merely not granted, so that sudo would suffice.
    pub fn sudo_helps(&self) -> bool {
        self.obstacle == PrivilegeObstacle::NotGranted
    }

    /// The commands that fix it, ready to print after the error.
    pub fn remedy(&self) -> String {
        let fixed = match self.obstacle {
            PrivilegeObstacle::Lockdown => {
                "Boot the kernel without lockdown=confidentiality (lockdown=integrity is fine), or disable\n\
                 Secure Boot."
            }
            PrivilegeObstacle::OldKernel => "Linux 5.15 or newer is needed: gctrace doctor",
            PrivilegeObstacle::NoNewPrivileges => {
                "This process cannot gain privileges: no_new_privs was set by a sandbox, a service or\n\
                 --security-opt=no-new-privileges. Start gctrace outside of it."
            }
            PrivilegeObstacle::PidNamespace => {
                "Start the container with --pid=host (Kubernetes: hostPID: true), or record from the host:\n    \
                 sudo gctrace record -p PID"
            }
            PrivilegeObstacle::UserNamespace => return rootless(&self.facts),
            PrivilegeObstacle::BoundingSet => return outside_limits(&self.facts),
            PrivilegeObstacle::NotGranted => return self.sudo_or_setcap(),
        };
        fixed.to_owned()
    }

    fn sudo_or_setcap(&self) -> String {
        let executable = self.facts.executable.as_os_str();
        let words: Vec<&OsStr> = [executable]
            .into_iter()
            .chain(self.facts.arguments.iter().map(|word| word.as_os_str()))
            .collect();
        let sudo = format!(
            "Run it with sudo; the command still runs as {}, with your environment and PATH:\n    sudo {}\n",
            self.facts.user,
            shell_line(&words)
        );
        let group = &self.facts.group;
        if self.facts.on_nosuid_mount {
            let installed = OsStr::new("/usr/local/bin/gctrace");
            let install = shell_line(&[OsStr::new("install"), executable, installed]);
            return format!(
                "{sudo}Or grant the capabilities once to a copy, for members of the group {group} and their own processes (they \
                 have no effect on {}, as its file system is mounted nosuid):\n    sudo {install} && {}",
                shell_line(&[executable]),
                grant(group, installed),
            );
        }
        format!(
            "{sudo}Or grant the capabilities once to this file, for members of the group {group} and their own processes:\n    {}",
            grant(group, executable)
        )
    }
}

/// The command that grants a file the capabilities, and only a group the permission to execute it.
fn grant(group: &str, file: &OsStr) -> String {
    let names: Vec<_> = NEEDED.iter().map(|needed| cap(needed).to_lowercase()).collect();
    let owner = format!("root:{group}");
    let file = shell_line(&[file]);
    // chown first, as it clears capabilities (chown(2)).
    format!(
        "sudo chown {} {file} && sudo chmod 750 {file} && sudo setcap {}+ep {file}",
        shell_line(&[OsStr::new(&owner)]),
        names.join(",")
    )
}

fn rootless(facts: &PrivilegeFacts) -> String {
    format!(
        "This is a separate user namespace{}, in which capabilities do not count for BPF.\n\
         Record from the host: sudo gctrace record -p PID",
        facts.container.as_ref().map_or(String::new(), |kind| format!(" ({kind})"))
    )
}

fn outside_limits(facts: &PrivilegeFacts) -> String {
    let names: Vec<_> = NEEDED.iter().chain(&FOR_OTHERS).map(|needed| needed.name).collect();
    match facts.container.as_deref() {
        Some("kubernetes") => format!(
            "This container does not have them. Its pod needs:\n    \
             hostPID: true\n    \
             securityContext: {{runAsUser: 0, capabilities: {{add: [{}]}}}}\n\
             or record from the node: sudo gctrace record -p PID",
            names.join(", ")
        ),
        Some(kind) => format!(
            "This container ({kind}) does not have them. Start it with:\n    \
             docker run --cap-add {} --pid=host ...\n\
             (or --privileged), or record from the host: sudo gctrace record -p PID",
            names.join(" --cap-add ")
        ),
        None => "This process cannot get them, not even as root: they are not in its bounding set (set by a\n\
                 container, a sandbox or a service with CapabilityBoundingSet=). Start gctrace outside of it."
            .to_owned(),
    }
}

impl fmt::Display for PrivilegeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.obstacle {
            PrivilegeObstacle::Lockdown => formatter.write_str(
                "recording is not possible: the kernel is locked down (/sys/kernel/security/lockdown: confidentiality)",
            ),
            PrivilegeObstacle::PidNamespace => formatter.write_str(
                "recording is not possible in a separate pid namespace: BPF sees the host's pids, /proc shows others",
            ),
            PrivilegeObstacle::UserNamespace if self.missing.is_empty() => {
                formatter.write_str("recording is not possible in a separate user namespace")
            }
            _ => {
                let missing: Vec<_> = self.missing.iter().map(cap).collect();
                let (user, held) = (&self.facts.user, self.facts.effective);
                write!(
                    formatter,
                    "recording needs privileges: missing {} (user {user} has {held} in effect)",
                    missing.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for PrivilegeError {}

/// The error of an ordinary user, for tests of other modules.
#[cfg(test)]
pub use tests::denied as ordinary_user;

#[cfg(test)]
mod tests;
