//! The published schemas of docs/, and other files of docs that code makes.

use std::path::{Path, PathBuf};

/// Set to write a schema instead of comparing it.
const UPDATE: &str = "GCTRACE_UPDATE_SCHEMA";

/// The file of a schema.
#[must_use]
pub fn published(name: &str) -> PathBuf {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    docs.join(format!("{name}.schema.json"))
}

/// Checks that the schema in docs is this one; `name`: its file's name before `.schema.json`, `test`: the
/// crate and module that compare it, as words for `cargo test`.
///
/// # Panics
/// It is not, its texts name Rust's items, or it cannot be read or, with `GCTRACE_UPDATE_SCHEMA` set, written.
pub fn assert_published(name: &str, schema: &impl serde::Serialize, test: &str) {
    let text = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    assert_without_rust(name, &text);
    assert_made(&published(name), &text, test);
}

/// Checks that a text for users of JSON links to none of Rust's items, nor names its paths and values.
///
/// # Panics
/// It does.
pub fn assert_without_rust(name: &str, text: &str) {
    for of_rust in ["[`", "super::", "crate::", "Self::", "`None`", "`Some("] {
        let found = text.lines().find(|line| line.contains(of_rust));
        assert!(found.is_none(), "{name}: {of_rust} in {found:?}");
    }
}

/// Checks that a file of docs is this text, which the code makes.
///
/// # Panics
/// As [`assert_published`].
pub fn assert_made(path: &Path, text: &str, test: &str) {
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(path, text).expect("docs can be written");
    }
    let published = std::fs::read_to_string(path).expect("docs can be read");
    assert!(published == text, "{} is old: {UPDATE}=1 cargo test {test}", path.display());
}
