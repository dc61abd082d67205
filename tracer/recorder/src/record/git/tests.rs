//! Repositories that git itself made.
#![expect(clippy::disallowed_methods, reason = "files of tests")]

use super::*;
use proptest::prelude::*;
use std::process::Command;
use test_kit::limit::WithTimeout as _;

fn git(directory: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output_in_time().expect("git runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn repository() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a directory");
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("below")).expect("directories");
    git(&tree, &["init", "-q"]);
    std::fs::write(tree.join("train.py"), "one\n").expect("a file");
    std::fs::write(tree.join("below/long_name_of_a_file.py"), "two\n").expect("a file");
    git(&tree, &["add", "."]);
    git(&tree, &["commit", "-q", "-m", "first"]);
    (folder, tree)
}

fn head(tree: &Path) -> Option<String> {
    Some(git(tree, &["rev-parse", "HEAD"]))
}

#[test]
fn the_commit_is_what_git_says() {
    let (folder, tree) = repository();
    assert_eq!(state(&tree.join("below")).commit, head(&tree));
    git(&tree, &["pack-refs", "--all"]);
    assert_eq!(state(&tree).commit, head(&tree));
    let other = folder.path().join("other");
    git(&tree, &["worktree", "add", "-q", "-b", "side", &other.display().to_string()]);
    std::fs::write(other.join("train.py"), "other\n").expect("a file");
    git(&other, &["commit", "-q", "-a", "-m", "second"]);
    assert_ne!(head(&other), head(&tree));
    assert_eq!(state(&other).commit, head(&other));
    git(&other, &["checkout", "-q", "--detach"]);
    assert_eq!(state(&other).commit, head(&other));
    assert_eq!(state(folder.path()), GitState::default());
}

#[test]
fn changed_files_are_noticed() {
    let (_folder, tree) = repository();
    assert_eq!(state(&tree).modified, Some(false));
    std::fs::write(tree.join("new.py"), "new\n").expect("a file");
    assert_eq!(state(&tree).modified, Some(false), "an untracked file");
    std::fs::write(tree.join("train.py"), "longer\n").expect("a file");
    assert_eq!(state(&tree).modified, Some(true));
    git(&tree, &["checkout", "-q", "train.py"]);
    std::fs::remove_file(tree.join("below/long_name_of_a_file.py")).expect("removed");
    assert_eq!(state(&tree).modified, Some(true));
}

#[test]
fn nothing_but_hashes_is_read() {
    let (folder, tree) = repository();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "password\n").expect("a file");
    for target in ["ref: ../../secret", "ref: refs/../../../secret", "ref: /etc/hostname", "x"] {
        std::fs::write(tree.join(".git/HEAD"), target).expect("a file");
        assert_eq!(state(&tree).commit, None, "{target}");
    }
    std::fs::write(tree.join(".git/HEAD"), "ref: refs/heads/loop").expect("a file");
    std::fs::write(tree.join(".git/refs/heads/loop"), "ref: refs/heads/loop").expect("a file");
    assert_eq!(state(&tree).commit, None);
    std::fs::remove_file(tree.join(".git/HEAD")).expect("removed");
    nix::unistd::mkfifo(&tree.join(".git/HEAD"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    assert_eq!(state(&tree).commit, None, "a FIFO does not block");
}

proptest! {
    #[test]
    fn any_index_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut index = b"DIRC\0\0\0\x02\0\0\0\x03".to_vec();
        index.extend(&bytes);
        for index in [&index, &bytes] {
            if let Some(mut entries) = IndexEntries::new(index, 20) {
                while entries.left > 0 && entries.next_entry().is_some() {}
            }
        }
    }
}
