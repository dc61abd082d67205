//! `gctrace heap show`, `why`, `dominators`, `diff` and `gctrace export` on heaps of real programs
//! with known leaks. Needs no privileges: tests/python/gcheap.py writes the heaps.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;
use test_kit::interpreters::{any_python, root};
use test_kit::limit::WithTimeout as _;

/// The heaps of tests/python/leaks.py, and what the interpreter says of the last one.
static LEAKS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(any_python())
        .arg(root().join("tests/python/leaks.py"))
        .arg(folder.path())
        .output_in_time()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    folder
});

fn gctrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gctrace"))
        .args(arguments)
        .current_dir(LEAKS.path())
        .output_in_time()
        .unwrap()
}

fn answer(arguments: &[&str]) -> Value {
    let output = gctrace(&[&["heap"], arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn truth() -> Value {
    let text = std::fs::read(LEAKS.path().join("truth.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn places(groups: &Value) -> Vec<&str> {
    let groups = groups.as_array().unwrap().iter();
    groups.filter_map(|group| group["place"].as_str()).collect()
}

#[test]
fn objects_are_those_of_the_interpreter() {
    let (answer, truth) = (answer(&["show", "-n", "1000", "c.gcheap"]), truth());
    let heap = &answer["heaps"][0];
    assert_eq!(heap["tracked"], truth["tracked"]);
    assert_eq!(heap["contradictions"], 0, "{heap}");
    assert_eq!(heap["garbage"]["objects"], truth["garbage"], "{heap}");
    let types = answer["show"]["types"].as_array().unwrap();
    let of = |name: &str| types.iter().find(|row| row["type_name"] == name).unwrap();
    assert_eq!(of("__main__.Batch")["all"]["objects"], truth["batches"]);
    assert_eq!(of("__main__.Node")["garbage"]["objects"], 3);
}

#[test]
fn leaks_are_found_where_they_are() {
    let answer = answer(&["dominators", "c.gcheap"]);
    let suspects = &answer["dominators"]["suspects"];
    let found: Vec<(&str, &str)> = suspects
        .as_array()
        .unwrap()
        .iter()
        .map(|suspect| (suspect["holder"].as_str().unwrap(), suspect["place"].as_str().unwrap()))
        .collect();
    let holds = |holder: &str, place: &str| {
        found.iter().any(|(suspect, at)| *suspect == holder && at.contains(place))
    };
    assert!(holds("default_argument", "collect.__defaults__[0]"), "{found:?}");
    assert!(holds("lru_cache", "load"), "{found:?}");
    assert!(holds("class_attribute", "Model.seen"), "{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn paths_lead_to_what_holds_objects() {
    let batches = answer(&["why", "Batch", "c.gcheap"]);
    let groups = &batches["why"]["groups"];
    assert_eq!(groups[0]["count"]["objects"], 1000);
    assert_eq!(groups[0]["example"]["root"], "module __main__");
    assert!(places(groups)[0].contains("collect.__defaults__[0]["), "{groups}");
    assert_eq!(batches["why"]["found"]["objects"], truth()["batches"]);
    let ring = answer(&["why", "Node", "c.gcheap"]);
    assert_eq!(ring["why"]["groups"][0]["held"], "nothing");
    let steps = ring["why"]["groups"][0]["example"]["steps"].as_array().unwrap();
    let nodes = steps.iter().filter(|step| step["object"]["type_name"] == "__main__.Node");
    assert_eq!(nodes.count(), 3, "the whole ring");
    // By the address of one of them, as people would look it up.
    let address = steps[0]["object"]["address"].as_str().unwrap();
    assert_eq!(answer(&["why", address, "c.gcheap"])["why"]["found"]["objects"], 1);
}

#[test]
fn what_was_born_between_heaps_is_counted_with_its_owner() {
    let two = answer(&["diff", "a.gcheap", "b.gcheap"]);
    let three = answer(&["diff", "a.gcheap", "b.gcheap", "c.gcheap"]);
    for (diff, heaps) in [(&two, 2), (&three, 3)] {
        let types = diff["diff"]["types"].as_array().unwrap();
        let batch = types.iter().find(|row| row["type_name"] == "__main__.Batch").unwrap();
        assert_eq!(batch["born"]["objects"], 500, "{batch}");
        assert_eq!(batch["heaps"].as_array().unwrap().len(), heaps);
        let owner = &diff["diff"]["owners"][0];
        assert!(owner["place"].as_str().unwrap().contains("collect.__defaults__[0]"), "{owner}");
    }
    let same = answer(&["diff", "a.gcheap", "a.gcheap"]);
    assert_eq!(same["diff"]["born"]["objects"], 0);
    assert_eq!(same["diff"]["gone"]["objects"], 0);
}

#[test]
fn heaps_are_exported() {
    let export = |options: &[&str], file: &str| {
        let output = gctrace(&[&["export", "c.gcheap", "-f", "-o", file], options].concat());
        assert!(output.status.success(), "{output:?}");
        std::fs::read_to_string(LEAKS.path().join(file)).unwrap()
    };
    let ring = export(&["--cycle", "Node"], "ring.dot");
    assert_eq!(ring.matches("[label=\"__main__.Node\\n").count(), 3, "{ring}");
    assert!(ring.contains("(garbage)") && ring.ends_with("}\n"));
    // On standard output, too.
    let path = gctrace(&["export", "c.gcheap", "--path", "Batch"]);
    let path = String::from_utf8(path.stdout).unwrap();
    assert!(path.contains("[label=\"module\\n__main__\""), "{path}");
}

/// What graphviz draws from a DOT file has its boxes and arrows, with their texts.
#[test]
fn graphviz_draws_what_is_exported() {
    for (options, texts) in [
        (["--cycle", "Node"], ["__main__.Node", "(garbage)"]),
        (["--path", "Batch"], ["module", "__main__.Batch"]),
    ] {
        let file = LEAKS.path().join(format!("{}.dot", options[1]));
        let name = file.to_str().unwrap();
        let output = gctrace(&[&["export", "c.gcheap", "-f", "-o", name], &options[..]].concat());
        assert!(output.status.success(), "{output:?}");
        let dot = std::fs::read_to_string(&file).unwrap();
        assert!(dot.starts_with("digraph heap {"), "{dot}");
        let drawn = Command::new("dot").arg("-Tsvg").arg(&file).output_in_time();
        let Ok(drawn) = drawn else {
            eprintln!("skipped graphviz_draws_what_is_exported: there is no dot (graphviz) here");
            return;
        };
        let said = String::from_utf8_lossy(&drawn.stderr);
        assert!(drawn.status.success() && said.is_empty(), "{said}");
        let svg = String::from_utf8(drawn.stdout).unwrap();
        for text in texts {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let arrows = dot.matches(" -> ").count();
        assert!(arrows >= 3, "{dot}");
        assert_eq!(svg.matches("class=\"edge\"").count(), arrows, "{svg}");
        let boxes = dot.matches("fillcolor=").count();
        assert_eq!(svg.matches("class=\"node\"").count(), boxes, "{svg}");
    }
}

#[test]
fn mistakes_are_explained() {
    let error = |arguments: &[&str]| {
        let output = gctrace(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&["heap", "show", "missing.gcheap"]).contains("cannot open missing.gcheap"));
    assert!(error(&["heap", "show", "truth.json"]).contains("not a heap"));
    assert!(error(&["heap", "diff", "b.gcheap", "a.gcheap"]).contains("oldest heap first"));
    assert!(error(&["heap", "why", "batc", "a.gcheap"]).contains("there are __main__.Batch"));
    assert!(
        error(&["heap", "why", "0x10", "a.gcheap"]).contains("no object of the heap is at 0x10")
    );
    assert!(error(&["export", "a.gcheap", "-o", "x.svg"]).contains("--path TYPE|ADDRESS"));
    let by_graphviz = error(&["export", "a.gcheap", "--path", "Batch", "-o", "x.svg"]);
    let command = "gctrace export a.gcheap --path Batch | dot -Tsvg -o x.svg";
    assert!(by_graphviz.contains(command), "{by_graphviz}");
    assert!(error(&["export", "a.gcheap", "-o", "x.txt"]).contains("--format dot"));
    assert!(error(&["export", "truth.json", "-o", "x.dot"]).contains("are for heaps"));
    cut(Path::new("a.gcheap"));
    assert!(error(&["heap", "show", "cut.gcheap"]).contains("incomplete"));
}

/// Writes half a heap as `cut.gcheap`.
fn cut(heap: &Path) {
    let bytes = std::fs::read(LEAKS.path().join(heap)).unwrap();
    std::fs::write(LEAKS.path().join("cut.gcheap"), &bytes[..bytes.len() / 2]).unwrap();
}

/// Three leaks of a service, from three heaps to their types, to what holds them and, of functions, to their line;
/// and no other owner holds as much.
#[test]
fn three_planted_leaks_are_followed_to_their_lines() {
    let script = root().join("tests/python/leaking_service.py");
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(any_python()).arg(&script).arg(folder.path()).output_in_time().unwrap();
    assert!(made.status.success(), "{made:?}");
    let diff = Command::new(env!("CARGO_BIN_EXE_gctrace"))
        .args(["heap", "diff", "a.gcheap", "b.gcheap", "c.gcheap", "--format", "json"])
        .current_dir(folder.path())
        .output_in_time()
        .unwrap();
    let answer: Value = serde_json::from_slice(&diff.stdout).unwrap();
    let types = answer["diff"]["types"].as_array().unwrap();
    for name in ["__main__.Session", "__main__.Answer"] {
        let row = types.iter().find(|row| row["type_name"] == name).unwrap();
        assert_eq!(row["born"]["objects"], 200, "as many requests between the first two heaps");
        assert_eq!(row["gone"]["objects"], 0, "{name}");
    }
    let owners = answer["diff"]["owners"].as_array().unwrap();
    let source = std::fs::read_to_string(&script).unwrap();
    let lambda = source.lines().position(|line| line.contains("lambda event")).unwrap() + 1;
    let handler = format!("function leaking_service.py:{lambda}");
    let expected = [
        ("events.handlers", handler.as_str()),
        ("SESSIONS", "dict"),
        ("answer", "__main__.Answer"),
    ];
    let found = owners
        .iter()
        .take(3)
        .map(|owner| (owner["place"].as_str().unwrap(), owner["mostly"].as_str().unwrap()));
    let found: Vec<(&str, &str)> = found.collect();
    for (place, mostly) in expected {
        let is_it = |(at, kind): &&(&str, &str)| at.contains(place) && *kind == mostly;
        assert!(found.iter().any(|one| is_it(&one)), "{place}: {found:?}");
    }
    let others = owners.iter().skip(3).filter_map(|owner| owner["born"]["objects"].as_u64());
    assert!(others.max().unwrap_or(0) < 40, "{owners:?}");
}
