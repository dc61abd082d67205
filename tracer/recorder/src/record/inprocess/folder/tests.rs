use super::*;
use gctrace_ring::RingListener;
use std::os::unix::fs::PermissionsExt;

fn me() -> FolderOwner {
    FolderOwner { uid: Uid::effective().as_raw(), gid: Gid::effective().as_raw() }
}

/// A place with the permissions of /tmp.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let rights = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(place.path(), rights).expect("chmod");
    place
}

fn count(place: &Path) -> usize {
    std::fs::read_dir(place).expect("a directory").count()
}

#[test]
fn only_the_owner_can_enter_and_nothing_is_left() {
    let place = place();
    let folder = InjectFolder::make(&[place.path().to_owned()], me()).expect("a folder");
    let found = std::fs::symlink_metadata(&folder.path).expect("is there");
    assert_eq!(found.mode() & 0o7777, 0o700);
    let listener = RingListener::bind(&folder.socket()).expect("a socket");
    std::os::unix::fs::symlink("/etc/passwd", folder.path.join("link")).expect("a link");
    drop((listener, folder));
    assert_eq!(count(place.path()), 0);
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn leftovers_are_removed_and_folders_in_use_kept() {
    let place = place();
    let places = [place.path().to_owned()];
    let old = |path: &Path| {
        let long_ago = SystemTime::now() - SETTLED * 2;
        let folder = File::open(path).expect("opens");
        folder.set_modified(long_ago).expect("utimensat");
    };
    let living = InjectFolder::make(&places, me()).expect("a folder");
    old(&living.path);
    // As left by a killed gctrace: its lock is free.
    let dead = place.path().join("gctrace-0123456789abcdef");
    std::fs::create_dir(&dead).expect("mkdir");
    std::fs::set_permissions(&dead, PermissionsExt::from_mode(0o700)).expect("chmod");
    std::fs::write(dead.join(SOCKET), "").expect("a file");
    old(&dead);
    let young = place.path().join("gctrace-00000000000000aa");
    std::fs::create_dir(&young).expect("mkdir");
    std::fs::set_permissions(&young, PermissionsExt::from_mode(0o700)).expect("chmod");
    let other = place.path().join("gctrace-trace.json");
    std::fs::write(&other, "").expect("a file");

    let next = InjectFolder::make(&places, me()).expect("a folder");
    assert!(!dead.exists());
    assert!(living.path.exists() && young.exists() && other.exists() && next.path.exists());
}

#[test]
fn a_place_where_others_may_rename_files_is_not_used() {
    let place = place();
    let shared = place.path().join("shared");
    std::fs::create_dir(&shared).expect("mkdir");
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).expect("chmod");
    let missing = place.path().join("missing");
    let error = InjectFolder::make(&[shared.clone(), missing.clone()], me()).expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("others may rename") && text.contains("TMPDIR=DIR"), "{text}");
    let folder = InjectFolder::make(&[shared, missing, place.path().to_owned()], me());
    assert_eq!(folder.expect("the third").path.parent(), Some(place.path()));
}

#[test]
fn a_place_too_deep_for_a_socket_is_skipped() {
    let place = place();
    let deep = place.path().join("x".repeat(100));
    std::fs::create_dir(&deep).expect("mkdir");
    let folder =
        InjectFolder::make(&[deep.clone(), place.path().to_owned()], me()).expect("a folder");
    assert_eq!(folder.path.parent(), Some(place.path()));
    assert_eq!(count(&deep), 0);
}

/// A program may make folders in it: it knows the name.
#[test]
fn folders_of_programs_in_it_are_removed() {
    let place = place();
    let folder = InjectFolder::make(&[place.path().to_owned()], me()).expect("a folder");
    let inner = folder.path.join("a/b/c");
    std::fs::create_dir_all(&inner).expect("folders");
    std::fs::write(inner.join("file"), "x").expect("a file");
    std::os::unix::fs::symlink("/etc", folder.path.join("a/link")).expect("a link");
    let rights = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(folder.path.join("a/b/c"), rights).expect("chmod");
    drop(folder);
    assert_eq!(count(place.path()), 0);
    assert!(Path::new("/etc/passwd").exists());
}

/// The next place is used if one is full, and each is named if all are.
#[test]
fn a_full_place_is_skipped() {
    let test = "a_full_place_is_skipped";
    let full = tempfile::tempdir().expect("a directory");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4k,mode=1777", "tmpfs"])
        .arg(full.path())
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        eprintln!("skipped {test}: mounting needs root");
        return;
    }
    let next = place();
    std::fs::write(full.path().join("filler"), [0; 4096]).expect("room for one page");
    let both = [full.path().to_owned(), next.path().to_owned()];
    let found = InjectFolder::make(&both, me()).map(|folder| folder.path.clone());
    let error = InjectFolder::make(&both[..1], me()).map(drop);
    let unmounted = std::process::Command::new("umount").arg(full.path()).status();
    assert!(unmounted.is_ok_and(|unmounted| unmounted.success()));
    let found = found.expect("the second");
    assert_eq!(found.parent(), Some(next.path()));
    let error = error.expect_err("full").to_string();
    let reason = format!("{}: it is full", full.path().display());
    assert!(error.contains(&reason), "{error}");
}
