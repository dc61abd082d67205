//! What a program can see of the agent: the same program, with and without it, does and prints the same.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use crate::apply_harness;

use apply_harness::{GARBAGE, reports};
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};
use test_kit::interpreters::{Python, interpreters};
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;

/// Runs a script after [`OPTIMIZER`], with the thresholds that it has anyway if `applies`, and a plan
/// that collects too seldom to matter. The reports come with its output.
fn run(
    python: &Python,
    applies: bool,
    script: &str,
    prepare: impl FnOnce(&mut Command),
) -> (Output, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("control"), "0").unwrap();
    let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
    if applies {
        command
            .env("LD_PRELOAD", test_kit::library::find_library().unwrap())
            .env("GCTRACE_APPLY", format!("threshold={}", own_thresholds(python)))
            .env("GCTRACE_APPLY_FOLDER", folder.path());
        if script.contains("train_step()") {
            command.env("GCTRACE_STEP_FUNCTION", "train_step");
        }
    }
    prepare(&mut command);
    let output = command.output_in_time().unwrap();
    (output, reports(folder.path()))
}

fn own_thresholds(python: &Python) -> String {
    let script = "import gc; print(*gc.get_threshold(), sep=',')";
    let output = python.command(script).output_in_time().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The outputs without and with the agent are the same; returns what was printed.
fn same(test: &str, script: &str, code: i32) {
    for python in interpreters(test) {
        let (alone, _) = run(&python, false, script, |_| ());
        assert_eq!(alone.status.code(), Some(code), "{}: {alone:?}", python.name);
        let (applied, reports) = run(&python, true, script, |_| ());
        let text = |output: &Output| {
            let all = [&*output.stdout, &*output.stderr].concat();
            String::from_utf8_lossy(&all).into_owned()
        };
        assert_eq!(text(&applied), text(&alone), "{}", python.name);
        assert_eq!(applied.status, alone.status, "{}", python.name);
        let started = |report: &&Value| report["forked"] == false;
        let report = reports.iter().find(started).unwrap();
        assert_eq!(report["failure"], Value::Null, "{}", python.name);
        assert_eq!(report["ended"], true, "{}", python.name);
    }
}

#[test]
fn the_functions_are_those_of_python() {
    let script = r"
import inspect
for i in range(9): step()
for name in ('enable', 'disable', 'set_threshold', 'freeze', 'unfreeze', 'collect', 'get_threshold'):
    function = getattr(gc, name)
    print(name, type(function), function.__module__, function.__self__ is gc, function.__doc__)
    print(sorted(dir(function)), function is getattr(gc, name))
    try: print(inspect.signature(function))
    except ValueError as error: print(error)
print(type(os._exit), os._exit.__module__, inspect.signature(os._exit))
class A:
    collect, freeze, exit = gc.collect, gc.freeze, os._exit
print(A().collect() >= 0, A().freeze(), A().collect(generation=0) >= 0, gc.get_freeze_count() > 0)
for wrong in (lambda: gc.collect(7), lambda: gc.enable(1), lambda: gc.set_threshold(), lambda: os._exit('1')):
    try: wrong()
    except Exception as error: print(repr(error))
gc.unfreeze()
gc.collect()
# One more with an entry in gc.callbacks, whatever it does.
print(gc.get_count()[0] < 2 or 'free-threading' in sys.version, gc.get_threshold(), gc.isenabled())
import _thread
_thread.start_new_thread(gc.enable, ())
time.sleep(0.05)
A().exit(5)
";
    same("the_functions_are_those_of_python", script, 5);
}

/// Frames, tracers, recursion limits, handlers of signals.
#[test]
fn no_frame_of_gctrace_is_seen() {
    let script = r"
import signal, threading
seen = set()
def trace(frame, event, argument):
    seen.add((event, frame.f_code.co_filename, frame.f_code.co_name, getattr(argument, '__name__', None)))
    return trace
class Depth:
    def __init__(self): self.me = self
    def __del__(self):
        depth, frame = 0, sys._getframe()
        while frame: depth, frame = depth + 1, frame.f_back
        print('depth', depth)
def handler(number, frame): seen.add(('signal', frame.f_code.co_filename, None, None))
signal.signal(signal.SIGALRM, handler)
sys.settrace(trace)
sys.setprofile(trace)
Depth()
gc.collect()
def train_step(): pass
for i in range(20):
    signal.raise_signal(signal.SIGALRM)
    train_step()
    gc.set_threshold(*gc.get_threshold())
sys.setprofile(None)
sys.settrace(None)
print(*sorted(map(str, seen)), sep='\n')
def deepest(depth):
    try:
        gc.collect(0)
        return deepest(depth + 1)
    except RecursionError: return depth
# An entry in gc.callbacks costs a level in 3.8.
print(sys.version_info < (3, 9) or deepest(0))
";
    same("no_frame_of_gctrace_is_seen", script, 0);
}

/// Every audit event until the last one of the process, also those of children.
#[test]
fn audit_hooks_see_nothing() {
    let script = r"
names = []
def hook(event, arguments):
    if 'gctrace' in repr(arguments): raise RuntimeError(event + repr(arguments))
    names.append(event)
    if ending: os.write(1, (event + '\n').encode())
ending = False
sys.addaudithook(hook)
def work():
    begun = time.monotonic()
    while time.monotonic() - begun < 1.2:
        step()
        time.sleep(0.05)
work()
children = []
for leaves in (True, False):
    child = os.fork()
    if child == 0:
        gc.collect()
        if leaves:
            print(sorted(set(names)), names.count('open'), flush=True)
            ending = True
            os._exit(0)
        sys.exit(0)
    print(os.waitpid(child, 0)[1])
print(sorted(set(names)), names.count('open'), flush=True)
ending = True
";
    same("audit_hooks_see_nothing", script, 0);
}

/// Signals whose handler raises, at any time of `os._exit()`: before it, the exception is raised in
/// the program's line, then the process exits.
#[test]
fn os_exit_exits() {
    let script = r"
import signal
many = [[] for _ in range(30000)]
def handler(number, frame): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
for i in range(9): step()
def leave(delay):
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        os._exit(4)
    except KeyboardInterrupt as error:
        trace, names = error.__traceback__, []
        while trace:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        os._exit(4 if names == ['leave', 'handler'] else 9)
wrong = 0
for number in range(100):
    child = os.fork()
    if child == 0: leave(0.00001 * (number + 1))
    wrong += os.waitpid(child, 0)[1] != 4 << 8
print(wrong)
";
    same("os_exit_exits", script, 0);
}

/// What ends other than by Python's own `os._exit` and `exit` is left alone.
#[test]
fn other_ends_are_the_programs_own() {
    let script = r"
import ctypes, subprocess
for i in range(9): step()
library = ctypes.CDLL(None)
def end(how):
    child = os.fork()
    if child == 0: how()
    status = os.waitpid(child, 0)[1]
    print(status, flush=True)
end(lambda: library._exit(7))
end(lambda: library.exit(8))
end(lambda: library.quick_exit(9))
end(lambda: os.abort())
end(lambda: os.execv('/bin/false', ['false']))
def killed(): raise KeyboardInterrupt
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for start in (lambda: None, None):
    # In a child that fails to start a program, by fork and by vfork.
    try: subprocess.Popen(['/no/such/program'], preexec_fn=start)
    except FileNotFoundError as error: print(error)
    print(subprocess.run(['/bin/true'], preexec_fn=start).returncode, flush=True)
";
    same("other_ends_are_the_programs_own", script, 0);
}

/// A thread that makes steps when the interpreter ends is ended by CPython, also within a collection
/// of gctrace.
#[test]
fn threads_end_with_the_interpreter() {
    let script = r"
import threading
class Slow:
    def __init__(self): self.me = self
    def __del__(self): ended or time.sleep(0.002)
# What the threads leave while another one collects is a hundred thousand at times.
ended = []
def work():
    while True:
        Slow()
        step()
        gc.collect(0)
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
ended.append(True)
";
    for python in interpreters("threads_end_with_the_interpreter") {
        for setting in ["plan:1", "freeze@step:9,plan:1", "none"] {
            let (applied, _) = run(&python, true, script, |command| {
                command.env("GCTRACE_APPLY", setting);
            });
            assert!(applied.status.success(), "{}: {applied:?}", python.name);
            assert_eq!(applied.stderr, b"", "{}", python.name);
        }
    }
}

/// A program that may not write files, and has the signal for that at its default, which ends it.
#[test]
fn a_file_size_limit_is_no_end() {
    let script = r"
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
begun = time.monotonic()
while time.monotonic() - begun < 1.3:
    step()
    time.sleep(0.02)
print(signal.sigpending())
if os.fork() == 0: os._exit(0)
print(os.wait()[1], flush=True)
os._exit(6)
";
    for python in interpreters("a_file_size_limit_is_no_end") {
        let (applied, reports) = run(&python, true, script, |command| {
            let nothing = || {
                let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // SAFETY: a limit of this process.
                match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            };
            // SAFETY: one system call.
            unsafe { command.pre_exec(nothing) };
        });
        assert_eq!(applied.status.code(), Some(6), "{}: {applied:?}", python.name);
        assert_eq!(applied.stdout, b"set()\n0\n", "{}", python.name);
        assert_eq!(reports, Vec::<Value>::new(), "{}", python.name);
    }
}

/// A program that forbids itself system calls, to be killed for them, makes none of them.
#[test]
fn a_program_that_confines_itself_lives() {
    // getppid, rename, renameat, rt_sigprocmask
    let script = r"
import ctypes, platform, struct
numbers = [110, 82, 264, 14] if platform.machine() == 'x86_64' else [173, 38, 276, 135]
lines = [(0x20, 0, 0, 0)] + [(0x15, len(numbers) - at, 0, one) for at, one in enumerate(numbers)]
lines += [(6, 0, 0, 0x7fff0000), (6, 0, 0, 0x80000000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(code))
library = ctypes.CDLL(None, use_errno=True)
for i in range(9): step()
assert library.prctl(38, 1, 0, 0, 0) == 0
assert library.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
begun = time.monotonic()
while time.monotonic() - begun < lasts:
    step()
    gc.collect(0)
    time.sleep(0.05)
print('lives', gc.get_threshold()[0], flush=True)
";
    for python in interpreters("a_program_that_confines_itself_lives") {
        // Longer than the time between two reports, and shorter.
        for (lasts, end) in [("1.2", "sys.exit(3)"), ("0.1", "os._exit(3)")] {
            let script = format!("lasts = {lasts}\n{script}{end}");
            let (applied, _) = run(&python, true, &script, |command| {
                command
                    .env("GCTRACE_APPLY", "threshold=1234,plan:5")
                    .env("GCTRACE_INJECT", format!("filters={}", own_filters()));
            });
            assert_eq!(applied.status.code(), Some(3), "{}: {applied:?}", python.name);
            assert_eq!(applied.stdout, b"lives 1234\n", "{}", python.name);
        }
    }
}

/// Without a folder the agent says a line at the end: on standard error, if that is still what it was.
#[test]
fn a_file_that_became_descriptor_2_is_left_alone() {
    let said = "sys.exit(3)";
    // A file in place of a pipe, of a closed descriptor, and after another file; a copy of what it was.
    let closed = "os.close(2)\nassert os.open('data', os.O_RDWR | os.O_CREAT) == 2\nos.write(2, b'data')\nsys.exit(3)";
    let copied =
        "os.dup2(os.open('data', os.O_RDWR | os.O_CREAT), 2)\nos.write(2, b'data')\nos._exit(3)";
    let again = "kept = os.dup(2)\nos.close(2)\nos.dup2(kept, 2)\nsys.exit(3)";
    for python in interpreters("a_file_that_became_descriptor_2_is_left_alone") {
        for (script, says, is_closed) in [
            (said, true, false),
            (again, true, false),
            (closed, false, false),
            (copied, false, false),
            (said, false, true),
            (
                "assert os.open('data', os.O_RDWR | os.O_CREAT) == 2\nos.write(2, b'data')\nsys.exit(3)",
                false,
                true,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let mut command = python.command(&format!("import os, sys\n{script}"));
            command
                .env("LD_PRELOAD", test_kit::library::find_library().unwrap())
                .env("GCTRACE_APPLY", format!("threshold={}", own_thresholds(&python)))
                .current_dir(folder.path());
            if is_closed {
                // SAFETY: one system call.
                unsafe {
                    command.pre_exec(|| {
                        libc::close(2);
                        Ok(())
                    })
                };
            }
            let output = command.output_in_time().unwrap();
            let what = format!("{} {script}: {output:?}", python.name);
            assert_eq!(output.status.code(), Some(3), "{what}");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(errors.starts_with("gctrace: process"), says, "{what}");
            assert_eq!(errors.is_empty(), !says, "{what}");
            if script.contains("data") {
                let data = std::fs::read_to_string(folder.path().join("data")).unwrap();
                assert_eq!(data, "data", "{what}");
            }
        }
    }
}

/// As gctrace has it for the library.
fn own_filters() -> u32 {
    let status = std::fs::read("/proc/self/status").unwrap();
    gctrace_ring::seccomp_filters(&status).unwrap()
}

/// A rank that is no number is unknown.
#[test]
fn strange_ranks_are_unknown() {
    for python in interpreters("strange_ranks_are_unknown") {
        for (rank, expected) in [
            ("\u{b2}", Value::Null),
            ("99999999999999999999", Value::Null),
            ("-1", Value::Null),
            ("3", 3.into()),
        ] {
            let (applied, reports) = run(&python, true, "step()", |command| {
                command.env("RANK", rank);
            });
            assert_eq!(applied.stderr, b"", "{}", python.name);
            let found = reports.first().map(|report| &report["rank"]);
            assert_eq!(found, Some(&expected), "{} {rank}", python.name);
        }
    }
}
