//! The user who typed the command: the one behind sudo or doas, or simply the present one; and access
//! to files on that user's behalf: root must not write through a user's symbolic link with root's
//! rights. `invoker/elsewhere.rs` has the stand-ins of other systems.

use crate::variables::{VariableEffect, variable};
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User};
use std::ffi::CString;
use std::io;
use std::path::PathBuf;
use strum::Display;

/// The tool that made gctrace root, by the name of its process among the ancestors of gctrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum PrivilegeTool {
    /// sudo, or a tool that sets the same variables (sudo-rs).
    Sudo,
    /// doas, OpenBSD's.
    Doas,
}

/// The user that gctrace works for: runs the command, owns the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoker {
    /// User id.
    pub uid: u32,
    /// Id of the first group.
    pub gid: u32,
    /// Ids of all groups.
    pub groups: Vec<u32>,
    /// Login name, or the user id as text if there is none.
    pub name: String,
    /// Home directory from the user database.
    pub home: PathBuf,
    /// Login shell from the user database.
    pub shell: PathBuf,
    tool: Option<PrivilegeTool>,
}

/// The facts that the identity is derived from.
struct InvokerFacts<'a> {
    real_uid: u32,
    effective_uid: u32,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum InvokerIdentity {
    /// The process's own user.
    Present,
    /// The ids set by sudo.
    Ids { uid: u32, gid: u32 },
    /// The login name set by doas.
    Name(String),
}

/// Trusts the variables only as root, where there are rights to give up. Root can set them to any
/// value, and gains nothing by it.
fn identity(facts: &InvokerFacts<'_>) -> InvokerIdentity {
    if facts.effective_uid != 0 || facts.real_uid != 0 {
        return InvokerIdentity::Present;
    }
    let id = |name| (facts.variable)(name)?.parse::<u32>().ok();
    match (id("SUDO_UID"), id("SUDO_GID"), (facts.variable)("DOAS_USER")) {
        // sudo used by root itself
        (Some(0), _, _) => InvokerIdentity::Present,
        (Some(uid), Some(gid), _) => InvokerIdentity::Ids { uid, gid },
        (_, _, Some(name)) if name != "root" => InvokerIdentity::Name(name),
        _ => InvokerIdentity::Present,
    }
}

impl Invoker {
    /// Detects the user from the process's ids, its environment and the user database.
    pub fn detect() -> Self {
        let facts = InvokerFacts {
            real_uid: Uid::current().as_raw(),
            effective_uid: Uid::effective().as_raw(),
            variable: &|name| variable(name, VariableEffect::Identity)?.into_string().ok(),
        };
        match identity(&facts) {
            InvokerIdentity::Present => Self::present(),
            InvokerIdentity::Ids { uid, gid } => {
                Self::from_ids(uid, gid, Some(PrivilegeTool::Sudo))
            }
            InvokerIdentity::Name(name) => match User::from_name(&name) {
                Ok(Some(user)) => {
                    Self::from_ids(user.uid.as_raw(), user.gid.as_raw(), Some(PrivilegeTool::Doas))
                }
                _ => Self::present(),
            },
        }
    }

    /// The tool that gave gctrace root's rights, if another user typed the command.
    pub fn escalated_by(&self) -> Option<PrivilegeTool> {
        self.tool
    }

    /// Whether gctrace runs as another user than the user that typed the command.
    pub fn is_another_user(&self) -> bool {
        self.tool.is_some()
    }

    /// Name of the user that gctrace runs as.
    pub fn effective_name() -> String {
        let uid = Uid::effective();
        let user = User::from_uid(uid).ok().flatten();
        if let Some(user) = user { user.name } else { uid.to_string() }
    }

    /// Name of the group that gctrace runs as.
    pub fn effective_group() -> String {
        let gid = Gid::effective();
        let group = Group::from_gid(gid).ok().flatten();
        if let Some(group) = group { group.name } else { gid.to_string() }
    }

    fn present() -> Self {
        let groups = nix::unistd::getgroups().into_iter().flatten();
        Self {
            groups: groups.map(Gid::as_raw).collect(),
            ..Self::from_ids(Uid::current().as_raw(), Gid::current().as_raw(), None)
        }
    }

    /// The user of these ids, with name, home, shell and groups of the user database if it has them.
    pub fn from_ids(uid: u32, gid: u32, tool: Option<PrivilegeTool>) -> Self {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let groups = if let Some(user) = &user { groups_of(&user.name, gid) } else { vec![gid] };
        let (name, home, shell) = match user {
            Some(user) => (user.name, user.dir, user.shell),
            None => (uid.to_string(), PathBuf::from("/"), PathBuf::from("/bin/sh")),
        };
        Self { uid, gid, groups, name, home, shell, tool }
    }
}

/// Replaces the session keyring by a new one with the user's keys linked to it, like a login (pam_keyinit(8)):
/// processes may read the keys of their session's keyring, whatever user they run as. If the kernel has no keys, or a
/// filter forbids them, does nothing. System calls only.
fn join_new_session_keyring() {
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name requests a new keyring; the rest are plain numbers.
    unsafe {
        let joined = libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, unnamed);
        if joined >= 0 {
            libc::syscall(
                libc::SYS_keyctl,
                libc::KEYCTL_LINK,
                libc::KEY_SPEC_USER_KEYRING,
                libc::KEY_SPEC_SESSION_KEYRING,
            );
        }
    }
}

fn groups_of(name: &str, gid: u32) -> Vec<u32> {
    let name = CString::new(name).ok();
    match name.map(|name| nix::unistd::getgrouplist(&name, Gid::from_raw(gid))) {
        Some(Ok(groups)) => groups.into_iter().map(Gid::as_raw).collect(),
        Some(Err(_)) | None => vec![gid],
    }
}

/// The ids of an invoker in the form that system calls take, prepared before fork.
#[derive(Clone, Debug)]
pub struct Credentials {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Credentials {
    /// The user's credentials.
    pub fn of(invoker: &Invoker) -> Self {
        Self { uid: invoker.uid, gid: invoker.gid, groups: invoker.groups.clone() }
    }

    /// Assumes the identity for good and drops all capabilities. Raw system calls only: the C
    /// library's would try to change the threads that the forked child does not have.
    pub fn assume(&self) -> io::Result<()> {
        // As root: a limit of the user could prevent leaving root's keyring.
        join_new_session_keyring();
        self.set_groups()?;
        // SAFETY: plain numbers.
        unsafe {
            Errno::result(libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid))?;
            Errno::result(libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid))?;
        }
        // Once more, so that the user owns it.
        join_new_session_keyring();
        Ok(())
    }

    /// Assumes the identity for the calling thread's access to files only; this also drops the
    /// capabilities to override permissions (capabilities(7), "Effect of user ID changes").
    pub fn assume_for_files(&self) -> io::Result<()> {
        self.set_groups()?;
        // SAFETY: plain numbers. Both calls return the previous id and never fail, so the second
        // call of each pair, with an invalid id, reads the current one.
        let now = unsafe {
            libc::syscall(libc::SYS_setfsgid, self.gid);
            libc::syscall(libc::SYS_setfsuid, self.uid);
            (
                libc::syscall(libc::SYS_setfsgid, u32::MAX),
                libc::syscall(libc::SYS_setfsuid, u32::MAX),
            )
        };
        if now == (i64::from(self.gid), i64::from(self.uid)) {
            Ok(())
        } else {
            Err(Errno::EPERM.into())
        }
    }

    fn set_groups(&self) -> io::Result<()> {
        // SAFETY: pointer and length are of one live vector.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr())
        })?;
        Ok(())
    }
}

/// Runs `action` with the invoker's access to files, on a thread of its own, because these ids
/// belong to a thread. If gctrace already is that user, calls it directly.
///
/// # Errors
/// The kernel's, if the ids cannot be assumed or no thread can be created; `action` has not run
/// then.
pub fn act_as<R: Send>(invoker: &Invoker, action: impl FnOnce() -> R + Send) -> io::Result<R> {
    if Uid::effective().as_raw() == invoker.uid {
        return Ok(action());
    }
    let credentials = Credentials::of(invoker);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new();
        let act = move || credentials.assume_for_files().map(|()| action());
        let thread = thread.spawn_scoped(scope, act)?;
        thread.join().unwrap_or_else(|_| {
            Err(io::Error::other("the thread with the user's identity panicked"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(real_uid: u32, effective_uid: u32, variables: &[(&str, &str)]) -> InvokerIdentity {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        identity(&InvokerFacts { real_uid, effective_uid, variable: &variable })
    }

    #[test]
    fn sudo_and_doas_are_trusted_only_as_root() {
        let sudo = [("SUDO_UID", "1000"), ("SUDO_GID", "100"), ("SUDO_USER", "alice")];
        assert_eq!(decided(0, 0, &sudo), InvokerIdentity::Ids { uid: 1000, gid: 100 });
        assert_eq!(decided(1000, 1000, &sudo), InvokerIdentity::Present);
        assert_eq!(decided(1000, 0, &sudo), InvokerIdentity::Present);
        assert_eq!(decided(0, 0, &[("DOAS_USER", "alice")]), InvokerIdentity::Name("alice".into()));
        assert_eq!(decided(1000, 1000, &[("DOAS_USER", "alice")]), InvokerIdentity::Present);
    }

    #[test]
    fn root_that_uses_sudo_stays_root() {
        assert_eq!(
            decided(0, 0, &[("SUDO_UID", "0"), ("SUDO_GID", "0")]),
            InvokerIdentity::Present
        );
        assert_eq!(decided(0, 0, &[("DOAS_USER", "root")]), InvokerIdentity::Present);
        assert_eq!(decided(0, 0, &[]), InvokerIdentity::Present);
    }

    #[test]
    fn invalid_values_are_ignored() {
        for uid in ["", "-1", "alice", "4294967296"] {
            assert_eq!(
                decided(0, 0, &[("SUDO_UID", uid), ("SUDO_GID", "100")]),
                InvokerIdentity::Present
            );
        }
        assert_eq!(decided(0, 0, &[("SUDO_UID", "1000")]), InvokerIdentity::Present);
    }

    #[test]
    fn the_present_user_matches_the_user_database() {
        let invoker = Invoker::present();
        assert_eq!(invoker.uid, Uid::current().as_raw());
        assert_eq!(invoker.escalated_by(), None);
        if let Ok(Some(user)) = User::from_uid(Uid::current()) {
            assert_eq!(invoker.name, user.name);
            assert_eq!(invoker.home, user.dir);
        }
    }

    #[test]
    fn a_user_without_an_entry_is_named_by_its_id() {
        let invoker = Invoker::from_ids(3_999_999_999, 3_999_999_998, Some(PrivilegeTool::Sudo));
        assert_eq!(invoker.name, "3999999999");
        assert_eq!(invoker.groups, [3_999_999_998]);
    }
}
