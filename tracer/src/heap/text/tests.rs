use super::*;
use gctrace_heap::{Dominators, Heap, HeapGraph};
use test_kit::heap::classic;

fn text(heaps: &[Heap], answer: HeapAnswer) -> String {
    let files = ["a.gcheap", "b.gcheap", "c.gcheap"];
    let report = HeapReport::new(files.into_iter().zip(heaps), answer);
    super::answer(&report, Style::OF_FILES)
}

#[test]
fn answers() {
    let heap = classic();
    let show = HeapAnswer::Show(heap.show(4));
    let batches = heap.why("Batch", &heap.of_type("Batch"), 20);
    let nodes = heap.why("Node", &heap.of_type("__main__.Node"), 20);
    let dominators = heap.retained(&Dominators::new(&heap), 20);
    let heaps = std::slice::from_ref(&heap);
    let shown = [
        text(heaps, show),
        text(heaps, HeapAnswer::Why(batches)),
        text(heaps, HeapAnswer::Why(nodes)),
        text(heaps, HeapAnswer::Dominators(dominators)),
    ];
    insta::assert_snapshot!(shown.join("\n--------\n"));
}

#[test]
fn differences() {
    let with = |change: &dyn Fn(&mut HeapGraph)| {
        let mut graph = classic().graph().clone();
        change(&mut graph);
        Heap::new(graph).expect("a valid heap")
    };
    // A batch was born, the ring is gone; a count was stopped at, and a size is unknown.
    let first = with(&|graph| {
        graph.nodes[6].address = 0x7000;
        graph.nodes[7].bytes = None;
        graph.nodes[8].references = Some(0);
    });
    let last = with(&|graph| {
        for node in &mut graph.nodes[9..=11] {
            node.address += 0x1000;
        }
        graph.header.notes.push("The layout of torch.Tensor is unknown.".to_owned());
    });
    let heaps = [first, last];
    let diff = gctrace_heap::diff(&heaps, 20).expect("two heaps");
    insta::assert_snapshot!(text(&heaps, HeapAnswer::Diff(diff)));
}

#[test]
fn of_a_long_cycle_the_ends_are_printed() {
    let mut graph = classic().graph().clone();
    let (first, length) = (graph.nodes.len() as u32, 250_000);
    let node = *graph.nodes.last().expect("a node");
    let last = first + length - 1;
    for number in first..=last {
        graph.nodes.push(gctrace_heap::HeapNode {
            address: 0x10_0000 + 16 * u64::from(number),
            references: Some(1),
            label: None,
            ..node
        });
        graph.edges.push(gctrace_heap::HeapEdge {
            from: number,
            to: if number == last { first } else { number + 1 },
            name: gctrace_heap::HeapEdgeName::Unnamed,
        });
    }
    let heap = Heap::new(graph).expect("a valid heap");
    let why = HeapAnswer::Why(heap.why("one", &[last], 20));
    let text = text(std::slice::from_ref(&heap), why);
    assert!(text.contains("in a cycle of 250,000 objects"), "{text}");
    assert!(text.contains(" more …"), "{text}");
    assert!(text.lines().count() < 60, "{text}");
}
