//! Runs the README's install commands with another prefix.

use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

/// The commands without sudo, for the build of these tests: `cargo test` puts libraries only into
/// `deps`.
fn lines(readme: &str, built: &Path, prefix: &Path) -> Vec<String> {
    let word = |word: &str| match word.strip_prefix("target/release/") {
        Some(file) => {
            let places = [built.join("deps").join(file), built.join(file)];
            let found = places.iter().find(|place| place.exists());
            found.unwrap_or(&places[1]).display().to_string()
        }
        None => word.replace("/usr/local", &prefix.display().to_string()),
    };
    readme
        .lines()
        .filter_map(|line| line.strip_prefix("sudo "))
        .filter(|line| line.starts_with("install "))
        .map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn the_readmes_lines_install_everything() {
    // Not in a directory of another user, from which root does not load a library.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let prefix = place.path().join("prefix");
    let built = Path::new(recording::binary()).parent().expect("a folder");
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("README.md");
    let lines = lines(&readme, built, &prefix);
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        let installed = Command::new("sh")
            .args(["-c", &line])
            .output_in_time()
            .expect("sh");
        assert!(installed.status.success(), "{line} {installed:?}");
    }
    let gctrace = |arguments: &[&str]| {
        let mut command = Command::new(prefix.join("bin/gctrace"));
        command.args(arguments).current_dir(place.path());
        command
            .env_remove("GCTRACE_INJECT_LIBRARY")
            .env_remove("SIMGPU_LIBRARY")
            .env_remove("SUDO_UID");
        command.output_in_time().expect("gctrace runs")
    };
    let recorded = gctrace(&[
        "--mode",
        "inject",
        "--",
        "/usr/bin/python3",
        "-c",
        "import gc; gc.collect()",
    ]);
    assert!(recorded.status.success(), "{recorded:?}");
    let demonstrated = gctrace(&["demo", "--steps", "20", "-o", "demo.json"]);
    assert!(demonstrated.status.success(), "{demonstrated:?}");
    let text = String::from_utf8_lossy(&demonstrated.stdout);
    assert!(text.contains("Do this"), "{text}");
    assert!(place.path().join("train_simgpu.py").exists());
}
