//! Maps known errors to the command that fixes them.

#[cfg(target_os = "linux")]
mod recording;

use crate::files::FileError;
use std::io;

/// Exit code for a failure of gctrace.
const FAILED: u8 = 1;

/// The remedy for an error, ready to print after it; `None` if there is none.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    #[cfg(target_os = "linux")]
    if let Some(hint) = recording::hint(error) {
        return Some(hint);
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<FileError>())? {
        FileError::Create { option, .. } => file_hint(os_error(error)?, option),
        FileError::Refused { .. } => None,
    }
}

/// The system's error number in the chain, if it contains one.
fn os_error(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|cause| {
        match cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            None => in_words(&cause.to_string()),
            number => number,
        }
    })
}

/// Parses `... (os error 12)`; libbpf-rs does not expose the number, but its message contains it.
fn in_words(text: &str) -> Option<i32> {
    let (_, rest) = text.rsplit_once("(os error ")?;
    let (number, _) = rest.split_once(')')?;
    number.parse().ok()
}

fn file_hint(code: i32, option: &str) -> Option<String> {
    use io::ErrorKind;
    let text = match io::Error::from_raw_os_error(code).kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            format!("Choose a file in a writable directory: {option} FILE")
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            format!("Create its directory first, or choose another file: {option} FILE")
        }
        ErrorKind::IsADirectory => {
            format!("This is a directory; name a file in it: {option} DIR/FILE")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("No space is left; choose a file on another disk: {option} FILE")
        }
        _ => return None,
    };
    Some(text)
}

/// The exit code for an error of gctrace; for a command that cannot be started, the code that shells use.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "no command is started"))]
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    #[cfg(target_os = "linux")]
    if let Some(code) = recording::exit_code(error) {
        return code;
    }
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::NewTrace;
    use crate::invoker::Invoker;
    use anyhow::Context;
    use std::path::Path;

    #[test]
    fn through_context() {
        let create = |path: &str| NewTrace::create(Path::new(path), &Invoker::detect(), &[], "-o");
        let refused = create("/nonexistent/t.json");
        let error = refused.context("while recording").expect_err("refused");
        assert!(hint(&error).expect("a hint").contains("-o FILE"));
        let refused = create("/proc");
        assert!(hint(&refused.expect_err("refused").into()).expect("a hint").contains("directory"));
        assert_eq!(hint(&anyhow::anyhow!("something else")), None);
    }
}
