//! Kernel tier: launchers that handle stopped children behave the same under gctrace.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use test_kit::recording;
use test_kit::recording::Trace;

/// Collects, prints its counts, and exits with a code of its own.
const PROGRAM: &str = "
import gc, os, sys, time
time.sleep(1)
for _ in range(7): gc.collect()
print('ok', len(sys.argv), flush=True)
with open(sys.argv[1], 'w') as pid: pid.write(str(os.getpid()))
sys.exit(5)
";

/// A folder that all users may use, with the program, and interpreters and commands new to every
/// recording: as large as an interpreter, so that gctrace cannot rule them out.
struct TestDir {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl TestDir {
    fn new(python: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), open.clone()).unwrap();
        fs::write(folder.path().join("program.py"), PROGRAM).unwrap();
        let copy = folder.path().join("interpreter");
        fs::copy(python, &copy).unwrap();
        for name in ["true", "false", "seq"] {
            let file = folder.path().join(format!("large-{name}"));
            fs::copy(format!("/usr/bin/{name}"), &file).unwrap();
            let large = fs::File::options().write(true).open(&file).unwrap();
            large.set_len(4 << 20).unwrap();
            fs::set_permissions(&file, open.clone()).unwrap();
        }
        Self { folder, python: copy }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The Python program, as a line for a shell. The interpreter is a copy named by a variable, so
    /// that it does not appear on gctrace's command line.
    fn program(&self) -> String {
        format!("\"$OWN\" {0}/program.py {0}/pid", self.path().display())
    }

    /// Runs with a time limit: exit code, standard output.
    fn run(&self, words: &[&str]) -> (Option<i32>, String, Output) {
        let output = Command::new("timeout")
            .args(["--foreground", "-k", "1", "60"])
            .args(words)
            .current_dir(self.path())
            .env("OWN", &self.python)
            .env("PYTHONHOME", "/usr")
            .env_remove("SUDO_UID")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text, output)
    }

    /// The stopped processes of this folder.
    fn stopped(&self) -> Vec<String> {
        let listed = Command::new("ps").args(["-eo", "pid,stat,args"]).output();
        let listed = String::from_utf8_lossy(&listed.unwrap().stdout).into_owned();
        let place = self.path().display().to_string();
        let lines = listed.lines().filter(|line| line.contains(&place));
        let stopped = lines.filter(|line| {
            let state = line.split_whitespace().nth(1).unwrap_or_default();
            state.starts_with('T')
        });
        stopped.map(str::to_owned).collect()
    }

    /// Runs the same shell line with and without gctrace, several times, and compares the results.
    fn is_the_same(&self, line: &[&str]) {
        let forget = || drop(fs::remove_file(self.path().join("pid")));
        forget();
        let (code, text, _) = self.run(line);
        for _ in 0..2 {
            forget();
            let mut traced = vec![recording::binary(), "--mode", "ebpf", "--as-root", "--"];
            traced.extend(line);
            let (traced_code, traced_text, output) = self.run(&traced);
            assert_eq!((traced_code, &traced_text), (code, &text), "{line:?}: {output:?}");
            assert_eq!(self.stopped(), Vec::<String>::new(), "{line:?}");
            self.python_is_recorded(&output);
        }
    }

    /// All its collections are recorded, or the trace states that some may be missing.
    fn python_is_recorded(&self, output: &Output) {
        let Ok(pid) = fs::read_to_string(self.path().join("pid")) else {
            return;
        };
        let trace = Trace::read(&self.path().join("trace.json"));
        let manual = trace.pauses_of(pid.parse().unwrap());
        let manual = manual.iter().filter(|pause| pause.reason == "manual");
        let unexamined = trace.end()["processes"]["unexamined"].as_object();
        let is_reported = unexamined.is_some_and(|reasons| !reasons.is_empty());
        assert!(manual.count() == 7 || is_reported, "{output:?}");
        let python = trace.end()["processes"]["python"].as_u64();
        assert_ne!(python, Some(0), "{output:?}");
    }
}

fn place_for(test: &str) -> Option<TestDir> {
    recording::place_for(test).map(|(python, _)| TestDir::new(&python))
}

/// Whether a program is installed; reports a skip if not.
fn has(test: &str, program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped {test}: no {program}; apt-get install {program}");
    }
    found
}

#[test]
fn other_users() {
    let test = "other_users";
    let Some(place) = place_for(test) else { return };
    let line = place.program().replace("\"$OWN\"", &place.python.display().to_string());
    let quoted = format!("PYTHONHOME=/usr {line}");
    if has(test, "runuser") {
        place.is_the_same(&["runuser", "-u", "nobody", "--", "sh", "-c", &quoted]);
        place.is_the_same(&[
            "runuser",
            "-u",
            "nobody",
            "--",
            "env",
            "PYTHONHOME=/usr",
            "sh",
            "-c",
            &format!("exec {line}"),
        ]);
    }
    if has(test, "su") {
        place.is_the_same(&["su", "-s", "/bin/sh", "nobody", "-c", &format!("exec env {quoted}")]);
        place.is_the_same(&["su", "-s", "/bin/bash", "root", "-c", &quoted]);
    }
    if has(test, "sudo") {
        place.is_the_same(&["sh", "-c", &format!("sudo -u nobody env {quoted}")]);
        place.is_the_same(&["sh", "-c", "sudo -u nobody ./large-seq 3; sudo ./large-false"]);
    }
}

#[test]
fn terminals_and_namespaces() {
    let test = "terminals_and_namespaces";
    let Some(place) = place_for(test) else { return };
    let line = place.program();
    if has(test, "script") {
        place.is_the_same(&["script", "-qec", &format!("exec {line}"), "/dev/null"]);
        place.is_the_same(&["script", "-qec", "./large-seq 3; ./large-false", "/dev/null"]);
    }
    if has(test, "nsenter") {
        place.is_the_same(&["nsenter", "-t", "1", "-p", "sh", "-c", &format!("exec {line}")]);
    }
    if has(test, "unshare") {
        place.is_the_same(&["unshare", "-f", "-m", "sh", "-c", &format!("exec {line}")]);
    }
}

#[test]
fn job_control() {
    let test = "job_control";
    let Some(place) = place_for(test) else { return };
    let line = place.program();
    let scripts = [
        "set -m; ./large-true; echo $?; ./large-seq 2; echo $?; (./large-seq 3) & wait $!; echo $?"
            .to_owned(),
        format!("set -m; {line}; echo $?; ./large-seq 4 | ./large-true; echo $?"),
    ];
    for script in &scripts {
        place.is_the_same(&["bash", "-c", script]);
        place.is_the_same(&["sh", "-c", script]);
    }
    if has(test, "script") {
        let interactive =
            "bash --norc --noprofile -ic './large-true; echo $?; ./large-false; echo $?'";
        place.is_the_same(&["script", "-qec", interactive, "/dev/null"]);
    }
}

#[test]
fn debuggers() {
    let test = "debuggers";
    let Some(place) = place_for(test) else { return };
    if has(test, "strace") {
        let strace = ["strace", "-f", "-o", "/dev/null", "sh", "-c"];
        place.is_the_same(&[&strace[..], &[&place.program()]].concat());
        place.is_the_same(&[&strace[..], &["./large-seq 3; ./large-false"]].concat());
    }
    if has(test, "gdb") {
        let program = place.path().join("large-seq");
        let program = program.to_str().unwrap();
        let batch = ["gdb", "-q", "-nx", "-batch", "-ex", "run", "-ex", "quit 4"];
        let (code, text, _) = place.run(&[&batch[..], &["--args", program, "3"]].concat());
        let (_, without_ids, _) = (code, text.replace(char::is_numeric, ""), ());
        let gctrace = [recording::binary(), "--mode", "ebpf", "--"];
        let traced = [&gctrace[..], &batch[..], &["--args", program, "3"]].concat();
        let (traced_code, traced_text, output) = place.run(&traced);
        assert_eq!(traced_code, code, "{output:?}");
        assert_eq!(traced_text.replace(char::is_numeric, ""), without_ids);
        assert!(!traced_text.contains("SIGCONT"), "{traced_text}");
    }
}

/// A shell recorded with -p, which then runs su, keeps running, and nothing is left stopped after
/// the recording.
#[test]
fn an_attached_shell_runs_su() {
    let test = "an_attached_shell_runs_su";
    let Some(place) = place_for(test) else { return };
    if !has(test, "su") {
        return;
    }
    let line = format!(
        "while ! [ -e go ]; do sleep 0.05; done; su root -s /bin/sh -c 'exec {} {}/program.py pid'; echo $? > code",
        place.python.display(),
        place.path().display()
    );
    let mut shell = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path())
        .env("PYTHONHOME", "/usr")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = shell.id().to_string();
    let mut gctrace = Command::new(recording::binary())
        .args(["record", "-p", &pid])
        .current_dir(place.path())
        .env_remove("SUDO_UID")
        .spawn()
        .unwrap();
    recording::wait_until("the header", || {
        fs::read_to_string(place.path().join("trace.json"))
            .is_ok_and(|text| text.contains("gctrace_process"))
    });
    fs::write(place.path().join("go"), "").unwrap();
    recording::wait_until("the shell's end", || shell.try_wait().unwrap().is_some());
    assert!(gctrace.wait().unwrap().success());
    let code = fs::read_to_string(place.path().join("code")).unwrap();
    assert_eq!(code.trim(), "5");
    assert_eq!(place.stopped(), Vec::<String>::new());
}
