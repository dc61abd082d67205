#![expect(clippy::disallowed_methods, reason = "variables of tests, not of gctrace")]

use super::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use test_kit::limit::WithTimeout as _;

const PYTHON: &str = "/usr/bin/python3";
const PRINTS_READY: &str = "import sys; print('ready', flush=True); sys.stdin.read()";

/// A child that is killed with its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn python(program: &Path) -> Self {
        let mut python = Self::start(Command::new(program).args(["-I", "-c", PRINTS_READY]));
        python.ready();
        python
    }

    fn ready(&mut self) {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.status_in_time();
    }
}

/// Interpreters of scripts/interpreters.sh whose collector is in a shared library.
fn shared_interpreters(test: &str) -> Vec<PathBuf> {
    let manifest = std::env::var_os("GCTRACE_INTERPRETERS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.interpreters/manifest.tsv"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(&manifest).unwrap_or_default();
    let shared = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let is_shared = fields.get(2)?.split(',').any(|what| what == "shared");
        is_shared.then(|| fields.get(3).map(PathBuf::from))?
    };
    let found: Vec<PathBuf> = text.lines().filter_map(shared).collect();
    if found.is_empty() {
        eprintln!(
            "skipped {test}: no interpreter with a shared library in {}; scripts/interpreters.sh makes it",
            manifest.display()
        );
    }
    found
}

/// The libpython that an interpreter has mapped.
fn library(pid: u32) -> PathBuf {
    let found = maps::candidates(pid).unwrap();
    let named = |path: &PathBuf| path.to_string_lossy().contains("libpython3.");
    found.into_iter().map(|one| one.lowest.path).find(named).unwrap()
}

#[test]
fn python_is_reported_once_and_other_programs_never() {
    let python = Running::python(Path::new(PYTHON));
    let other = Running::start(Command::new("cat").arg("-"));
    let mut discovery = ProcessDiscovery::new(None);
    let found = discovery.scan();
    assert!(found.contains(&python.pid()), "{found:?}");
    for not in [other.pid(), std::process::id(), 1] {
        assert!(!found.contains(&not), "{not} in {found:?}");
    }
    let later = Instant::now() + Duration::from_secs(30);
    assert!(!discovery.scan_at(later).contains(&python.pid()));
    assert!(discovery.known.contains_key(&python.pid()));
    let gone = python.pid();
    drop(python);
    discovery.scan();
    assert!(!discovery.known.contains_key(&gone));
    let next = Running::python(Path::new(PYTHON));
    assert!(discovery.scan().contains(&next.pid()));
}

#[test]
fn interpreters_in_shared_libraries_are_found() {
    for program in shared_interpreters("interpreters_in_shared_libraries_are_found") {
        let python = Running::python(&program);
        let found = ProcessDiscovery::new(None).scan();
        assert!(found.contains(&python.pid()), "{}", program.display());
    }
}

#[test]
fn a_process_that_becomes_python_later_is_found() {
    let script = format!("echo ready; read line; exec {PYTHON} -I -c \"{PRINTS_READY}\"");
    let mut shell = Running::start(Command::new("sh").args(["-c", &script]));
    shell.ready();
    let mut discovery = ProcessDiscovery::new(None);
    assert!(!discovery.scan().contains(&shell.pid()));
    // However often it was examined, it is seen at once, as a shim must be.
    let now = Instant::now();
    for seconds in [1, 2, 10, 30] {
        let found = discovery.scan_at(now + Duration::from_secs(seconds));
        assert!(!found.contains(&shell.pid()));
    }
    shell.go_on();
    shell.ready();
    let next = now + Duration::from_secs(31);
    assert!(discovery.scan_at(next).contains(&shell.pid()));
    assert!(!discovery.scan_at(next).contains(&shell.pid()));
}

#[test]
fn a_program_that_loads_libpython_late_is_found() {
    let test = "a_program_that_loads_libpython_late_is_found";
    // Those after the first may need another C library than perl has loaded.
    let Some(program) = shared_interpreters(test).into_iter().next() else {
        return;
    };
    let library = library(Running::python(&program).pid());
    // Loaded globally, for the modules that it needs refer to it; perl's base package can load any
    // library.
    let script = "$| = 1; print qq(ready\\n); <STDIN>; require DynaLoader; \
                  DynaLoader::dl_load_file($ARGV[0], 1) or die DynaLoader::dl_error(); print qq(ready\\n); <STDIN>";
    let perl = Path::new("/usr/bin/perl");
    if !perl.exists() {
        eprintln!("skipped {test}: no perl to load the library");
        return;
    }
    let mut host = Running::start(Command::new(perl).args(["-e", script]).arg(&library));
    host.ready();
    let mut discovery = ProcessDiscovery::new(None);
    assert!(!discovery.scan().contains(&host.pid()));
    host.go_on();
    host.ready();
    let later = Instant::now() + Duration::from_secs(3);
    assert!(discovery.scan_at(later).contains(&host.pid()));
}

#[test]
fn only_processes_of_the_requested_user_are_reported() {
    let user = nix::unistd::geteuid();
    let python = Running::python(Path::new(PYTHON));
    assert!(ProcessDiscovery::new(Some(user.as_raw())).scan().contains(&python.pid()));
    assert!(!ProcessDiscovery::new(Some(user.as_raw() + 1)).scan().contains(&python.pid()));
    if !user.is_root() {
        eprintln!(
            "skipped a part of only_processes_of_the_requested_user..: another user needs root"
        );
        return;
    }
    let mut other_user = Command::new(PYTHON);
    let mut other_user = Running::start(other_user.uid(65534).args(["-I", "-c", PRINTS_READY]));
    other_user.ready();
    assert!(ProcessDiscovery::new(Some(65534)).scan().contains(&other_user.pid()));
}

#[test]
fn zombies_and_kernel_threads_are_not_examined_again() {
    let mut zombie = Command::new("true").spawn().unwrap();
    while std::fs::metadata(proc_status::executable_link(zombie.id())).is_ok() {
        std::thread::yield_now();
    }
    let mut discovery = ProcessDiscovery::new(None);
    assert!(!discovery.scan().contains(&zombie.id()));
    let settled = |pid: u32| matches!(discovery.known[&pid].state, ScanState::Settled);
    assert!(settled(zombie.id()));
    if proc_status::thread_name(2, 2).is_ok_and(|name| name == "kthreadd") {
        assert!(settled(2));
    }
    zombie.status_in_time().unwrap();
}

#[test]
fn old_processes_are_examined_a_few_at_a_time() {
    let now = Instant::now();
    let mut discovery = ProcessDiscovery::new(None);
    let waiting = |looked, age| ScannedProcess {
        inode: 0,
        started_ns: 0,
        state: ScanState::Waiting { due: now - Duration::from_secs(age), looked, program: None },
    };
    for pid in 0..1000 {
        discovery.known.insert(pid, waiting(4, 1 + u64::from(pid)));
    }
    for pid in 1000..1500 {
        discovery.known.insert(pid, waiting(1, 1));
    }
    let due = discovery.waited(now);
    assert_eq!(due.len(), OLD_PROCESSES_PER_SCAN + 500);
    assert!((900..1500).all(|pid| due.contains(&pid)), "longest waiting first");
}

/// Figures for docs/evidence.md: `cargo test --release -p gctrace --bin gctrace -- --ignored
/// --nocapture cost_of_a_scan`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_scan() {
    let sleepers: Vec<Running> =
        (0..2000).map(|_| Running::start(Command::new("sleep").arg("1000"))).collect();
    let mut discovery = ProcessDiscovery::new(None);
    let start = Instant::now();
    for look in 0..40 {
        let before = cpu_time();
        let found = discovery.scan_at(start + Duration::from_secs(look)).len();
        let took = cpu_time() - before;
        let known = discovery.known.len();
        println!("scan {look}: {took:?} of CPU time, {found} found, {known} known");
    }
    drop(sleepers);
}

fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}
