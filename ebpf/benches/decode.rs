//! Decodes the records of the kernel's rings. `cargo bench -p gctrace-ebpf --bench decode`

use criterion::{Criterion, Throughput};
use gctrace_ebpf::decode;
use std::hint::black_box;

/// Kinds of record that are frequent (`enum event_kind` of `bpf/event.h`).
const KINDS: [(&str, u32); 4] = [("pause", 1), ("exec", 3), ("stack", 6), ("code object", 7)];

/// Value of all fields: a stack of 16 frames, the default depth; names of 16 bytes.
const FIELD: u32 = 16;

/// At least as many as the longest record has.
const WORDS: usize = 2048;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for (name, kind) in KINDS {
        let fields = std::iter::repeat_n(FIELD, WORDS);
        let words: Vec<u32> = std::iter::once(kind).chain(fields).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(decode(&bytes).is_some(), "{name} is not decoded");
        group.bench_function(name, |bencher| bencher.iter(|| decode(black_box(&bytes))));
    }
    group.finish();
    criterion.final_summary();
}
