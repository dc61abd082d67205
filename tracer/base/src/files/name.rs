//! File names of traces with placeholders: `gc-%h-%r-%p.json.gz`.

use super::FileError;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Values of the placeholders in a file name on this machine.
#[derive(Clone, Copy, Debug)]
pub struct NameValues<'a> {
    /// `%h`: host name of this machine; a `/` in it becomes `_`.
    pub host: &'a str,
    /// `%r`: rank in the job, if set.
    pub rank: Option<u32>,
    /// `%p`: pid of the process recorded with `-p`, otherwise of gctrace.
    pub pid: u32,
}

/// Expands `%h`, `%r` and `%p`; `%%` is a percent sign.
///
/// # Errors
/// [`FileError::Refused`] for an unknown placeholder, or `%r` without a rank.
pub fn expand(
    pattern: &Path,
    facts: NameValues<'_>,
    option: &'static str,
) -> Result<PathBuf, FileError> {
    let replaced = replace(pattern.as_os_str(), |letter| {
        match letter {
        b'%' => Ok("%".to_owned()),
        // A host name must not become a path.
        b'h' => Ok(facts.host.replace('/', "_")),
        b'p' => Ok(facts.pid.to_string()),
        b'r' => facts.rank.map(|rank| rank.to_string()).ok_or_else(|| {
            let variables = gctrace_probes::proc_status::RANK_VARIABLES.join(", ");
            format!(
                "%r is the rank, but none is set here ({variables}); if one gctrace records a whole \
                 job, all ranks are in one trace: leave %r out"
            )
        }),
        letter => Err(unknown(letter)),
    }
    });
    replaced.map_err(|reason| FileError::Refused { path: pattern.to_owned(), option, reason })
}

/// Checks the placeholders of a name as typed.
///
/// # Errors
/// A sentence on the unknown placeholder.
pub fn check_pattern(pattern: &Path) -> Result<(), String> {
    let checked = replace(pattern.as_os_str(), |letter| match letter {
        b'%' | b'h' | b'r' | b'p' => Ok(String::new()),
        letter => Err(unknown(letter)),
    });
    checked.map(drop)
}

fn unknown(letter: u8) -> String {
    let shown = match letter {
        0 => "a % at the end".to_owned(),
        letter => format!("%{}", char::from(letter).escape_default()),
    };
    format!(
        "{shown} is not a placeholder: %h is the host, %r the rank, %p the pid, %% a percent sign"
    )
}

fn replace(
    pattern: &OsStr,
    value: impl Fn(u8) -> Result<String, String>,
) -> Result<PathBuf, String> {
    let mut name = Vec::new();
    let mut bytes = pattern.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let letter = bytes.next().copied().unwrap_or(0);
                name.extend_from_slice(value(letter)?.as_bytes());
            }
            byte => name.push(*byte),
        }
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(pattern: &str, rank: Option<u32>) -> Result<String, String> {
        let facts = NameValues { host: "node7", rank, pid: 42 };
        match expand(Path::new(pattern), facts, "-o") {
            Ok(path) => Ok(path.display().to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn placeholders() {
        let cases = [
            ("trace.json", "trace.json"),
            ("gc-%h-%r-%p.json.gz", "gc-node7-3-42.json.gz"),
            ("100%%/%p", "100%/42"),
            ("%%h", "%h"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(expanded(pattern, Some(3)).as_deref(), Ok(expected));
            assert_eq!(check_pattern(Path::new(pattern)), Ok(()));
        }
    }

    #[test]
    fn unknown_placeholders_are_refused() {
        for pattern in ["%d.json", "a%", "%1", "%é"] {
            let error = expanded(pattern, Some(0)).expect_err(pattern);
            assert!(error.contains("%h is the host"), "{error}");
            assert!(check_pattern(Path::new(pattern)).is_err(), "{pattern}");
        }
        let error = expanded("x-%r.json", None).expect_err("no rank");
        assert!(error.contains("RANK"), "{error}");
        assert!(error.contains("leave %r out"), "{error}");
    }
}
