//! gctrace with file capabilities, run by users who have none: nobody gets a right by it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

mod common;

use common::limit::InTime as _;
use common::setcap::ALICE;
use common::setcap::Setcap;
use common::setcap::text;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

/// As the documentation has it, and what it said before: more rights do no harm either.
const CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep";

/// A library that says in a file, one per process, with which rights its constructor ran.
const HOSTILE: &str = r#"
#include <stdio.h>
#include <unistd.h>
const char GCTRACE_INJECT_VERSION[sizeof(VERSION) - 1] = VERSION;
__attribute__((constructor)) static void begin(void)
{
    char path[4096], text[16384];
    FILE *status = fopen("/proc/self/status", "r"), *told;
    size_t length = status ? fread(text, 1, sizeof text, status) : 0;
    snprintf(path, sizeof path, "%s/ran.%d", FOLDER, getpid());
    told = fopen(path, "w");
    if (told) { fwrite(text, 1, length, told); fclose(told); }
}
"#;

/// Compiled into `folder`, from which it also tells.
fn hostile_library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("hostile.c"), folder.join("hostile.so"));
    fs::write(&source, HOSTILE).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg(format!("-DVERSION=\"{}\"", env!("CARGO_PKG_VERSION")))
        .arg(format!("-DFOLDER=\"{}\"", folder.display()))
        .status_in_time()
        .expect("the linker that cargo uses");
    assert!(compiled.success());
    library
}

/// With which rights the library ran so far.
fn runs_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let told = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("ran."));
    let mut runs = Vec::new();
    for entry in told {
        runs.push(fs::read_to_string(entry.path()).unwrap());
        fs::remove_file(entry.path()).unwrap();
    }
    runs
}

fn without_rights(status: &str) -> bool {
    ["CapInh", "CapPrm", "CapEff", "CapAmb"]
        .iter()
        .all(|set| status.contains(&format!("{set}:\t0000000000000000")))
}

/// Every way in which gctrace looks for its library.
const WAYS: [&[&str]; 4] = [
    &["--mode", "inject", "-o", "a.json", "--", "true"],
    &["--mode", "both", "-o", "b.json", "--", "true"],
    &["-o", "c.json", "--", "true"],
    &["doctor"],
];

fn with_variable(setcap: &Setcap, user: u32, library: &Path, arguments: &[&str]) -> Output {
    let mut command = setcap.command(user, &setcap.gctrace());
    command
        .env("GCTRACE_INJECT_LIBRARY", library)
        .args(arguments);
    command.output_in_time().unwrap()
}

#[test]
fn the_environment_chooses_no_library() {
    let test = "the_environment_chooses_no_library";
    let Some(setcap) = Setcap::install(test, CAPABILITIES) else {
        return;
    };
    let folder = setcap.file("attack");
    fs::create_dir(&folder).unwrap();
    let library = hostile_library(&folder);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    for arguments in WAYS {
        let output = with_variable(&setcap, ALICE, &library, arguments);
        let said = text(&output);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(runs_of(&folder).is_empty(), "{arguments:?}: {said}");
        if arguments.contains(&"inject") {
            assert!(said.contains("GCTRACE_INJECT_LIBRARY is ignored"), "{said}");
        }
    }
    // Without file capabilities it is the user's own affair, and the library runs with the user's own rights.
    let removed = Command::new("setcap")
        .arg("-r")
        .arg(setcap.gctrace())
        .status_in_time();
    assert!(removed.unwrap().success());
    let output = with_variable(&setcap, ALICE, &library, WAYS[0]);
    assert!(output.status.success(), "{}", text(&output));
    let runs = runs_of(&folder);
    assert!(runs.len() >= 2, "tried, and in the command: {runs:?}");
    for status in runs {
        assert!(without_rights(&status), "{status}");
    }
}

#[test]
fn a_library_that_others_can_replace_is_not_loaded() {
    let test = "a_library_that_others_can_replace_is_not_loaded";
    let Some(setcap) = Setcap::install(test, CAPABILITIES) else {
        return;
    };
    let folder = setcap.file("attack");
    fs::create_dir(&folder).unwrap();
    let hostile = hostile_library(&folder);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let beside = setcap.gctrace().with_file_name("libgctrace_inject.so");
    fs::remove_file(&beside).unwrap();
    for place in ["libgctrace_inject.so", "deps/libgctrace_inject.so"] {
        let library = setcap.gctrace().with_file_name(place);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::copy(&hostile, &library).unwrap();
        std::os::unix::fs::chown(&library, Some(ALICE), None).unwrap();
        for arguments in WAYS {
            let output = setcap.run(ALICE, arguments);
            let said = text(&output);
            assert!(runs_of(&folder).is_empty(), "{arguments:?}: {said}");
            if arguments.contains(&"--mode") {
                assert!(!output.status.success(), "{arguments:?}: {said}");
                assert!(said.contains("with file capabilities"), "{said}");
                assert!(said.contains("belongs to"), "{said}");
            }
        }
        fs::remove_file(&library).unwrap();
    }
}

/// The hidden subcommand with which gctrace tries the library is no way in.
#[test]
fn the_trial_has_no_rights_whoever_starts_it() {
    let test = "the_trial_has_no_rights_whoever_starts_it";
    let Some(setcap) = Setcap::install(test, CAPABILITIES) else {
        return;
    };
    let folder = setcap.file("attack");
    fs::create_dir(&folder).unwrap();
    let library = hostile_library(&folder);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let output = setcap.run(ALICE, &["__load-library", library.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));
    let runs = runs_of(&folder);
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(without_rights(&runs[0]), "{}", runs[0]);
}

/// As root nothing runs in gctrace either: the library that root names, where only root writes, is tried
/// without any capability.
#[test]
fn root_tries_a_library_without_capabilities() {
    let test = "root_tries_a_library_without_capabilities";
    if !common::privileged(test) {
        return;
    }
    let trusted = tempfile::tempdir_in("/usr/local/lib").unwrap();
    fs::set_permissions(trusted.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = hostile_library(trusted.path());
    let doctor = |library: &Path| {
        let mut command = Command::new(common::GCTRACE);
        command
            .arg("doctor")
            .env_remove("SUDO_UID")
            .env("GCTRACE_INJECT_LIBRARY", library)
            .output_in_time()
            .unwrap()
    };
    let output = doctor(&library);
    assert!(text(&output).contains("hostile.so"), "{}", text(&output));
    let runs = runs_of(trusted.path());
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(without_rights(&runs[0]), "{}", runs[0]);
    assert!(runs[0].contains("NoNewPrivs:\t1"), "{}", runs[0]);

    let open = tempfile::tempdir().unwrap();
    let library = hostile_library(open.path());
    let mut command = Command::new(common::GCTRACE);
    command
        .args(["--as-root", "--mode", "inject", "--", "true"])
        .env("GCTRACE_INJECT_LIBRARY", library)
        .envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")])
        .current_dir(open.path());
    let output = command.output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("as root gctrace does not load"),
        "{}",
        text(&output)
    );
    assert!(runs_of(open.path()).is_empty());
}
