//! Files that may and may not be loaded, and the resulting environment.

use super::*;
use crate::invoker::{Invoker, PrivilegeTool};
use gctrace_ring::InjectOptions;
use nix::unistd::Uid;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn plan(environment: &[(&str, &str)]) -> LaunchPlan {
    let mut plan = LaunchPlan::new(&["sh".into()], &Invoker::detect(), true);
    for name in [PRELOAD, CUDA_INJECTION] {
        plan.environment.remove(OsStr::new(name));
    }
    for (name, value) in environment {
        plan.environment.insert(name.into(), value.into());
    }
    plan
}

fn injection(library: &Path) -> InjectionPlan {
    InjectionPlan {
        library: library.to_owned(),
        options: InjectOptions::default(),
        step_function: None,
        memory_history: None,
    }
}

const SOCKET: &str = "/run/user/1000/gctrace-1/s";

#[test]
fn the_users_own_libraries_stay_first() {
    let library = Path::new("/opt/gctrace/libgctrace_inject.so");
    for (preload, expected) in [
        ("", "/opt/gctrace/libgctrace_inject.so"),
        ("/a.so", "/a.so:/opt/gctrace/libgctrace_inject.so"),
        ("/a.so b.so", "/a.so b.so:/opt/gctrace/libgctrace_inject.so"),
        ("/opt/gctrace/libgctrace_inject.so /a.so", "/opt/gctrace/libgctrace_inject.so /a.so"),
    ] {
        let mut plan = plan(&[(PRELOAD, preload)]);
        plan.inject(&injection(library), Path::new(SOCKET)).expect("no link is needed");
        assert_eq!(plan.variable(PRELOAD), Some(OsStr::new(expected)));
        assert_eq!(plan.variable(CUDA_INJECTION), Some(library.as_os_str()));
        assert_eq!(plan.variable(RENDEZVOUS_VARIABLE), Some(OsStr::new(SOCKET)));
        let options = plan.variable(OPTIONS_VARIABLE).expect("options");
        assert_eq!(InjectOptions::parse(options.as_bytes()), InjectOptions::default());
    }
}

#[test]
fn another_cuda_tool_is_kept() {
    let mut plan = plan(&[(CUDA_INJECTION, "/opt/nsys/x.so")]);
    assert_eq!(plan.foreign_cuda_injection(), Some(OsStr::new("/opt/nsys/x.so")));
    let library = Path::new("/opt/gctrace/libgctrace_inject.so");
    plan.inject(&injection(library), Path::new(SOCKET)).expect("no link is needed");
    assert_eq!(plan.variable(CUDA_INJECTION), Some(OsStr::new("/opt/nsys/x.so")));
    let of_an_outer_gctrace = super::tests::plan(&[(CUDA_INJECTION, "/x/libgctrace_inject.so")]);
    assert_eq!(of_an_outer_gctrace.foreign_cuda_injection(), None);
}

#[test]
fn without_cupti_the_driver_loads_nothing() {
    for options in [
        InjectOptions { cuda: false, ..InjectOptions::default() },
        InjectOptions { yields: true, ..InjectOptions::default() },
    ] {
        let mut plan = plan(&[]);
        let injection = InjectionPlan {
            library: "/x/libgctrace_inject.so".into(),
            options,
            step_function: Some("train_step".to_owned()),
            memory_history: Some("/x/m-%r.pickle".into()),
        };
        plan.inject(&injection, Path::new(SOCKET)).expect("no link is needed");
        assert_eq!(plan.variable(CUDA_INJECTION), None);
        let function = plan.variable(STEP_FUNCTION_VARIABLE);
        assert_eq!(function, Some(OsStr::new("train_step")));
        let history = plan.variable(MEMORY_HISTORY_VARIABLE);
        assert_eq!(history, Some(OsStr::new("/x/m-%r.pickle")));
    }
}

#[test]
fn paths_that_the_loader_would_cut_get_a_link() {
    let place = tempfile::tempdir().expect("a directory");
    let library = place.path().join("my tools: new").join(LIBRARY);
    fs::create_dir(library.parent().expect("a parent")).expect("mkdir");
    fs::write(&library, "x").expect("write");
    let mut plan = plan(&[]);
    let private = place.path().join("private");
    fs::create_dir(&private).expect("mkdir");
    for _ in 0..2 {
        plan.inject(&injection(&library), &private.join("s")).expect("a link");
    }
    let link = private.join(LIBRARY);
    assert_eq!(plan.variable(PRELOAD), Some(link.as_os_str()));
    assert_eq!(fs::read(&link).expect("the link resolves"), b"x");
    let cut = place.path().join("my tools: new/s");
    plan.inject(&injection(&library), &cut).expect_err("nowhere");
}

/// A folder in which libraries are trusted: as root, one that only root may write.
fn trusted_place() -> tempfile::TempDir {
    let place = if Uid::effective().is_root() {
        tempfile::tempdir_in("/usr/local/lib")
    } else {
        tempfile::tempdir()
    };
    place.expect("a directory")
}

#[test]
fn other_files_are_refused() {
    let place = trusted_place();
    let file = place.path().join(LIBRARY);
    let refused = |plan: &LaunchPlan| usable(&file, plan, &[]).expect_err("refused").to_string();
    assert!(refused(&plan(&[])).contains("No such file"));
    fs::write(&file, "x").expect("write");
    assert!(refused(&plan(&[])).contains("not gctrace's library"));
    fs::copy("/proc/self/exe", &file).expect("copy");
    assert!(refused(&plan(&[])).contains("not gctrace's library"));
}

/// The library as cargo built it.
fn built() -> PathBuf {
    let folders = folders_beside();
    let files = folders.iter().map(|folder| folder.join(LIBRARY));
    let found = files.into_iter().find(|file| file.exists());
    found.expect("cargo builds the library with gctrace")
}

#[test]
fn the_library_of_cargo_build_is_found() {
    let path = library_for(&plan(&[])).expect("usable");
    assert_eq!(path.file_name(), Some(OsStr::new(LIBRARY)));
    assert!(path.is_absolute());
}

#[test]
fn another_version_is_reported() {
    let place = trusted_place();
    let file = place.path().join(LIBRARY);
    let mut bytes = fs::read(built()).expect("read");
    let version = gctrace_ring::VERSION.as_bytes();
    for at in 0..bytes.len() - version.len() {
        if bytes[at..].starts_with(version) {
            bytes[at] = b'9';
        }
    }
    fs::write(&file, bytes).expect("write");
    let error = usable(&file, &plan(&[]), &[]).expect_err("refused");
    assert!(matches!(error, LibraryError::OtherVersion { .. }), "{error}");
    assert!(error.remedy().contains("gctrace setup"), "{}", error.remedy());
}

#[test]
fn as_root_files_of_others_are_refused() {
    if !Uid::effective().is_root() {
        eprintln!("skipped as_root_files_of_others_are_refused: it needs root");
        return;
    }
    let mut plan = plan(&[]);
    plan.identity = Some(Invoker::from_ids(65534, 65534, Some(PrivilegeTool::Sudo)));
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let file = place.path().join(LIBRARY);
    fs::copy(built(), &file).expect("copy");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("chmod");
    let refused = usable(&file, &plan, &[]).expect_err("refused");
    assert!(refused.to_string().contains("everyone may write /var/tmp"), "{refused}");
    assert!(refused.remedy().contains("sudo install -D -m 755 /var/tmp/"));
    std::os::unix::fs::chown(&file, Some(65534), None).expect("chown");
    plan.identity = None;
    let refused = usable(&file, &plan, &[]).expect_err("root's own programs too");
    assert!(refused.to_string().contains("belongs to nobody"), "{refused}");

    let place = tempfile::tempdir_in("/usr/local/lib").expect("a directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let file = place.path().join(LIBRARY);
    fs::copy(built(), &file).expect("copy");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("chmod");
    plan.identity = Some(Invoker::from_ids(65534, 65534, Some(PrivilegeTool::Sudo)));
    usable(&file, &plan, &[]).expect("only root writes there");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).expect("chmod");
    let refused = usable(&file, &plan, &[]).expect_err("refused");
    assert!(refused.to_string().contains("may not read"), "{refused}");
    let spaced = place.path().join("a b");
    fs::create_dir(&spaced).expect("mkdir");
    let file = spaced.join(LIBRARY);
    fs::copy(built(), &file).expect("copy");
    let refused = usable(&file, &plan, &[]).expect_err("refused");
    assert!(matches!(refused, LibraryError::Separator { .. }), "{refused}");
}

/// The library as a build with GCTRACE_BUNDLE has it inside.
fn embedded() -> BundledLibrary {
    bundle::tests::bundled(&fs::read(built()).expect("read"))
}

#[test]
fn the_embedded_library_is_used_from_the_first_place_that_can_have_it() {
    let place = trusted_place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let good = place.path().join("good");
    let places = ["/dev/null/none".into(), "/proc/none".into(), good.clone()];
    let mut plan = plan(&[]);
    if Uid::effective().is_root() {
        plan.identity = Some(Invoker::from_ids(65534, 65534, Some(PrivilegeTool::Sudo)));
    }
    let path = copied(&embedded(), &places, &plan).expect("usable");
    assert!(path.starts_with(&good), "{path:?}");
    assert_eq!(fs::read(&path).expect("read"), fs::read(built()).expect("read"));
    let refused = copied(&embedded(), &places[..2], &plan).expect_err("no place");
    let text = refused.to_string();
    assert!(text.contains("/dev/null/none ("), "{text}");
    assert!(text.contains("/proc/none ("), "{text}");
    let remedy = if Uid::effective().is_root() { "setup --prefix" } else { "XDG_CACHE_HOME=" };
    assert!(refused.remedy().contains(remedy), "{refused:?}");
}

#[test]
fn with_root_rights_a_copy_in_tmp_is_not_used() {
    if !Uid::effective().is_root() {
        eprintln!("skipped with_root_rights_a_copy_in_tmp_is_not_used: it needs root");
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let places = [place.path().to_owned()];
    let refused = copied(&embedded(), &places, &plan(&[])).expect_err("refused");
    let text = refused.to_string();
    assert!(text.contains("everyone may write /var/tmp"), "{text}");
}

/// A build below /tmp: no other user can replace it while its folders are root's, so it is copied to
/// where nobody ever can; a folder of another user is none, whatever is in it.
#[test]
fn as_root_a_library_below_a_sticky_folder_is_copied() {
    if !Uid::effective().is_root() {
        eprintln!("skipped as_root_a_library_below_a_sticky_folder_is_copied: it needs root");
        return;
    }
    let mallory = 61_303;
    let mut plan = plan(&[]);
    plan.identity = Some(Invoker::from_ids(65534, 65534, Some(PrivilegeTool::Sudo)));
    let shared = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let folder = shared.path().join("target");
    fs::create_dir(&folder).expect("mkdir");
    let file = folder.join(LIBRARY);
    fs::copy(built(), &file).expect("copy");
    for part in [shared.path(), &folder, &file] {
        fs::set_permissions(part, fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    let kept = trusted_place();
    fs::set_permissions(kept.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let places = ["/dev/null/none".into(), shared.path().join("no"), kept.path().join("yes")];
    let path = usable(&file, &plan, &places).expect("usable");
    assert!(path.starts_with(&places[2]), "{path:?}");
    assert_eq!(fs::read(&path).expect("read"), fs::read(built()).expect("read"));
    for part in [shared.path(), &folder, &file] {
        std::os::unix::fs::chown(part, Some(mallory), None).expect("chown");
        let refused = usable(&file, &plan, &places).expect_err("refused");
        assert!(matches!(refused, LibraryError::NotTrusted { .. }), "{part:?}: {refused}");
        std::os::unix::fs::chown(part, Some(0), None).expect("chown");
        fs::set_permissions(part, fs::Permissions::from_mode(0o777)).expect("chmod");
        let refused = usable(&file, &plan, &places).expect_err("refused");
        assert!(matches!(refused, LibraryError::NotTrusted { .. }), "{part:?}: {refused}");
        fs::set_permissions(part, fs::Permissions::from_mode(0o755)).expect("chmod");
    }
}

#[test]
fn a_file_next_to_gctrace_wins() {
    // Of a build below a folder such as /tmp, root loads a copy.
    let place = trusted_place();
    let other = bundle::tests::bundled(b"the library inside the binary");
    let path = first_usable(&plan(&[]), Some(&other), &[place.path().join("copies")]);
    let path = path.expect("usable");
    let beside = fs::canonicalize(built()).expect("a path");
    assert!(path == beside || path.starts_with(place.path()), "{path:?}");
    assert_eq!(fs::read(path).expect("read"), fs::read(beside).expect("read"));
}

/// The rule of sshd's StrictModes: root's files, and the files of the user that the command runs
/// as.
#[test]
fn as_root_the_commands_users_own_library_is_loaded() {
    if !Uid::effective().is_root() {
        eprintln!("skipped as_root_the_commands_users_own_library_is_loaded: it needs root");
        return;
    }
    let (alice, mallory) = (61_301, 61_303);
    let mut plan = plan(&[]);
    plan.identity = Some(Invoker::from_ids(alice, alice, Some(PrivilegeTool::Sudo)));
    let place = trusted_place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let venv = place.path().join("venv");
    fs::create_dir(&venv).expect("mkdir");
    let file = venv.join(LIBRARY);
    fs::copy(built(), &file).expect("copy");
    let give = |user| {
        for part in [&venv, &file] {
            std::os::unix::fs::chown(part, Some(user), Some(user)).expect("chown");
        }
    };
    give(alice);
    assert_eq!(usable(&file, &plan, &[]), Ok(file.clone()));
    // A closed home.
    fs::set_permissions(&venv, fs::Permissions::from_mode(0o700)).expect("chmod");
    assert_eq!(usable(&file, &plan, &[]), Ok(file.clone()));
    let not_trusted = |plan: &LaunchPlan, file: &Path| {
        let refused = usable(file, plan, &[]).expect_err("refused");
        assert!(matches!(refused, LibraryError::NotTrusted { .. }), "{refused}");
    };
    give(mallory);
    not_trusted(&plan, &file);
    // A link of the attacker's leads to the user's own file: allowed, as it is the user's own.
    give(alice);
    let links = place.path().join("mallory");
    fs::create_dir(&links).expect("mkdir");
    let link = links.join(LIBRARY);
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    std::os::unix::fs::chown(&links, Some(mallory), None).expect("chown");
    assert_eq!(usable(&link, &plan, &[]), Ok(file.clone()));
    // And one of the user's to the attacker's file is not.
    let theirs = links.join("theirs.so");
    fs::copy(built(), &theirs).expect("copy");
    std::os::unix::fs::chown(&theirs, Some(mallory), None).expect("chown");
    let link = venv.join("link.so");
    std::os::unix::fs::symlink(&theirs, &link).expect("a link");
    not_trusted(&plan, &link);
    // Root's own commands load root's files only.
    plan.identity = None;
    not_trusted(&plan, &file);
}

/// The user can put anything in the place of their own file: opening it must neither wait nor have
/// an effect with root's rights.
#[test]
fn a_swapped_file_is_opened_as_the_user() {
    let place = trusted_place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut plan = plan(&[]);
    if Uid::effective().is_root() {
        plan.identity = Some(Invoker::from_ids(61_301, 61_301, Some(PrivilegeTool::Sudo)));
    }
    let file = place.path().join(LIBRARY);
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::from_bits_truncate(0o644)).expect("a FIFO");
    let refused = open_as_user(&file, &plan).expect_err("a FIFO").to_string();
    assert!(refused.contains("not a file"), "{refused}");
    fs::remove_file(&file).expect("remove");
    std::os::unix::fs::symlink("/etc/shadow", &file).expect("a link");
    open_as_user(&file, &plan).expect_err("a link");
    fs::remove_file(&file).expect("remove");
    fs::write(&file, "secret").expect("write");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("chmod");
    if Uid::effective().is_root() {
        let refused = open_as_user(&file, &plan).expect_err("closed").to_string();
        assert!(refused.contains("may not read"), "{refused}");
    }
}
