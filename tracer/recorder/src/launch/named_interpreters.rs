//! Interpreters named by the command line and the environment: the command will likely run them.
//!
//! A guess: a file that is named here and not run costs only its probes; an interpreter that is run and not named is
//! stopped when it starts.

use crate::files::open_regular;
use crate::launch::LaunchPlan;
use crate::launch::environment::Environment;
use crate::launch::program::find;
use gctrace_probes::ProgramKind;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of words that are examined.
const MAX_WORDS: usize = 200;
/// Maximum number of files that are returned.
const MAX_FILES: usize = 8;
/// A script may name a script.
const MAX_STEPS: usize = 4;
/// Longest first line of a script (`BINPRM_BUF_SIZE`, include/uapi/linux/binfmts.h).
const FIRST_LINE: usize = 256;

impl LaunchPlan {
    /// Whether the command is an interpreter itself, and not a program or a script that starts one.
    pub fn is_interpreter(&self) -> bool {
        let program = self.with_users_rights(|| find(&self.program, &self.environment));
        let Some(program) = program.flatten() else { return false };
        let kind = gctrace_probes::identify(&program);
        matches!(kind, Ok(ProgramKind::Static | ProgramKind::NeedsLibpython { .. }))
    }

    /// Executable files that may be interpreters or lead to one, with links resolved: files named by a word of the
    /// command line (`sudo -u x /usr/bin/python3`, and the words of `sh -c '...'`), by first lines of scripts among
    /// them, by `VIRTUAL_ENV` and `CONDA_PREFIX`, and `python3` and `python` in `PATH`.
    pub fn named_interpreters(&self) -> Vec<PathBuf> {
        self.with_users_rights(|| {
            let mut named = NamedInterpreters { environment: &self.environment, files: Vec::new() };
            let arguments = std::iter::once(&self.program).chain(&self.arguments);
            for word in arguments.flat_map(|text| words(text)).take(MAX_WORDS) {
                named.add(word, MAX_STEPS);
            }
            for folder in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
                if let Some(folder) = self.environment.get(OsStr::new(folder)) {
                    let python = Path::new(folder).join("bin/python");
                    named.add(python.as_os_str(), MAX_STEPS);
                }
            }
            for name in ["python3", "python"] {
                named.add(OsStr::new(name), MAX_STEPS);
            }
            named.files
        })
        .unwrap_or_default()
    }
}

/// Words of an argument that may name a program, split like a simple shell command line.
fn words(argument: &OsStr) -> impl Iterator<Item = &OsStr> {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b";&|()<>'\"`=$".contains(byte);
    argument
        .as_bytes()
        .split(ends)
        .filter(|word| word.contains(&b'/') || word.starts_with(b"python"))
        .map(OsStr::from_bytes)
}

struct NamedInterpreters<'a> {
    environment: &'a Environment,
    files: Vec<PathBuf>,
}

impl NamedInterpreters<'_> {
    fn add(&mut self, word: &OsStr, steps: usize) {
        let Some(file) = find(word, self.environment) else { return };
        let file = match std::fs::canonicalize(file) {
            Ok(file) if self.files.len() < MAX_FILES && is_program(&file) => file,
            _ => return,
        };
        match first_line(&file) {
            Some(line) if steps > 0 => {
                for word in words(OsStr::from_bytes(&line)) {
                    self.add(word, steps - 1);
                }
            }
            _ if self.files.contains(&file) => {}
            _ => self.files.push(file),
        }
    }
}

fn is_program(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

/// The text after `#!`.
fn first_line(file: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let opened = open_regular(file).ok()?;
    opened.take(FIRST_LINE as u64).read_to_end(&mut text).ok()?;
    let line = text.split(|byte| *byte == b'\n').next()?;
    line.strip_prefix(b"#!").map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_may_name_a_program() {
        let line = OsStr::new("cd /tmp; X=/opt/a/bin/python3.12 exec 'python3' train.py|tee a/b");
        let found: Vec<_> = words(line).collect();
        assert_eq!(found, ["/tmp", "/opt/a/bin/python3.12", "python3", "a/b"]);
    }

    #[test]
    fn scripts_lead_to_their_interpreters() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("folder");
        let place = place.path().canonicalize().expect("path");
        let executable = |name: &str, text: &str| {
            let file = place.join(name);
            std::fs::write(&file, text).expect("write");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("mode");
            file
        };
        let python = executable("python3", "\u{7f}ELF");
        executable("env", "\u{7f}ELF");
        let script = executable("script", &format!("#!{}/env python3 -x\n", place.display()));
        std::fs::write(place.join("data"), "#!/bin/sh\n").expect("write");
        let environment = [("PATH".into(), place.clone().into())].into();
        let mut named = NamedInterpreters { environment: &environment, files: Vec::new() };
        named.add(script.as_os_str(), MAX_STEPS);
        named.add(place.join("data").as_os_str(), MAX_STEPS);
        named.add(OsStr::new("python3"), MAX_STEPS);
        assert_eq!(named.files, [place.join("env"), python]);
    }
}
