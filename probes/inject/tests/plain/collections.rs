//! Collections reported by the library, against the interpreter's own record.

#![expect(clippy::panic, reason = "helpers of tests, outside of #[test]")]

use gctrace_ring::{HookState, InjectOptions, RingPause, RingReason};
use test_kit::interpreters::{Python, interpreters};
use test_kit::preload::{SeenRecords, run};

/// Records each collection from its own callback, and the statistics at its first and last line.
const TRUTH: &str = r"
import gc
class Node: pass
def cycles(count):
    for _ in range(count):
        a, b = Node(), Node()
        a.b, b.a = b, a
def stats():
    return [s['collections'] for s in gc.get_stats()], sum(s['collected'] for s in gc.get_stats())
seen = []
def note(phase, info):
    if phase == 'stop':
        seen.append((info['generation'], info['collected'], info['uncollectable']))
gc.callbacks.append(note)
(before, freed) = stats()
kept = []
for _ in range(200):
    cycles(1000)
    kept.append([[index] for index in range(200)])
for generation in (0, 1, 2, 2, 0):
    cycles(100)
    gc.collect(generation)
gc.callbacks.remove(note)
(after, freed_after) = stats()
print(len(seen), sum(s[1] for s in seen))
print(*[sum(1 for s in seen if s[0] == generation) for generation in range(3)])
print(*[b - a for a, b in zip(before, after)], freed_after - freed)
";

fn check(python: &Python, seen: &SeenRecords, numbers: &[u64]) {
    let [count, collected, by_generation @ ..] = numbers else { panic!("{numbers:?}") };
    let (by_generation, stats) = by_generation.split_at(3);
    let pauses = seen.pauses();
    // Those before the script's first line and after its last are known only to us.
    let matching: Vec<_> = pauses
        .windows(*count as usize)
        .filter(|window| {
            window.iter().filter_map(|pause| pause.collected.map(u64::from)).sum::<u64>()
                == *collected
        })
        .filter(|window| {
            (0..3).all(|generation| {
                let of = window.iter().filter(|pause| pause.generation == generation);
                of.count() as u64 == by_generation[usize::from(generation)]
            })
        })
        .collect();
    assert!(!matching.is_empty(), "{}: {numbers:?}", python.name);
    if !python.is("incremental") {
        assert_eq!(stats[..3], *by_generation, "{}", python.name);
        assert_eq!(stats[3], *collected, "{}", python.name);
    }
    assert!(pauses.len() as u64 <= count + 60, "{}: {}", python.name, pauses.len());
    assert!(pauses.iter().all(|pause| pause.interval.start_ns < pause.interval.end_ns));
    assert!(pauses.windows(2).all(|two| two[0].interval.end_ns <= two[1].interval.start_ns));
    assert!(pauses.iter().all(|pause| pause.tid == seen.pid && pause.interpreter == 0));
    assert_eq!(seen.begins(), pauses.len(), "{}", python.name);
    assert_eq!(seen.lost.total(), 0, "{}", python.name);
}

#[test]
fn equal_to_the_interpreters_own_statistics() {
    for python in interpreters("equal_to_the_interpreters_own_statistics") {
        let run = run(InjectOptions::default(), &mut python.command(TRUTH));
        assert_eq!(run.errors, "", "{}", python.name);
        let seen = run.only();
        check(&python, seen, &run.numbers());
        let (version, file, free_threaded) = seen.interpreter().unwrap();
        let (major, minor, micro) = python.version;
        assert!(version.starts_with(&format!("{major}.{minor}.{micro}")), "{version}");
        assert!(file.contains("python"), "{file}");
        assert_eq!(free_threaded, python.is("free-threaded"));
        assert_eq!(seen.hooks()[0].0, HookState::Installed);
        assert!(!seen.hello.is_fork);
        eprintln!("{}: {} pauses, {:?}", python.name, seen.pauses().len(), seen.hooks());
    }
}

/// Without `site` 3.14.8 and later import neither `abc` nor `os`: what remains are the modules that
/// every start of every version needs.
#[test]
fn interpreters_that_import_next_to_nothing_are_seen() {
    for python in interpreters("interpreters_that_import_next_to_nothing_are_seen") {
        let mut command = std::process::Command::new(&python.path);
        command.args(["-I", "-S", "-c", TRUTH]);
        let run = run(InjectOptions::default(), &mut command);
        assert_eq!(run.errors, "", "{}", python.name);
        check(&python, run.only(), &run.numbers());
    }
}

/// Counts what each of three full collections left in the oldest generation.
const LEFT: &str = r"
import gc
gc.disable()
kept = []
left = []
for count in (0, 1000, 50000, 2000):
    kept.extend([index] for index in range(count))
    gc.collect()
    left.append(len(gc.get_objects(2)))
print(*left[1:])
";

#[test]
fn full_collections_report_what_they_left() {
    for python in interpreters("full_collections_report_what_they_left") {
        let run = run(InjectOptions::default(), &mut python.command(LEFT));
        assert_eq!(run.errors, "", "{}", python.name);
        let pauses = run.only().pauses().into_iter();
        let full = pauses.filter(|pause| pause.generation == 2 && pause.reason != RingReason::Exit);
        let left: Vec<Option<u32>> = full.map(|pause| pause.oldest_objects).collect();
        let expected = if python.is("free-threaded") || python.is("incremental") {
            vec![None; 3]
        } else {
            run.numbers().iter().map(|number| u32::try_from(*number).ok()).collect()
        };
        let last = left.len().saturating_sub(3);
        assert_eq!(left[last..], expected, "{}", python.name);
    }
}

/// Full collections with a finalizer that sleeps, and with one that computes until the thread's clock has
/// run as long.
const OFF_AND_ON_THE_CPU: &str = r"
import gc, time
gc.disable()
def sleep():
    time.sleep(0.2)
def compute():
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass
class Node:
    def __init__(self, work):
        self.itself, self.work = self, work
    def __del__(self):
        self.work()
for work in (sleep, compute):
    Node(work)
    gc.collect()
gc.freeze()
";

#[test]
fn pauses_have_their_cpu_time() {
    const WORK_NS: u64 = 200_000_000;
    for python in interpreters("pauses_have_their_cpu_time") {
        let run = run(InjectOptions::default(), &mut python.command(OFF_AND_ON_THE_CPU));
        assert_eq!(run.errors, "", "{}", python.name);
        let length_ns = |pause: &RingPause| pause.interval.end_ns - pause.interval.start_ns;
        let pauses = run.only().pauses().into_iter();
        let long =
            pauses.filter(|pause| length_ns(pause) >= WORK_NS && pause.reason != RingReason::Exit);
        let times: Vec<_> = long.map(|pause| (length_ns(&pause), pause.cpu_ns)).collect();
        let [(slept_ns, Some(off_ns)), .., (_, Some(on_ns))] = times[..] else {
            panic!("{}: {times:?}", python.name);
        };
        assert!(off_ns <= slept_ns - WORK_NS, "{}: {times:?}", python.name);
        assert!(on_ns >= WORK_NS, "{}: {times:?}", python.name);
    }
}
