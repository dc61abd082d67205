//! Programs of all kinds keep running as before while their heaps are taken, and what cannot be
//! taken is an error with a remedy.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use crate::script;

use gctrace_heap::{Heap, HeapEdgeName, HeapError, HeapGraph, HeapOptions, RunningHeap};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use script::{Script, take, with_gil};
use std::collections::{HashMap, VecDeque};
use std::process::Command;
use std::time::{Duration, Instant};
use test_kit::interpreters;
use test_kit::interpreters::Python;

fn program(python: &Python, arguments: &[&str]) -> Script {
    let path = interpreters::root().join("tests/python/heap_programs.py");
    let mut command = Command::new(&python.path);
    command.arg(path).args(arguments);
    let mut script = Script::run(command);
    assert_eq!(script.text(), "ready", "{}", python.name);
    script
}

/// The newest with the GIL and the oldest.
fn two(test: &str) -> Vec<Python> {
    let mut all = with_gil(test);
    all.sort_by_key(|python| python.version);
    let last = all.len() - 1;
    if last > 0 {
        all.drain(1..last);
    }
    all
}

fn open(pid: u32) -> Result<RunningHeap, HeapError> {
    RunningHeap::open(pid, HeapOptions::default())
}

/// The letter of a process's state.
fn state(pid: u32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text[text.rfind(')').unwrap() + 2..].chars().next().unwrap()
}

fn nodes_of(graph: &HeapGraph, type_name: &str) -> Vec<u32> {
    let is_of = |node: &u32| {
        let kind = graph.nodes[*node as usize].kind as usize;
        graph.kinds[kind - 1].name.type_name == type_name
    };
    (0..graph.nodes.len() as u32).filter(is_of).collect()
}

/// The shortest path from a root to a node, as names of references.
fn path(graph: &HeapGraph, to: u32) -> Vec<String> {
    let mut from: HashMap<u32, (Option<u32>, String)> = HashMap::new();
    let mut edges: HashMap<u32, Vec<(u32, HeapEdgeName)>> = HashMap::new();
    for edge in &graph.edges {
        edges.entry(edge.from).or_default().push((edge.to, edge.name));
    }
    let mut queue = VecDeque::new();
    for root in &graph.roots {
        let name = graph.texts[root.name as usize].clone();
        from.entry(root.node).or_insert((None, name));
        queue.push_back(root.node);
    }
    while let Some(node) = queue.pop_front() {
        for (next, name) in edges.get(&node).into_iter().flatten() {
            if !from.contains_key(next) {
                let name = match name {
                    HeapEdgeName::Text(text) => graph.texts[*text as usize].clone(),
                    HeapEdgeName::Item(_) => "[]".to_owned(),
                    HeapEdgeName::Unnamed => "->".to_owned(),
                };
                from.insert(*next, (Some(node), name));
                queue.push_back(*next);
            }
        }
    }
    let mut names = Vec::new();
    let mut at = Some(to);
    while let Some(node) = at {
        let (before, name) = from[&node].clone();
        names.push(name);
        at = before;
    }
    names.reverse();
    names
}

#[test]
fn known_leaks_are_held_by_a_path_that_names_them() {
    for python in with_gil("known_leaks_are_held_by_a_path_that_names_them") {
        let script = program(&python, &["leaks"]);
        let graph = take(script.pid());
        let context = format!("{}: {:?}", python.name, graph.header.notes);
        let only = |kind: &str, count: usize| {
            let nodes = nodes_of(&graph, kind);
            assert_eq!(nodes.len(), count, "{context}: {kind}");
            path(&graph, nodes[0])
        };
        let batch = only("__main__.Batch", 10);
        let expected = ["['failures']", "[]", ".__traceback__", ".tb_frame", "batch"];
        assert_eq!(batch[batch.len() - 5..], expected, "{context}: {batch:?}");
        // freeze-core's start-up code holds the namespace in a variable.
        let root = batch[0].as_str();
        assert!(root == "module __main__" || root.contains("__startup__.py"), "{context}: {root}");
        let activation = only("__main__.Activation", 10);
        let end = ["[]", ".__closure__", "[]", ".cell_contents"];
        assert!(activation.ends_with(&end.map(str::to_owned)), "{context}: {activation:?}");
        assert!(activation.contains(&"['layer']".to_owned()), "{context}: {activation:?}");
        let model = only("__main__.Model", 20);
        let is_cache = |name: &String| name == "['cached']" || name == "['bounded']";
        assert!(model.iter().any(is_cache), "{context}: {model:?}");
        let names = || graph.kinds.iter().map(|kind| &kind.name);
        let hook = names().find(|kind| {
            kind.type_name == "cell" && kind.function.is_some() || kind.type_name == "function"
        });
        assert!(hook.is_some_and(|kind| kind.file.is_some() && kind.line.is_some()));
        let step = names()
            .find(|kind| kind.type_name == "frame" && kind.function.as_deref() == Some("step"));
        assert!(step.is_some_and(|kind| kind.line.is_some()), "{context}");
        let class = names()
            .find(|kind| kind.type_name == "type" && kind.function.as_deref() == Some("Batch"));
        assert!(class.is_some_and(|kind| kind.line.is_some()), "{context}");
    }
}

#[test]
fn a_list_of_a_million_nodes() {
    for python in two("a_list_of_a_million_nodes") {
        let script = program(&python, &["list", "1000000"]);
        let graph = take(script.pid());
        let lists = nodes_of(&graph, "list").len();
        assert!((1_000_000..1_001_000).contains(&lists), "{}: {lists}", python.name);
        assert!(graph.edges.len() > 1_000_000);
    }
}

/// Tables that were allocated after the first pass are copied in the same stop.
#[test]
fn what_grows_meanwhile_is_whole() {
    for python in with_gil("what_grows_meanwhile_is_whole") {
        let mut script = program(&python, &["growing"]);
        let mut heap = open(script.pid()).unwrap();
        script.go_on();
        assert_eq!(script.text(), "ready", "{}", python.name);
        let graph = heap.take().unwrap();
        let about_memory = |note: &&String| note.contains("blocks") || note.contains("stopped");
        let notes = &graph.header.notes;
        assert_eq!(notes.iter().find(about_memory), None, "{}", python.name);
        let layers = nodes_of(&graph, "__main__.Layer");
        assert_eq!(layers.len(), 40_001, "{}", python.name);
        let mut referred = vec![0; graph.nodes.len()];
        for edge in &graph.edges {
            referred[edge.to as usize] += 1;
        }
        // By the list, the dict and the set; the first one only by its module.
        let kept = layers.iter().filter(|layer| referred[**layer as usize] >= 3);
        assert_eq!(kept.count(), 40_000, "{}", python.name);
    }
}

#[test]
fn a_busy_program_goes_on_and_its_heap_is_consistent() {
    for python in two("a_busy_program_goes_on_and_its_heap_is_consistent") {
        let script = program(&python, &["busy"]);
        let mut taken = 0;
        for _ in 0..3 {
            let mut heap = open(script.pid()).unwrap();
            match heap.take() {
                Ok(graph) => {
                    taken += 1;
                    let kept = nodes_of(&graph, "dict").len();
                    assert!(kept > 100, "{}: {kept}", python.name);
                    let wrong = |note: &&String| note.contains("are unknown");
                    let notes = &graph.header.notes;
                    assert_eq!(notes.iter().find(wrong), None, "{}", python.name);
                }
                Err(error @ HeapError::Busy { .. }) => println!("{}: {error}", python.name),
                Err(error) => unreachable!("{}: {error}", python.name),
            }
            assert!(matches!(state(script.pid()), 'R' | 'S'), "{}", python.name);
        }
        assert!(taken > 0, "{}: always busy", python.name);
    }
}

#[test]
fn signals_arrive_and_a_stopped_program_stays_stopped() {
    const SIGNALS: usize = 300;
    for python in two("signals_arrive_and_a_stopped_program_stays_stopped") {
        let mut script = program(&python, &["signals", &SIGNALS.to_string()]);
        let pid = script.pid();
        let sender = std::thread::spawn(move || {
            for _ in 0..SIGNALS {
                // SAFETY: a signal to the test's own child.
                unsafe { libc::kill(pid.cast_signed(), libc::SIGRTMIN()) };
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        while !sender.is_finished() {
            let _graph = take(pid);
        }
        sender.join().unwrap();
        assert_eq!(script.text(), SIGNALS.to_string(), "{}", python.name);
        let process = Pid::from_raw(pid.cast_signed());
        kill(process, Signal::SIGSTOP).unwrap();
        wait_for(pid, 'T');
        assert!(!take(pid).nodes.is_empty());
        wait_for(pid, 'T');
        kill(process, Signal::SIGCONT).unwrap();
        wait_for(pid, 'S');
    }
}

fn wait_for(pid: u32, wanted: char) {
    let patience = Instant::now() + Duration::from_secs(20);
    while state(pid) != wanted {
        assert!(Instant::now() < patience, "{} is not {wanted}", state(pid));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_interpreter_has_a_heap_of_its_own() {
    let mut tested = 0;
    for python in with_gil("each_interpreter_has_a_heap_of_its_own") {
        // 3.8 has one collector for all.
        if python.version < (3, 9, 0) {
            continue;
        }
        let path = interpreters::root().join("tests/python/heap_programs.py");
        let mut command = Command::new(&python.path);
        command.arg(path).arg("interpreters");
        let mut script = Script::run(command);
        if script.text() != "ready" {
            interpreters::skip("each_interpreter_has_a_heap_of_its_own", &python.name);
            continue;
        }
        let main = take(script.pid());
        let name = "__main__.InTheOther";
        assert_eq!(nodes_of(&main, name).len(), 0, "{}", python.name);
        let notes = main.header.notes.join(" ");
        assert!(notes.contains("1 more"), "{}: {notes}", python.name);
        let of = |interpreter| {
            let options = HeapOptions { interpreter, ..HeapOptions::default() };
            RunningHeap::open(script.pid(), options)
        };
        let other = of(1).unwrap().take().unwrap();
        assert_eq!(nodes_of(&other, name).len(), 100, "{}", python.name);
        assert!(matches!(of(7), Err(HeapError::NoSuchInterpreter { .. })));
        tested += 1;
    }
    assert!(tested > 0);
}

#[test]
fn what_cannot_be_taken_is_an_error() {
    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    assert!(matches!(open(sleep.id()), Err(HeapError::NotPython { .. })));
    sleep.kill().unwrap();
    wait_for(sleep.id(), 'Z');
    let zombie = open(sleep.id());
    assert!(zombie.is_err());
    let _gone = sleep.wait();
    assert!(open(sleep.id()).is_err());
    for python in two("what_cannot_be_taken_is_an_error") {
        let script = program(&python, &["leaks"]);
        let mut heap = open(script.pid()).unwrap();
        let process = Pid::from_raw(script.pid().cast_signed());
        nix::sys::ptrace::seize(process, nix::sys::ptrace::Options::empty()).unwrap();
        let traced = heap.take();
        let pid = std::process::id();
        assert!(matches!(traced, Err(HeapError::Traced { tracer, .. }) if tracer == pid));
        let message = traced.unwrap_err().to_string();
        assert!(message.contains(&format!("kill {pid}")), "{message}");
        nix::sys::ptrace::interrupt(process).unwrap();
        wait_for(script.pid(), 't');
        nix::sys::ptrace::detach(process, None).unwrap();
        assert!(heap.take().is_ok());
        drop(script);
        assert!(matches!(heap.take(), Err(HeapError::Gone { .. })));
    }
}

#[test]
fn free_threaded_builds_are_refused() {
    for python in interpreters::interpreters("free_threaded_builds_are_refused") {
        if !python.is("free-threaded") {
            continue;
        }
        let script = program(&python, &["leaks"]);
        let refused = open(script.pid());
        assert!(matches!(refused, Err(HeapError::FreeThreaded { .. })), "{}", python.name);
        interpreters::compared(&python, "heap: objects", "refused");
    }
}

/// A dict that a module holds was made from the interpreter's free list, which keeps its address, and is on
/// a thread's stack meanwhile, whose references are not found.
const REUSED: &str = "
import sys
def cache():
    freed = [{} for _ in range(90)]
    del freed
    return {}
held = cache()
held.update((number, [number]) for number in range(20000))
def call(held, line): pass
print('held', flush=True)
call(held, sys.stdin.readline())
";

#[test]
fn what_a_module_holds_is_not_named_after_the_interpreter() {
    for python in with_gil("what_a_module_holds_is_not_named_after_the_interpreter") {
        let mut command = Command::new(&python.path);
        command.args(["-c", REUSED]);
        let mut script = Script::run(command);
        assert_eq!(script.text(), "held");
        script.wait_until_idle();
        let heap = Heap::new(take(script.pid())).unwrap();
        let largest = heap.indices().max_by_key(|node| heap.references(*node).len()).unwrap();
        assert!(heap.references(largest).len() >= 20_000, "{}", python.name);
        assert_eq!(
            (heap.root_name(largest), heap.place(largest).as_str()),
            (None, "__main__.held"),
            "{}",
            python.name
        );
    }
}
