//! Manual pages: those of another gctrace are replaced, nothing else.

use super::FileError;
use super::FileFailure;
use super::as_invoker;
use super::existing;
use super::existing::ExistingFile;
use super::export::replace;
use crate::launch::Invoker;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Begins the title of a page of ours, behind some settings.
const TITLE: &[u8] = b".TH gctrace";
/// Within so many bytes.
const IN_PROCESS_TITLE: u64 = 512;

/// Writes pages (name and text) into `directory`, with the rights of the invoker; makes the directory if it is
/// not there.
///
/// # Errors
/// Where a file of that name is no manual page of gctrace, or nothing can be written.
pub(crate) fn write_manual_pages(
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
            let mut begin = Vec::new();
            File::open(path)?
                .take(IN_PROCESS_TITLE)
                .read_to_end(&mut begin)?;
            match begin.windows(TITLE.len()).any(|text| text == TITLE) {
                true => Ok(()),
                false => {
                    refused("exists and is not a manual page of gctrace; name another directory")
                }
            }
        }
    }
}
