//! gctrace with file capabilities, run by users who have none: no user gains a right by it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;
use test_kit::recording::setcap::{ALICE, BOB, Setcap, text};

/// More than the documentation requires: more rights are harmless.
const CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep";

/// A library that writes to a file, one per process, with which rights its constructor ran.
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

/// Compiled into `folder`, to which it also writes.
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

/// The rights with which the library ran so far.
fn runs_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let reported = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("ran."));
    let mut runs = Vec::new();
    for entry in reported {
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
    command.env("GCTRACE_INJECT_LIBRARY", library).args(arguments);
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
        let printed = text(&output);
        assert!(output.status.success(), "{arguments:?}: {printed}");
        assert!(runs_of(&folder).is_empty(), "{arguments:?}: {printed}");
        if arguments.contains(&"inject") {
            assert!(printed.contains("GCTRACE_INJECT_LIBRARY is ignored"), "{printed}");
        }
    }
    // Without file capabilities the user decides, and the library runs with the user's own rights.
    let removed = Command::new("setcap").arg("-r").arg(setcap.gctrace()).status_in_time();
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
        std::os::unix::fs::chown(&library, Some(BOB), None).unwrap();
        for arguments in WAYS {
            let output = setcap.run(ALICE, arguments);
            let printed = text(&output);
            assert!(runs_of(&folder).is_empty(), "{arguments:?}: {printed}");
            if arguments.contains(&"--mode") {
                assert!(!output.status.success(), "{arguments:?}: {printed}");
                assert!(printed.contains("with file capabilities"), "{printed}");
                assert!(printed.contains("belongs to"), "{printed}");
            }
        }
        // The user's own runs in their programs, as if they had preloaded it, without gctrace's rights.
        std::os::unix::fs::chown(&library, Some(ALICE), None).unwrap();
        let output = setcap.run(ALICE, WAYS[0]);
        assert!(output.status.success(), "{}", text(&output));
        let runs = runs_of(&folder);
        assert!(runs.len() >= 2, "tried, and in the command: {runs:?}");
        for status in runs {
            assert!(without_rights(&status), "{status}");
        }
        fs::remove_file(&library).unwrap();
    }
}

/// The hidden subcommand with which gctrace tries the library gives no rights.
#[test]
fn the_trial_has_no_rights_when_run_by_hand() {
    let test = "the_trial_has_no_rights_when_run_by_hand";
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

/// As root no library code runs in gctrace either: the library that root names, which only root can
/// write, is tried without any capability.
#[test]
fn root_tries_a_library_without_capabilities() {
    let test = "root_tries_a_library_without_capabilities";
    if !recording::privileged(test) {
        return;
    }
    let trusted = tempfile::tempdir_in("/usr/local/lib").unwrap();
    fs::set_permissions(trusted.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = hostile_library(trusted.path());
    let doctor = |library: &Path| {
        let mut command = Command::new(recording::binary());
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
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let library = hostile_library(open.path());
    let mut command = Command::new(recording::binary());
    command
        .args(["--as-root", "--mode", "inject", "--", "true"])
        .env("GCTRACE_INJECT_LIBRARY", library)
        .envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")])
        .current_dir(open.path());
    let output = command.output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("as root, gctrace does not load"), "{}", text(&output));
    assert!(runs_of(open.path()).is_empty());
}

/// A Python process that collects for a minute, in functions whose names are private to its user.
/// Killed when dropped.
struct Running(Child);

impl Running {
    /// Returns once it runs its loop. `before`: code that it runs first.
    fn start(setcap: &Setcap, user: u32, before: &str) -> Self {
        let ready = setcap.file(&format!("ready-{user}-{}", before.len()));
        let program = format!(
            "import ctypes, gc, time\n{before}\ndef secret_function_of_{user}():\n    gc.collect()\n\
             for n in range(6000):\n    secret_function_of_{user}(); time.sleep(0.01)\n    \
             if n == 0: open('{}', 'w').close()",
            ready.display()
        );
        let mut command = setcap.command(user, Path::new("python3"));
        let command = command.args(["-I", "-c", &program]).stdin(Stdio::null());
        let running = Self(command.spawn().unwrap());
        let began = Instant::now();
        while !ready.exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        running
    }

    /// The pid of Python, below timeout(1).
    fn pid(&self) -> String {
        let timeout = self.0.id();
        let path = format!("/proc/{timeout}/task/{timeout}/children");
        let children = fs::read_to_string(path).unwrap();
        children.split_whitespace().next().expect("a child").to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.pid().parse().unwrap();
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
        let _ = self.0.status_in_time();
    }
}

#[test]
fn a_user_records_their_own_processes_only() {
    let test = "a_user_records_their_own_processes_only";
    let Some(setcap) = Setcap::install(test, CAPABILITIES) else {
        return;
    };
    let of_alice = Running::start(&setcap, ALICE, "");
    let others = [
        Running::start(&setcap, BOB, ""),
        Running::start(&setcap, 0, ""),
        // Its own user could not attach a debugger to it (prctl(2): PR_SET_DUMPABLE).
        Running::start(&setcap, ALICE, "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"),
    ];
    let record = |process: &Running, trace: &str| {
        let pid = process.pid();
        setcap.run(ALICE, &["record", "-p", &pid, "-d", "1", "-o", trace])
    };
    for other in &others {
        let output = record(other, "other.json");
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("may not be inspected"), "{printed}");
        assert!(printed.contains("sudo gctrace record -p"), "{printed}");
        assert!(!setcap.file("other.json").exists());
    }
    let output = record(&of_alice, "own.json");
    assert!(output.status.success(), "{}", text(&output));
    let trace = fs::read_to_string(setcap.file("own.json")).unwrap();
    assert!(trace.contains(&format!("secret_function_of_{ALICE}")));
    assert!(Trace::read(&setcap.file("own.json")).pauses().len() > 5);

    // All of them run the same probed file: of the others nothing is recorded.
    let output = setcap.run(ALICE, &["top", "-n", "3", "--record", "top.json", "--format", "text"]);
    assert!(output.status.success(), "{}", text(&output));
    let trace = Trace::read(&setcap.file("top.json"));
    let pids = trace.named("gctrace_process");
    let pids: Vec<String> = pids.iter().map(|(pid, _)| pid.to_string()).collect();
    assert!(pids.contains(&of_alice.pid()), "{pids:?}");
    for other in &others {
        assert!(!pids.contains(&other.pid()), "{pids:?}");
    }
    let trace = fs::read_to_string(setcap.file("top.json")).unwrap();
    assert!(!trace.contains(&format!("secret_function_of_{BOB}")));
}

/// A program that gives its process another user, like sudo and su.
#[test]
fn a_child_that_becomes_another_user_is_not_recorded() {
    let test = "a_child_that_becomes_another_user_is_not_recorded";
    let Some(setcap) = Setcap::install(test, CAPABILITIES) else {
        return;
    };
    let python = fs::canonicalize("/usr/bin/python3").expect("Python");
    let set_user_id = setcap.gctrace().with_file_name("python-of-bob");
    fs::copy(python, &set_user_id).unwrap();
    std::os::unix::fs::chown(&set_user_id, Some(BOB), None).unwrap();
    fs::set_permissions(&set_user_id, fs::Permissions::from_mode(0o4755)).unwrap();
    let collects = |name: &str| {
        format!("import gc, os\ndef {name}(): gc.collect()\nfor n in range(20): {name}()\n")
    };
    fs::write(setcap.file("plain.py"), collects("plain_function")).unwrap();
    fs::write(setcap.file("after.py"), collects("secret_after_exec")).unwrap();
    let before = format!(
        "{}assert os.geteuid() == {BOB}\nos.setresuid({BOB}, {BOB}, {BOB})\n\
         os.execv('/usr/bin/python3', ['python3', '-I', 'after.py'])\n",
        collects("secret_before_exec")
    );
    fs::write(setcap.file("before.py"), before).unwrap();
    let script = format!(
        "python3 -I plain.py && {} -I before.py && python3 -I plain.py",
        set_user_id.display()
    );
    for options in [&["-o", "t.json"][..], &["--mode", "both", "-o", "t.json"]] {
        let output = setcap.run(ALICE, &[options, &["--", "sh", "-c", &script]].concat());
        let printed = text(&output);
        assert!(output.status.success(), "{printed}");
        assert!(printed.contains("it is not recorded"), "{printed}");
        assert!(!printed.contains("nothing lost"), "{printed}");
        let trace = fs::read_to_string(setcap.file("t.json")).unwrap();
        assert!(trace.contains("plain_function"));
        for secret in ["secret_before_exec", "secret_after_exec"] {
            assert!(!trace.contains(secret), "{secret}: {printed}");
        }
        let trace = Trace::read(&setcap.file("t.json"));
        let mut collectors: Vec<u64> = trace.pauses().iter().map(|pause| pause.pid).collect();
        collectors.sort_unstable();
        collectors.dedup();
        assert_eq!(collectors.len(), 2, "{collectors:?}");
    }
    // The command itself: it is not recorded, but it runs.
    let command = [set_user_id.to_str().unwrap(), "-I", "before.py"];
    let output =
        setcap.run(ALICE, &[&["--mode", "ebpf", "-o", "t.json", "--"], &command[..]].concat());
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("it is not recorded"), "{printed}");
    assert!(!fs::read_to_string(setcap.file("t.json")).unwrap().contains("secret"));
}

#[test]
fn a_set_user_id_gctrace_refuses_to_run() {
    let test = "a_set_user_id_gctrace_refuses_to_run";
    let Some(setcap) = Setcap::install(test, CAPABILITIES) else {
        return;
    };
    fs::set_permissions(setcap.gctrace(), fs::Permissions::from_mode(0o4755)).unwrap();
    let output = setcap.run(ALICE, &["--", "touch", "ran"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("set-user-ID"), "{}", text(&output));
    assert!(!setcap.file("ran").exists());
}
