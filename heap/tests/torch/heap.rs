//! Torch tier: the heap of a PyTorch program, with types of C++ and Cython.

use crate::script;

use gctrace_heap::report::Held;
use gctrace_heap::{Dominators, Heap};
use script::{Script, take};
use std::process::Command;
use test_kit::interpreters;

#[test]
fn leaked_tensors_are_held_by_what_keeps_them() {
    let Some(python) = interpreters::torch("leaked_tensors_are_held_by_what_keeps_them") else {
        return;
    };
    let mut command = Command::new(python);
    command.arg(interpreters::root().join("tests/python/heap_programs.py"));
    command.arg("torch");
    let mut script = Script::run(command);
    let tensors: usize = script.text().parse().unwrap();
    script.wait_until_idle();
    let graph = take(script.pid());
    assert_eq!(graph.header.notes, Vec::<String>::new());
    let heap = Heap::new(graph).unwrap();
    let nodes = heap.of_type("torch.Tensor");
    assert_eq!(nodes.len(), tensors);
    let answer = heap.why("torch.Tensor", &nodes, 10);
    for expected in ["__main__.kept.hooks[0]", "__main__.losses[0]"] {
        let place = Some(expected.to_owned());
        let mut groups = answer.groups.iter();
        let group = groups.find(|group| group.place == place);
        let found = group.map(|group| (group.held, group.count.objects));
        assert_eq!(found, Some((Held::Root, 20)), "{answer:#?}");
    }
    let retained = heap.retained(&Dominators::new(&heap), 10);
    assert!(!retained.largest.is_empty());
    println!("{} objects, {tensors} tensors", heap.graph().nodes.len());
}
