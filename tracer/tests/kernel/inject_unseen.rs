//! Kernel tier: what a recording in-process states about collections that it cannot see, against the
//! probes in the same run; and forked children, which have no ring until they need one.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::Path;
use test_kit::interpreters::{direct, interpreters};
use test_kit::recording;
use test_kit::recording::Trace;

/// Subinterpreters that end before the program, with and without collections of their own.
const SUBINTERPRETERS: &str = r"
import gc, sys
def module():
    for name in ('_interpreters', '_xxsubinterpreters'):
        try:
            return __import__(name)
        except ImportError:
            pass
gc.disable()
# Those of 3.8 and 3.9 call no callbacks.
interpreters = module() if sys.version_info >= (3, 10) else None
for collections in range(4) if interpreters else ():
    one = interpreters.create()
    run = getattr(interpreters, 'run_string', None) or interpreters.exec
    run(one, f'import gc; gc.disable(); [gc.collect() for _ in range({collections})]')
    interpreters.destroy(one)
gc.collect()
";

#[test]
fn all_that_probes_see_is_recorded_or_counted() {
    let test = "all_that_probes_see_is_recorded_or_counted";
    if !recording::privileged(test) {
        return;
    }
    let pythons = interpreters(test).into_iter().filter_map(|python| direct(test, python));
    for python in pythons.filter(|python| !python.is("incremental")) {
        let folder = tempfile::tempdir().unwrap();
        let inner = [recording::binary(), "record", "--mode", "inject", "-o", "inner.json", "--"];
        let program = [python.path.to_str().unwrap(), "-c", SUBINTERPRETERS];
        let outer = ["record", "--mode", "ebpf", "-o", "outer.json", "--"];
        let output = recording::gctrace(&[&outer[..], &inner, &program].concat(), folder.path());
        let [outer, inner] =
            ["outer.json", "inner.json"].map(|name| Trace::read(&folder.path().join(name)));
        inner.assert_nothing_lost();
        let seen = (outer.pauses().len(), inner.pauses().len() as u64);
        let unseen = &inner.end()["unseen"];
        let number = |name: &str| unseen[name].as_u64().unwrap();
        assert_eq!(number("uncounted"), 0, "{}: {unseen}", python.name);
        let counted = number("at_start") + number("at_end");
        assert_eq!(seen.0 as u64, seen.1 + counted, "{}: {unseen}", python.name);
        // Of the process: it is the only one.
        let processes = inner.named("gctrace_process");
        assert_eq!(&processes.last().unwrap().1["unseen"], unseen, "{}", python.name);
        let message = String::from_utf8_lossy(&output.stderr).replace("\ngctrace:   ", " ");
        let words = format!("{counted} collections not recorded: ");
        assert!(message.contains(&words), "{}: {message}", python.name);
        // The overhead is a figure.
        let probes = inner.end()["probes"].as_array().unwrap();
        let collections = probes.iter().find(|probe| probe["probe"] == "collection, in-process");
        let collections = collections.unwrap();
        assert!(collections["ns_per_hit"].as_f64() > Some(0.0), "{collections}");
    }
}

/// Children that only exit, that collect, and that first give up what they need to reach gctrace.
const CHILDREN: &str = r"
import gc, os, resource, struct, tempfile
try:
    import ctypes
except ImportError:
    ctypes = None
gc.disable()
def exits(): pass
def collects(): collect()
def as_nobody():
    os.setuid(65534)
    collect()
def in_a_jail():
    os.chroot(tempfile.gettempdir())
    collect()
def without_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    collect()
def with_little_memory():
    resource.prlimit(0, resource.RLIMIT_AS, (1 << 20, 1 << 20))
    collect()
def confined():
    # A filter that allows every call.
    allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000), 8)
    program = ctypes.create_string_buffer(struct.pack('HP', 1, ctypes.addressof(allow)))
    set_no_new_privileges, set_seccomp, filtered = 38, 22, 2
    prctl = ctypes.CDLL(None).prctl
    assert prctl(set_no_new_privileges, 1, 0, 0, 0) == 0
    assert prctl(set_seccomp, filtered, program, 0, 0) == 0
    collect()
def collect():
    for _ in range(5): gc.collect()
children = [exits, collects, as_nobody, in_a_jail, without_descriptors, with_little_memory]
for child in children + [confined] if ctypes else children:
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(pid, flush=True)
";

#[test]
fn children_are_known_before_they_have_a_ring() {
    let test = "children_are_known_before_they_have_a_ring";
    if !recording::privileged(test) {
        return;
    }
    for python in interpreters(test).into_iter().filter_map(|python| direct(test, python)) {
        let folder = tempfile::tempdir().unwrap();
        let trace = recorded(&python.path, folder.path());
        trace.0.assert_nothing_lost();
        let [exits, others @ ..] = &trace.1[..] else { panic!("{:?}", trace.1) };
        for (pid, collections) in [(exits, 0)].into_iter().chain(others.iter().map(|pid| (pid, 5)))
        {
            assert_eq!(trace.0.pauses_of(*pid).len(), collections, "{} {pid}", python.name);
            let processes = trace.0.named("gctrace_process");
            let known = processes.iter().rfind(|(of, _)| of == pid);
            let process = known.unwrap_or_else(|| panic!("{}: {pid} is unknown", python.name)).1;
            assert_eq!(process["origin"], "child", "{process}");
            assert_eq!(process["unseen"]["at_start"], 0, "{process}");
        }
    }
}

/// The trace of `CHILDREN`, and their ids.
fn recorded(python: &Path, folder: &Path) -> (Trace, Vec<u64>) {
    let command = ["record", "--mode", "inject", "-o", "trace.json", "--"];
    let program = [python.to_str().unwrap(), "-c", CHILDREN];
    let output = recording::gctrace(&[&command[..], &program].concat(), folder);
    let printed = String::from_utf8_lossy(&output.stdout);
    let pids = printed.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    (Trace::read(&folder.join("trace.json")), pids)
}

/// A program below another root directory, which has the program and its libraries, not gctrace's.
const JAIL: &str = r"
import os, shutil, subprocess, sys
program = shutil.which('printenv')
needs = subprocess.run(['ldd', program], stdout=subprocess.PIPE, universal_newlines=True, check=True)
# ldd lists what is preloaded, too.
paths = [word for word in needs.stdout.split() if word.startswith('/') and 'gctrace' not in word]
for path in [program] + paths:
    os.makedirs('jail' + os.path.dirname(path), exist_ok=True)
    shutil.copy(os.path.realpath(path), 'jail' + path)
for environment in None, dict(os.environ, LD_PRELOAD=os.environ['LD_PRELOAD'] + ':' + paths[0]):
    command = ['chroot', 'jail', program]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b''), done
    preloaded = [line for line in done.stdout.split() if line.startswith(b'LD_PRELOAD=')]
    expected = [b'LD_PRELOAD=' + paths[0].encode()] if environment else []
    assert preloaded == expected, done
    assert b'GCTRACE_RENDEZVOUS' in done.stdout, 'gctrace was not there at all'
";

#[test]
fn below_another_root_programs_start_without_a_word() {
    let test = "below_another_root_programs_start_without_a_word";
    if !recording::privileged(test) {
        return;
    }
    for python in interpreters(test).into_iter().filter_map(|python| direct(test, python)) {
        for mode in ["inject", "both"] {
            let folder = tempfile::tempdir().unwrap();
            let start = ["record", "--mode", mode, "--", python.path.to_str().unwrap()];
            let output = recording::gctrace(&[&start[..], &["-c", JAIL]].concat(), folder.path());
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{} {mode}: {message}", python.name);
        }
    }
}
