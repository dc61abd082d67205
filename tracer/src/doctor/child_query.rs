//! Runs an interpreter to find out the files it maps.
//!
//! The file alone does not determine the libpython that the loader maps, or the program that a wrapper script starts.
//! The interpreter runs as the invoking user, isolated from that user's settings.

use crate::invoker::Invoker;
use crate::launch::LaunchPlan;
use std::ffi::OsString;
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Timeout; an interpreter starts in far less than a second.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of output; more than any list of mapped files.
const MAX_OUTPUT: u64 = 1 << 20;

const QUESTION: &str = "\
for line in open('/proc/self/maps', encoding='utf-8', errors='surrogateescape'):
    path = line.rstrip('\\n').split(None, 5)[5:]
    if path and path[0].startswith('/'):
        import os; os.write(1, os.fsencode(line))
";

/// The files that the interpreter maps, without duplicates.
pub(super) fn mapped_files(program: &Path, invoker: &Invoker) -> io::Result<Vec<PathBuf>> {
    let words =
        [program.as_os_str(), "-I".as_ref(), "-S".as_ref(), "-c".as_ref(), QUESTION.as_ref()];
    let words: Vec<OsString> = words.map(OsString::from).to_vec();
    let mut command = LaunchPlan::new(&words, invoker, false).command();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ChildAnswer { output, complaint } = answer(command.spawn()?)?;
    let mappings = gctrace_probes::maps::parse(&output);
    let mut files: Vec<PathBuf> = mappings.into_iter().map(|mapping| mapping.path).collect();
    files.dedup();
    match (files.is_empty(), complaint.lines().next()) {
        (false, _) => Ok(files),
        (true, Some(complaint)) => Err(io::Error::other(format!("it printed: {complaint}"))),
        (true, None) => Err(io::Error::other("it does not behave like a Python interpreter")),
    }
}

struct ChildAnswer {
    output: Vec<u8>,
    complaint: String,
}

/// Waits for the child and returns its output. Kills the child after the timeout.
fn answer(mut child: Child) -> io::Result<ChildAnswer> {
    let output = child.stdout.take().map(read_in_background).transpose()?;
    let complaint = child.stderr.take().map(read_in_background).transpose()?;
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let read = |reader: Option<JoinHandle<Vec<u8>>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let complaint = String::from_utf8_lossy(&read(complaint)).trim().to_owned();
    Ok(ChildAnswer { output: read(output), complaint })
}

fn read_in_background(stream: impl Read + Send + 'static) -> io::Result<JoinHandle<Vec<u8>>> {
    std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        // After a failure, the part read so far is the answer.
        let _ = stream.take(MAX_OUTPUT).read_to_end(&mut bytes);
        bytes
    })
}
