//! The program's functions that collections call, against what the program measures of them itself.

use gctrace_ring::{InjectOptions, RingCalled};
use std::collections::BTreeMap;
use test_kit::interpreters::interpreters;
use test_kit::preload::{SeenRecords, run};

/// Calls and time of each function, by kind and name.
fn sums(ring: &SeenRecords) -> BTreeMap<(bool, String), (u64, u64)> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for ((function, _, _), called) in ring.called() {
        let name = function.rsplit('.').next().unwrap_or_default().to_owned();
        let sum = sums.entry((called.is_callback, name)).or_default();
        sum.0 += u64::from(called.calls);
        sum.1 += called.time_ns;
    }
    sums
}

/// Functions of all kinds that take time and sum it up by themselves: name, calls and ns, a line
/// each.
const SCRIPT: &str = r"
import gc, sys, threading, time, weakref
gc.disable()
sums = {}
def note(name, since):
    calls, ns = sums.get(name, (0, 0))
    sums[name] = (calls + 1, ns + time.monotonic_ns() - since)
def deep(depth):
    return depth and deep(depth - 1)
class Node:
    def __init__(self): self.me = self
class Session(Node):
    def __del__(self):
        since = time.monotonic_ns()
        deep(200)
        sum(range(20_000))
        note('__del__', since)
def watched(reference):
    since = time.monotonic_ns()
    time.sleep(0.002)
    note('watched', since)
def suspended():
    since = None
    try:
        me = yield
        yield me
    finally:
        since = time.monotonic_ns()
        sum(range(1_000))
        note('suspended', since)
def first(phase, info):
    since = time.monotonic_ns()
    sum(range(10_000))
    note('first', since)
class Tool:
    def method(self, phase, info):
        since = time.monotonic_ns()
        sum(range(10_000))
        note('method', since)
    def __call__(self, phase, info):
        since = time.monotonic_ns()
        note('__call__', since)
tool = Tool()
gc.callbacks.append(first)
gc.callbacks.append(tool.method)
gc.callbacks.append(tool)


running = True
def other():
    while running: deep(3)
thread = threading.Thread(target=other)
thread.start()
def unrelated(): return deep(1)
for _ in range(20):
    for _ in range(3): Session()
    node = Node()
    kept = weakref.ref(node, watched)
    del node
    generator = suspended()
    next(generator)
    generator.send(generator)
    del generator
    gc.collect()
    list(map(lambda _: unrelated(), range(3)))
    assert max(map(deep, [300])) == 0
running = False
thread.join()

for name, (calls, ns) in sums.items(): print(name, calls, ns)
sys.stdout.flush()
import os; os._exit(0)
";

#[test]
fn functions_that_collections_call_are_timed_and_named() {
    for python in interpreters("functions_that_collections_call_are_timed_and_named") {
        let run = run(InjectOptions::default(), &mut python.command(SCRIPT));
        assert!(run.status.success(), "{}: {}", python.name, run.errors);
        let seen = sums(run.only());
        // 3.8 has no such function, in free-threaded builds all threads would be stopped.
        if python.version < (3, 9, 0) || python.is("free-threaded") {
            assert!(seen.is_empty(), "{}: {seen:?}", python.name);
            continue;
        }
        let mut known = BTreeMap::new();
        for line in run.output.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap().to_owned();
            let mut number = || words.next().unwrap().parse::<u64>().unwrap();
            let is_callback = ["first", "method", "__call__"].contains(&name.as_str());
            known.insert((is_callback, name), (number(), number()));
        }
        assert_eq!(known.len(), 6, "{}: {known:?}", python.name);
        let names: Vec<_> = seen.keys().collect();
        assert_eq!(names, known.keys().collect::<Vec<_>>(), "{}", python.name);
        for (function, (calls, ns)) in &known {
            let (seen_calls, seen_ns) = seen[function];
            // `os._exit` ends the program before the callbacks of the last end are written.
            let missing = calls - seen_calls;
            assert!(missing <= u64::from(function.0), "{}: {function:?}", python.name);
            assert!(missing > 0 || seen_ns >= *ns, "{}: {function:?} {seen_ns}", python.name);
        }
        // Nothing is counted twice: what was called within a pause fits into it.
        let pauses = run.only().pauses();
        for pause in &pauses {
            let (from, to) = (pause.interval.start_ns, pause.interval.end_ns);
            let within = |called: &RingCalled| (from..=to).contains(&called.at_ns);
            let all = run.only().called().into_iter().map(|(_, called)| called);
            let sum: u64 = all.filter(within).map(|called| called.time_ns).sum();
            assert!(sum <= to - from, "{}: {sum} of {}", python.name, to - from);
        }
    }
}

#[test]
fn functions_may_fail_fork_or_end_the_process() {
    let script = r"
import gc, os, sys, threading
gc.disable()
class Node:
    def __init__(self, act): self.me, self.act = self, act
    def __del__(self): self.act()
def fails(): raise ValueError('expected')
def forks():
    child = os.fork()
    if child == 0:
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
def exits():
    print('done', flush=True)
    os._exit(3)
sys.unraisablehook = lambda unraisable: None
for act in [fails, forks, lambda: [Node(int) for _ in range(30)], exits]:
    Node(act)
    gc.collect()
";
    for python in interpreters("functions_may_fail_fork_or_end_the_process") {
        if python.version < (3, 9, 0) {
            continue;
        }
        let run = run(InjectOptions::default(), &mut python.command(script));
        assert_eq!(run.output.trim(), "done", "{}: {}", python.name, run.errors);
        assert_eq!(run.status.code(), Some(3), "{}: {}", python.name, run.errors);
    }
}

#[test]
fn daemon_threads_end_within_finalizers() {
    // Until 3.13 CPython ends a daemon thread that wants the lock of an interpreter that ends
    // (`pthread_exit`), which unwinds its stack.
    let script = r"
import gc, threading, time
gc.disable()
class Node:
    def __init__(self): self.me = self
    def __del__(self):
        started.set()
        time.sleep(0.2)
started = threading.Event()
def work():
    Node()
    gc.collect()
class Last:
    def __del__(self, sleep=time.sleep): sleep(0.6)
last = Last()
threading.Thread(target=work, daemon=True).start()
started.wait()
";
    for python in interpreters("daemon_threads_end_within_finalizers") {
        let plain = python.command(script).status().unwrap();
        let run = run(InjectOptions::default(), &mut python.command(script));
        assert_eq!(run.status, plain, "{}: {}", python.name, run.errors);
        assert_eq!(run.only().switched_off, None, "{}", python.name);
    }
}

#[test]
fn what_else_evaluates_frames_stays() {
    // Tools that replace the function that evaluates frames, here CPython's own support of perf, may
    // do so while a collection runs: in a finalizer, or in another thread meanwhile.
    let script = r"
import gc, os, sys
gc.disable()
class Node:
    def __init__(self): self.me = self
    def __del__(self): sys.activate_stack_trampoline('perf')
try:
    sys.activate_stack_trampoline('perf')
    sys.deactivate_stack_trampoline()
except (AttributeError, ValueError):
    print('unavailable')
    sys.exit()
for _ in range(3):
    Node()
    gc.collect()
    print(sys.is_stack_trampoline_active())
    gc.collect()
    print(sys.is_stack_trampoline_active())
    sys.deactivate_stack_trampoline()
os.unlink(f'/tmp/perf-{os.getpid()}.map')
";
    for python in interpreters("what_else_evaluates_frames_stays") {
        let plain = python.command(script).output().unwrap();
        let run = run(InjectOptions::default(), &mut python.command(script));
        let expected = String::from_utf8_lossy(&plain.stdout);
        assert_eq!(run.output, expected, "{}: {}", python.name, run.errors);
    }
}
