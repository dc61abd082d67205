//! `gctrace.toml` and `GCTRACE_ARGS`, as a user has them. Needs no privileges.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

#[test]
fn options_come_from_files_and_the_variable() {
    let place = tempfile::tempdir().unwrap();
    let (project, home) = (place.path().join("project"), place.path().join("config"));
    fs::create_dir_all(project.join("deep/er")).unwrap();
    fs::create_dir_all(home.join("gctrace")).unwrap();
    fs::create_dir(project.join(".git")).unwrap();
    fs::write(
        home.join("gctrace/gctrace.toml"),
        "[record]\nstack-depth = 2\nmin-pause = \"1ns\"\n",
    )
    .unwrap();
    let file = project.join("gctrace.toml");
    fs::write(&file, "[record]\nmode = \"inject\"\nstack-depth = 3\noutput = \"stolen.json\"\n")
        .unwrap();
    // Beyond the project's root: not this one.
    fs::write(place.path().join("gctrace.toml"), "[record]\nstack-depth = 9\n").unwrap();
    let run = |words: &[&str], variable: &str| -> Output {
        let mut command = Command::new(recording::binary());
        command.args(words).current_dir(project.join("deep/er"));
        command
            .env("XDG_CONFIG_HOME", &home)
            .env("GCTRACE_ARGS", variable)
            .output_in_time()
            .unwrap()
    };
    let python = interpreters::any_python();
    let recorded = |options: &[&str], variable: &str| {
        let program = ["--", python.to_str().unwrap(), "-c", "import gc; gc.collect()"];
        let words = [&["-o", "trace.json"], options, &program[..]].concat();
        let output = run(&words, variable);
        assert!(output.status.success(), "{output:?}");
        let trace = fs::read_to_string(project.join("deep/er/trace.json")).unwrap();
        (
            trace.lines().next().unwrap().to_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (header, told) = recorded(&[], "");
    for member in ["\"stack_depth\":3", "\"min_pause_ns\":1,", "\"mode\":\"inject\""] {
        assert!(header.contains(member), "{header}");
    }
    assert!(told.contains("gctrace.toml: --output must be typed"), "{told}");
    assert!(!project.join("deep/er/stolen.json").exists());
    assert!(recorded(&[], "--stack-depth=4").0.contains("\"stack_depth\":4"));
    assert!(recorded(&["--stack-depth", "5"], "--stack-depth=4").0.contains("\"stack_depth\":5"));
    let shown = run(&["doctor", "--config"], "--sample 9");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let from = |line: &str, source: &str| {
        shown.lines().any(|shown| shown.starts_with(line) && shown.ends_with(source))
    };
    assert!(from("gctrace record --stack-depth 3 ", "project/gctrace.toml"), "{shown}");
    assert!(from("gctrace record --min-pause 1ns ", "config/gctrace/gctrace.toml"), "{shown}");
    assert!(from("gctrace record --sample 9 ", "from GCTRACE_ARGS"), "{shown}");
    // One that others may write has no effect.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (header, told) = recorded(&["--mode", "inject"], "");
    assert!(header.contains("\"stack_depth\":2"), "{header}");
    assert!(told.contains("is ignored: others may write it"), "{told}");
}

/// Whatever has the name, the command starts at once: a file of another user hangs nobody.
#[test]
fn what_is_no_file_of_the_user_is_ignored_at_once() {
    let place = tempfile::tempdir().unwrap();
    let below = place.path().join("work");
    fs::create_dir(&below).unwrap();
    let file = place.path().join("gctrace.toml");
    let doctor = || {
        let mut command = Command::new(recording::binary());
        command.args(["doctor", "--config"]).current_dir(&below).env_remove("SUDO_UID");
        let output = command
            .env("XDG_CONFIG_HOME", place.path().join("none"))
            .env("GCTRACE_ARGS", "--sample 9")
            .output_in_time()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("gctrace record --sample 9 "), "{shown}");
        shown
    };
    let text = "[record]\nstack-depth = 3\n";
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(doctor().contains("gctrace.toml is ignored: it is not a regular file"));
    fs::rename(&file, place.path().join("fifo")).unwrap();
    std::os::unix::fs::symlink("fifo", &file).unwrap();
    assert!(doctor().contains("it is not a regular file"));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("missing", &file).unwrap();
    assert_eq!(doctor().lines().count(), 1);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(doctor().contains("it is not a regular file"));
    fs::remove_dir(&file).unwrap();
    fs::write(&file, format!("{text}#{}", "x".repeat(100_000))).unwrap();
    assert!(doctor().contains("it is no file of up to 64 KiB"));
    fs::write(&file, text).unwrap();
    assert!(doctor().contains("--stack-depth 3"));
    // A folder that others may write, and one in which they may remove only their own files.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(doctor().contains("others may write it: everyone may write"));
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(doctor().contains("--stack-depth 3"));
    if nix::unistd::Uid::effective().is_root() {
        std::os::unix::fs::chown(&file, Some(61_303), None).unwrap();
        assert!(doctor().contains("gctrace.toml belongs to user 61303"));
    }
    // Values are text.
    fs::remove_file(&file).unwrap();
    fs::write(&file, "[record]\nstep-function = \"\\u001b[31mred\\nforged\"\n").unwrap();
    let shown = doctor();
    assert!(shown.contains(r"--step-function \x1b[31mred\nforged "), "{shown}");
}
