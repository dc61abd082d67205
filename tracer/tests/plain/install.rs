//! Runs the README's install command with another prefix, and removes what it installed.

use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

#[test]
fn the_readmes_command_installs_everything() {
    let gctrace = |program: &Path, folder: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder)
            .env_remove("GCTRACE_INJECT_LIBRARY")
            .env_remove("SIMGPU_LIBRARY")
            .env_remove("SUDO_UID");
        command.output_in_time().expect("gctrace runs")
    };
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("README.md");
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("sudo target/release/gctrace "))
        .and_then(|line| line.split('#').next());
    let line: Vec<&str> = line.expect("README.md has the command").split_whitespace().collect();
    // Not in a directory of another user, from which root does not load a library.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let prefix = place.path().join("prefix");
    let to_prefix = ["--prefix", prefix.to_str().expect("UTF-8")];
    let words = [&line[..], &to_prefix].concat();
    let installed = gctrace(Path::new(recording::binary()), place.path(), &words);
    assert!(installed.status.success(), "{words:?} {installed:?}");
    let program = prefix.join("bin/gctrace");
    let run = |arguments: &[&str]| gctrace(&program, place.path(), arguments);
    let recorded =
        run(&["--mode", "inject", "--", "/usr/bin/python3", "-c", "import gc; gc.collect()"]);
    assert!(recorded.status.success(), "{recorded:?}");
    let demonstrated = run(&["demo", "--steps", "20", "-o", "demo.json"]);
    assert!(demonstrated.status.success(), "{demonstrated:?}");
    let text = String::from_utf8_lossy(&demonstrated.stdout);
    assert!(text.contains("Do this"), "{text}");
    assert!(place.path().join("train_simgpu.py").exists());
    let page = std::fs::read_to_string(prefix.join("share/man/man1/gctrace-demo.1"));
    assert!(page.expect("a page").contains(".TH gctrace-demo"));
    let removed = run(&[&["setup", "--uninstall"], &to_prefix[..]].concat());
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(std::fs::read_dir(&prefix).expect("the prefix").count(), 0);
}
