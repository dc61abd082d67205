//! What is passed to the command, what root may not read, and limits that are not a matter of
//! privileges.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of #[test]")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::setcap::{ALICE, BOB, Setcap, text};

/// Creates a session keyring with a key in it, and becomes gctrace as sudo starts it, whose command
/// tries to read that key. Exits with 9 if the key could be read (keyctl(2): 1 join, 11 read;
/// add_key is 248).
const KEYRING: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(250, 1, b'gctrace-test') < 0:
    sys.exit(77)
key = libc.syscall(248, b'user', b'gctrace-test', b'ROOTSECRET', 10, -3)
if key < 0:
    sys.exit(77)
command = '''
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
read = libc.syscall(250, 11, %d, ctypes.create_string_buffer(64), 64, 0)
own = libc.syscall(248, b'user', b'own', b'x', 1, -3)
sys.exit(9 if read >= 0 else 5 if own < 0 else 3)
''' % key
os.environ.update(SUDO_UID=sys.argv[2], SUDO_GID=sys.argv[2])
os.execv(sys.argv[1], [sys.argv[1], '-q', '-o', 'k.json', '--', 'python3', '-I', '-c', command])
";

#[test]
fn the_command_does_not_inherit_roots_keys() {
    let test = "the_command_does_not_inherit_roots_keys";
    let Some(setcap) = Setcap::install(test, "cap_bpf,cap_perfmon+ep") else {
        return;
    };
    let output = Command::new("timeout")
        .args(["60", "python3", "-I", "-c", KEYRING])
        .arg(recording::binary())
        .arg(ALICE.to_string())
        .current_dir(setcap.file("."))
        .output_in_time()
        .unwrap();
    if output.status.code() == Some(77) {
        eprintln!("skipped {test}: this kernel has no keys");
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
}

/// Python in a folder that is closed to others: reading its file takes CAP_DAC_READ_SEARCH.
#[test]
fn processes_that_root_may_not_read_are_reported_and_counted() {
    let test = "processes_that_root_may_not_read_are_reported_and_counted";
    let Some(setcap) = Setcap::install(test, "cap_bpf,cap_perfmon+ep") else {
        return;
    };
    let folder = setcap.file("private");
    fs::create_dir(&folder).unwrap();
    let python = folder.join("python3");
    fs::copy(fs::canonicalize("/usr/bin/python3").unwrap(), &python).unwrap();
    for path in [&python, &folder] {
        std::os::unix::fs::chown(path, Some(ALICE), Some(ALICE)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let ready = setcap.file("ready");
    let program = format!(
        "import gc, time\nfor n in range(3000):\n    gc.collect(); time.sleep(0.01)\n    \
         if n == 0: open('{}', 'w').close()",
        ready.display()
    );
    let mut running = Command::new(&python)
        .args(["-S", "-c", &program])
        .env("PYTHONHOME", "/usr")
        .current_dir(setcap.file("."))
        .uid(ALICE)
        .gid(ALICE)
        .spawn()
        .unwrap();
    wait_for(&ready);
    let pid = running.id().to_string();
    let with = |capabilities: &str, trace: &Path| {
        Command::new("timeout")
            .args(["60", "setpriv", "--inh-caps=-all"])
            .arg(format!("--bounding-set=-all,{capabilities}"))
            .arg(recording::binary())
            .args(["record", "-p", &pid, "-d", "1", "-o"])
            .arg(trace)
            .output_in_time()
            .unwrap()
    };
    let trace = setcap.file("t.json");
    let three = with("+bpf,+perfmon,+sys_ptrace", &trace);
    let printed = text(&three);
    assert!(printed.contains(&format!("process {pid} is not recorded")), "{printed}");
    assert!(printed.contains("CAP_DAC_READ_SEARCH"), "{printed}");
    assert!(
        printed.contains("could not be inspected") && !printed.contains("nothing lost"),
        "{printed}"
    );
    assert!(fs::read_to_string(&trace).unwrap().contains("is not recorded"));
    let trace = setcap.file("u.json");
    let four = with("+bpf,+perfmon,+sys_ptrace,+dac_read_search", &trace);
    assert!(four.status.success(), "{}", text(&four));
    let pauses = recording::Trace::read(&trace).pauses();
    running.kill().unwrap();
    running.status_in_time().unwrap();
    assert!(pauses.len() > 5, "{}", text(&four));
}

/// Root whose capabilities are limited (a container, a unit) lacks CAP_KILL: what it stopped at exec
/// it could not resume.
#[test]
fn a_program_that_root_could_not_resume_is_not_stopped() {
    let test = "a_program_that_root_could_not_resume_is_not_stopped";
    let Some(setcap) = Setcap::install(test, "cap_bpf,cap_perfmon+ep") else {
        return;
    };
    let (unknown, ready, attached) =
        (setcap.file("python"), setcap.file("ready"), setcap.file("attached"));
    // A file of its own, so that its probes are placed only at its exec.
    fs::copy(fs::canonicalize("/usr/bin/python3").unwrap(), &unknown).unwrap();
    let program = format!(
        "import gc, os, subprocess, sys, time\nopen('{}', 'w').close()\n\
         while not os.path.exists('{}'):\n    gc.collect(); time.sleep(0.01)\n\
         child = subprocess.run(['{}', '-S', '-c', 'import gc; gc.collect()'], \
         env={{'PYTHONHOME': '/usr'}}, timeout=30)\nsys.exit(child.returncode)",
        ready.display(),
        attached.display(),
        unknown.display(),
    );
    // The leader of a session, as in a container: no shell would see its child stop.
    let mut running = Command::new("setsid")
        .args(["--wait", "/usr/bin/python3", "-S", "-c", &program])
        .current_dir(setcap.file("."))
        .uid(ALICE)
        .gid(ALICE)
        .spawn()
        .unwrap();
    wait_for(&ready);
    let trace = setcap.file("t.json");
    let mut recording = Command::new("timeout")
        .args(["60", "setpriv", "--inh-caps=-all"])
        .arg("--bounding-set=-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search")
        .arg(recording::binary())
        .args(["record", "-p", &python_below(running.id()).to_string(), "-o"])
        .arg(&trace)
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if fs::read_to_string(&trace).is_ok_and(|text| text.contains("\"ph\":\"X\"")) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    fs::write(&attached, "").unwrap();
    let status = running.status_in_time().unwrap();
    recording.status_in_time().unwrap();
    assert!(status.success(), "the child did not end: {status}");
}

/// The child of setsid, if that had to fork.
fn python_below(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().map_or(pid, |child| child.parse().unwrap())
}

fn wait_for(file: &Path) {
    for _ in 0..600 {
        if file.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("there is no {}", file.display());
}

/// A service manager can give a user capabilities of its own (ambient): `top` then sees the
/// processes of the others too.
#[test]
fn capabilities_of_a_service_are_enough_for_all_users() {
    let test = "capabilities_of_a_service_are_enough_for_all_users";
    let Some(setcap) = Setcap::install(test, "cap_bpf,cap_perfmon+ep") else {
        return;
    };
    let removed = Command::new("setcap").arg("-r").arg(setcap.gctrace()).status_in_time();
    assert!(removed.unwrap().success());
    let mut running = Command::new("/usr/bin/python3")
        .args(["-S", "-c", "import gc, time\nwhile True:\n    gc.collect(); time.sleep(0.01)"])
        .uid(ALICE)
        .gid(ALICE)
        .spawn()
        .unwrap();
    let seen_with = |capabilities: &str| {
        let output = Command::new("timeout")
            .args(["60", "setpriv", "--reuid", &BOB.to_string(), "--regid", &BOB.to_string()])
            .args(["--clear-groups", "--inh-caps", capabilities, "--ambient-caps", capabilities])
            .arg(setcap.gctrace())
            .args(["top", "--format", "json", "-n", "4"])
            .current_dir(setcap.file("."))
            .output_in_time()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output).contains(&format!("\"pid\":{}", running.id()))
    };
    assert!(!seen_with("-all,+bpf,+perfmon"));
    assert!(seen_with("-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search"));
    running.kill().unwrap();
    running.status_in_time().unwrap();
}

#[test]
fn too_few_open_files_are_not_missing_privileges() {
    let test = "too_few_open_files_are_not_missing_privileges";
    if !recording::privileged(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for limit in [4, 8, 16, 32, 64] {
        for mode in ["auto", "ebpf", "inject"] {
            let script = format!(
                "ulimit -n {limit}; exec timeout 60 {} --mode {mode} -o t.json -- sh -c 'exit 37'",
                recording::binary()
            );
            let output = Command::new("sh")
                .args(["-c", &script])
                .env_remove("SUDO_UID")
                .current_dir(folder.path())
                .output_in_time()
                .unwrap();
            let printed = text(&output);
            assert!(!printed.contains("missing CAP"), "{limit} {mode}: {printed}");
            assert!(!printed.contains("kernel lacks"), "{limit} {mode}: {printed}");
            match output.status.code() {
                Some(37) => {}
                _ => assert!(printed.contains("ulimit -n"), "{limit} {mode}: {printed}"),
            }
            if mode == "ebpf" {
                assert_eq!(output.status.code(), Some(1), "{limit}: {printed}");
            }
        }
    }
}
