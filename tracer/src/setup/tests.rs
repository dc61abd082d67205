//! Installing into a folder, and removing.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

/// A folder in which root alone writes, if root runs this.
fn place() -> tempfile::TempDir {
    let place = if nix::unistd::Uid::effective().is_root() {
        tempfile::tempdir_in("/usr/local/lib")
    } else {
        tempfile::tempdir()
    };
    place.expect("a folder")
}

fn files(version: &str) -> Vec<NewFile> {
    let program = |name: &str| format!("\x7fELF {name} {version}").into_bytes();
    vec![
        NewFile::program("lib/gctrace/libgctrace_inject.so", program("inject")),
        NewFile::text("share/man/man1/gctrace.1", b".TH gctrace 1".into()),
        NewFile::program("bin/gctrace", program("gctrace")),
    ]
}

/// Everything below a folder.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        paths.push(entry.path());
        if entry.path().is_dir() && !entry.path().is_symlink() {
            paths.extend(tree(&entry.path()));
        }
    }
    paths.sort();
    paths
}

#[test]
fn what_is_installed_can_be_removed() {
    let place = place();
    let prefix = place.path().join("prefix");
    fs::create_dir_all(prefix.join("bin")).expect("mkdir");
    fs::create_dir_all(prefix.join("share/man")).expect("mkdir");
    fs::write(prefix.join("bin/other"), "x").expect("write");
    let before = tree(&prefix);
    install(&prefix, files("1")).expect("installed");
    let mode = |path: &str| fs::metadata(prefix.join(path)).expect(path).mode() & 0o7777;
    assert_eq!(mode("bin/gctrace"), 0o755);
    assert_eq!(mode("share/man/man1/gctrace.1"), 0o644);
    assert_eq!(mode("lib/gctrace"), 0o755);
    let (installed, inode) =
        (tree(&prefix), |path: &str| fs::metadata(prefix.join(path)).expect(path).ino());
    let same = inode("bin/gctrace");
    install(&prefix, files("1")).expect("once more");
    assert_eq!((tree(&prefix), inode("bin/gctrace")), (installed.clone(), same));
    // A program that runs keeps its file.
    install(&prefix, files("2")).expect("an upgrade");
    assert_eq!(tree(&prefix), installed);
    assert_ne!(inode("bin/gctrace"), same);
    uninstall(&prefix).expect("removed");
    assert_eq!(tree(&prefix), before);
    uninstall(&prefix).expect("nothing to do");
}

#[test]
fn files_of_an_earlier_version_are_removed() {
    let place = place();
    let mut older = files("1");
    older.push(NewFile::text("share/man/man1/gctrace-old.1", b".TH gctrace-old".into()));
    install(place.path(), older).expect("installed");
    assert!(place.path().join("share/man/man1/gctrace-old.1").exists());
    install(place.path(), files("2")).expect("installed");
    assert!(!place.path().join("share/man/man1/gctrace-old.1").exists());
    assert!(place.path().join("share/man/man1/gctrace.1").exists());
}

#[test]
fn other_files_and_links_stay() {
    let place = place();
    let target = place.path().join("precious");
    fs::write(&target, "precious").expect("write");
    let prefix = place.path().join("prefix");
    fs::create_dir_all(prefix.join("bin")).expect("mkdir");
    let program = prefix.join("bin/gctrace");
    let refused = || {
        let before = tree(place.path());
        let error = install(&prefix, files("1")).expect_err("refused").to_string();
        assert_eq!(tree(place.path()), before, "nothing is written");
        assert_eq!(fs::read(&target).expect("read"), b"precious");
        error
    };
    fs::write(&program, "#!/bin/sh\nexec ~/venv/bin/gctrace\n").expect("write");
    assert!(refused().contains("bin/gctrace is not from gctrace"));
    fs::remove_file(&program).expect("remove");
    symlink(&target, &program).expect("a link");
    assert!(refused().contains("is a link"));
    fs::remove_file(&program).expect("remove");
    fs::create_dir(&program).expect("mkdir");
    assert!(refused().contains("is not a file"));
    fs::remove_dir(&program).expect("remove");
    symlink(place.path(), prefix.join("share")).expect("a link");
    assert!(refused().contains("share is a link"));
    fs::remove_file(prefix.join("share")).expect("remove");

    install(&prefix, files("1")).expect("installed");
    fs::write(&program, "mine now").expect("write");
    uninstall(&prefix).expect("the rest is removed");
    assert_eq!(tree(&prefix), [prefix.join("bin"), program]);
}

#[test]
fn a_list_names_only_files_below_the_prefix() {
    let place = place();
    install(place.path(), files("1")).expect("installed");
    let list = place.path().join("lib/gctrace/setup.txt");
    for line in ["/etc/passwd", "../etc/passwd", "share/../../x", "", "gctrace"] {
        fs::write(&list, format!("{line}\n")).expect("write");
        uninstall(place.path()).expect_err(line);
    }
}

#[test]
fn as_root_folders_of_others_are_refused() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped as_root_folders_of_others_are_refused: it needs root");
        return;
    }
    // In a folder such as /tmp nobody else can replace what is root's.
    let shared = tempfile::tempdir_in("/var/tmp").expect("a folder");
    install(shared.path(), files("1")).expect("installed");
    uninstall(shared.path()).expect("removed");
    for (mode, owner) in [(0o777, 0), (0o755, 61_303)] {
        fs::set_permissions(shared.path(), Permissions::from_mode(mode)).expect("chmod");
        std::os::unix::fs::chown(shared.path(), Some(owner), None).expect("chown");
        let error = install(shared.path(), files("1")).expect_err("refused").to_string();
        assert!(error.contains("as root, gctrace is not installed in"), "{error}");
        assert_eq!(tree(shared.path()), Vec::<PathBuf>::new());
    }
    fs::set_permissions(shared.path(), Permissions::from_mode(0o755)).expect("chmod");
    std::os::unix::fs::chown(shared.path(), Some(0), None).expect("chown");
    install(shared.path(), files("1")).expect("installed");
    let list = shared.path().join("lib/gctrace/setup.txt");
    fs::set_permissions(&list, Permissions::from_mode(0o666)).expect("chmod");
    let error = uninstall(shared.path()).expect_err("a list of anyone").to_string();
    assert!(error.contains("does not believe the list"), "{error}");
    install(shared.path(), files("1")).expect_err("nor here");

    // Folders of texts only: these are left out.
    let place = place();
    let pages = place.path().join("share/man");
    fs::create_dir_all(&pages).expect("mkdir");
    fs::set_permissions(&pages, Permissions::from_mode(0o2775)).expect("chmod");
    install(place.path(), files("1")).expect("installed");
    assert!(place.path().join("bin/gctrace").exists());
    assert!(!pages.join("man1").exists());
}

#[test]
fn the_prefix_may_not_exist_yet() {
    let place = place();
    let link = place.path().join("link");
    symlink(place.path(), &link).expect("a link");
    let real = fs::canonicalize(place.path()).expect("a path");
    assert_eq!(resolved(&link.join("a/b")).expect("resolved"), real.join("a/b"));
    resolved(&link.join("a/../b")).expect_err("a is unknown");
    let prefix = real.join("a/b");
    install(&prefix, files("1")).expect("installed");
    assert!(prefix.join("bin/gctrace").exists());
}
