use super::*;
use crate::testing::Builder;
use gctrace_event::KindName;

fn holds(made: &mut Builder, list: NodeIndex, count: u32) {
    for index in 0..count {
        let batch = made.object("Batch");
        made.refer(list, &format!("[{index}]"), batch);
    }
}

fn suspects(made: Builder) -> Vec<(SuspectHolder, String, u64)> {
    let heap = made.heap();
    let answer = heap.retained(&Dominators::new(&heap), 5);
    let row = |suspect: Suspect| (suspect.holder, suspect.row.place, suspect.row.retained.objects);
    answer.suspects.into_iter().map(row).collect()
}

#[test]
fn usual_leaks_have_their_name() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let collect = made.function("collect", 12);
    made.refer(namespace, "['collect']", collect);
    let (defaults, cache) = (made.object("tuple"), made.object("list"));
    made.refer(collect, ".__defaults__", defaults);
    made.refer(defaults, "[0]", cache);
    holds(&mut made, cache, 500);
    let wrapper = made.object("functools._lru_cache_wrapper");
    made.refer(namespace, "['load']", wrapper);
    let kept = made.object("dict");
    made.refer(wrapper, ".cache", kept);
    holds(&mut made, kept, 400);
    let class = made.of_kind(KindName {
        type_name: "type".to_owned(),
        function: Some("Trainer".to_owned()),
        ..KindName::default()
    });
    made.refer(namespace, "['Trainer']", class);
    let (attributes, seen) = (made.object("dict"), made.object("list"));
    made.refer(class, ".__dict__", attributes);
    made.refer(attributes, "['seen']", seen);
    holds(&mut made, seen, 300);
    let hooks = made.object("list");
    made.refer(namespace, "['step_hooks']", hooks);
    holds(&mut made, hooks, 200);
    assert_eq!(
        suspects(made),
        [
            (SuspectHolder::DefaultArgument, "train.py:12 collect.__defaults__[0]".to_owned(), 501),
            (SuspectHolder::LruCache, "train.load.cache".to_owned(), 401),
            (SuspectHolder::ClassAttribute, "Trainer.seen".to_owned(), 301),
            (SuspectHolder::Hooks, "train.step_hooks".to_owned(), 201),
        ]
    );
}

#[test]
fn places_of_the_standard_library_have_their_name() {
    let mut made = Builder::default();
    let logging = made.module("logging");
    let (named, quiet) = (made.object("dict"), made.object("logging.Logger"));
    made.refer(logging, "['loggerDict']", named);
    holds(&mut made, named, 500);
    made.refer(logging, "['root']", quiet);
    let handlers = made.object("list");
    made.refer(quiet, ".handlers", handlers);
    holds(&mut made, handlers, 400);
    let program = made.module("train");
    let (notes, data) = (made.object("weakref.WeakKeyDictionary"), made.object("dict"));
    made.refer(program, "['notes']", notes);
    made.refer(notes, ".data", data);
    holds(&mut made, data, 300);
    let frame = made.of_kind(KindName {
        type_name: "frame".to_owned(),
        function: Some("setup.<locals>.fuse".to_owned()),
        ..KindName::default()
    });
    let layers = made.object("list");
    made.refer(program, "['error']", frame);
    made.refer(frame, "layers", layers);
    holds(&mut made, layers, 200);
    assert_eq!(
        suspects(made),
        [
            (SuspectHolder::Loggers, "logging.loggerDict".to_owned(), 501),
            (SuspectHolder::Handler, "logging.root.handlers".to_owned(), 401),
            (SuspectHolder::WeakKeys, "train.notes.data".to_owned(), 301),
            (SuspectHolder::Frame, "frame setup.<locals>.fuse: layers".to_owned(), 201),
        ]
    );
}

#[test]
fn alike_parts_are_one_suspect() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let cache = made.object("list");
    made.refer(namespace, "['cache']", cache);
    holds(&mut made, cache, 3);
    let model = made.object("Model");
    made.refer(namespace, "['model']", model);
    for node in cache + 1..=model {
        made.0.nodes[node as usize].bytes = Some(1 << 20);
    }
    assert_eq!(
        suspects(made),
        [
            (SuspectHolder::ModuleAttribute, "train.cache".to_owned(), 4),
            (SuspectHolder::ModuleAttribute, "train.model".to_owned(), 1),
        ]
    );
}

#[test]
fn a_chain_is_named_by_its_head() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let mut before = namespace;
    for index in 0..1_000 {
        let (node, attributes) = (made.object("Node"), made.object("dict"));
        made.refer(before, if index == 0 { "['head']" } else { "['next']" }, node);
        made.refer(node, ".__dict__", attributes);
        before = attributes;
    }
    assert_eq!(suspects(made), [(SuspectHolder::ModuleAttribute, "train.head".to_owned(), 2_000)]);
}

#[test]
fn a_heap_without_bytes_has_no_suspects() {
    let mut made = Builder::default();
    made.module("train");
    for node in &mut made.0.nodes {
        node.bytes = None;
    }
    assert!(suspects(made).is_empty());
}

/// As atexit holds bound methods: each retains little, all together most.
#[test]
fn objects_that_c_code_holds_are_one_suspect() {
    let mut made = Builder::default();
    made.module("train");
    for _ in 0..50 {
        let method = made.of_kind(KindName {
            type_name: "method".to_owned(),
            function: Some("Connection.close".to_owned()),
            ..KindName::default()
        });
        made.0.nodes[method as usize].references = Some(1);
        let connection = made.object("app.Connection");
        made.refer(method, ".__self__", connection);
        holds(&mut made, connection, 20);
        // The interpreter's own.
        let table = made.object("dict");
        made.0.nodes[table as usize].references = Some(1);
        holds(&mut made, table, 20);
    }
    let found = suspects(made);
    let [(SuspectHolder::Outside, place, 1_100)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(place.starts_with("outside the heap: method"), "{place}");
}
