//! Files of programs, read before they are started: whether a program has the runtime library of a sanitizer. No other
//! library may be loaded before that runtime.
//!
//! Followed as the kernel and env(1) do, through PATH and first lines. May run between fork and exec, in a child
//! that shares its parent's memory: no locks, no allocations.

use gctrace_abi::is_sanitizer_runtime;
use std::ffi::{CStr, c_int};

/// A script may name a script: the kernel follows five (`exec_binprm`, fs/exec.c), and `env` may be in between.
const MOST_STEPS: usize = 10;

/// Longest path (`PATH_MAX`), and the start of a file that has first line and program headers.
const PAGE: usize = 4096;

/// Whether a program is built with a sanitizer; `false` if its file cannot be read. `errno` stays as it was.
pub(super) fn is_sanitized(path: &CStr, searches: bool) -> bool {
    // SAFETY: this thread's own.
    let before = unsafe { *libc::__errno_location() };
    let is_sanitized = follow(path, searches).unwrap_or(false);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    is_sanitized
}

fn follow(path: &CStr, mut searches: bool) -> Option<bool> {
    let mut name = PathText::of(&[path.to_bytes()])?;
    for _ in 0..MOST_STEPS {
        let file = ProgramFile::open(&name, searches)?;
        let start = file.read::<PAGE>(0)?;
        let Some(line) = start.strip_prefix(b"#!") else { return file.has_sanitizer(&start) };
        let line = line.split(|byte| *byte == b'\n').next()?;
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0);
        let mut words = line.split(blank).filter(|word| !word.is_empty());
        let interpreter = words.next()?;
        let is_env = interpreter.rsplit(|byte| *byte == b'/').next() == Some(b"env");
        let is_program = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
        let next = if is_env { words.find(is_program)? } else { interpreter };
        searches = is_env;
        name = PathText::of(&[next])?;
    }
    None
}

/// A path that ends in a zero.
struct PathText([u8; PAGE]);

impl PathText {
    fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut text = [0; PAGE];
        let mut length = 0;
        for part in parts {
            let end = length + part.len();
            // The last byte remains zero.
            text.get_mut(..PAGE - 1)?.get_mut(length..end)?.copy_from_slice(part);
            length = end;
        }
        Some(Self(text))
    }

    fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }

    fn open(&self) -> Option<ProgramFile> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: a C string.
        let file = unsafe { libc::open(self.0.as_ptr().cast(), flags) };
        if file >= 0 { Some(ProgramFile(file)) } else { None }
    }
}

/// An open file, closed when dropped.
struct ProgramFile(c_int);

impl Drop for ProgramFile {
    fn drop(&mut self) {
        // SAFETY: ours, closed once.
        unsafe { libc::close(self.0) };
    }
}

impl ProgramFile {
    /// `searches`: like execvp(3), in the PATH of this process.
    fn open(name: &PathText, searches: bool) -> Option<Self> {
        let text = name.text().to_bytes();
        if !searches || text.contains(&b'/') {
            return name.open();
        }
        // SAFETY: the environment of this process, as execvp reads it.
        let folders = unsafe {
            let path = libc::getenv(c"PATH".as_ptr());
            if path.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(path) }
        };
        folders.to_bytes().split(|byte| *byte == b':').find_map(|folder| {
            let folder = if folder.is_empty() { b"." } else { folder };
            let path = PathText::of(&[folder, b"/", text])?;
            // SAFETY: a C string.
            let is_program = unsafe { libc::access(path.0.as_ptr().cast(), libc::X_OK) == 0 };
            if is_program { path.open() } else { None }
        })
    }

    /// Reads bytes at a place; bytes beyond the end of the file are zero. `None`: the file cannot be read.
    fn read<const LENGTH: usize>(&self, place: u64) -> Option<[u8; LENGTH]> {
        let mut bytes = [0; LENGTH];
        let place = libc::off_t::try_from(place).ok()?;
        // SAFETY: as many bytes as there is room for.
        let read = unsafe { libc::pread(self.0, bytes.as_mut_ptr().cast(), LENGTH, place) };
        if read >= 0 { Some(bytes) } else { None }
    }

    /// Whether a 64-bit program needs such a library. `None`: it is no such program.
    fn has_sanitizer(&self, start: &[u8; PAGE]) -> Option<bool> {
        const HEADER: usize = size_of::<libc::Elf64_Phdr>();
        /// A 64-bit file, lowest byte first.
        const ELF: &[u8] = b"\x7fELF\x02\x01";
        const SEGMENTS: usize = 16;
        /// More entries than a dynamic segment has.
        const MOST_ENTRIES: u64 = 1024;
        const NEEDED: u64 = 1;
        const NAMES: u64 = 5;
        if !start.starts_with(ELF) {
            return None;
        }
        let headers = number(start, 32)?;
        let count = u16::from_le_bytes(start.get(56..58)?.try_into().ok()?);
        let mut segments = [(0, 0, 0); SEGMENTS];
        let mut places = segments.iter_mut();
        let mut dynamic = None;
        for at in 0..u64::from(count) {
            let place = headers.checked_add(at * HEADER as u64)?;
            let header = self.read::<HEADER>(place)?;
            let kind = u32::from_le_bytes(header.get(..4)?.try_into().ok()?);
            let [offset, address, size] =
                [8, 16, 32].map(|at| number(&header, at).unwrap_or_default());
            if kind == libc::PT_DYNAMIC {
                dynamic = Some((offset, size / 16));
            } else if kind == libc::PT_LOAD {
                *places.next()? = (address, offset, size);
            }
        }
        let (table, entries) = dynamic?;
        let entry = |at: u64| {
            let entry = self.read::<16>(table.checked_add(at * 16)?)?;
            Some((number(&entry, 0)?, number(&entry, 8)?))
        };
        let entries =
            || (0..entries.min(MOST_ENTRIES)).map_while(entry).take_while(|one| one.0 != 0);
        let (_, names) = entries().find(|(tag, _)| *tag == NAMES)?;
        let (address, offset, _) = segments.into_iter().find(|(address, _, size)| {
            matches!(names.checked_sub(*address), Some(within) if within < *size)
        })?;
        let names = offset.checked_add(names - address)?;
        Some(entries().filter(|(tag, _)| *tag == NEEDED).any(|(_, name)| {
            let Some(place) = names.checked_add(name) else { return false };
            let Some(name) = self.read::<64>(place) else { return false };
            name.split(|byte| *byte == 0).next().is_some_and(is_sanitizer_runtime)
        }))
    }
}

/// The number of 8 bytes at a place.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn programs_with_a_sanitizer_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.c"), "int main(){return 3;}").unwrap();
        let build = |name: &str, options: &[&str]| {
            let mut cc = Command::new("gcc");
            let built = cc.args(options).arg(path("a.c")).arg("-o").arg(path(name)).status();
            built.is_ok_and(|built| built.success())
        };
        assert!(build("plain", &[]));
        let of =
            |name: &str, searches| is_sanitized(&CString::new(name.as_bytes()).unwrap(), searches);
        let whole = |name: &str| path(name).to_str().unwrap().to_owned();
        assert!(!of(&whole("plain"), false));
        assert!(!of("/nowhere", false) && !of("sh", true) && !of("/", false));
        let script = |name: &str, line: &str| {
            std::fs::write(path(name), format!("#!{line}\nx")).unwrap();
            std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o755)).unwrap();
            whole(name)
        };
        assert!(!of(&script("loop", &whole("loop")), false));
        if !["asan", "tsan"].iter().all(|name| {
            build(
                name,
                &[&format!("-fsanitize={}", if *name == "asan" { "address" } else { "thread" })],
            )
        }) {
            eprintln!("skipped programs_with_a_sanitizer_are_found: gcc has no sanitizers");
            return;
        }
        assert!(of(&whole("asan"), false) && of(&whole("tsan"), true));
        assert!(of(&script("one", &format!(" {} -x", whole("asan"))), false));
        assert!(of(&script("two", &whole("one")), false));
        assert!(of(&script("three", &format!("/usr/bin/env -S A=1 {}", whole("asan"))), false));
    }
}
