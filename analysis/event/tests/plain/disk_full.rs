//! A disk that fills up: flushed records stay, the JSON is closed, the error has a type.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::{TraceCompression, TraceFile, WriteError};
use nix::sys::resource::{Resource, setrlimit};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::records::{end, frame, header, pause, pause_in};

/// Writes pauses, each in a stack of its own, until an error, then ends the trace. Returns how many
/// were taken, and the error.
fn fill(path: &Path) -> (u64, WriteError) {
    let file = File::create(path).unwrap();
    let compression = TraceCompression::by_name(path);
    let mut trace = TraceFile::create(file, path, compression, &header()).unwrap();
    let mut taken = 0;
    let error = loop {
        assert!(taken < 10_000_000, "the disk never filled");
        // An error of a flush inside `write` follows the buffering of the record.
        let id = u32::try_from(taken + 1).unwrap();
        if let Err(error) = trace.write(&frame(id, Some(id - 1).filter(|id| *id > 0))) {
            break error;
        }
        let result = trace.write(&pause_in(taken * 7919, id));
        taken += 1;
        if let Err(error) = result {
            break error;
        }
    };
    assert!(matches!(trace.write(&pause(0)), Err(WriteError::Stopped { .. })));
    let size = trace.finish(&end("disk full")).unwrap();
    assert_eq!(size, path.metadata().unwrap().len());
    (taken, error)
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = File::open(path).unwrap();
    let mut text_of = |mut reader: Box<dyn Read>| reader.read_to_string(&mut text).unwrap();
    match TraceCompression::by_name(path) {
        TraceCompression::None => text_of(Box::new(file)),
        TraceCompression::Gzip => text_of(Box::new(flate2::read::GzDecoder::new(file))),
        TraceCompression::Zstd => text_of(Box::new(zstd::Decoder::new(file).unwrap())),
    };
    text
}

fn check(path: &Path) {
    let (taken, error) = fill(path);
    // The limit of the process may be reached before the end of the disk.
    let is_full = matches!(error, WriteError::DiskFull { .. } | WriteError::SizeLimit { .. });
    assert!(is_full, "{error}");
    let json: serde_json::Value = serde_json::from_str(&text(path)).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let pauses = events.iter().filter(|event| event["cat"] == "gc").count();
    assert_eq!(pauses as u64, taken, "every pause taken is in the file");
    let last = events.last().unwrap();
    assert_eq!(last["name"], "gctrace_end");
    assert_eq!(last["args"]["why"], "disk full");
    assert!(json["stackFrames"].is_null(), "no room for it");
    let ids = |name: &str| -> HashSet<u64> {
        let ids = events.iter().filter(|event| event["name"] == "gctrace_frame");
        ids.map(|event| event["args"][name].as_u64().unwrap_or(0)).collect()
    };
    let frames = ids("id");
    let named = events.iter().filter_map(|event| event["sf"].as_u64());
    assert!(named.into_iter().all(|id| frames.contains(&id)));
    assert!(ids("parent").iter().all(|id| *id == 0 || frames.contains(id)));
}

/// The disk has room for every record, but not for the section of frames after them.
fn check_without_room_for_the_section(path: &Path) {
    // As many as leave the reserve of 128 KiB free on 512 KiB, but not the section. Whether a
    // compressed one fits is known from its size before.
    let count = match TraceCompression::by_name(path) {
        TraceCompression::None => 2_200,
        TraceCompression::Gzip | TraceCompression::Zstd => 11_000,
    };
    let file = File::create(path).unwrap();
    let compression = TraceCompression::by_name(path);
    let mut trace = TraceFile::create(file, path, compression, &header()).unwrap();
    for id in 1..=count {
        trace.write(&frame(id, None)).unwrap();
    }
    let size = trace.finish(&end("the command ended")).unwrap();
    assert_eq!(size, path.metadata().unwrap().len());
    let json: serde_json::Value = serde_json::from_str(&text(path)).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), count as usize + 2);
    assert_eq!(events.last().unwrap()["name"], "gctrace_end");
    assert!(json["stackFrames"].is_null(), "no room for it");
}

/// The limit applies to the whole process; the other tests write less or to a file system of their
/// own.
#[test]
fn limit_on_file_size() {
    setrlimit(Resource::RLIMIT_FSIZE, 1 << 19, 1 << 19).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz", "trace.json.zst"] {
        check(&dir.path().join(name));
    }
}

/// A file system of 512 KiB, where this machine lets us mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
            .arg(dir.path())
            .output_in_time()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status_in_time();
    }
}

#[test]
fn small_tmpfs() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a tmpfs needs root");
        return;
    };
    for name in ["trace.json", "trace.json.gz", "trace.json.zst"] {
        let path = disk.0.path().join(name);
        check(&path);
        std::fs::remove_file(&path).unwrap();
        check_without_room_for_the_section(&path);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn device_that_is_always_full() {
    let path = Path::new("/dev/full");
    let file = File::options().write(true).open(path).unwrap();
    let error = TraceFile::create(file, path, TraceCompression::None, &header()).unwrap_err();
    assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("/dev/full"));
}
