use super::*;
use crate::testing::Builder;

#[test]
fn alike_paths_are_one_group() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let (cache, hooks) = (made.object("list"), made.object("dict"));
    made.refer(namespace, "['cache']", cache);
    made.refer(namespace, "['hooks']", hooks);
    for index in 0..30 {
        let batch = made.object("data.Batch");
        made.refer(cache, &format!("[{index}]"), batch);
    }
    for key in ["'a'", "'b'"] {
        let batch = made.object("data.Batch");
        made.refer(hooks, &format!("[{key}]"), batch);
    }
    let (a, b) = (made.object("data.Batch"), made.object("data.Batch"));
    made.refer(a, ".peer", b);
    made.refer(b, ".peer", a);
    let heap = made.heap();
    assert!(heap.of_type("atch").is_empty());
    let nodes = heap.of_type("Batch");
    assert_eq!(nodes, heap.of_type("data.Batch"));
    let answer = heap.why("Batch", &nodes, 2);
    let groups: Vec<(u64, Held, Option<&str>)> = answer
        .groups
        .iter()
        .map(|group| (group.count.objects, group.held, group.place.as_deref()))
        .collect();
    // Keys of a dict are positions, but keys of a module's namespace are variables.
    assert_eq!(groups[0], (30, Held::Root, Some("train.cache[0]")));
    assert_eq!(groups[1], (2, Held::Root, Some("train.hooks['a']")));
    assert_eq!((answer.other_groups, answer.others.objects), (1, 2));
    let garbage = heap.why("b", &[b], 1);
    let names: Vec<Option<&str>> =
        garbage.groups[0].example.steps.iter().map(|step| step.name.as_deref()).collect();
    assert_eq!(garbage.groups[0].held, Held::Nothing);
    assert_eq!(names, [Some(".peer"), Some(".peer")]);
}

#[test]
fn code_is_found_by_its_name() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let function = made.function("Trainer.step", 12);
    made.refer(namespace, "['step']", function);
    let heap = made.heap();
    assert_eq!(heap.of_type("step"), [function]);
    assert_eq!(heap.title(function), "function Trainer.step (train.py:12)");
    assert_eq!(heap.at_address(0x7f00_0000_0080), Some(function));
    let answer = heap.why("step", &[function], 1);
    let path = &answer.groups[0].example;
    assert_eq!(path.root.as_deref(), Some("module train"));
    assert_eq!(path.steps.len(), 3);
}
