use super::*;
use gctrace_event::KindName;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[a-z.\\[\\]'é\\n]{0,8}").expect("a regex")
}

fn place() -> impl Strategy<Value = HeapPlace> {
    prop_oneof![
        (0..3u8).prop_map(HeapPlace::Generation),
        Just(HeapPlace::Frozen),
        Just(HeapPlace::Tracked),
        Just(HeapPlace::Untracked),
    ]
}

prop_compose! {
    fn kind()(
        type_name in text(),
        function in proptest::option::of(text()),
        file in proptest::option::of(text()),
        line in proptest::option::of(any::<u32>()),
    ) -> ObjectKind {
        ObjectKind { pid: 7, id: 0, name: KindName { type_name, function, file, line } }
    }
}

prop_compose! {
    /// Indices of texts and kinds are taken modulo their number.
    fn node()(
        address in prop_oneof![any::<u64>(), (0..9_u64).prop_map(|n| 0x7f00_0000_0000 + n * 16)],
        kind in any::<u32>(),
        label in proptest::option::of(any::<u32>()),
        references in proptest::option::of(any::<u32>()),
        bytes in proptest::option::of(any::<u64>()),
        place in place(),
    ) -> HeapNode {
        HeapNode { address, kind, label, references, bytes, place }
    }
}

fn name() -> impl Strategy<Value = HeapEdgeName> {
    prop_oneof![
        any::<u32>().prop_map(HeapEdgeName::Text),
        any::<u32>().prop_map(HeapEdgeName::Item),
        Just(HeapEdgeName::Unnamed),
    ]
}

fn graph() -> impl Strategy<Value = HeapGraph> {
    let indices = || (any::<u32>(), any::<u32>());
    (
        proptest::collection::vec(kind(), 1..4),
        proptest::collection::vec(text(), 1..4),
        proptest::collection::vec(node(), 0..40),
        proptest::collection::vec((indices(), name()), 0..80),
        proptest::collection::vec(indices(), 0..4),
    )
        .prop_map(|(mut kinds, texts, mut nodes, edges, roots)| {
            for (id, kind) in (1..).zip(&mut kinds) {
                kind.id = id;
            }
            let of = |index: u32, length: usize| index % length.max(1) as u32;
            for node in &mut nodes {
                node.kind = 1 + of(node.kind, kinds.len());
                node.label = node.label.map(|label| of(label, texts.len()));
            }
            let mut edges: Vec<HeapEdge> = edges
                .into_iter()
                .filter(|_| !nodes.is_empty())
                .map(|((from, to), name)| HeapEdge {
                    from: of(from, nodes.len()),
                    to: of(to, nodes.len()),
                    name: match name {
                        HeapEdgeName::Text(text) => HeapEdgeName::Text(of(text, texts.len())),
                        other => other,
                    },
                })
                .collect();
            edges.sort_by_key(|edge| edge.from);
            let roots = roots
                .into_iter()
                .filter(|_| !nodes.is_empty())
                .map(|(node, name)| HeapRoot {
                    node: of(node, nodes.len()),
                    name: of(name, texts.len()),
                })
                .collect();
            HeapGraph {
                header: HeapHeader {
                    pid: 7,
                    command: vec!["python".to_owned(), "train.py".to_owned()],
                    version: "3.12.4".to_owned(),
                    stopped_ns: Some(1),
                    notes: texts.clone(),
                    ..HeapHeader::default()
                },
                kinds,
                texts,
                nodes,
                edges,
                roots,
            }
        })
}

fn written(graph: &HeapGraph) -> Vec<u8> {
    let mut bytes = Vec::new();
    graph.write(&mut bytes).expect("a valid graph");
    bytes
}

/// A file whose blocks contain these bytes.
fn file_of(content: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    let mut out = BlockWriter::new(&mut bytes);
    out.write_all(content).expect("memory");
    out.finish().expect("memory");
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(graph in graph()) {
        prop_assert_eq!(HeapGraph::read(written(&graph).as_slice()).expect("a heap"), graph);
    }

    #[test]
    fn no_damage_goes_unnoticed(graph in graph(), position in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = written(&graph);
        let position = position.index(bytes.len());
        bytes[position] ^= 1 << bit;
        // A changed bit can be one that deflate does not use.
        if let Ok(read) = HeapGraph::read(bytes.as_slice()) {
            prop_assert_eq!(read, graph);
        }
    }

    #[test]
    fn no_shorter_file_is_read(graph in graph(), position in any::<prop::sample::Index>()) {
        let bytes = written(&graph);
        let shorter = &bytes[..position.index(bytes.len())];
        prop_assert!(HeapGraph::read(shorter).is_err());
    }

    /// Below the checksums, so that the decoder itself is reached.
    #[test]
    fn any_content_is_read_or_refused(
        graph in graph(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        tail in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut content = Vec::new();
        let bytes = written(&graph);
        BlockReader::new(&bytes[12..]).read_to_end(&mut content).expect("blocks");
        for (position, byte) in changes {
            let position = position.index(content.len());
            content[position] = byte;
        }
        content.extend(tail);
        if let Ok(read) = HeapGraph::read(file_of(&content).as_slice()) {
            prop_assert!(read.check().is_ok());
        }
    }
}

#[test]
fn other_files_are_refused() {
    let read = |bytes: &[u8]| HeapGraph::read(bytes).expect_err("no heap").to_string();
    assert!(read(b"").starts_with("not a heap"));
    assert!(read(b"{\"traceEvents\":[]}").starts_with("not a heap"));
    assert!(read(&MAGIC).starts_with("incomplete"));
    let mut newer = MAGIC.to_vec();
    newer.extend(9_u32.to_le_bytes());
    assert!(read(&newer).starts_with("written in version 9"));
}

#[test]
fn counts_that_nothing_follows_reserve_no_memory() {
    let mut content = Vec::new();
    write_text(&mut content, br#"{"header":{},"kinds":[]}"#).expect("memory");
    write_number(&mut content, u64::MAX).expect("memory");
    let error = HeapGraph::read(file_of(&content).as_slice()).expect_err("no texts");
    assert!(matches!(error, HeapFileError::Incomplete), "{error}");
}

#[test]
fn one_byte_stands_for_few() {
    let zeros = vec![0; 10 << 20];
    let bytes = file_of(&zeros);
    assert!(bytes.len() > zeros.len() / 40, "{} bytes", bytes.len());
    // The same block without its padding: after magic and version, the second number is its length.
    let block = file_of(&zeros[..1 << 20]);
    let padded = block.len() - 12 - 12 - 12 - 2;
    let mut dense = block[..24 + 2_000].to_vec();
    dense[16..20].copy_from_slice(&2_000_u32.to_le_bytes());
    assert!(padded > 30_000);
    let error = HeapGraph::read(dense.as_slice()).expect_err("too dense");
    assert!(matches!(error, HeapFileError::Damaged(_)), "{error}");
}
