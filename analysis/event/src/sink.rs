//! Writes bytes to an open file such that it always contains whole lines.
//!
//! Owns the position in the file, the reserved disk space and the recovery from a failed write.
//! Knows of the text only that lines are separated by `,\n`.

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt;

/// Disk space reserved after the end of the trace, in bytes: a full buffer of lines, the last line,
/// and slack for lines longer than usual.
const RESERVE_BYTES: i64 = 128 * 1024;

/// Maximum number of bytes that wait for a slow reader of a pipe before the trace is given up: some
/// 40,000 pauses.
const BACKLOG_BYTES: usize = 16 * 1024 * 1024;

/// How long the end of a trace waits for a reader that takes nothing, in milliseconds.
const PATIENCE_MS: u16 = 10_000;

/// Bytes that a pipe with room takes at once (`PIPE_BUF` of Linux, pipe(7)).
const PIPE_BYTES: usize = 4096;

/// Where a trace's bytes go.
#[derive(Debug)]
pub(crate) struct TraceSink {
    file: File,
    /// A regular file: it can be overwritten, shortened and reserved for. Otherwise a pipe, a device or standard
    /// output: bytes are only appended, as fast as they are taken.
    regular: bool,
    /// How long to wait for a pipe that accepts nothing: not at all while recording, because
    /// programs are waiting.
    patience_ms: u16,
    /// Whether the file system can reserve.
    reserves: bool,
    /// Bytes of the trace in the file, the footer not counted.
    end: u64,
    /// Written after the last line by every write, and overwritten by the next.
    footer: &'static [u8],
}

/// The place where a trace was closed, see [`TraceSink::open_end`].
#[derive(Debug)]
pub(crate) struct ResumePoint {
    at: u64,
    footer: &'static [u8],
}

impl TraceSink {
    /// Empties a regular file and reserves its first space.
    pub(crate) fn new(file: File, footer: &'static [u8]) -> io::Result<Self> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(Self::stream(file));
        }
        // Not of an empty file: it would release the space that was reserved in it.
        if found.len() > 0 {
            file.set_len(0)?;
        }
        let mut sink = Self { regular: true, reserves: true, footer, ..Self::stream(file) };
        sink.reserve()?;
        Ok(sink)
    }

    /// Only appends, whatever the file is.
    pub(crate) fn stream(file: File) -> Self {
        Self { file, regular: false, patience_ms: 0, reserves: false, end: 0, footer: b"" }
    }

    /// From now on a reader is waited for: nothing else is to be done.
    pub(crate) fn wait_for_reader(&mut self) {
        self.patience_ms = PATIENCE_MS;
    }

    /// Whether each write closes the JSON and the next one overwrites that.
    pub(crate) fn overwrites(&self) -> bool {
        self.regular && !self.footer.is_empty()
    }

    /// Bytes in the file.
    pub(crate) fn bytes(&self) -> u64 {
        match (self.end, self.overwrites()) {
            (0, _) | (_, false) => self.end,
            (end, true) => end + self.footer.len() as u64,
        }
    }

    /// Writes `pending` and removes from it the bytes that are in the file afterwards. On an error these are as many
    /// whole lines as fit (for a compressed trace: bytes). The file is then closed as well as possible. Bytes that a
    /// pipe does not accept yet stay in `pending`, up to a limit.
    pub(crate) fn write(&mut self, pending: &mut Vec<u8>) -> io::Result<()> {
        if pending.is_empty() {
            return Ok(());
        }
        let result = if self.overwrites() {
            self.write_closed(pending).map(|()| pending.len())
        } else if self.regular {
            self.write_at(pending, self.end).map(|()| pending.len())
        } else {
            self.append(pending)
        };
        let (kept, result) = match result {
            Ok(kept) => (kept, Ok(())),
            Err((kept, error)) => (kept, Err(error)),
        };
        pending.drain(..kept);
        self.end += kept as u64;
        result
    }

    /// Writes lines and the footer over the previous footer. The error contains how many bytes of
    /// `lines` stay in the file.
    fn write_closed(&mut self, lines: &mut Vec<u8>) -> Result<(), (usize, io::Error)> {
        let length = lines.len();
        lines.extend_from_slice(self.footer);
        let written = self.write_at(lines, self.end);
        lines.truncate(length);
        written.map_err(|(written, error)| (self.back_to_whole_lines(lines, written), error))
    }

    /// Closes the file after the last whole line that leaves room for the footer. The space after
    /// `self.end` contained a footer before, so backing up stops there at the latest.
    fn back_to_whole_lines(&self, lines: &[u8], written: usize) -> usize {
        let mut kept =
            if written >= lines.len() { lines.len() } else { line_end_before(lines, written) };
        loop {
            let at = self.end + kept as u64;
            if self.write_at(self.footer, at).is_ok() {
                // A file that cannot be shortened is still readable up to the closing brackets.
                let _ = self.file.set_len(at + self.footer.len() as u64);
                return kept;
            }
            if kept == 0 {
                return 0;
            }
            kept = line_end_before(lines, kept - 1);
        }
    }

    /// Writes as much as is taken without waiting longer than our patience; how much that was.
    fn append(&mut self, bytes: &[u8]) -> Result<usize, (usize, io::Error)> {
        let mut done = 0;
        for piece in bytes.chunks(PIPE_BYTES) {
            match self.takes_more() {
                Ok(true) => {}
                Ok(false) if self.patience_ms == 0 && bytes.len() - done <= BACKLOG_BYTES => break,
                Ok(false) => {
                    let slow = io::Error::new(io::ErrorKind::TimedOut, "its reader does not read");
                    return Err((done, slow));
                }
                Err(error) => return Err((done, error)),
            }
            let mut file = &self.file;
            write_all(piece, |rest, _| file.write(rest))
                .map_err(|(written, error)| (done + written, error))?;
            done += piece.len();
        }
        Ok(done)
    }

    /// Whether a write of [`PIPE_BYTES`] would not wait.
    fn takes_more(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
        loop {
            match poll(&mut asked, PollTimeout::from(self.patience_ms)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), (usize, io::Error)> {
        write_all(bytes, |rest, done| self.file.write_at(rest, at + done as u64))
    }

    /// Reserves disk space after the end of the trace. An error means that the next records would
    /// not fit; space reserved before stays reserved.
    pub(crate) fn reserve(&mut self) -> io::Result<()> {
        self.reserve_bytes(RESERVE_BYTES)
    }

    /// As [`TraceSink::reserve`], as much as is needed.
    pub(crate) fn reserve_bytes(&mut self, bytes: i64) -> io::Result<()> {
        let end = gctrace_units::i64_or_most(self.end);
        if self.regular && beyond_size_limit(end.saturating_add(bytes)) {
            return Err(Errno::EFBIG.into());
        }
        if !self.reserves {
            return Ok(());
        }
        let keep_size = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&self.file, keep_size, end, bytes) {
            Ok(()) | Err(Errno::EINTR) => Ok(()),
            Err(errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => Err(errno.into()),
            Err(_) => {
                // The file system cannot reserve space (NFS, FUSE, ...): a full disk is noticed on
                // write.
                self.reserves = false;
                Ok(())
            }
        }
    }

    /// Drops the footer: the next write closes the JSON itself. Returns what
    /// [`TraceSink::close_at`] needs to back up if that fails.
    pub(crate) fn open_end(&mut self) -> ResumePoint {
        ResumePoint { at: self.end, footer: std::mem::take(&mut self.footer) }
    }

    /// Discards everything written since [`TraceSink::open_end`] and closes the JSON there. The footer was there
    /// before, so there is room for it.
    pub(crate) fn close_at(&mut self, open: ResumePoint) -> io::Result<()> {
        self.end = open.at;
        self.footer = open.footer;
        self.write_at(self.footer, self.end).map_err(|(_, error)| error)?;
        self.release()
    }

    /// Releases reserved space that was not used.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        if self.regular {
            self.file.set_len(self.bytes())?;
        }
        Ok(())
    }
}

/// Whether a file of this size exceeds the process's limit (`ulimit -f`). `fallocate` does not check the limit, and a
/// write beyond it raises SIGXFSZ, by default fatal.
fn beyond_size_limit(size: i64) -> bool {
    match getrlimit(Resource::RLIMIT_FSIZE) {
        Ok((soft, _)) => u64::try_from(size).is_ok_and(|size| size > soft),
        Err(_) => false,
    }
}

/// The end of the last whole line in `lines[..limit]`, where a separator starts.
fn line_end_before(lines: &[u8], limit: usize) -> usize {
    lines
        .get(..lines.len().min(limit + 2))
        .unwrap_or(lines)
        .windows(2)
        .rposition(|pair| pair == b",\n")
        .unwrap_or(0)
}

/// Calls `write(rest, done)` until everything is written; an error includes the number of bytes
/// written before.
fn write_all(
    bytes: &[u8],
    mut write: impl FnMut(&[u8], usize) -> io::Result<usize>,
) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match write(rest, done) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small file system and a trace on it that cannot reserve space, if this machine permits mounting one.
    fn small_disk() -> Option<(tempfile::TempDir, TraceSink)> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(dir.path())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("skipped: mounting a tmpfs needs root");
            return None;
        }
        let sink = TraceSink {
            regular: true,
            footer: b"\n]}\n",
            ..TraceSink::stream(File::create(dir.path().join("trace")).unwrap())
        };
        Some((dir, sink))
    }

    /// The text of the trace; removes the small file system.
    fn text(dir: &tempfile::TempDir, sink: TraceSink) -> String {
        let text = std::fs::read_to_string(dir.path().join("trace")).unwrap();
        let bytes = sink.bytes();
        drop(sink);
        let _ = std::process::Command::new("umount").arg(dir.path()).status();
        assert_eq!(text.len() as u64, bytes);
        text
    }

    /// A file system that is full on write and accepted the reservation before.
    #[test]
    fn without_a_reserve_whole_lines_stay() {
        let Some((dir, mut sink)) = small_disk() else {
            return;
        };
        let mut pending = b"{\"traceEvents\":[{\"n\":-1}".to_vec();
        sink.write(&mut pending).unwrap();
        let mut taken = 0;
        let error = loop {
            for _ in 0..10 {
                write!(pending, ",\n{{\"n\":{taken}}}").unwrap();
                taken += 1;
            }
            if let Err(error) = sink.write(&mut pending) {
                break error;
            }
        };
        let text = text(&dir, sink);
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let written = json["traceEvents"].as_array().unwrap().len() - 1;
        let waiting = pending.windows(2).filter(|pair| pair == b",\n").count();
        assert_eq!(written + waiting, taken);
        assert!(text.len() > 64 * 1024 - 32, "the disk is used up");
    }

    #[test]
    fn a_section_that_does_not_fit_is_taken_back() {
        let Some((dir, mut sink)) = small_disk() else {
            return;
        };
        let mut lines = b"{\"traceEvents\":[{\"n\":1}".to_vec();
        sink.write(&mut lines).unwrap();
        let open = sink.open_end();
        let mut section = b"\n],\n\"stackFrames\":{".to_vec();
        let error = loop {
            section.resize(section.len() + 10_000, b' ');
            if let Err(error) = sink.write(&mut section) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        sink.close_at(open).unwrap();
        assert_eq!(text(&dir, sink), "{\"traceEvents\":[{\"n\":1}\n]}\n");
    }

    #[test]
    fn line_ends() {
        let lines = b",\n{1},\n{22}";
        assert_eq!(line_end_before(lines, 11), 5);
        assert_eq!(line_end_before(lines, 5), 5);
        assert_eq!(line_end_before(lines, 4), 0);
        assert_eq!(line_end_before(lines, 0), 0);
        assert_eq!(line_end_before(b"", 0), 0);
    }
}
