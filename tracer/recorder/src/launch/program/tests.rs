//! Programs created for the test, and programs of this machine.

use super::*;
use crate::invoker::Invoker;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn obstacles(words: &[&str]) -> Vec<PreloadObstacle> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    LaunchPlan::new(&words, &Invoker::detect(), false).obstacles()
}

fn kinds(words: &[&str]) -> Vec<ObstacleKind> {
    obstacles(words).into_iter().map(|obstacle| obstacle.what).collect()
}

fn executable(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    path.into_os_string().into_string().expect("text")
}

/// An x86-64 executable with one program header of that kind, and the text that it refers to.
fn elf(kind: u32, machine: u16, text: &str) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(&2_u16.to_le_bytes());
    put(&machine.to_le_bytes());
    put(&1_u32.to_le_bytes());
    for word in [0x40_0000_u64, 64, 0] {
        put(&word.to_le_bytes());
    }
    put(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        put(&half.to_le_bytes());
    }
    put(&kind.to_le_bytes());
    put(&4_u32.to_le_bytes());
    let size = text.len() as u64 + 1;
    for word in [120_u64, 120, 120, size, size, 1] {
        put(&word.to_le_bytes());
    }
    put(text.as_bytes());
    put(&[0]);
    file
}

const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

#[test]
fn usual_programs_have_none() {
    for words in [
        &["sh", "-c", "true"][..],
        &["env", "FOO=1", "sh"],
        &["env"],
        &["/usr/bin/env", "-u", "HOME", "-C", "/", "sh"],
        &["no-such-program-as-this"],
        &["/"],
    ] {
        assert_eq!(obstacles(words), [], "{words:?}");
    }
}

#[test]
fn obstacles_are_found_in_files() {
    let place = tempfile::tempdir().expect("a directory");
    let static_ = executable(place.path(), "static", &elf(LOAD, X86_64, ""));
    let loader = "/lib/ld-musl-x86_64.so.1";
    let musl = executable(place.path(), "musl", &elf(INTERPRETER, X86_64, loader));
    let arm = executable(place.path(), "arm", &elf(LOAD, AARCH64, ""));
    let glibc = "/lib64/ld-linux-x86-64.so.2";
    let usual = executable(place.path(), "usual", &elf(INTERPRETER, X86_64, glibc));
    assert_eq!(kinds(&[&static_]), [ObstacleKind::Static]);
    assert_eq!(kinds(&[&musl]), [ObstacleKind::Musl(loader.into())]);
    assert_eq!(kinds(&[&arm]), [ObstacleKind::Machine("aarch64".into())]);
    assert_eq!(kinds(&[&usual]), []);
    assert_eq!(kinds(&["env", "-i", &musl]).len(), 2);

    let script = format!("#!{musl} -x\n");
    let script = executable(place.path(), "script", script.as_bytes());
    let found = obstacles(&[&script]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, Path::new(&musl));
    assert!(found[0].to_string().contains("musl"), "{}", found[0]);
    let circle = format!("#!{}\n", place.path().join("circle").display());
    let circle = executable(place.path(), "circle", circle.as_bytes());
    assert_eq!(kinds(&[&circle]), []);
}

#[test]
fn words_of_env() {
    let drops = |word: &str| vec![ObstacleKind::Drops(word.to_owned())];
    assert_eq!(kinds(&["env", "-i", "sh"]), drops("env -i"));
    assert_eq!(kinds(&["env", "-", "sh"]), drops("env -"));
    assert_eq!(kinds(&["env", "-u", "LD_PRELOAD", "sh"]), drops("env -u LD_PRELOAD"));
    assert_eq!(kinds(&["env", "LD_PRELOAD=x", "sh"]), drops("env LD_PRELOAD=..."));
    let place = tempfile::tempdir().expect("a directory");
    let split = b"#!/usr/bin/env -S -i sh\n";
    let split = executable(place.path(), "split", split);
    assert_eq!(kinds(&[&split]), drops("env -i"));
    let together = executable(place.path(), "together", b"#!/usr/bin/env -iS sh -x\n");
    assert_eq!(kinds(&[&together]), drops("env -i"));
}

#[test]
fn programs_with_privileges_beyond_their_users() {
    let place = tempfile::tempdir().expect("a directory");
    let file =
        executable(place.path(), "x", &elf(INTERPRETER, X86_64, "/lib64/ld-linux-x86-64.so.2"));
    let path = Path::new(&file);
    let metadata = path.metadata().expect("made");
    let mode = |mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(0o4755).expect("chmod");
    let user = (metadata.uid(), metadata.gid());
    assert_eq!(other_rights(path, user), None, "the same user");
    let other = (metadata.uid() + 1, metadata.gid());
    let nosuid = nix::sys::statvfs::statvfs(path)
        .expect("statvfs")
        .flags()
        .contains(nix::sys::statvfs::FsFlags::ST_NOSUID);
    if nosuid {
        assert_eq!(other_rights(path, other), None);
        eprintln!("setuid was not tried: {} is mounted nosuid", file);
        return;
    }
    assert_eq!(other_rights(path, other), Some(ObstacleKind::OtherRights("setuid")));
    mode(0o2755).expect("chmod");
    let group = (metadata.uid(), metadata.gid() + 1);
    assert_eq!(other_rights(path, group), Some(ObstacleKind::OtherRights("setgid")));
    mode(0o2745).expect("chmod");
    assert_eq!(other_rights(path, group), None, "mandatory locking");
}

#[test]
fn certain_or_not() {
    let certain = |what, follow| {
        let file = "/x".into();
        PreloadObstacle { file, what }.is_certain(follow)
    };
    assert!(certain(ObstacleKind::StaticPython, true));
    assert!(certain(ObstacleKind::OtherRights("setuid"), true));
    assert!(certain(ObstacleKind::Musl("/m".into()), true));
    assert!(certain(ObstacleKind::Sanitizer("libasan.so.8".into()), true));
    assert!(!certain(ObstacleKind::Static, true));
    assert!(certain(ObstacleKind::Static, false));
    assert!(!certain(ObstacleKind::Drops("sudo".into()), false));
}
