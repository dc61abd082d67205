//! gctrace in a folder of its user: through sudo, and as a single file with its libraries inside.
//!
//! Creates users with homes and files in /etc/sudoers.d, and removes them; therefore only runs as
//! root if `GCTRACE_TEST_SUDO=1` allows it. `GCTRACE_TEST_ONE_FILE` names a gctrace that was built
//! with `GCTRACE_BUNDLE` (scripts/release.sh makes one).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use test_kit::recording;
use test_kit::recording::Trace;
use test_kit::recording::account::{Account, run, set_mode};

/// Where root's copies of the library inside the binary are.
const ROOTS: &str = "/var/lib/gctrace";

/// Prints the user that it runs as, and the injected libraries that it has mapped.
const PROGRAM: &str = "\
import gc, os
gc.collect()
maps = {line.split()[-1] for line in open('/proc/self/maps') if 'libgctrace' in line}
print('program', os.getuid(), *sorted(maps))
";

/// A user with [`PROGRAM`] in a file of their home.
fn account(test: &str, letter: char) -> Option<Account> {
    let account = Account::create(test, letter)?;
    fs::write(account.home.join("t.py"), PROGRAM).unwrap();
    Some(account)
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// What `PROGRAM` printed: its user, and the libraries.
fn reported(output: &Output) -> (u32, Vec<PathBuf>) {
    assert!(output.status.success(), "{}", text(output));
    // `top --format text` has standard output for itself.
    let printed = text(output);
    let line = printed.lines().find_map(|line| line.strip_prefix("program "));
    let mut words = line.expect(&printed).split(' ');
    let uid = words.next().unwrap().parse().unwrap();
    (uid, words.map(PathBuf::from).collect())
}

fn library() -> PathBuf {
    test_kit::library::find_library().expect("the library is built with the tests")
}

/// A gctrace with its libraries inside.
fn one_file(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("GCTRACE_TEST_ONE_FILE").filter(|path| !path.is_empty());
    if named.is_none() {
        eprintln!(
            "skipped {test}: GCTRACE_TEST_ONE_FILE names no gctrace with its libraries inside"
        );
    }
    named.map(PathBuf::from)
}

/// Root's folders of copies that a test creates, removed on drop.
struct RootsCopies(BTreeSet<PathBuf>);

impl RootsCopies {
    fn present() -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(ROOTS).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    fn watch() -> Self {
        Self(Self::present())
    }
}

impl Drop for RootsCopies {
    fn drop(&mut self) {
        for new in Self::present().difference(&self.0) {
            let _ = fs::remove_dir_all(new);
        }
        let _ = fs::remove_dir(ROOTS);
    }
}

/// Every way in which gctrace loads its library.
const WAYS: [&str; 4] = [
    "--mode inject -o inject.json -- /usr/bin/python3 t.py",
    "--mode both -o both.json -- /usr/bin/python3 t.py",
    "apply --gc threshold=7000 -- /usr/bin/python3 t.py",
    "top --format text --mode both -- /usr/bin/python3 t.py",
];

#[test]
fn venv_through_sudo() {
    let Some(alice) = account("venv_through_sudo", 'a') else {
        return;
    };
    alice.own(Path::new(recording::binary()), "venv/bin/gctrace");
    let library = alice.own(&library(), "venv/lib/gctrace/libgctrace_inject.so");
    for way in WAYS {
        let output = alice.shell(&format!("sudo venv/bin/gctrace {way}"));
        let expected = (alice.uid(), vec![library.clone()]);
        assert_eq!(reported(&output), expected, "{way}: {}", text(&output));
    }
    for trace in ["inject.json", "both.json"] {
        let path = alice.home.join(trace);
        assert_eq!(fs::metadata(&path).unwrap().uid(), alice.uid(), "{trace}");
        assert!(!Trace::read(&path).pauses().is_empty(), "{trace}");
    }
    // Their own group may write: it is theirs alone.
    for part in ["venv/lib/gctrace", "venv/lib/gctrace/libgctrace_inject.so"] {
        set_mode(&alice.home.join(part), 0o775);
    }
    let output = alice.shell(&format!("sudo venv/bin/gctrace {}", WAYS[0]));
    assert_eq!(reported(&output).1, [library], "{}", text(&output));
    // Root's own programs load root's files only.
    let output = alice.shell(&format!("sudo venv/bin/gctrace --as-root {}", WAYS[0]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("belongs to"), "{}", text(&output));
}

/// Mallory is neither root nor the user of the command.
#[test]
fn others_do_not_choose_the_library() {
    let test = "others_do_not_choose_the_library";
    let users = account(test, 'a').zip(account(test, 'm'));
    let Some((alice, mallory)) = users else {
        return;
    };
    alice.own(Path::new(recording::binary()), "venv/bin/gctrace");
    let folder = alice.home.join("venv/lib/gctrace");
    let file = alice.own(&library(), "venv/lib/gctrace/libgctrace_inject.so");
    let refused = |why: &str| {
        for way in WAYS {
            let output = alice.shell(&format!("sudo venv/bin/gctrace {way}"));
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(1), "{way}: {printed}");
            assert!(printed.contains(why), "{way}: {printed}");
            assert!(!printed.contains("program "), "{way}: {printed}");
        }
    };
    mallory.give(&file);
    refused(&format!("belongs to {}", mallory.name));
    alice.give(&file);
    mallory.give(&folder);
    refused(&format!("belongs to {}", mallory.name));
    alice.give(&folder);
    set_mode(&file, 0o757);
    refused("everyone may write");
    set_mode(&file, 0o755);
    set_mode(&folder, 0o777);
    refused("everyone may write");
    // With the sticky bit only Alice and root can replace it: a copy is loaded, as she could.
    set_mode(&folder, 0o1777);
    let copies = RootsCopies::watch();
    let (_, libraries) = reported(&alice.shell(&format!("sudo venv/bin/gctrace {}", WAYS[0])));
    assert!(libraries.iter().all(|path| path.starts_with(ROOTS)), "{libraries:?}");
    drop(copies);
    set_mode(&folder, 0o775);
    let group = format!(":{}", mallory.name);
    run("chgrp", &[&group[1..], folder.to_str().unwrap()]);
    refused(&format!("group {} may write", mallory.name));
    alice.give(&folder);
    // A link of Alice's to Mallory's file, as in a shared environment.
    let shared = mallory.own(&library(), "shared.so");
    set_mode(&mallory.home, 0o755);
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&shared, &file).unwrap();
    refused(&format!("belongs to {}", mallory.name));
}

#[test]
fn one_file_through_sudo() {
    let test = "one_file_through_sudo";
    let Some((alice, gctrace)) = account(test, 'a').zip(one_file(test)) else {
        return;
    };
    let _copies = RootsCopies::watch();
    alice.own(&gctrace, "bin/gctrace");
    let mut used = BTreeSet::new();
    for way in WAYS {
        // The umask of a careful root, and of a careless one.
        for umask in ["077", "000"] {
            let output = alice.shell(&format!("umask {umask}; sudo bin/gctrace {way}"));
            let (uid, libraries) = reported(&output);
            assert_eq!(uid, alice.uid());
            used.extend(libraries);
        }
    }
    let used = Vec::from_iter(used);
    assert_eq!(used.len(), 1, "{used:?}");
    assert!(used[0].starts_with(ROOTS), "{used:?}");
    for (part, mode) in [(used[0].as_path(), 0o644), (used[0].parent().unwrap(), 0o755)] {
        let found = fs::metadata(part).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (0, mode), "{part:?}");
    }
    assert!(!alice.home.join(".cache").exists());
    // For root's own programs too, although the binary is Alice's.
    let output = alice.shell(&format!("sudo bin/gctrace --as-root {}", WAYS[0]));
    assert_eq!(reported(&output), (0, used), "{}", text(&output));
}

#[test]
fn one_file_as_its_user() {
    let test = "one_file_as_its_user";
    let Some((alice, gctrace)) = account(test, 'a').zip(one_file(test)) else {
        return;
    };
    alice.own(&gctrace, "bin/gctrace");
    let inject = format!("bin/gctrace {}", WAYS[0]);
    let output = alice.shell(&inject);
    let (uid, libraries) = reported(&output);
    assert_eq!(uid, alice.uid());
    let [copy] = libraries.as_slice() else {
        panic!("{libraries:?}");
    };
    assert!(copy.starts_with(alice.home.join(".cache/gctrace")), "{copy:?}");
    let contents = fs::read(copy).unwrap();
    // Whatever is found there is checked.
    fs::write(copy, &contents[..contents.len() / 2]).unwrap();
    assert_eq!(reported(&alice.shell(&inject)).1, libraries);
    assert_eq!(fs::read(copy).unwrap(), contents);
    // A command that outlives gctrace, and starts Python then.
    let output = alice.shell(
        "bin/gctrace --mode inject -d 0.1s -o d.json -- sh -c 'sleep 2; /usr/bin/python3 t.py'; sleep 4",
    );
    assert_eq!(reported(&output).1, libraries, "{}", text(&output));
    let output = alice.shell("bin/gctrace demo --steps 20");
    assert!(text(&output).contains("Do this"), "{}", text(&output));
    let output = alice.shell("bin/gctrace doctor; true");
    assert!(text(&output).contains(copy.to_str().unwrap()), "{}", text(&output));
}

/// Homes that cannot have the copy.
#[test]
fn one_file_and_difficult_homes() {
    let test = "one_file_and_difficult_homes";
    let Some((alice, gctrace)) = account(test, 'a').zip(one_file(test)) else {
        return;
    };
    alice.own(&gctrace, "bin/gctrace");
    let cache = alice.home.join(".cache");
    fs::create_dir(&cache).unwrap();
    alice.give(&cache);
    let uid = alice.uid();
    let at_cache = format!("uid={uid},gid={uid} tmpfs '{}'", cache.display());
    let temporary = PathBuf::from(format!("/var/tmp/gctrace-{uid}"));
    let inject = format!("bin/gctrace {}", WAYS[0].replace("-o inject.json", "-o /dev/null"));
    let cases = [
        (format!("mount -t tmpfs -o noexec,{at_cache}"), "mounted noexec"),
        (format!("mount -t tmpfs -o size=64k,{at_cache}"), "No space left"),
        (format!("mount -t tmpfs -o ro,{at_cache}"), "Read-only file system"),
        (String::new(), "Permission denied"),
    ];
    for (before, reason) in cases {
        if before.is_empty() {
            set_mode(&cache, 0o500);
        }
        let output = alice.shell_after(&before, &inject);
        let (_, libraries) = reported(&output);
        assert!(libraries[0].starts_with(&temporary), "{libraries:?}");
        assert!(text(&output).contains(reason), "{reason}: {}", text(&output));
        fs::remove_dir_all(&temporary).unwrap();
    }
    // Mallory has taken the name.
    fs::create_dir(&temporary).unwrap();
    set_mode(&temporary, 0o777);
    let output = alice.shell(&inject);
    let (_, libraries) = reported(&output);
    assert!(libraries[0].starts_with(format!("/tmp/gctrace-{uid}")), "{libraries:?}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    fs::remove_dir(&temporary).unwrap();
    fs::remove_dir_all(format!("/tmp/gctrace-{uid}")).unwrap();
    // A service without a home.
    let output = alice.shell(&format!("unset HOME; XDG_CACHE_HOME=$PWD/x {inject}"));
    let (_, libraries) = reported(&output);
    assert!(libraries[0].starts_with(alice.home.join("x/gctrace")), "{libraries:?}");
}

/// As torchrun starts its ranks.
#[test]
fn eight_at_once() {
    let test = "eight_at_once";
    let Some((alice, gctrace)) = account(test, 'a').zip(one_file(test)) else {
        return;
    };
    alice.own(&gctrace, "bin/gctrace");
    let output = alice.shell(
        "for rank in 0 1 2 3 4 5 6 7; do \
            bin/gctrace -q --mode inject -o $rank.json -- /usr/bin/python3 t.py & \
         done; wait",
    );
    let printed = text(&output);
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("program ")).collect();
    assert_eq!(lines.len(), 8, "{printed}");
    assert!(lines.iter().all(|line| *line == lines[0]), "{printed}");
    for rank in 0..8 {
        let trace = Trace::read(&alice.home.join(format!("{rank}.json")));
        assert!(!trace.pauses().is_empty(), "{rank}: {printed}");
    }
    let copies = alice.shell("find .cache/gctrace -type f | wc -l");
    assert_eq!(String::from_utf8_lossy(&copies.stdout).trim(), "1");
}

#[test]
fn one_file_with_file_capabilities() {
    let test = "one_file_with_file_capabilities";
    let Some((alice, gctrace)) = account(test, 'a').zip(one_file(test)) else {
        return;
    };
    let installed = tempfile::tempdir_in("/usr/local/lib").unwrap();
    set_mode(installed.path(), 0o755);
    let file = installed.path().join("gctrace");
    fs::copy(&gctrace, &file).unwrap();
    set_mode(&file, 0o755);
    run("setcap", &["cap_bpf,cap_perfmon+ep", file.to_str().unwrap()]);
    let both = WAYS[1].replace("python3 t.py", "python3 -I t.py");
    let output = alice.shell(&format!("{} {both}", file.display()));
    let (uid, libraries) = reported(&output);
    assert_eq!(uid, alice.uid());
    assert!(libraries[0].starts_with(alice.home.join(".cache/gctrace")), "{libraries:?}");
    // Not in a folder that others can write.
    let cache = alice.home.join(".cache");
    set_mode(&cache, 0o777);
    let output = alice.shell(&format!("{} {both}", file.display()));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("everyone may write"), "{}", text(&output));
}

#[test]
fn setup_from_a_home() {
    let test = "setup_from_a_home";
    let Some((alice, gctrace)) = account(test, 'a').zip(one_file(test)) else {
        return;
    };
    alice.own(&gctrace, "bin/gctrace");
    let place = tempfile::tempdir_in("/usr/local/lib").unwrap();
    set_mode(place.path(), 0o755);
    let prefix = place.path().join("prefix");
    let setup = format!("setup --prefix {}", prefix.display());
    let output = alice.shell(&format!("bin/gctrace {setup}"));
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let named = printed.lines().find_map(|line| line.trim().strip_prefix("sudo "));
    let command = format!("umask 077; sudo {}", named.expect(&printed));
    assert!(alice.shell(&command).status.success(), "{printed}");
    let installed = prefix.join("bin/gctrace");
    assert_eq!(fs::read(&installed).unwrap(), fs::read(&gctrace).unwrap());
    let library = prefix.join("lib/gctrace/libgctrace_inject.so");
    for way in WAYS {
        for sudo in ["sudo", ""] {
            if sudo.is_empty() && way.contains("both") {
                continue;
            }
            let output = alice.shell(&format!("{sudo} {} {way}", installed.display()));
            let expected = (alice.uid(), vec![library.clone()]);
            assert_eq!(reported(&output), expected, "{way}: {}", text(&output));
            alice.shell("sudo rm -f *.json *.json.old");
        }
    }
    let page = prefix.join("share/man/man1/gctrace-setup.1");
    assert_eq!(fs::metadata(&page).unwrap().mode() & 0o7777, 0o644);
    let removed = alice.shell(&format!("sudo {} {setup} --uninstall", installed.display()));
    assert!(removed.status.success(), "{}", text(&removed));
    assert_eq!(fs::read_dir(&prefix).unwrap().count(), 0);
    // In a folder of one's own, without root.
    let output = alice.shell("bin/gctrace setup --prefix ~/.local && .local/bin/gctrace --version");
    assert!(output.status.success(), "{}", text(&output));
}
