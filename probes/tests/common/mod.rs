//! The interpreters to test with: those of `scripts/interpreters.sh`, or else the installed ones.

use std::path::Path;
use std::path::PathBuf;

/// One line of the manifest.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) name: String,
    pub(crate) kinds: Vec<String>,
    pub(crate) path: PathBuf,
}

impl Interpreter {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kinds.iter().any(|other| other == kind)
    }
}

/// Prints what was not tested and why.
pub(crate) fn skip(name: &str, why: &str) {
    eprintln!("SKIPPED {name}: {why}");
}

/// All available interpreters; the missing ones are printed.
pub(crate) fn interpreters() -> Vec<Interpreter> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.interpreters");
    let folder = std::env::var_os("GCTRACE_INTERPRETERS").map_or(root, PathBuf::from);
    match std::fs::read_to_string(folder.join("manifest.tsv")) {
        Ok(manifest) => manifest.lines().filter_map(listed).collect(),
        Err(_) => {
            skip(
                "interpreters of other kinds",
                "run scripts/interpreters.sh to get them",
            );
            installed()
        }
    }
}

fn listed(line: &str) -> Option<Interpreter> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, _, kinds, path, note] = fields[..] else {
        return None;
    };
    if name.starts_with('#') || name == "name" {
        return None;
    }
    if !Path::new(path).exists() {
        skip(name, note);
        return None;
    }
    Some(Interpreter {
        name: name.to_owned(),
        kinds: kinds.split(',').map(str::to_owned).collect(),
        path: path.into(),
    })
}

fn installed() -> Vec<Interpreter> {
    let found: Vec<Interpreter> = (8..=15)
        .map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")))
        .filter(|path| path.exists())
        .map(|path| Interpreter {
            name: path.display().to_string(),
            kinds: Vec::new(),
            path,
        })
        .collect();
    if found.is_empty() {
        skip("every interpreter", "no /usr/bin/python3.N is installed");
    }
    found
}
