//! Arbitrary bytes as a heap: refused or a heap that can be written again, and every question about
//! it ends. The first byte chooses whether the rest is the file or, past its checksums, the content
//! of a block.

#![no_main]

use gctrace_heap::{Dominators, Heap, HeapGraph, MAGIC, diff};
use libfuzzer_sys::fuzz_target;

/// A file with one block of stored (uncompressed) bytes.
fn file_of(content: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(1_u32.to_le_bytes());
    let content = &content[..content.len().min(0xffff)];
    let length = content.len() as u16;
    for part in [content, &[]] {
        let length = if part.is_empty() { 0 } else { length };
        let mut crc = flate2::Crc::new();
        crc.update(part);
        bytes.extend(u32::from(length).to_le_bytes());
        bytes.extend((u32::from(length) + 5).to_le_bytes());
        bytes.extend(crc.sum().to_le_bytes());
        // RFC 1951, 3.2.4: the last block, not compressed.
        bytes.push(1);
        bytes.extend(length.to_le_bytes());
        bytes.extend((!length).to_le_bytes());
        bytes.extend(part);
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let graph = match bytes.split_first() {
        Some((0..=127, content)) => HeapGraph::read(file_of(content).as_slice()),
        Some((_, file)) => HeapGraph::read(file),
        None => return,
    };
    let Ok(graph) = graph else {
        return;
    };
    let mut again = Vec::new();
    let written = graph.write(&mut again);
    written.expect("a heap that was read is valid");
    let again = HeapGraph::read(again.as_slice()).expect("it was written");
    assert_eq!(again, graph);
    let heaps = [graph, again].map(|graph| Heap::new(graph).expect("it is valid"));
    let [heap, _] = &heaps;
    let dominators = Dominators::new(heap);
    let _ = heap.retained(&dominators, 5);
    let nodes: Vec<u32> = heap.indices().collect();
    let _ = heap.why("all", &nodes, 5);
    let _ = heap.show(5);
    for node in heap.indices().take(5) {
        let _ = heap.cycle(node);
        let _ = heap.small_component(node, 50);
    }
    // An address can be there twice, then one of them counts.
    let _ = diff(&heaps, 5).expect("two heaps");
});
