//! Paths that others can and cannot change.

use super::*;
use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use test_kit::limit::WithTimeout as _;

/// Ids without an account.
const ALICE: u32 = 61_301;
const MALLORY: u32 = 61_303;

/// A folder below one that only root can write; `None`, and a line with the reason, without root.
fn trusted_place(test: &str) -> Option<tempfile::TempDir> {
    if !Uid::effective().is_root() {
        eprintln!("skipped {test}: it needs root");
        return None;
    }
    let place = tempfile::tempdir_in("/usr/local/lib").expect("a folder");
    set_mode(place.path(), 0o755);
    Some(place)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

fn found(path: &Path, user: u32) -> Option<String> {
    let found = examine(path, user).expect("examined");
    found.writable.or(found.sticky).map(|part| part.to_string())
}

#[test]
fn only_root_and_the_commands_user_may_write() {
    let Some(place) = trusted_place("only_root_and_the_commands_user_may_write") else {
        return;
    };
    let folder = place.path().join("venv");
    fs::create_dir(&folder).expect("mkdir");
    let file = folder.join("x.so");
    fs::write(&file, "").expect("write");
    set_mode(&file, 0o755);
    assert_eq!(found(&file, 0), None);
    assert_eq!(found(&file, ALICE), None);

    for part in [&folder, &file] {
        chown(part, Some(ALICE), Some(ALICE)).expect("chown");
        assert_eq!(found(&file, ALICE), None, "{part:?}");
        let belongs = format!("{} belongs to user {ALICE}", part.display());
        assert_eq!(found(&file, 0).as_ref(), Some(&belongs));
        assert_eq!(found(&file, MALLORY), Some(belongs));
        chown(part, Some(MALLORY), None).expect("chown");
        assert!(found(&file, ALICE).is_some(), "{part:?}");
        chown(part, Some(0), Some(0)).expect("chown");
    }

    for (mode, who) in [(0o775, "group root"), (0o757, "everyone"), (0o1777, "everyone")] {
        for part in [&folder, &file] {
            set_mode(part, mode);
            for user in [0, ALICE] {
                let text = found(&file, user).expect("refused");
                assert_eq!(text, format!("{who} may write {}", part.display()));
            }
            set_mode(part, 0o755);
        }
    }
    examine(&folder.join("none"), 0).expect_err("missing");
}

/// The sticky bit protects the files in the folder now, not who created it.
#[test]
fn a_file_below_tmp_is_anyones() {
    let place = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let file = place.path().join("x.so");
    fs::write(&file, "").expect("write");
    let user = Uid::effective().as_raw();
    let text = found(&file, user).expect("refused");
    assert!(text.ends_with("may write /var/tmp"), "{text}");
    assert_eq!(examine(&file, user).expect("examined").writable, None, "now nobody can");
}

/// What is safe now, another user cannot replace, and vice versa: they try to
/// rename each part and to put their own in its place.
#[test]
fn another_user_tries_to_replace_each_part() {
    let Some(place) = trusted_place("another_user_tries_to_replace_each_part") else {
        return;
    };
    let top = place.path().join("tmp");
    let folder = top.join("target");
    let file = folder.join("x.so");
    fs::create_dir_all(&folder).expect("mkdir");
    fs::write(&file, "root's").expect("write");
    let mut outcomes = Vec::new();
    for (top_mode, top_owner) in [(0o755, 0), (0o1777, 0), (0o777, 0), (0o1777, MALLORY)] {
        for (folder_mode, folder_owner) in [(0o755, 0), (0o1777, 0), (0o777, 0), (0o755, MALLORY)] {
            for (file_mode, file_owner) in [(0o644, 0), (0o666, 0), (0o644, MALLORY)] {
                for (part, mode, owner) in [
                    (&file, file_mode, file_owner),
                    (&folder, folder_mode, folder_owner),
                    (&top, top_mode, top_owner),
                ] {
                    set_mode(part, mode);
                    chown(part, Some(owner), None).expect("chown");
                }
                let safe = examine(&file, 0).expect("examined").writable.is_none();
                let script = r#"
                    echo new >"$1/target/x.so"
                    mv "$1/target/x.so" "$1/target/y" && echo new >"$1/target/x.so"
                    mv "$1/target" "$1/other" && mkdir "$1/target" && echo new >"$1/target/x.so""#;
                let mut command = std::process::Command::new("setpriv");
                let id = MALLORY.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
                command.args(["sh", "-c", script, "sh"]).arg(&top);
                command.output_in_time().expect("it starts");
                let replaced = fs::read(&file).expect("read") != b"root's";
                assert_eq!(safe, !replaced, "{top_mode:o} {folder_mode:o} {file_mode:o}");
                outcomes.push(safe);
                fs::remove_dir_all(&top).expect("remove");
                fs::create_dir_all(&folder).expect("mkdir");
                fs::write(&file, "root's").expect("write");
            }
        }
    }
    assert!(outcomes.contains(&true) && outcomes.contains(&false), "{outcomes:?}");
}

/// Nothing but a regular file is opened: each of these would wait, touch a device or be someone else's.
#[test]
fn only_a_file_that_nobody_else_could_have_written_is_opened() {
    let place = tempfile::tempdir().expect("a folder");
    let user = Uid::effective().as_raw();
    let path = |name: &str| place.path().join(name);
    let refused = |name: &str| open(&path(name), user).expect_err(name).to_string();
    fs::write(path("file"), "text").expect("write");
    set_mode(&path("file"), 0o644);
    open(&path("file"), user).expect("opened");
    std::os::unix::fs::symlink("file", path("link")).expect("a link");
    open(&path("link"), user).expect("the user's own link");
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
    fs::create_dir(path("folder")).expect("mkdir");
    for (link, target) in [("to-fifo", "fifo"), ("to-folder", "folder"), ("to-tty", "/dev/tty")] {
        std::os::unix::fs::symlink(target, path(link)).expect("a link");
    }
    for name in ["fifo", "socket", "folder", "to-fifo", "to-folder"] {
        assert_eq!(refused(name), "it is not a regular file", "{name}");
    }
    // Everyone may write a terminal.
    refused("to-tty");
    for (link, target) in [("dangling", "none"), ("circle", "circle"), ("far", "file/none")] {
        std::os::unix::fs::symlink(target, path(link)).expect("a link");
        assert!(matches!(open(&path(link), user), Err(TrustError::Io(_))), "{link}");
    }
    for mode in [0o664, 0o646] {
        set_mode(&path("file"), mode);
        for name in ["file", "link", "folder/../file"] {
            assert!(refused(name).starts_with("others may write it: "), "{name}");
        }
    }
    set_mode(&path("file"), 0o644);
    set_mode(place.path(), 0o777);
    assert!(refused("file").contains("everyone may write"));
    set_mode(place.path(), 0o1777);
    open(&path("file"), user).expect("nobody can replace it");
    if !Uid::effective().is_root() {
        return;
    }
    for part in ["link", "file"] {
        std::os::unix::fs::lchown(path(part), Some(MALLORY), None).expect("chown");
        let text = refused("link");
        assert!(text.ends_with(&format!("{part} belongs to user {MALLORY}")), "{text}");
        std::os::unix::fs::lchown(path(part), Some(0), None).expect("chown");
    }
    open(&path("link"), user).expect("root's again");
    set_access_list(&path("file"), MALLORY);
    assert!(refused("file").contains("group root may write"));
}

/// Two users with groups of their own, removed on drop.
struct Users([User; 2]);

impl Users {
    fn create(test: &str) -> Option<Self> {
        if std::env::var_os("GCTRACE_TEST_SUDO").is_none_or(|value| value != "1") {
            eprintln!("skipped {test}: it creates users; GCTRACE_TEST_SUDO=1 allows that");
            return None;
        }
        let created = ["a", "m"].map(|letter| {
            let name = format!("gct-t{letter}-{}", std::process::id() % 100_000);
            let options = ["--no-create-home", "--user-group", &name];
            run("useradd", &options);
            let user = User::from_name(&name).expect("the user database");
            user.expect("created")
        });
        Some(Self(created))
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        // A group with another member would stay.
        for user in self.0.iter().rev() {
            let mut command = std::process::Command::new("userdel");
            let _ = command.arg(&user.name).output_in_time();
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output =
        std::process::Command::new(program).args(arguments).output_in_time().expect("it starts");
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// An access list (acl(5), include/uapi/linux/posix_acl_xattr.h) that lets a user write.
fn set_access_list(path: &Path, user: u32) {
    const UNNAMED: u32 = u32::MAX;
    let (owner, named, group, mask, other) = (0x01, 0x02, 0x04, 0x10, 0x20);
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (owner, 7, UNNAMED),
        (named, 6, user),
        (group, 7, UNNAMED),
        (mask, 7, UNNAMED),
        (other, 5, UNNAMED),
    ] {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(rights));
        list.extend(u32::to_le_bytes(id));
    }
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    let name = c"system.posix_acl_access";
    // SAFETY: two C strings, and the bytes with their length.
    let set = unsafe {
        let (list, length) = (list.as_ptr().cast(), list.len());
        libc::setxattr(path.as_ptr(), name.as_ptr(), list, length, 0)
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

#[test]
fn a_private_group_is_its_users_alone() {
    let test = "a_private_group_is_its_users_alone";
    let Some((place, users)) = trusted_place(test).zip(Users::create(test)) else {
        return;
    };
    let [alice, mallory] = &users.0;
    let (alices, mallorys) = (alice.uid.as_raw(), mallory.uid.as_raw());
    let file = place.path().join("x.so");
    fs::write(&file, "").expect("write");
    chown(&file, Some(alices), Some(alice.gid.as_raw())).expect("chown");
    set_mode(&file, 0o775);
    assert_eq!(found(&file, alices), None);
    assert!(found(&file, mallorys).expect("refused").contains("belongs to"));

    // An access list lets others write as far as the group may.
    set_access_list(&file, mallorys);
    assert_eq!(fs::metadata(&file).expect("metadata").mode() & 0o777, 0o775);
    assert!(found(&file, alices).expect("refused").starts_with("group "));
    set_mode(&file, 0o755);
    assert_eq!(found(&file, alices), None, "the mask forbids it");
    fs::remove_file(&file).expect("remove");
    fs::write(&file, "").expect("write");
    chown(&file, Some(alices), None).expect("chown");
    set_mode(&file, 0o775);

    // Another's private group, and a private group with a second member.
    chown(&file, None, Some(mallory.gid.as_raw())).expect("chown");
    assert!(found(&file, alices).expect("refused").starts_with("group "));
    chown(&file, None, Some(alice.gid.as_raw())).expect("chown");
    run("gpasswd", &["--add", &mallory.name, &alice.name]);
    assert!(found(&file, alices).expect("refused").starts_with("group "));
}
