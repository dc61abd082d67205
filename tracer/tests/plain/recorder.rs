//! `gctrace record --keep` in-process: what it keeps is readable, and with what it has deleted it is all that
//! CPython counted.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::wait_until;

/// Collects until it is told to end; then CPython's own count is in `truth.json`.
const PROGRAM: &str = "import gc, json, os, time
gc.disable()
# A directory that was removed is empty.
while os.listdir('.') and not os.path.exists('stop'):
    if os.path.exists('long'):
        os.remove('long')
        data = [[n] for n in range(3_000_000)]
    gc.collect(2 if len(os.listdir('.')) % 7 == 0 else 0)
    time.sleep(0.005)
with open('truth.new', 'w') as file:
    json.dump(sum(of['collections'] for of in gc.get_stats()), file)
os.rename('truth.new', 'truth.json')
";

/// A recorder and its command.
struct Recorder {
    place: tempfile::TempDir,
    gctrace: Child,
}

impl Recorder {
    fn start(options: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let gctrace = Command::new(recording::binary())
            .args(["record", "--mode", "inject", "--keep", "1s", "-o", "ring"])
            .args(options)
            .args(["--", "python3", "-c", PROGRAM])
            .current_dir(place.path())
            .env_remove("SUDO_UID")
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        Self { place, gctrace }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn wait_for(&self, name: &str) {
        wait_until(name, || self.path(name).exists());
    }

    /// Waits until the first segments were deleted.
    fn wait_until_deleted(&self) {
        self.wait_for("ring/000012.json.zst");
        wait_until("a deletion", || !self.path("ring/000001.json.zst").exists());
    }

    /// Ends the command; how gctrace ended.
    fn end(&mut self) -> Output {
        std::fs::write(self.path("stop"), "").unwrap();
        self.wait_for("truth.json");
        let mut printed = Vec::new();
        if let Some(mut stderr) = self.gctrace.stderr.take() {
            std::io::Read::read_to_end(&mut stderr, &mut printed).unwrap();
        }
        let status = self.gctrace.status_in_time().unwrap();
        Output { status, stdout: Vec::new(), stderr: printed }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        recording::gctrace(arguments, self.place.path())
    }

    fn report(&self, trace: &str) -> Value {
        let output = self.run(&["analyze", "--format", "json", trace]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = std::fs::write(self.path("stop"), "");
        let _ = self.gctrace.kill();
        let _ = self.gctrace.wait();
    }
}

fn number(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// All collections that a report knows of.
fn collections(report: &Value) -> u64 {
    [
        "/totals/pauses/count",
        "/missing/deleted/pauses/count",
        "/missing/unseen/at_start",
        "/missing/unseen/at_end",
        "/missing/omitted/count",
    ]
    .into_iter()
    .map(|path| number(report, path))
    .sum()
}

fn truth(place: &Path) -> u64 {
    recording::json(&place.join("truth.json")).as_u64().unwrap()
}

#[test]
fn the_last_part_is_kept_and_everything_is_counted() {
    let mut recorder = Recorder::start(&["--on-pause", "40ms"]);
    recorder.wait_until_deleted();
    // Asked for by a signal, by the command, and by a long pause.
    let pid = nix::unistd::Pid::from_raw(recorder.gctrace.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR2).unwrap();
    recorder.wait_for("ring/kept-1");
    let asked = recorder.run(&["dump", "--keep", "ring"]);
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "ring/kept-2\n", "{asked:?}");
    if nix::unistd::Uid::effective().is_root() {
        let pid = number(&recorder.report("ring/kept-2"), "/processes/0/pid").to_string();
        let dump = recorder.run(&["dump", "-p", &pid, "--format", "json"]);
        let dump: Value = serde_json::from_slice(&dump.stdout).unwrap();
        assert!(number(&dump, "/recorded/pauses/4/duration_ns") > 0, "{dump}");
    }
    std::fs::write(recorder.path("long"), "").unwrap();
    recorder.wait_for("ring/kept-3");
    let reason = std::fs::read_to_string(recorder.path("ring/kept-3/reason.txt")).unwrap();
    assert!(reason.contains("a pause of "), "{reason}");
    let kept = recorder.report("ring/kept-3");
    assert!(number(&kept, "/totals/pauses/max_ns") >= 40_000_000, "{}", kept["totals"]);
    let twice =
        recorder.run(&["record", "--mode", "inject", "--keep", "1s", "-o", "ring", "--", "true"]);
    let refused = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(refused.contains("is being written by another gctrace"), "{refused}");

    let output = recorder.end();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("Next: gctrace analyze ring"), "{printed}");
    let report = recorder.report("ring");
    let (all, truth) = (collections(&report), truth(recorder.place.path()));
    assert!(
        (truth..=truth + 5).contains(&all),
        "{all} of {truth}, and those at the end: {printed}"
    );
    assert!(number(&report, "/missing/deleted/segments") >= 1);
    assert_eq!(report.pointer("/missing/lost"), Some(&serde_json::json!({})));
    // Every command takes the directory.
    for arguments in [
        &["analyze", "--full", "ring"][..],
        &["compare", "ring/kept-1", "ring"],
        &["report", "ring", "-o", "page.html"],
        &["export", "ring", "--format", "svg", "-o", "flame.svg"],
        &["export", "ring", "-o", "timeline.pftrace"],
    ] {
        let output = recorder.run(arguments);
        assert!(matches!(output.status.code(), Some(0)), "{arguments:?}: {output:?}");
    }
    let summarized = recorder.run(&["summarize", "ring", "-o", "summaries"]);
    assert_eq!(summarized.status.code(), Some(0), "{summarized:?}");
    let of_summary = recorder.report("summaries");
    for part in ["totals", "missing", "processes", "phases"] {
        assert_eq!(of_summary[part], report[part], "{part}");
    }
    let again = recorder.run(&["summarize", "ring", "-o", "summaries"]);
    let again = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.contains("0 new, 1 complete before"), "{again}");
    let full = recorder.run(&["analyze", "--full", "ring"]);
    let full = String::from_utf8_lossy(&full.stdout).into_owned();
    assert!(full.contains("counted exactly, in no other figure"), "{full}");
    // What a kill between two segments leaves has no end, whatever its last line.
    let kept = recorder.report("ring/kept-1");
    assert_eq!(number(&kept, "/missing/traces_without_end"), 0);
    std::fs::write(recorder.path("ring/kept-1/999999.json.zst"), "").unwrap();
    let killed = recorder.report("ring/kept-1");
    assert_eq!(number(&killed, "/missing/traces_without_end"), 1);
    assert_eq!(number(&killed, "/totals/pauses/count"), number(&kept, "/totals/pauses/count"));
    // What is no file is not opened, and nothing waits for it.
    std::fs::copy(recorder.path("ring/recorder.lock"), recorder.path("ring/999997.json.zst"))
        .unwrap();
    nix::unistd::mkfifo(&recorder.path("ring/999998.json.zst"), nix::sys::stat::Mode::S_IRWXU)
        .unwrap();
    let odd = recorder.run(&["analyze", "ring"]);
    let printed = String::from_utf8_lossy(&odd.stderr).into_owned();
    assert!(printed.contains("999998.json.zst"), "{odd:?}");
    assert!(!printed.contains("999997.json.zst"), "{odd:?}");
    assert!(String::from_utf8_lossy(&odd.stdout).contains("counted exactly"), "{odd:?}");
    let none = recorder.run(&["dump", "--keep", "ring"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("no gctrace records into ring"));
}

#[test]
fn what_a_kill_leaves_is_readable_and_the_next_recording_keeps_it() {
    for (options, counted) in [
        (&[][..], "/totals/pauses/count"),
        // The last line has the sums of what is left out; here there is none.
        (&["--min-pause", "10s"][..], "/missing/omitted/count"),
    ] {
        let mut recorder = Recorder::start(options);
        recorder.wait_until_deleted();
        recorder.gctrace.kill().unwrap();
        recorder.gctrace.wait().unwrap();
        let killed = recorder.report("ring");
        assert_eq!(number(&killed, "/missing/traces_without_end"), 1);
        assert!(number(&killed, counted) > 0, "{}", killed["missing"]);
        let counted = collections(&killed);
        std::fs::write(recorder.path("stop"), "").unwrap();
        recorder.wait_for("truth.json");
        assert!(counted <= truth(recorder.place.path()));
        let next = recorder.run(&[
            "record", "--mode", "inject", "--keep", "1s", "-o", "ring", "--", "python3", "-c", "",
        ]);
        let printed = String::from_utf8_lossy(&next.stderr).into_owned();
        assert!(printed.contains("the recording before is now in ring/kept-1"), "{printed}");
        assert_eq!(collections(&recorder.report("ring/kept-1")), counted);
    }
}

/// Has a lock on a file for reading and writing, with a name of its own, until it is killed.
const LOCKED: &str = "import ctypes, fcntl, signal, sys, time
path, name, blocks = sys.argv[1:]
ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
if blocks == 'yes':
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
file = open(path, 'r+')
fcntl.lockf(file, fcntl.LOCK_EX)
print('locked', flush=True)
time.sleep(1000)
";

/// A process that has a lock, as this user or as another.
struct LockHolder(Child);

impl LockHolder {
    fn start(path: &Path, name: &str, blocks: &str, user: Option<u32>) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-I", "-c", LOCKED]).arg(path).args([name, blocks]);
        if let Some(user) = user {
            command.uid(user);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Self(child)
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `gctrace dump --keep` signals a recorder of that directory, and no other process, whatever is in the directory.
#[test]
fn only_a_recorder_is_asked_to_keep() {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (ring, lock) = (place.path().join("ring"), place.path().join("ring/recorder.lock"));
    std::fs::create_dir(&ring).unwrap();
    let refused = |why: &str| {
        let output = recording::gctrace(&["dump", "--keep", "ring"], place.path());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(why), "{why}: {printed}");
    };
    let other = place.path().join("daemon.pid");
    std::fs::write(&other, "").unwrap();
    let mut daemon = LockHolder::start(&other, "daemon", "no", None);
    refused("No such file");
    symlink(&other, &lock).unwrap();
    refused("recorder.lock is not a file of user");
    std::fs::remove_file(&lock).unwrap();
    std::fs::hard_link(&other, &lock).unwrap();
    refused("has other names");
    // The only name, of a process that is no gctrace.
    std::fs::remove_file(&other).unwrap();
    refused("is no recorder: it is daemon");
    std::fs::remove_file(&lock).unwrap();
    nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused("recorder.lock is not a file of user");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    refused("recorder.lock is not a file of user");
    std::fs::remove_dir(&lock).unwrap();
    assert!(daemon.lives());
    // It calls itself gctrace: the signal would end it.
    std::fs::write(&lock, "").unwrap();
    let mut named = LockHolder::start(&lock, "gctrace", "no", None);
    refused("does not expect SIGUSR2");
    assert!(named.lives());
    drop(named);
    refused("no gctrace records into ring");
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    chown(&ring, Some(61_303), None).unwrap();
    refused("the directory is of user 61303, but recorder.lock of user 0");
    chown(&ring, Some(0), None).unwrap();
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o666)).unwrap();
    let mut stranger = LockHolder::start(&lock, "gctrace", "yes", Some(61_303));
    refused("it runs as user 61303");
    assert!(stranger.lives());
    // No recording goes into the directory of another user, either.
    drop(stranger);
    chown(&ring, Some(61_303), None).unwrap();
    let record = ["record", "--mode", "inject", "--keep", "1s", "-o", "ring", "--", "true"];
    let output = recording::gctrace(&record, place.path());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("is a directory of another user"), "{printed}");
}

/// What another user's process offers as pauses is not read; what a trusted recorder has, up to a bound.
#[test]
fn only_recorders_that_are_trusted_answer_and_only_for_a_while() {
    use std::os::unix::fs::chown;
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!(
            "skipped only_recorders_that_are_trusted_answer_and_only_for_a_while: it needs root"
        );
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let (lock, segment) =
        (place.path().join("recorder.lock"), place.path().join("000001.json.zst"));
    let program = "import gc, time; gc.collect(); print('up', flush=True); time.sleep(1000)";
    let mut looked_at = Command::new("/usr/bin/python3");
    looked_at.args(["-I", "-c", program]).stdout(Stdio::piped());
    let mut looked_at = LockHolder(looked_at.spawn().unwrap());
    std::io::Read::read_exact(looked_at.0.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
    let pid = looked_at.0.id();
    let dump = || {
        let dump = ["dump", "-p", &pid.to_string(), "--format", "json"];
        let output = recording::gctrace(&dump, place.path());
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(number(&json, "/pid"), u64::from(pid), "{output:?}");
        (json["recorded"].clone(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let trace = format!(
        r#"{{"traceEvents":[
{{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":0,"args":{{"format":"gctrace.trace/1","started_ns":0,"command":["python"]}}}},
{{"ph":"M","name":"gctrace_process","pid":{pid},"tid":{pid},"ts":0.000,"args":{{"origin":"launched","command":["python"]}}}},
{{"ph":"X","cat":"gc","name":"gc gen2","pid":{pid},"tid":{pid},"ts":1.000,"dur":5.000,"args":{{"generation":2,"reason":"automatic","collected":3}}}}
]}}
"#
    );
    std::fs::write(&segment, trace).unwrap();
    std::fs::write(&lock, "").unwrap();
    let ring = |user: u32| {
        for path in [place.path(), &lock, &segment] {
            chown(path, Some(user), None).unwrap();
        }
    };
    let holder = LockHolder::start(&lock, "gctrace", "yes", None);
    let (recorded, _) = dump();
    assert!(recorded["pauses"][0]["duration_ns"].is_u64(), "root's recorder: {recorded}");
    drop(holder);
    ring(61_303);
    let holder = LockHolder::start(&lock, "gctrace", "yes", Some(61_303));
    assert_eq!(dump().0, Value::Null, "another user's");
    drop(holder);
    let holder = LockHolder::start(&lock, "gctrace", "yes", None);
    assert_eq!(dump().0, Value::Null, "another user's directory");
    drop(holder);
    // Some hours of reading.
    ring(0);
    let script = "import gzip, sys
with open(sys.argv[1], 'wb') as file:
    file.write(gzip.compress(b'{\"traceEvents\":[\\n'))
    part = gzip.compress(b'{},' * (8 << 20))
    for _ in range(60):
        file.write(part)
";
    let mut bomb = Command::new("/usr/bin/python3");
    assert!(bomb.args(["-I", "-c", script]).arg(&segment).status_in_time().unwrap().success());
    let holder = LockHolder::start(&lock, "gctrace", "yes", None);
    let (recorded, printed) = dump();
    assert_eq!(recorded, Value::Null, "{printed}");
    assert!(printed.contains("too much to read: gctrace analyze"), "{printed}");
    drop(holder);
}
