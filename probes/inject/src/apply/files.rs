//! What a process that applies settings writes, and what the kernel reports about it.
//!
//! Both use plain system calls, unnoticed by the program's code. A signal raised by a write never reaches the program.

use crate::confined;
use gctrace_ring::quietly;
use gctrace_settings::{AppliedProcess, CONTROL_FILE, MAX_PROCESSES, REPORT_SUFFIX};
use std::fs::File;
use std::io;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// gctrace's private folder, as one process uses it.
pub(crate) struct ReportFolder {
    path: PathBuf,
    filters: u32,
    /// Whether this process is among the first [`MAX_PROCESSES`]; `None`: it has not counted itself.
    is_admitted: Option<bool>,
    /// Something could not be written: the folder is full or gone, with the gctrace that made it, or
    /// the program must not write. Not tried again.
    is_lost: bool,
}

impl ReportFolder {
    pub(crate) fn new(path: &Path, filters: u32) -> Self {
        Self { path: path.to_owned(), filters, is_admitted: None, is_lost: false }
    }

    /// Whether this process may write here. The first call counts the process.
    pub(crate) fn is_open(&mut self) -> bool {
        let path = &self.path;
        !self.is_lost
            && !confined::is_confined(self.filters)
            && *self.is_admitted.get_or_insert_with(|| is_admitted(path))
    }

    /// Whether the settings are to be taken back.
    pub(crate) fn wants_back(&self) -> bool {
        let mut first = [0];
        self.read(CONTROL_FILE, &mut first) == 1 && first == *b"1"
    }

    /// Replaces the report of this process.
    pub(crate) fn report(&mut self, report: &AppliedProcess) {
        if let Ok(text) = serde_json::to_vec(report) {
            self.put(&format!("{}{REPORT_SUFFIX}", report.pid), &text);
        }
    }

    /// Replaces a file as a whole.
    pub(crate) fn put(&mut self, name: &str, text: &[u8]) {
        if !self.is_open() {
            return;
        }
        let unfinished = self.path.join(format!("{}.tmp", std::process::id()));
        let written = write(&unfinished, text)
            .and_then(|()| std::fs::rename(unfinished, self.path.join(name)));
        self.is_lost = written.is_err();
    }

    /// Reads the start of a file and returns the length; 0 if nothing could be read.
    pub(crate) fn read(&self, name: &str, text: &mut [u8]) -> usize {
        if self.is_lost { 0 } else { read_into(&self.path.join(name), text) }
    }
}

/// Counts this process among the reporting processes; whether it may report.
fn is_admitted(folder: &Path) -> bool {
    let path = folder.join(CONTROL_FILE);
    let opened = File::options().append(true).custom_flags(libc::O_NOFOLLOW).open(path);
    // Without the file no process is counted.
    let Ok(mut control) = opened else { return true };
    let counted = quietly(|| control.write_all(b"."));
    let length = if let Ok(control) = control.metadata() { control.len() } else { 0 };
    counted.is_err() || length <= MAX_PROCESSES + 1
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    quietly(|| file.write_all(text))
}

/// Device and inode of standard error as the program started; `None`: it had none.
static STANDARD_ERROR: OnceLock<Option<(libc::dev_t, libc::ino_t)>> = OnceLock::new();

/// Notes which file is standard error: a program may close it, and another file may get its descriptor.
pub(crate) fn begin() {
    STANDARD_ERROR.get_or_init(standard_error);
}

fn standard_error() -> Option<(libc::dev_t, libc::ino_t)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills it, if it succeeds.
    unsafe {
        if libc::fstat(libc::STDERR_FILENO, found.as_mut_ptr()) != 0 {
            return None;
        }
        let found = found.assume_init();
        Some((found.st_dev, found.st_ino))
    }
}

/// Writes a line on standard error, if that takes it at once and is still the file that it was.
pub(crate) fn say(text: &str) {
    let known = STANDARD_ERROR.get().copied().flatten();
    if confined::is_noticed() || known.is_none() || standard_error() != known {
        return;
    }
    let mut standard_error =
        libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor, and no waiting.
    let polled = unsafe { libc::poll(&raw mut standard_error, 1, 0) };
    if polled == 1 && standard_error.revents == libc::POLLOUT {
        let line = format!("gctrace: {text}\n");
        let _ = quietly(|| {
            // SAFETY: the line's bytes.
            let written =
                unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
            match written {
                ..0 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
}

/// Reads the start of a file and returns the length; 0 if nothing could be read.
pub(super) fn read_into(path: &Path, text: &mut [u8]) -> usize {
    if confined::is_noticed() {
        return 0;
    }
    let opened =
        File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    opened.and_then(|mut file| file.read(text)).unwrap_or(0)
}

/// Resident memory in bytes.
pub(crate) fn rss_bytes() -> Option<u64> {
    let mut text = [0; 256];
    let length = read_into(Path::new("/proc/self/statm"), &mut text);
    let text = str::from_utf8(text.get(..length)?).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: only reads a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

/// The most resident memory so far, in bytes.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let mut text = [0; 4096];
    let length = read_into(Path::new("/proc/self/status"), &mut text);
    let text = String::from_utf8_lossy(text.get(..length)?);
    let value = text.split("VmHWM:").nth(1)?.split_whitespace().next()?;
    Some(value.parse::<u64>().ok()? * 1024)
}

/// The command line, at most 1000 bytes of it.
pub(crate) fn command_line() -> String {
    let mut text = [0; 1000];
    let length = read_into(Path::new("/proc/self/cmdline"), &mut text);
    let text = String::from_utf8_lossy(gctrace_units::part(&text, ..length));
    text.trim_end_matches('\0').replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked() {
        let (rss, peak) = (rss_bytes().expect("statm"), peak_rss_bytes().expect("status"));
        assert!(rss > 1 << 16 && peak > 1 << 16, "{rss} {peak}");
        assert!(command_line().contains("gctrace_inject"), "{}", command_line());
    }

    #[test]
    fn processes_beyond_the_limit_write_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let control = folder.path().join(CONTROL_FILE);
        let others = usize::try_from(MAX_PROCESSES).expect("small") - 1;
        std::fs::write(&control, "0".to_owned() + &".".repeat(others)).expect("written");
        for pid in 1..=3 {
            let mut folder = ReportFolder::new(folder.path(), u32::MAX);
            for _ in 0..2 {
                folder.report(&AppliedProcess { pid, ..AppliedProcess::default() });
            }
        }
        let names = std::fs::read_dir(folder.path()).expect("listed").flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["1.report.json", CONTROL_FILE]);
        let length = control.metadata().expect("there").len();
        assert_eq!(length, MAX_PROCESSES + 3);
    }
}
