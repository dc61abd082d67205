//! How the kernel starts a program file, and the loader it uses: whether a library can be preloaded into it.

use crate::ResolveError;
use crate::elf::{ElfImage, FileBytes, ImageData, Machine, NotAnImage, open, open_file};
use gctrace_abi::is_sanitizer_runtime;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// How the kernel executes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loading {
    /// By the interpreter named in the first line.
    Script {
        /// Path of the interpreter.
        interpreter: PathBuf,
        /// The rest of the line, passed as one argument (execve(2)).
        argument: Option<String>,
    },
    /// Dynamically linked: this loader maps the libraries.
    Loader(PathBuf),
    /// Dynamically linked with the runtime library of a sanitizer, of this name. No library may be loaded before it.
    Sanitizer(String),
    /// Statically linked: no library can be preloaded.
    Static,
    /// The program is for another processor.
    OtherMachine(String),
    /// None of these: left to the kernel.
    Unknown,
}

/// Maximum number of bytes that the kernel reads to find a script's interpreter (`BINPRM_BUF_SIZE`,
/// include/uapi/linux/binfmts.h, since 5.1).
const FIRST_BYTES: u64 = 256;

/// Classifies a file by its first bytes.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn loading(file: &Path) -> Result<Loading, ResolveError> {
    let failed = ResolveError::read(file);
    let opened = open_file(file).map_err(failed)?;
    let mut start = Vec::new();
    (&opened).take(FIRST_BYTES).read_to_end(&mut start).map_err(failed)?;
    if let Some(script) = script(&start) {
        return Ok(script);
    }
    let cache = FileBytes::cached(opened);
    Ok(match ElfImage::parse(ImageData::File(&cache), Machine::HOST) {
        Ok(image) => match (image.loader(), sanitizer(&image)) {
            (Some(_), Some(runtime)) => Loading::Sanitizer(runtime.to_owned()),
            (Some(loader), None) => {
                Loading::Loader(Path::new(OsStr::from_bytes(loader)).to_owned())
            }
            (None, _) if image.has_loader() => Loading::Unknown,
            (None, _) => Loading::Static,
        },
        Err(NotAnImage::Machine(machine)) => Loading::OtherMachine(machine),
        Err(NotAnImage::NotElf | NotAnImage::Damaged(_)) => Loading::Unknown,
    })
}

fn sanitizer<'data>(image: &ElfImage<'data>) -> Option<&'data str> {
    image.needed().into_iter().find(|name| is_sanitizer_runtime(name.as_bytes()))
}

/// The bytes of a symbol exported by a library of this machine; `None` if it has no such symbol, or
/// is not a library.
///
/// # Errors
/// If the file cannot be opened.
pub fn exported_bytes(file: &Path, symbol: &str) -> Result<Option<Vec<u8>>, ResolveError> {
    let cache = open(file)?;
    let Ok(image) = ElfImage::parse(ImageData::File(&cache), Machine::HOST) else {
        return Ok(None);
    };
    let symbol = image.dynamic_symbol(symbol);
    let bytes = symbol.and_then(|symbol| image.bytes_at(symbol.address, symbol.size));
    Ok(bytes.map(<[u8]>::to_vec))
}

/// Parses the first line like the kernel (fs/binfmt_script.c).
fn script(start: &[u8]) -> Option<Loading> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = line.iter().position(blank).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at_checked(end)?;
    let argument = rest.trim_ascii();
    if interpreter.is_empty() {
        return None;
    }
    Some(Loading::Script {
        interpreter: PathBuf::from(OsStr::from_bytes(interpreter)),
        argument: (!argument.is_empty()).then(|| String::from_utf8_lossy(argument).into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, Option<String>)> {
        match script(text.as_bytes())? {
            Loading::Script { interpreter, argument } => {
                Some((interpreter.to_str().unwrap().to_owned(), argument))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn first_lines() {
        let some = |path: &str, argument: Option<&str>| {
            Some((path.to_owned(), argument.map(str::to_owned)))
        };
        assert_eq!(parsed("#!/bin/sh\nx"), some("/bin/sh", None));
        assert_eq!(
            parsed("#! /usr/bin/env -S python3 -I \r\n"),
            some("/usr/bin/env", Some("-S python3 -I"))
        );
        assert_eq!(parsed("#!\n"), None);
        assert_eq!(parsed("import os\n"), None);
        assert_eq!(parsed(""), None);
    }

    #[test]
    fn programs_of_this_machine() {
        let this_program = loading(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(this_program, Loading::Loader(PathBuf::from("/lib64/ld-linux-x86-64.so.2")));
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("x");
        std::fs::write(&file, "hello").unwrap();
        assert_eq!(loading(&file).unwrap(), Loading::Unknown);
        let mut header = std::fs::read("/proc/self/exe").unwrap();
        header[18] = 183;
        std::fs::write(&file, &header).unwrap();
        assert!(matches!(loading(&file).unwrap(), Loading::OtherMachine(_)));
        assert!(loading(&place.path().join("none")).is_err());
    }
}
