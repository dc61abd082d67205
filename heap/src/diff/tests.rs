use super::*;
use crate::testing::{Builder, any_heap};
use proptest::prelude::*;

/// A program with a cache of `cached` batches and `temporary` other ones, at addresses that the
/// temporary ones of each heap share.
fn heap(cached: u32, temporary: u32) -> Heap {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let collect = made.function("collect", 12);
    made.refer(namespace, "['collect']", collect);
    let (defaults, cache) = (made.object("tuple"), made.object("list"));
    made.refer(collect, ".__defaults__", defaults);
    made.refer(defaults, "[0]", cache);
    for index in 0..cached {
        let batch = made.object("Batch");
        made.refer(cache, &format!("[{index}]"), batch);
    }
    for index in 0..temporary {
        let batch = made.object("Batch");
        made.0.nodes[batch as usize].address = 0x1000 + u64::from(index) * 16;
        made.refer(namespace, "['now']", batch);
    }
    made.heap()
}

#[test]
fn what_grows_is_found_with_its_owner() {
    let answer = diff(&[heap(10, 3), heap(500, 3), heap(900, 3)], 10).expect("two heaps or more");
    // Those of the second heap that are still there.
    assert_eq!(answer.born.objects, 490);
    assert_eq!(answer.gone.objects, 3, "the temporary ones were replaced");
    assert_eq!(answer.reused_addresses, 3);
    let counts: Vec<u64> = answer.types[0].heaps.iter().map(|count| count.objects).collect();
    assert_eq!((answer.types[0].type_name.as_str(), counts), ("Batch", vec![13, 503, 903]));
    let owner = &answer.owners[0];
    assert_eq!(owner.place, "train.py:12 collect.__defaults__[0]");
    assert_eq!((owner.born.objects, owner.mostly.as_str()), (490, "Batch"));
    assert_eq!(answer.owners.len(), 1);
}

/// The collector has moved the list behind what is new. It is the same as long as it has what it had.
#[test]
fn a_list_that_has_grown_is_the_same_one() {
    let heap = |batches: u32, at_the_end: bool| {
        let mut made = Builder::default();
        let namespace = made.module("serve");
        let list = |made: &mut Builder| {
            let list = made.object("list");
            made.0.nodes[list as usize].address = 0x9000;
            made.refer(namespace, "['KEPT']", list);
            list
        };
        let early = (!at_the_end).then(|| list(&mut made));
        let batches: Vec<u32> = (0..batches)
            .map(|index| {
                let batch = made.object("Batch");
                made.0.nodes[batch as usize].address = 0x1_0000 + u64::from(index) * 16;
                batch
            })
            .collect();
        let list = early.unwrap_or_else(|| list(&mut made));
        for (index, batch) in batches.into_iter().enumerate() {
            made.refer(list, &format!("[{index}]"), batch);
        }
        made.heap()
    };
    let answer = diff(&[heap(10, false), heap(500, true)], 10).expect("two heaps");
    assert_eq!((answer.born.objects, answer.gone.objects), (490, 0), "{answer:?}");
    assert_eq!((&*answer.owners[0].place, &*answer.owners[0].mostly), ("serve.KEPT", "Batch"));
    // Without anything of its own it may be another.
    let answer = diff(&[heap(0, false), heap(500, true)], 10).expect("two heaps");
    assert_eq!((answer.born.objects, answer.reused_addresses), (501, 1));
}

#[test]
fn what_goes_is_counted() {
    let answer = diff(&[heap(500, 0), heap(100, 0)], 10).expect("two heaps");
    assert_eq!((answer.born.objects, answer.gone.objects), (0, 400));
    assert!(answer.owners.is_empty());
}

#[test]
fn nothing_gets_younger() {
    let older = heap(3, 0);
    let mut newer = heap(3, 0).graph().clone();
    for node in newer.nodes.iter_mut().rev().take(2) {
        node.place = HeapPlace::Generation(0);
    }
    let newer = Heap::new(newer).expect("valid");
    let answer = diff(&[older, newer], 10).expect("two heaps");
    assert_eq!((answer.born.objects, answer.gone.objects), (2, 2));
}

proptest! {
    #[test]
    fn a_heap_does_not_differ_from_itself(heap in any_heap(), times in 2..4_usize) {
        let heaps: Vec<Heap> = (0..times)
            .map(|_| Heap::new(heap.graph().clone()).expect("valid"))
            .collect();
        let answer = diff(&heaps, 10).expect("two heaps or more");
        prop_assert_eq!(answer.born.objects + answer.gone.objects + answer.reused_addresses, 0);
        prop_assert!(answer.owners.is_empty());
    }

    #[test]
    fn counts_add_up(first in any_heap(), last in any_heap()) {
        let (before, after) = (first.graph().nodes.len() as u64, last.graph().nodes.len() as u64);
        let answer = diff(&[first, last], usize::MAX).expect("two heaps");
        // What is in both, counted from either side.
        prop_assert_eq!(after - answer.born.objects, before - answer.gone.objects);
        let sum: u64 = answer.types.iter().map(|row| row.born.objects).sum();
        prop_assert_eq!(sum, answer.born.objects);
    }
}
