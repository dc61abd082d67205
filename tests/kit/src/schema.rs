//! The published schemas of docs/.

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
    let path = published(name);
    let text = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &text).expect("docs can be written");
    }
    let published = std::fs::read_to_string(&path).expect("docs can be read");
    assert!(published == text, "docs/{name}.schema.json is old: {UPDATE}=1 cargo test {test}");
}
