//! The function that the user named: its calls mark steps.

use crate::python::object::OwnedRef;
use gctrace_ring::STEP_FUNCTION_VARIABLE;
use std::ffi::OsString;
use std::sync::OnceLock;

/// A function by its name: all functions of this name mark steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedFunction {
    /// Last parts of the file's path; `None`: any file.
    file: Option<String>,
    /// The qualified name, or the last parts of it.
    name: String,
}

static NAMED: OnceLock<NamedFunction> = OnceLock::new();

/// Reads the name from the environment, before the program's own code can change that.
pub(crate) fn begin() {
    let text = std::env::var_os(STEP_FUNCTION_VARIABLE).map(OsString::into_string);
    if let Some(Ok(text)) = text
        && let Some(named) = NamedFunction::parse(&text)
    {
        let _ = NAMED.set(named);
    }
}

/// The function, if the user named one.
#[inline]
pub(super) fn named() -> Option<&'static NamedFunction> {
    NAMED.get()
}

impl NamedFunction {
    /// `train_step`, `Trainer.step` or `train.py:train_step`.
    fn parse(text: &str) -> Option<Self> {
        let (file, name) = match text.rsplit_once(':') {
            Some((file, name)) => (Some(file.to_owned()), name),
            None => (None, text),
        };
        if name.is_empty() { None } else { Some(Self { file, name: name.to_owned() }) }
    }

    /// The qualified name of a code object that is the function's. The interpreter's lock is held.
    pub(super) fn qualified_name(&self, code: &OwnedRef) -> Option<String> {
        let name = code.attribute(c"co_qualname")?;
        let name = name.text()?;
        if !ends_in(name, &self.name, '.') {
            return None;
        }
        if let Some(file) = &self.file {
            code.attribute(c"co_filename")?.text().filter(|path| ends_in(path, file, '/'))?;
        }
        Some(name.to_owned())
    }
}

/// Whether the last parts of a path are these.
fn ends_in(path: &str, end: &str, separator: char) -> bool {
    let Some(before) = path.strip_suffix(end) else { return false };
    before.is_empty() || before.ends_with(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_file() {
        let parsed = |text| NamedFunction::parse(text).unwrap();
        let named = parsed("a/train.py:Trainer.step");
        assert_eq!((named.file.as_deref(), &*named.name), (Some("a/train.py"), "Trainer.step"));
        assert_eq!(parsed("step").file, None);
        assert_eq!(NamedFunction::parse("train.py:"), None);
        assert_eq!(NamedFunction::parse(""), None);
    }

    #[test]
    fn whole_parts_count() {
        for name in ["step", "Trainer.step", "main.<locals>.Trainer.step"] {
            assert!(ends_in(name, "step", '.'), "{name}");
        }
        for name in ["train_step", "step.<locals>.inner", "steps"] {
            assert!(!ends_in(name, "step", '.'), "{name}");
        }
        assert!(ends_in("/srv/a/train.py", "a/train.py", '/'));
        assert!(!ends_in("/srv/pretrain.py", "train.py", '/'));
    }
}
