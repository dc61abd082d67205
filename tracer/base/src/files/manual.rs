//! Manual pages; overwrites only other versions of gctrace's pages.

use super::existing::ExistingFile;
use super::export::replace;
use super::{FileError, FileFailure, as_invoker, existing};
use crate::invoker::Invoker;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Title line of a manual page of gctrace; preceded by some roff settings.
const TITLE: &[u8] = b".TH gctrace";
/// Maximum offset of the end of [`TITLE`] in bytes.
const TITLE_WITHIN: u64 = 512;

/// Writes pages (name and content) into `directory`, as the invoker; creates the directory if needed.
///
/// # Errors
/// A file of that name is not a manual page of gctrace, or a page cannot be written.
pub fn write_manual_pages(
    directory: &Path,
    invoker: &Invoker,
    pages: &[(String, Vec<u8>)],
) -> Result<(), FileError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |failure: FileFailure| failure.of(&path, invoker, "man")
    };
    as_invoker(invoker, || Ok(std::fs::create_dir_all(directory)?)).map_err(fail(directory))?;
    for (name, _) in pages {
        let path = directory.join(name);
        as_invoker(invoker, || check(&path)).map_err(fail(&path))?;
    }
    for (name, text) in pages {
        let path = directory.join(name);
        as_invoker(invoker, || replace(&path, &|out| out.write_all(text))).map_err(fail(&path))?;
    }
    Ok(())
}

fn check(path: &Path) -> Result<(), FileFailure> {
    let refused = |reason: &str| Err(FileFailure::Refused(reason.to_owned()));
    match existing::look(path)? {
        ExistingFile::Nothing => Ok(()),
        ExistingFile::Stream => refused("is not a file"),
        ExistingFile::Content => {
            let mut head = Vec::new();
            File::open(path)?.take(TITLE_WITHIN).read_to_end(&mut head)?;
            if head.windows(TITLE.len()).any(|text| text == TITLE) {
                Ok(())
            } else {
                refused("exists and is not a manual page of gctrace; name another directory")
            }
        }
    }
}
