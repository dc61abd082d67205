use super::*;
use gctrace_event::{TraceCompression, TraceEnd, TraceFile, TraceHeader};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;

fn create(path: &Path) -> Result<NewTrace, FileError> {
    create_beside(path, &[])
}

fn create_beside(path: &Path, command: &[&str]) -> Result<NewTrace, FileError> {
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    NewTrace::create(path, &Invoker::detect(), &command, "-o")
}

fn refused(path: &Path, command: &[&str]) -> String {
    let error = create_beside(path, command).expect_err("refused");
    assert!(matches!(error, FileError::Refused { .. }), "{error}");
    error.to_string()
}

/// Writes a trace with this host in its header.
fn record(path: &Path, host: &str) -> Option<PathBuf> {
    let header = TraceHeader { host: host.to_owned(), ..TraceHeader::default() };
    let mut trace = create(path).expect("a file");
    let compression = TraceCompression::by_name(path);
    let file = TraceFile::create(trace.writer().expect("open"), path, compression, &header);
    file.and_then(|file| file.finish(&TraceEnd::default())).expect("written");
    trace.appear("-o").expect("a name");
    trace.keep().expect("kept")
}

/// gctrace may be killed before the first line is written: no empty file is left.
#[test]
fn a_trace_without_a_header_has_no_name() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("trace.json");
    let mut trace = create(&path).expect("a file");
    assert!(names(place.path()).is_empty());
    trace.appear("-o").expect("a name");
    assert_eq!(names(place.path()), ["trace.json"]);
    drop(trace);
    assert!(names(place.path()).is_empty());
    let mut trace = create(&path).expect("a file");
    std::fs::write(&path, "another's").expect("written");
    let error = trace.appear("-o").expect_err("taken");
    assert!(error.to_string().contains("another program"), "{error}");
    drop(trace);
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "another's");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().display().to_string()).collect();
    names.sort();
    names
}

#[test]
fn the_trace_before_is_kept() {
    let place = tempfile::tempdir().expect("a folder");
    for name in ["trace.json", "trace.json.gz", "trace.json.zst"] {
        let path = place.path().join(name);
        assert_eq!(record(&path, "first"), None);
        let first = std::fs::read(&path).expect("the first");
        let old = record(&path, "second").expect("one was there");
        assert_eq!(old, place.path().join(format!("{name}.old")));
        assert_eq!(std::fs::read(&old).expect("the first"), first);
        let second = std::fs::read(&path).expect("the second");
        assert_ne!(second, first);
        record(&path, "third");
        assert_eq!(std::fs::read(&old).expect("the second"), second);
    }
    assert_eq!(names(place.path()).len(), 6, "{:?}", names(place.path()));
}

#[test]
fn what_was_not_begun_leaves_everything_as_it_was() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("trace.json");
    drop(create(&path).expect("a file"));
    assert!(names(place.path()).is_empty());
    record(&path, "first");
    record(&path, "second");
    let before = std::fs::read(&path).expect("a trace");
    drop(create(&path).expect("a file"));
    assert_eq!(names(place.path()), ["trace.json", "trace.json.old"]);
    assert_eq!(std::fs::read(&path).expect("a trace"), before);
}

#[test]
fn nothing_else_is_overwritten() {
    let place = tempfile::tempdir().expect("a folder");
    let contents: [&[u8]; 5] = [
        b"print('mine')\n",
        b"{}",
        br#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"process_name","pid":1}]}"#,
        b"\x1f\x8b and no gzip",
        b"\x1f",
    ];
    for (index, content) in contents.iter().enumerate() {
        let path = place.path().join(format!("{index}.json"));
        std::fs::write(&path, content).expect("written");
        let printed = refused(&path, &[]);
        assert!(printed.contains("not a trace of gctrace"), "{printed}");
        assert_eq!(std::fs::read(&path).expect("there"), *content);
    }
    let path = place.path().join("trace.json");
    record(&path, "first");
    std::fs::write(place.path().join("trace.json.old"), "mine").expect("written");
    let printed = refused(&path, &[]);
    assert!(printed.contains("trace.json.old"), "{printed}");
}

#[test]
fn an_empty_file_and_a_device_are_written_to() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("empty");
    std::fs::write(&path, "").expect("written");
    drop(create(&path).expect("a file"));
    assert_eq!(names(place.path()), ["empty"], "not ours to remove");
    assert_eq!(record(&path, "first"), None);
    drop(create(Path::new("/dev/null")).expect("a device"));
    assert!(matches!(create(place.path()), Err(FileError::Create { .. })));
}

/// For example, a link to a larger disk.
#[test]
fn a_link_stays_a_link() {
    let place = tempfile::tempdir().expect("a folder");
    let (elsewhere, link) = (place.path().join("elsewhere"), place.path().join("t.json"));
    std::os::unix::fs::symlink(&elsewhere, &link).expect("a link");
    record(&link, "first");
    record(&link, "second");
    assert_eq!(names(place.path()), ["elsewhere", "elsewhere.old", "t.json"]);
    assert!(link.is_symlink());
}

#[test]
fn files_of_the_command_are_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("out.json");
    let other = format!("{}/../{}/out.json", place.path().display(), {
        let name = place.path().file_name().expect("a name");
        name.display()
    });
    let option = format!("--log={}", path.display());
    for word in [path.to_str().expect("text"), &other, &option] {
        let printed = refused(&path, &["python", "train.py", word]);
        assert!(printed.contains("the command names this file"), "{printed}");
        refused(&path, &[word]);
    }
    assert!(names(place.path()).is_empty());
    drop(create_beside(&path, &["out.json", "a=", "x.json", "--log=other"]).expect("another"));
    record(&path, "a trace");
    refused(&path, &["gctrace", "analyze", &other]);
}

#[test]
fn a_pipe_without_a_reader_is_not_waited_for() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("pipe");
    let name = CString::new(path.as_os_str().as_bytes()).expect("a name");
    // SAFETY: a path that ends in a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let printed = refused(&path, &[]);
    assert!(printed.contains("nothing reads"), "{printed}");
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a reader");
    let trace = create(&path).expect("it is read");
    let flags = nix::fcntl::fcntl(&trace.file, nix::fcntl::FcntlArg::F_GETFL).expect("flags");
    assert_eq!(flags & libc::O_NONBLOCK, 0);
    drop((trace, reader));
    assert!(path.exists(), "not ours to remove");
}

#[test]
fn where_nothing_can_be_made_it_says_who() {
    let error = create(Path::new("/nonexistent/trace.json")).expect_err("no such directory");
    let name = Invoker::detect().name;
    assert_eq!(error.to_string(), format!("cannot create /nonexistent/trace.json as {name}"));
}
