//! Kernel tier: attaching, ending, being killed, full disks, privileges. gctrace never breaks the
//! program.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

/// These tests count the BPF programs of the whole machine: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits for the file `go`, collects 30 times, writes `done`, waits for `stop`.
const ON_DEMAND: &str = "
import gc, os, time
gc.disable()
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.005)
for _ in range(30): gc.collect()
open('done', 'w').close()
while not os.path.exists('stop'): time.sleep(0.005)
os._exit(7)
";

fn touch(place: &Path, name: &str) {
    fs::write(place.join(name), "").unwrap();
}

fn wait_for(place: &Path, name: &str) {
    recording::wait_until(name, || place.join(name).exists());
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
}

fn start(place: &Path, arguments: &[&str]) -> Child {
    Command::new(recording::binary())
        .args(arguments)
        .current_dir(place)
        .stderr(fs::File::create(place.join("messages")).unwrap())
        .spawn()
        .unwrap()
}

/// gctrace's BPF programs that are loaded on this machine.
fn loaded_programs() -> usize {
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|program| program.name.to_string_lossy() == "at_entry")
        .count()
}

fn no_probe_is_left() {
    recording::wait_until("all probes gone", || loaded_programs() == 0);
}

#[test]
fn attaching_records_and_detaches_cleanly() {
    let _alone = ALONE.lock();
    let Some((python, place)) = recording::place_for("attaching_records_and_detaches_cleanly")
    else {
        return;
    };
    let place = place.path();
    let mut program =
        Command::new(python).args(["-c", ON_DEMAND]).current_dir(place).spawn().unwrap();
    wait_for(place, "ready");
    let mut gctrace = start(place, &["record", "-p", &program.id().to_string()]);
    let trace = place.join("trace.json");
    recording::wait_until("attached", || {
        fs::read_to_string(&trace).is_ok_and(|text| text.contains("found_by"))
    });
    touch(place, "go");
    wait_for(place, "done");
    signal(&gctrace, Signal::SIGINT);
    assert_eq!(gctrace.status_in_time().unwrap().code(), Some(0));
    no_probe_is_left();
    let trace = Trace::read(&trace);
    trace.assert_nothing_lost();
    let pauses = trace.pauses_of(u64::from(program.id()));
    assert_eq!(pauses.iter().filter(|pause| pause.reason == "manual").count(), 30);
    assert!(program.try_wait().unwrap().is_none(), "the process keeps running");
    touch(place, "stop");
    assert_eq!(program.status_in_time().unwrap().code(), Some(7));
}

#[test]
fn attaching_ends_after_its_time_and_with_the_process() {
    let _alone = ALONE.lock();
    let Some((python, place)) =
        recording::place_for("attaching_ends_after_its_time_and_with_the_process")
    else {
        return;
    };
    let place = place.path();
    let mut program =
        Command::new(python).args(["-c", ON_DEMAND]).current_dir(place).spawn().unwrap();
    wait_for(place, "ready");
    let pid = program.id().to_string();
    let timed = start(place, &["record", "-p", &pid, "-d", "0.2"]).status_in_time().unwrap();
    assert_eq!(timed.code(), Some(0));
    assert_eq!(
        Trace::read(&place.join("trace.json")).end()["why"],
        "the duration given with -d elapsed"
    );
    let mut to_the_end = start(place, &["record", "-p", &pid, "-o", "end.json"]);
    let trace = place.join("end.json");
    recording::wait_until("attached", || {
        fs::read_to_string(&trace).is_ok_and(|text| text.contains("found_by"))
    });
    touch(place, "go");
    touch(place, "stop");
    program.status_in_time().unwrap();
    assert_eq!(to_the_end.status_in_time().unwrap().code(), Some(0));
    assert_eq!(Trace::read(&trace).end()["why"], "the process ended");
    assert_eq!(Trace::read(&trace).pauses().len(), 30);
}

#[test]
fn attaching_to_a_process_without_python_fails() {
    let _alone = ALONE.lock();
    let test = "attaching_to_a_process_without_python_fails";
    let Some((_, place)) = recording::place_for(test) else {
        return;
    };
    let mut program = Command::new("sleep").arg("2").spawn().unwrap();
    let pid = program.id().to_string();
    let output = recording::gctrace(&["record", "-p", &pid, "-o", "t.json"], place.path());
    program.status_in_time().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(messages.contains("no Python ran"), "{messages}");
}

#[test]
fn killed_gctrace_leaves_the_program_running_and_a_readable_trace() {
    let _alone = ALONE.lock();
    let Some((python, place)) =
        recording::place_for("killed_gctrace_leaves_the_program_running_and_a_readable_trace")
    else {
        return;
    };
    let place = place.path();
    let mut gctrace = start(place, &["--", python.to_str().unwrap(), "-c", ON_DEMAND]);
    wait_for(place, "ready");
    touch(place, "go");
    wait_for(place, "done");
    let trace = place.join("trace.json");
    recording::wait_until("the pauses are on disk", || {
        fs::read_to_string(&trace).is_ok_and(|text| text.matches("\"manual\"").count() >= 30)
    });
    signal(&gctrace, Signal::SIGKILL);
    gctrace.status_in_time().unwrap();
    no_probe_is_left();
    assert_eq!(
        Trace::read(&trace).pauses().iter().filter(|pause| pause.reason == "manual").count(),
        30
    );
    touch(place, "stop");
    recording::wait_until("the program ended", || processes_with(place).is_empty());
}

/// Processes whose working directory is this folder: state and pid.
fn processes_with(place: &Path) -> Vec<(char, u32)> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let here = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == place);
    let state = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((stat.rsplit_once(") ")?.1.chars().next()?, pid))
    };
    pids.filter(here).filter_map(state).filter(|(state, _)| *state != 'Z').collect()
}

/// How long gctrace and its command take here, undisturbed.
fn time_of_a_whole_run(line: &str) -> Duration {
    let place = tempfile::tempdir().unwrap();
    let begin = std::time::Instant::now();
    let mut gctrace = start(place.path(), &["--", "sh", "-c", line]);
    gctrace.status_in_time().unwrap();
    begin.elapsed()
}

/// gctrace is killed at every stage of its start; whatever it had started or stopped runs to its
/// end.
#[test]
fn killed_at_any_time_leaves_nothing_stopped() {
    let _alone = ALONE.lock();
    let Some((python, _)) = recording::place_for("killed_at_any_time_leaves_nothing_stopped")
    else {
        return;
    };
    let line = format!("touch started; exec {} -c 'open(\"ended\", \"w\")'", python.display());
    let whole = time_of_a_whole_run(&line);
    let (mut started, mut ended) = (0, 0);
    for step in 0..=40 {
        let place = tempfile::tempdir().unwrap();
        let mut gctrace = start(place.path(), &["--", "sh", "-c", &line]);
        std::thread::sleep(whole * step / 40);
        signal(&gctrace, Signal::SIGKILL);
        gctrace.status_in_time().unwrap();
        recording::wait_until("the command's end", || {
            processes_with(&place.path().canonicalize().unwrap()).is_empty()
        });
        started += usize::from(place.path().join("started").exists());
        ended += usize::from(place.path().join("ended").exists());
    }
    eprintln!("{started} commands had started, {ended} ended");
    assert_eq!(started, ended, "what had started ran to its end");
    assert!(started > 0, "no kill came late enough");
    no_probe_is_left();
}

#[test]
fn the_exit_code_is_the_commands() {
    let _alone = ALONE.lock();
    let Some((python, place)) = recording::place_for("the_exit_code_is_the_commands") else {
        return;
    };
    let run = |arguments: &[&str]| recording::gctrace(arguments, place.path()).status.code();
    assert_eq!(run(&["--", python.to_str().unwrap(), "-c", "raise SystemExit(42)"]), Some(42));
    assert_eq!(run(&["--", "sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(run(&["--", "./no-such-command"]), Some(127));
    touch(place.path(), "not-executable");
    assert_eq!(run(&["--", "./not-executable"]), Some(126));
}

#[test]
fn a_signal_for_gctrace_reaches_the_command() {
    let _alone = ALONE.lock();
    let Some((python, place)) = recording::place_for("a_signal_for_gctrace_reaches_the_command")
    else {
        return;
    };
    let script = recording::scripts().join("signals.py");
    let line = [
        "--",
        python.to_str().unwrap(),
        script.to_str().unwrap(),
        "log",
        "--exit",
        "5",
        "--end-after",
        "1",
    ];
    let mut gctrace = start(place.path(), &line);
    let log = place.path().join("log");
    recording::wait_until("ready", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
    });
    signal(&gctrace, Signal::SIGTERM);
    assert_eq!(gctrace.status_in_time().unwrap().code(), Some(5));
    assert!(fs::read_to_string(&log).unwrap().contains("SIGTERM"));
    Trace::read(&place.path().join("trace.json")).assert_nothing_lost();
}

/// A small file system of its own; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=400k", "gctrace-test"])
            .arg(place.path())
            .status_in_time();
        mounted.is_ok_and(|status| status.success()).then_some(Self(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status_in_time();
    }
}

#[test]
fn a_full_disk_ends_the_recording_not_the_command() {
    let _alone = ALONE.lock();
    let Some((python, place)) =
        recording::place_for("a_full_disk_ends_the_recording_not_the_command")
    else {
        return;
    };
    let Some(disk) = SmallDisk::mount() else {
        eprintln!(
            "skipped a_full_disk_ends_the_recording_not_the_command: no tmpfs can be mounted here"
        );
        return;
    };
    let trace = disk.0.path().join("trace.json");
    let code = "import gc, time\nfor _ in range(20): [gc.collect(0) for _ in range(500)]; time.sleep(0.02)\nopen('ended', 'w'); raise SystemExit(3)";
    let line = ["-o", trace.to_str().unwrap(), "--", python.to_str().unwrap(), "-c", code];
    let output = recording::gctrace(&line, place.path());
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{messages}");
    assert!(messages.contains("no space left"), "{messages}");
    assert!(place.path().join("ended").exists(), "the command ran to its end");
    let recorded = Trace::read(&trace).pauses().len();
    assert!(recorded > 100 && recorded < 10_000, "{recorded}");
}

/// With file capabilities an ordinary user records; except where probes are perf events, which may
/// take CAP_SYS_ADMIN.
#[test]
fn capabilities_on_the_binary_are_enough() {
    let _alone = ALONE.lock();
    let Some((python, place)) = recording::place_for("capabilities_on_the_binary_are_enough")
    else {
        return;
    };
    let binary = place.path().join("gctrace");
    fs::copy(recording::binary(), &binary).unwrap();
    let capable = Command::new("setcap")
        .arg("cap_bpf,cap_perfmon+ep")
        .arg(&binary)
        .stderr(Stdio::null())
        .status_in_time();
    if !capable.is_ok_and(|status| status.success()) {
        eprintln!("skipped capabilities_on_the_binary_are_enough: setcap does not work here");
        return;
    }
    Command::new("chmod").arg("777").arg(place.path()).status_in_time().unwrap();
    let code = "import gc, os\nassert os.getuid() == 65534\nfor _ in range(30): gc.collect()";
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(&binary)
        .args(["--", python.to_str().unwrap(), "-c", code])
        .current_dir(place.path())
        .output_in_time()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    if !gctrace_ebpf::KernelSupport::probe().uprobe_multi && messages.contains("CAP_SYS_ADMIN") {
        assert!(messages.contains("sudo"), "{messages}");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    assert_eq!(trace.pauses().iter().filter(|pause| pause.reason == "manual").count(), 30);
    trace.assert_nothing_lost();
}

#[test]
fn without_privileges_the_message_contains_the_commands() {
    let _alone = ALONE.lock();
    let Some((_, place)) =
        recording::place_for("without_privileges_the_message_contains_the_commands")
    else {
        return;
    };
    Command::new("chmod").arg("755").arg(place.path()).status_in_time().unwrap();
    let binary = place.path().join("gctrace");
    fs::copy(recording::binary(), &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(&binary)
        .args(["--", "true"])
        .current_dir("/tmp")
        .output_in_time()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let messages = String::from_utf8_lossy(&output.stderr);
    for part in ["CAP_BPF", "CAP_PERFMON", "sudo ", "setcap "] {
        assert!(messages.contains(part), "{part} is in: {messages}");
    }
}

/// With few descriptors gctrace starts, and with some number finds the interpreter but cannot probe
/// it.
#[test]
fn an_interpreter_that_cannot_be_probed_is_reported() {
    let test = "an_interpreter_that_cannot_be_probed_is_reported";
    let _alone = ALONE.lock();
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let mut met = false;
    for limit in 40..64 {
        let line = format!(
            "ulimit -n {limit}; exec {} --mode ebpf -- {} -c 'import gc; gc.collect()'",
            recording::binary(),
            python.display()
        );
        let output = Command::new("sh")
            .args(["-c", &line])
            .current_dir(place.path())
            .env_remove("SUDO_UID")
            .output_in_time()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        if messages.contains("found but not probed") {
            met = true;
            assert!(
                messages.contains("1 process ran a Python that could not be probed"),
                "{limit}: {messages}"
            );
        }
    }
    if !met {
        eprintln!(
            "skipped {test}: no number of descriptors is enough to start and too small to probe"
        );
    }
}
