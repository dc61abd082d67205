//! Damaged files and damaged caches: a result or an error, never a panic, never a wrong cache.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_probes::{
    Machine, Resolution, ResolveError, ResolveOptions, identify, resolve, resolve_bytes,
};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;
use test_kit::interpreters;

/// A static interpreter, with everything in one file.
fn python() -> Option<&'static (PathBuf, Vec<u8>)> {
    static FILE: OnceLock<Option<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILE.get_or_init(|| {
        let found = interpreters::interpreters("python").into_iter().find(|one| !one.is("shared"));
        let Some(found) = found else {
            interpreters::skip("damaged files", "no static interpreter");
            return None;
        };
        eprintln!("damaging {}", found.name);
        let bytes = std::fs::read(&found.path).unwrap();
        Some((found.path, bytes))
    })
    .as_ref()
}

/// Where damage matters: the headers, and the tables at the end.
fn position(size: usize) -> impl Strategy<Value = usize> {
    prop_oneof![0..4096usize, size - 4096..size, 0..size]
}

fn offline() -> ResolveOptions {
    ResolveOptions { debug_roots: Vec::new(), ..ResolveOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(10), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(
        changes in (0..1usize << 22).prop_flat_map(|_| {
            let size = python().map_or(8192, |(_, bytes)| bytes.len());
            prop::collection::vec((position(size), any::<u8>()), 1..40)
        })
    ) {
        if let Some((path, bytes)) = python() {
            let mut bytes = bytes.clone();
            for (at, value) in changes {
                bytes[at] = value;
            }
            let _any_answer = resolve_bytes(path, &bytes, &offline());
        }
    }

    #[test]
    fn cut_files_never_panic(part in 0.0..1.0f64) {
        if let Some((path, bytes)) = python() {
            let end = (bytes.len() as f64 * part) as usize;
            let _any_answer = resolve_bytes(path, &bytes[..end], &offline());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _any_answer = resolve_bytes(Path::new("x"), &bytes, &offline());
        let head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0";
        bytes.splice(..head.len().min(bytes.len()), head.iter().copied());
        let _any_answer = resolve_bytes(Path::new("x"), &bytes, &offline());
    }
}

#[test]
fn other_files_have_no_interpreter() {
    for file in ["/bin/true", "/etc/passwd"] {
        assert_eq!(resolve(Path::new(file), &offline()).unwrap(), None, "{file}");
    }
    let missing = resolve(Path::new("/nonexistent"), &offline());
    assert!(matches!(missing, Err(ResolveError::Read { .. })));
    assert!(matches!(resolve(Path::new("/"), &offline()), Err(ResolveError::Read { .. })));
    assert!(identify(Path::new("/nonexistent")).is_err());
}

#[test]
fn an_older_version_is_named() {
    // _PyRuntime was added in 3.7; an unknown version must not be mistaken for another.
    let Some((path, bytes)) = python() else {
        return;
    };
    let mut bytes = bytes.clone();
    let version = gctrace_probes::resolve_bytes(path, &bytes, &offline()).unwrap().unwrap().version;
    let hex = [0xf0, version.micro.unwrap(), version.minor, 3];
    for at in memchr::memmem::find_iter(&bytes.clone(), &hex) {
        bytes[at + 2] = 16;
    }
    let error = resolve_bytes(path, &bytes, &offline()).unwrap_err();
    assert!(matches!(error, ResolveError::Version { .. }), "{error}");
}

#[test]
fn another_machine_is_named() {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    // EM_AARCH64, EM_X86_64
    let (number, other) = match Machine::HOST {
        Machine::X86_64 => (183, Machine::Aarch64),
        Machine::Aarch64 => (62, Machine::X86_64),
    };
    bytes[18] = number;
    let error = resolve_bytes(Path::new("x"), &bytes, &offline()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("x is built for {other}; gctrace traces {} programs only", Machine::HOST)
    );
}

fn entry(folder: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).unwrap();
    let entry = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "one file, one entry");
    entry
}

fn cached(path: &Path, folder: &Path) -> Resolution {
    let options = ResolveOptions { cache: Some(folder.to_owned()), ..offline() };
    resolve(path, &options).unwrap().unwrap()
}

#[test]
fn the_cache_answers_and_survives_damage() {
    let Some((path, _)) = python() else { return };
    let root = TempDir::new().unwrap();
    let folder = root.path().join("new").join("cache");
    let truth = cached(path, &folder);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&entry(&folder))), (0o700, 0o600));

    // The answer comes from the entry: a marker in it shows up.
    let text = std::fs::read_to_string(entry(&folder)).unwrap();
    let marked = text.replace("\"warnings\":[", "\"warnings\":[\"from the cache\"");
    std::fs::write(entry(&folder), &marked).unwrap();
    assert_eq!(cached(path, &folder).warnings, ["from the cache"]);

    for damage in [
        "",
        "{",
        "null",
        "[]",
        &text[..text.len() / 2],
        &text.replace("resolution/1", "resolution/0"),
    ] {
        std::fs::write(entry(&folder), damage).unwrap();
        assert_eq!(cached(path, &folder), truth, "{damage:.40}");
        assert_eq!(std::fs::read_to_string(entry(&folder)).unwrap(), text, "rewritten");
    }
    // An entry that other users could have written is not trusted.
    std::fs::write(entry(&folder), &marked).unwrap();
    std::fs::set_permissions(entry(&folder), PermissionsExt::from_mode(0o622)).unwrap();
    assert_eq!(cached(path, &folder), truth);
}

#[test]
fn an_unusable_cache_costs_only_time() {
    let Some((path, _)) = python() else { return };
    let root = TempDir::new().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(cached(path, &file.join("below")), cached(path, &root.path().join("other")));
}
