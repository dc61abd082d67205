//! Runs scenarios against the built libraries, each in a process of its own, and reads their truth
//! logs.

pub mod gpu;
pub mod log;

use self::log::Log;
use crate::limit::WithTimeout as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

/// Passes the folder of a scenario to its process.
const FOLDER: &str = "SIMGPU_TEST_FOLDER";

/// The laid-out libraries of this build. They are large: all tests share one folder, and earlier
/// builds' are removed.
pub fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let library = gctrace_simgpu::find_library().expect("cargo built the library");
        let metadata = library.metadata().expect("it is a file");
        let built = metadata.modified().expect("with a time");
        let built = built.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
        let folder = temporary().join(format!("libraries-{built}"));
        if !folder.exists() {
            remove_others();
            let part = folder.with_extension(std::process::id().to_string());
            gctrace_simgpu::lay_out(&library, &part).expect("the folder can be written");
            if std::fs::rename(&part, &folder).is_err() {
                // Another test was faster.
                let _ = std::fs::remove_dir_all(&part);
            }
        }
        folder
    })
}

/// Cargo's folder for the temporary files of tests.
fn temporary() -> PathBuf {
    let executable = std::env::current_exe().expect("this test has a file");
    let target = executable.ancestors().nth(3).expect("it is in target/debug/deps");
    let folder = target.join("tmp");
    std::fs::create_dir_all(&folder).expect("cargo's folder can be written");
    folder
}

/// Removes complete folders of other builds.
fn remove_others() {
    let entries = std::fs::read_dir(temporary()).expect("it was made above");
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("libraries-") && !name.contains('.')) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// The results of a scenario.
pub struct Outcome {
    /// Log lines of all its processes.
    pub log: Log,
    /// The exit status of its first process.
    pub status: std::process::ExitStatus,
    /// The records as text, for the CUPTI scenarios.
    pub records: String,
    /// The number of dropped records, as text.
    pub dropped: String,
}

/// The folder of the scenario that this process runs, or `None` in the test itself.
pub fn playing() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Runs `play` in a process of its own: this test, started again with `settings` in its
/// environment. `None` in that process, after `play`; the results in the test itself.
pub fn scenario(
    test: &str,
    settings: &[(&str, &str)],
    play: impl FnOnce(&Path),
) -> Option<Outcome> {
    if let Some(folder) = playing() {
        play(&folder);
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = command(test, folder.path(), settings);
    let output = child.output_in_time().expect("it starts");
    let log = Log::read(folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("1 passed") || !output.status.success(), "{text}");
    eprintln!("{text}{errors}");
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    Some(Outcome {
        log,
        status: output.status,
        records: read("records"),
        dropped: read("records.dropped"),
    })
}

/// A process that runs `test`'s scenario in `folder`. No other test of the program may have a name
/// that starts with the same words: the filter of libtest names no end.
pub fn command(test: &str, folder: &Path, settings: &[(&str, &str)]) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("this test has a file"));
    child
        .args([&format!("::{test}"), "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env("SIMGPU_LOG", folder.join("log"))
        .env("SIMGPU_SHARED", folder.join("shared"))
        .envs(settings.iter().copied());
    libraries();
    child
}
