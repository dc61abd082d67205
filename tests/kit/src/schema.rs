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
/// It is not, or cannot be read or, with `GCTRACE_UPDATE_SCHEMA` set, written.
pub fn assert_published(name: &str, schema: &impl serde::Serialize, test: &str) {
    let text = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    assert_made(&published(name), &text, test);
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
