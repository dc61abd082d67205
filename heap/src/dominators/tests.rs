use super::*;
use crate::testing::{Builder, any_heap};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What roots reach without passing through an object.
fn reached_without(heap: &Heap, without: Option<NodeIndex>) -> BTreeSet<NodeIndex> {
    let passes = |node: &NodeIndex| Some(*node) != without;
    let mut reached: BTreeSet<NodeIndex> = BTreeSet::new();
    let mut next: Vec<NodeIndex> = heap.roots().iter().copied().filter(passes).collect();
    while let Some(node) = next.pop() {
        if reached.insert(node) {
            next.extend(heap.references(node).iter().map(|edge| edge.to).filter(passes));
        }
    }
    reached
}

proptest! {
    /// An object dominates another if without it no root reaches that one.
    #[test]
    fn dominators_are_those_of_the_definition(heap in any_heap()) {
        let dominators = Dominators::new(&heap);
        let alive = reached_without(&heap, None);
        for node in heap.indices() {
            let lost: BTreeSet<NodeIndex> =
                alive.difference(&reached_without(&heap, Some(node))).copied().collect();
            let retained = dominators.retained(node);
            prop_assert_eq!(retained.objects, lost.len() as u64, "node {}", node);
            let bytes = lost.iter().map(|lost| heap.node(*lost).bytes.unwrap_or(0)).sum::<u64>();
            prop_assert_eq!(retained.bytes, bytes);
            for dominated in lost.iter().filter(|lost| **lost != node) {
                let above = |node: &NodeIndex| dominators.immediate(*node);
                let mut chain = std::iter::successors(above(dominated), above);
                prop_assert!(chain.any(|dominator| dominator == node));
            }
        }
    }
}

/// What frameworks' models look like: shared, with parent pointers.
#[test]
fn shared_objects_belong_to_what_holds_all_holders() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let (model, layers, shared) =
        (made.object("Model"), made.object("list"), made.object("Tensor"));
    made.refer(namespace, "['model']", model);
    made.refer(model, ".layers", layers);
    for index in 0..3 {
        let layer = made.object("Layer");
        made.refer(layers, &format!("[{index}]"), layer);
        made.refer(layer, ".weight", shared);
        made.refer(layer, ".parent", model);
    }
    let heap = made.heap();
    let dominators = Dominators::new(&heap);
    assert_eq!(dominators.immediate(shared), Some(layers));
    let retained = dominators.retained(model);
    assert_eq!((retained.objects, retained.bytes), (6, 600));
}
