//! Processes and interpreters that start, exit, fork, are killed, or remove the hook.

use gctrace_ring::{HookState, InjectOptions, RingPause, RingReason};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;
use test_kit::interpreters::interpreters;
use test_kit::limit::WithTimeout as _;
use test_kit::preload::{SeenRecords, run, run_with_children};

/// State, interpreter, count, detail.
type SeenHook = (HookState, i64, u64, String);

/// States and counts of hooks but for the starts and ends of interpreters.
fn after_start(ring: &SeenRecords) -> Vec<(HookState, u64)> {
    let is_other = |hook: &&SeenHook| {
        !matches!(
            hook.0,
            HookState::Installed | HookState::Ending | HookState::EndTook | HookState::Ended
        )
    };
    ring.hooks().iter().filter(is_other).map(|hook| (hook.0, hook.2)).collect()
}

fn full(ring: &SeenRecords) -> usize {
    let pauses = ring.pauses();
    let full = |pause: &&RingPause| pause.generation == 2 && pause.reason != RingReason::Exit;
    pauses.iter().filter(full).count()
}

#[test]
fn forked_children_have_rings_of_their_own() {
    // A child that collects and ends normally, one that exits by os._exit without any collection, a
    // grandchild.
    let script = r"
import gc, os
gc.disable()
def collect(times):
    for _ in range(times): gc.collect()
collect(3)
first = os.fork()
if first == 0:
    collect(5)
    grandchild = os.fork()
    if grandchild == 0:
        collect(7)
        os._exit(0)
    os.waitpid(grandchild, 0)
    print(grandchild, flush=True)
    raise SystemExit
os.waitpid(first, 0)
second = os.fork()
if second == 0:
    os._exit(0)
os.waitpid(second, 0)
collect(2)
print(first, second, os.getpid(), flush=True)
os._exit(0)
";
    for python in interpreters("forked_children_have_rings_of_their_own") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        assert_eq!(run.errors, "", "{}", python.name);
        let pids: Vec<u32> = run.numbers().iter().map(|pid| *pid as u32).collect();
        let [grandchild, first, second, parent] = pids[..] else { panic!("{pids:?}") };
        assert_eq!(run.rings.len(), 4, "{}", python.name);
        let count = |pid| full(run.of(pid));
        assert_eq!(count(parent), 5, "{}", python.name);
        assert_eq!(count(grandchild), 7, "{}", python.name);
        assert_eq!(count(second), 0, "{}", python.name);
        // Its own five, and the interpreter's at its end.
        assert!((5..=9).contains(&count(first)), "{}: {}", python.name, count(first));
        for pid in [first, second, grandchild] {
            let ring = run.of(pid);
            assert!(ring.hello.is_fork && ring.hello.own_pid == pid);
            assert!(ring.interpreter().is_some());
            assert!(ring.pauses().iter().all(|pause| pause.tid == pid));
            assert_eq!(ring.settings().len(), 1);
            assert!(!ring.settings()[0].1, "disabled before the fork");
        }
    }
}

#[test]
fn killed_workers_lose_nothing() {
    let script = r"
import gc, multiprocessing, os, sys, time
def work(number):
    gc.disable()
    for _ in range(11): gc.collect()
    time.sleep(0.2)
    return os.getpid()
if __name__ == '__main__':
    multiprocessing.set_start_method(sys.argv[1])
    pool = multiprocessing.Pool(2)
    pids = pool.map(work, range(2), 1)
    pool.map_async(time.sleep, [1000, 1000])
    pool.terminate()
    pool.join()
    print(*pids)
";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.py");
    std::fs::write(&file, script).unwrap();
    for python in interpreters("killed_workers_lose_nothing") {
        for method in ["fork", "spawn"] {
            let mut command = Command::new(&python.path);
            let run = run(InjectOptions::default(), command.arg(&file).arg(method));
            assert_eq!(run.errors, "", "{} {method}", python.name);
            for pid in run.numbers() {
                let ring = run.of(pid as u32);
                assert!(
                    full(ring).is_multiple_of(11) && full(ring) > 0,
                    "{} {method}: {}",
                    python.name,
                    full(ring)
                );
                assert!(ring.hello.is_fork == (method == "fork"));
                assert_eq!(ring.lost.total(), 0);
            }
        }
    }
}

#[test]
fn records_before_sigkill_are_kept() {
    let script = "import gc, os, signal\ngc.disable()\nfor _ in range(13): gc.collect()\n\
                  os.kill(os.getpid(), signal.SIGKILL)";
    for python in interpreters("records_before_sigkill_are_kept") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        assert!(!run.status.success());
        assert_eq!(full(run.only()), 13, "{}", python.name);
    }
}

#[test]
fn threads_have_their_own_ids() {
    let script = r"
import gc, threading
gc.disable()
turn = threading.Lock()
def work():
    with turn:
        gc.collect(1)
        print(threading.get_native_id())
threads = [threading.Thread(target=work) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
    for python in interpreters("threads_have_their_own_ids") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        let pauses = run.only().pauses().into_iter();
        let of_threads =
            pauses.filter(|pause| pause.generation == 1 && pause.tid != run.only().pid);
        let tids: Vec<u64> = of_threads.map(|pause| pause.tid.into()).collect();
        assert_eq!(tids, run.numbers(), "{}", python.name);
    }
}

/// Generated code that triggered a collection, and is no longer referenced by the program.
const DEAD_CODE: &str = r"
import gc, weakref
gc.disable()
dead = []
for number in range(200):
    code = compile('import gc; gc.collect(0)', f'<generated {number}>', 'exec')
    dead.append(weakref.ref(code))
    exec(code)
del code
gc.collect()
print(sum(ref() is not None for ref in dead))
";

#[test]
fn code_is_freed_as_untraced() {
    for python in interpreters("code_is_freed_as_untraced") {
        for stack_depth in [1, 16] {
            let options = InjectOptions { stack_depth, ..InjectOptions::default() };
            let run = run(options, &mut python.command(DEAD_CODE));
            assert_eq!(run.numbers(), [0], "{}, {stack_depth}", python.name);
        }
    }
}

/// Subinterpreters by the names their module had, with their own locks and without.
const SUBINTERPRETERS: &str = r"
import sys
try:
    import _interpreters as module
except ImportError:
    try:
        import _xxsubinterpreters as module
    except ImportError:
        print('none')
        raise SystemExit
import gc
gc.disable()
made = []
for config in ('isolated', 'legacy'):
    for _ in range(3):
        try:
            made.append(module.create(config))
        except TypeError:
            made.append(module.create())
for number, one in enumerate(made):
    code = 'import gc; gc.disable(); [gc.collect() for _ in range(%d)]' % (number + 1)
    (module.run_string if hasattr(module, 'run_string') else module.exec)(one, code)
gc.collect()
for one in made[:3]:
    module.destroy(one)
print(*[int(one) for one in made], flush=True)
import os
os._exit(0)  # 3.14 warns of those that are left
";

#[test]
fn subinterpreters_by_their_ids() {
    for python in interpreters("subinterpreters_by_their_ids") {
        let run = run(InjectOptions::default(), &mut python.command(SUBINTERPRETERS));
        assert_eq!(run.errors, "", "{}", python.name);
        if run.output.trim() == "none" {
            eprintln!("{}: has no subinterpreters", python.name);
            continue;
        }
        let ring = run.only();
        let ids = run.numbers();
        if python.version < (3, 10, 0) {
            // 3.8: one state for all. 3.9: a state for each, but their collectors read no
            // callbacks.
            eprintln!("{}: {:?}", python.name, ring.hooks());
            continue;
        }
        for (index, id) in ids.into_iter().enumerate() {
            let pauses = ring.pauses().into_iter();
            let pauses =
                pauses.filter(|pause| pause.interpreter as u64 == id && pause.generation == 2);
            let count = pauses.count();
            // Its own, and those at its end.
            assert!(
                (index + 1..=index + 4).contains(&count),
                "{} {id}: {count} {:?} {:?}",
                python.name,
                ring.hooks(),
                ring.pauses()
            );
            let is_installed =
                |hook: &SeenHook| hook.0 == HookState::Installed && hook.1 == id as i64;
            assert!(ring.hooks().iter().any(is_installed), "{}", python.name);
        }
    }
}

#[test]
fn removed_once_and_restored() {
    let ways = [
        "gc.callbacks.clear()",
        "del gc.callbacks[:]",
        "gc.callbacks[:] = []",
        "gc.callbacks.pop()",
        "gc.callbacks = []; import gc as other; other.collect()",
    ];
    for python in interpreters("removed_once_and_restored") {
        for way in ways {
            let script = format!(
                "import gc\ngc.disable()\ngc.collect()\n{way}\nfor _ in range(6): gc.collect()\nimport os\nos._exit(0)"
            );
            let run = run(InjectOptions::default(), &mut python.command(&script));
            assert_eq!(run.errors, "", "{} {way}", python.name);
            let ring = run.only();
            let replaced = way.starts_with("gc.callbacks = ");
            assert_eq!(full(ring), 7 + usize::from(replaced), "{} {way}", python.name);
            let expected = [(HookState::Restored, 0)];
            let restored = &expected[..1 - usize::from(replaced)];
            assert_eq!(after_start(ring), restored, "{} {way}", python.name);
        }
    }
}

#[test]
fn removed_twice_is_final() {
    let script = "import gc, os\ngc.disable()\ngc.callbacks.clear()\ngc.collect()\ngc.callbacks.clear()\n\
                  gc.collect()\nprint(gc.callbacks, flush=True)\n";
    for python in interpreters("removed_twice_is_final") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        assert_eq!((run.output.trim(), run.errors.as_str()), ("[]", ""), "{}", python.name);
        let states: Vec<_> = run.only().hooks().iter().map(|hook| hook.0).collect();
        let expected =
            [HookState::Installed, HookState::Restored, HookState::GivenUp, HookState::GivenUp];
        assert!(states == expected || states == expected[..3], "{} {states:?}", python.name);
        assert_eq!(full(run.only()), 1, "{}", python.name);
    }
}

#[test]
fn removed_and_kept_is_counted_at_the_end() {
    let script = "import gc\ngc.disable()\nkept = gc.callbacks[:]\ngc.callbacks.clear()\n\
                  for _ in range(9): gc.collect()\ngc.callbacks.extend(kept)\ngc.collect()";
    for python in interpreters("removed_and_kept_is_counted_at_the_end") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        assert_eq!(run.errors, "", "{}", python.name);
        // The incremental collector's statistics leave out increments that only mark. 3.8 also
        // counts collections without callbacks (at the ends of subinterpreters), so it cannot be
        // checked there.
        let missed = match python.version {
            (3, 8, _) => continue,
            _ if python.is("incremental") => 8,
            _ => 9,
        };
        let expected = [(HookState::Bypassed, missed)];
        assert_eq!(after_start(run.only()), expected, "{}", python.name);
    }
}

/// The program sees the young generation's count change only by what an empty Python callback costs
/// (the dictionary that CPython passes to callbacks), however deep the stack and however long the
/// collection.
#[test]
fn the_count_of_the_young_generation_is_left_alone() {
    const SCRIPT: &str = "
import gc
def counted(depth):
    if depth: return counted(depth - 1)
    gc.collect()
    return gc.get_count()[0]
garbage = [[] for _ in range(200_000)]
gc.collect()
print(max(counted(depth) for depth in (0, 1, 20, 100)))";
    for python in interpreters("the_count_of_the_young_generation_is_left_alone") {
        // Their counts cover all threads, and lag behind.
        if python.is("free-threaded") {
            continue;
        }
        let run = run(InjectOptions::default(), &mut python.command(SCRIPT));
        let count: u32 = run.output.trim().parse().unwrap();
        assert!(count <= 1, "{}: {count}", python.name);
    }
}

#[test]
fn programs_without_python_have_no_ring_and_no_output() {
    let commands = ["/bin/true", "/bin/ls", "/bin/sh", "/bin/bash", "/usr/bin/env"];
    for command in commands {
        let mut program = Command::new(command);
        match command {
            "/bin/sh" | "/bin/bash" => program.args(["-c", "/bin/echo 1 | /bin/cat; (:)"]),
            "/bin/ls" => program.arg("/"),
            _ => &mut program,
        };
        let run = run(InjectOptions::default(), &mut program);
        assert!(run.status.success(), "{command}");
        assert_eq!((run.errors.as_str(), run.rings.len()), ("", 0), "{command}");
    }
}

#[test]
fn children_see_no_variables_where_they_are_not_followed() {
    let ask = "env | grep -E 'GCTRACE_(INJECT|RENDEZVOUS)=|LD_PRELOAD|CUDA_INJ' || echo none";
    let script = format!(
        "import subprocess, gc, os\ngc.collect()\nassert 'LD_PRELOAD' not in os.environ\n\
                  if os.fork() == 0:\n gc.collect()\n os._exit(0)\nos.wait()\n\
                  print(subprocess.run(['sh', '-c', {ask:?}], stdout=-1).stdout.decode())"
    );
    let alone = InjectOptions { follow: false, ..InjectOptions::default() };
    for python in interpreters("children_see_no_variables_where_they_are_not_followed") {
        let run = run(alone, &mut python.command(&script));
        assert_eq!((run.output.trim(), run.errors.as_str()), ("none", ""), "{}", python.name);
        assert_eq!(run.rings.len(), 1, "the fork is not followed either");
        assert!(full(run.only()) >= 1);
    }
    let mut shell = Command::new("/bin/sh");
    let run = run_with_children(alone, shell.args(["-c", ask]), Duration::ZERO);
    assert_eq!(run.output.trim(), "none");
}

#[test]
fn the_line_that_triggered() {
    let script = "import gc, os\ngc.disable()\ndef inner():\n    gc.collect(0)\ndef outer():\n    inner()\nouter()\n\
                  kept = [[i] for i in range(300000)]\ndef slow():\n    gc.collect()\n    gc.collect()\nslow()\nos._exit(0)";
    for python in interpreters("the_line_that_triggered") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        let ring = run.only();
        let stacks: Vec<Vec<(String, u32)>> = (ring.pauses().iter())
            .map(|pause| ring.stack(pause.frame))
            .map(|stack| stack.into_iter().map(|(function, _, line)| (function, line)).collect())
            .collect();
        let frame = |name: &str, line| (name.to_owned(), line);
        let short = stacks.iter().find(|stack| stack.first() == Some(&frame("inner", 4)));
        assert!(short.is_some(), "{}: {stacks:?}", python.name);
        for line in [10, 11] {
            // Long enough for a whole stack.
            let expected = vec![frame("slow", line), frame("<module>", 12)];
            let found = stacks.iter().any(|stack| stack.starts_with(&expected));
            assert!(found, "{}: {stacks:?}", python.name);
        }
    }
}

#[test]
fn settings_when_they_change() {
    let script = "import gc\ngc.set_threshold(123, 4, 5)\ngc.collect()\ngc.disable()\ngc.collect()\nimport os\nos._exit(0)";
    for python in interpreters("settings_when_they_change") {
        let run = run(InjectOptions::default(), &mut python.command(script));
        let settings = run.only().settings();
        assert_eq!(settings.len(), 3, "{}: {settings:?}", python.name);
        assert!(settings[0].1 && settings[1].1 && !settings[2].1);
        assert_eq!(settings[1].0[..2], [123, 4], "{}", python.name);
    }
}

#[test]
fn a_program_continues_without_a_listener() {
    let library = test_kit::library::find_library().unwrap();
    for python in interpreters("a_program_continues_without_a_listener") {
        let script = "import gc, os\ngc.collect()\nif os.fork() == 0: os._exit(0)\nos.wait()\nprint(os.listdir('/proc/self/task') == [str(os.getpid())])";
        let output = python
            .command(script)
            .env("LD_PRELOAD", &library)
            .env("GCTRACE_RENDEZVOUS", "/nowhere/socket")
            .env("GCTRACE_INJECT", "gc=1,alloc=1")
            .output_in_time()
            .unwrap();
        assert!(output.status.success(), "{}", python.name);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", python.name);
        assert_eq!(output.stdout, b"True\n", "{}: no thread of ours", python.name);
    }
}

/// A ring is a file for the kernel: one larger than the limit raises SIGXFSZ, which ends what has
/// not ignored it, as Python does only later.
#[test]
fn a_limit_of_file_sizes_ends_no_program() {
    let script = r"
import gc, os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
pid = os.fork()
gc.collect()
if pid == 0: os._exit(5)
assert os.waitpid(pid, 0)[1] == 5 << 8
os._exit(6)
";
    for python in interpreters("a_limit_of_file_sizes_ends_no_program") {
        for bytes in [0, 4096, 1 << 18] {
            let mut command = Command::new(&python.path);
            command.args(["-c", script]);
            let limited = move || {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                // SAFETY: a limit of this process.
                match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            };
            // SAFETY: one system call.
            unsafe { command.pre_exec(limited) };
            let run = run(InjectOptions::default(), &mut command);
            let context = format!("{} {bytes}: {} {}", python.name, run.status, run.errors);
            assert_eq!(run.status.code(), Some(6), "{context}");
            assert_eq!(run.errors, "", "{context}");
        }
    }
}
