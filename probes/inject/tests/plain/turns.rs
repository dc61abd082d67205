//! Turns of loops, against the number of waits and looks that a program makes.

use gctrace_ring::{InjectOptions, PythonMessage, RingTurns, WaitCall};
use test_kit::interpreters::interpreters;
use test_kit::preload::{Run, SeenRecords, run};

/// Something to wait for that is there.
const READY: &str = "
import gc, os, select, time
reads, writes = os.pipe()
os.write(writes, b'x')
waiting = select.epoll()
waiting.register(reads, select.EPOLLIN)
def look(times):
    for _ in range(times):
        waiting.poll(0)
";

/// Loops have turns from a thread's second wait on: so many less than calls.
const BEFORE: u64 = 2;

fn turns(ring: &SeenRecords) -> Vec<&RingTurns> {
    let turns = ring.records.iter().filter_map(|record| match record {
        PythonMessage::Turns(turns) => Some(turns),
        _ => None,
    });
    turns.collect()
}

fn count<'a>(all: impl IntoIterator<Item = &'a RingTurns>) -> u64 {
    let of = |turns: &RingTurns| {
        let lengths = turns.lengths.iter().map(|length| u64::from(length.turns));
        assert_eq!(lengths.sum::<u64>(), turns.turns, "{turns:?}");
        turns.turns
    };
    all.into_iter().map(of).sum()
}

fn of_script(python: &test_kit::interpreters::Python, script: &str) -> Run {
    let run = run(InjectOptions::default(), &mut python.command(&format!("{READY}{script}")));
    assert!(run.status.success(), "{}: {:?} {}", python.name, run.status, run.errors);
    assert_eq!(run.errors, "", "{}", python.name);
    run
}

#[test]
fn waits_and_looks_end_turns() {
    let script = "
for turn in range(1000):
    waiting.poll(turn % 2)
for _ in range(30):
    select.select([], [], [], 0.0001)
    select.poll().poll(0)
print(waiting.fileno(), os.getpid())
";
    for python in interpreters("waits_and_looks_end_turns") {
        let run = of_script(&python, script);
        let [file, pid] = run.numbers()[..] else { panic!("{}", run.output) };
        let all = turns(run.only());
        // What waits for no descriptor sleeps.
        assert!(
            all.iter().all(|turns| {
                let place = turns.place;
                (place.call, u64::from(place.argument), u64::from(place.tid))
                    == (WaitCall::EpollWait, file, pid)
            }),
            "{}: {all:?}",
            python.name
        );
        assert_eq!(count(all), 1000 - BEFORE, "{}", python.name);
    }
}

#[test]
fn a_turn_ends_with_the_process_that_forks() {
    let script = "
look(50)
child = os.fork()
if child == 0:
    gc.collect()
    look(50)
    os._exit(0)
os.waitpid(child, 0)
look(50)
print(os.getpid())
";
    for python in interpreters("a_turn_ends_with_the_process_that_forks") {
        let run = of_script(&python, script);
        let parent = run.numbers()[0] as u32;
        assert_eq!(count(turns(run.of(parent))), 100 - BEFORE, "{}", python.name);
        let mut children = run.rings.iter().filter(|ring| ring.pid != parent);
        let child = children.next().unwrap();
        // Its first look ends no turn: that began in its parent.
        assert_eq!(count(turns(child)), 49, "{}", python.name);
    }
}

#[test]
fn a_signal_ends_no_turn() {
    let script = "
import signal
os.read(reads, 1)
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for _ in range(7):
    waiting.poll(0.05)
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(handled))
";
    for python in interpreters("a_signal_ends_no_turn") {
        let run = of_script(&python, script);
        assert!(run.numbers()[0] > 7, "{}", python.name);
        // There are seven waits. Its first one is two, if a signal came; a handler may run late, on a busy machine.
        let found = count(turns(run.only()));
        assert!((5..=7).contains(&found), "{}: {found}", python.name);
    }
}

/// Its stack is unwound through our function.
#[test]
fn a_thread_is_cancelled_in_its_wait() {
    let script = "
import ctypes, os.path, threading
os.read(reads, 1)
def work():
    look(50)
    waiting.poll()
thread = threading.Thread(target=work, daemon=True)
thread.start()
task = '/proc/self/task/%d' % thread.native_id
EPOLL_WAITS = ['232', '281', '22']
while open(task + '/syscall').read().split()[0] not in EPOLL_WAITS:
    time.sleep(0.001)
assert ctypes.CDLL(None).pthread_cancel(ctypes.c_ulong(thread.ident)) == 0
while os.path.exists(task):
    time.sleep(0.001)
look(50)
print(thread.native_id, flush=True)
os._exit(0)
";
    for python in interpreters("a_thread_is_cancelled_in_its_wait") {
        let run = of_script(&python, script);
        let tid = run.numbers()[0] as u32;
        let (own, others): (Vec<_>, Vec<_>) =
            turns(run.only()).into_iter().partition(|turns| turns.place.tid == tid);
        assert_eq!(count(own), 51 - BEFORE, "{}", python.name);
        assert_eq!(count(others), 50 - BEFORE, "{}", python.name);
    }
}
