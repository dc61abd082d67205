//! The interpreters to test with: from `scripts/interpreters.sh`, or else the system's.

use crate::limit::WithTimeout as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a test of each name, which calls `check(TEST, INTERPRETER)` with a name of the manifest.
#[macro_export]
macro_rules! on_interpreters {
    ($check:path; $($test:ident => $name:literal,)*) => {$(
        #[test]
        fn $test() {
            $check(stringify!($test), $name);
        }
    )*};
}

/// The same for every interpreter that scripts/interpreters.sh makes.
#[macro_export]
macro_rules! on_each_interpreter {
    ($check:path) => {
        $crate::on_interpreters! {
            $check;
            system_python => "system-3.11",
            cpython_3_8 => "pyenv-3.8",
            cpython_3_9 => "pyenv-3.9",
            cpython_3_10 => "pyenv-3.10",
            cpython_3_11 => "pyenv-3.11",
            cpython_3_12 => "pyenv-3.12",
            cpython_3_13 => "pyenv-3.13",
            debian_3_13 => "debian-3.13",
            debian_3_13_shared => "debian-3.13-shared",
            debian_3_14 => "debian-3.14",
            debian_3_14_shared => "debian-3.14-shared",
            debian_3_15 => "debian-3.15",
            debian_3_15_shared => "debian-3.15-shared",
            container_3_13 => "container-3.13",
            incremental_3_14 => "manylinux-3.14-incremental",
            manylinux_3_15 => "manylinux-3.15",
            free_threaded_3_13 => "manylinux-3.13t",
            free_threaded_3_14_early => "manylinux-3.14t-early",
            free_threaded_3_14 => "manylinux-3.14t",
            free_threaded_3_15 => "manylinux-3.15t",
        }
    };
}

/// An interpreter of the manifest that scripts/interpreters.sh writes.
#[derive(Clone, Debug)]
pub struct Python {
    /// For example `pyenv-3.12`.
    pub name: String,
    /// Major, minor and micro version.
    pub version: (u32, u32, u32),
    /// How it was built, for example `shared`, `symbols`, `free-threaded`.
    pub traits: Vec<String>,
    /// The program, or a wrapper that starts it.
    pub path: PathBuf,
}

impl Python {
    /// Whether it has this trait.
    pub fn is(&self, what: &str) -> bool {
        self.traits.iter().any(|named| named == what)
    }

    /// A command that runs a script given as text.
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["-c", script]);
        command
    }
}

/// The project's root.
pub fn root() -> &'static Path {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR"));
    kit.ancestors().nth(2).expect("this crate is tests/kit")
}

fn manifest_path() -> PathBuf {
    std::env::var_os("GCTRACE_INTERPRETERS")
        .map_or_else(|| root().join(".interpreters/manifest.tsv"), PathBuf::from)
}

/// Lines of the manifest: an interpreter, or the name of a missing one and why it is missing. Empty
/// if there is no manifest.
pub fn manifest() -> Vec<Result<Python, (String, String)>> {
    manifest_at(&manifest_path())
}

fn manifest_at(path: &Path) -> Vec<Result<Python, (String, String)>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| !line.starts_with('#')).filter_map(manifest_line).collect()
}

fn manifest_line(line: &str) -> Option<Result<Python, (String, String)>> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, version, traits, path, note] = fields.as_slice() else {
        return None;
    };
    let numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    let [major, minor, micro] = numbers.as_slice() else {
        return Some(Err(((*name).to_owned(), (*note).to_owned())));
    };
    Some(Ok(Python {
        name: (*name).to_owned(),
        version: (*major, *minor, *micro),
        traits: traits.split(',').map(str::to_owned).collect(),
        path: PathBuf::from(path),
    }))
}

/// Prints what was not tested, and why.
pub fn skip(test: &str, why: &str) {
    eprintln!("skipped {test}: {why}");
}

/// Prints a cell of the table of scripts/bench/garbage_truth.py: what a passed check compared.
pub fn compared(python: &Python, column: &str, cell: impl std::fmt::Display) {
    println!("compared\t{}\t{column}\t{cell}", python.name);
}

/// The interpreter of this name, or a named skip.
pub fn python(test: &str, name: &str) -> Option<Python> {
    let mut reason =
        format!("{name} is not in {}; scripts/interpreters.sh makes it", manifest_path().display());
    for line in manifest() {
        match line {
            Ok(python) if python.name == name => return Some(python),
            Err((missing, why)) if missing == name => reason = format!("{name}: {why}"),
            _ => {}
        }
    }
    skip(test, &reason);
    None
}

/// The interpreter, or a named skip for one of another root and pid namespace: what tests start is
/// a wrapper there.
pub fn direct(test: &str, python: Python) -> Option<Python> {
    if python.is("container") {
        let why = "its program is a child of a wrapper";
        skip(test, &format!("{}: {why}", python.name));
        return None;
    }
    Some(python)
}

/// All interpreters of the manifest; those that are missing or cannot be started here are named
/// skips. Without a manifest, the system's interpreter, which is reported too.
pub fn interpreters(test: &str) -> Vec<Python> {
    let all = with_containers(test).into_iter();
    all.filter_map(|python| direct(test, python)).collect()
}

/// The same, and those in containers.
pub fn with_containers(test: &str) -> Vec<Python> {
    let mut all = Vec::new();
    for line in manifest() {
        match line {
            Ok(python) => all.push(python),
            Err((name, why)) => skip(test, &format!("{name}: {why}")),
        }
    }
    if all.is_empty() {
        eprintln!("{test}: only with the system's python3: scripts/interpreters.sh makes more");
        all.extend(system_python());
    }
    assert!(!all.is_empty(), "{test}: there is no python3 here");
    all
}

/// The folder that `scripts/interpreters.sh --aarch64` fills.
pub fn aarch64_folder() -> PathBuf {
    root().join(".interpreters/aarch64")
}

/// Files of interpreters for aarch64, to be examined but not started; the path is the file with the
/// collector. Those that are missing are named skips.
pub fn aarch64_files(test: &str) -> Vec<Python> {
    let mut all = Vec::new();
    for line in manifest_at(&aarch64_folder().join("manifest.tsv")) {
        match line {
            Ok(python) => all.push(python),
            Err((name, why)) => skip(test, &format!("{name}: {why}")),
        }
    }
    if all.is_empty() {
        skip(test, "no files; scripts/interpreters.sh --aarch64 makes them");
    }
    all
}

/// The system's interpreter, with what it reports of itself.
fn system_python() -> Option<Python> {
    let ask = "import sys; print(*sys.version_info[:3], getattr(sys, 'abiflags', ''))";
    let path = any_python();
    let printed = Command::new(&path).args(["-c", ask]).output_in_time().ok()?;
    let printed = String::from_utf8(printed.stdout).ok()?;
    let mut words = printed.split_whitespace();
    let mut number = || words.next()?.parse().ok();
    let version = (number()?, number()?, number()?);
    let free = words.next().is_some_and(|flags| flags.contains('t'));
    Some(Python {
        name: "python3".to_owned(),
        version,
        traits: free.then(|| "free-threaded".to_owned()).into_iter().collect(),
        path,
    })
}

/// The program of the system's interpreter.
pub fn any_python() -> PathBuf {
    ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .expect("python3 in /usr/bin")
}

/// The interpreter of an environment that `scripts/venv.sh NAME` makes and the variable names, or a named skip.
pub fn environment(name: &str, variable: &str, test: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty());
    let made = root().join(format!(".venv-{name}/bin/python"));
    let python = named.map_or(made, PathBuf::from);
    if python.exists() {
        return Some(python);
    }
    let python = python.display();
    skip(test, &format!("no {python}; scripts/venv.sh {name} makes it, {variable} names it"));
    None
}

/// The interpreter that has PyTorch, or a named skip.
pub fn torch(test: &str) -> Option<PathBuf> {
    let python =
        std::env::var_os("GCTRACE_TORCH_PYTHON").filter(|path| !path.is_empty()).map(PathBuf::from);
    if python.is_none() {
        skip(test, "no PyTorch; scripts/torch-venv.sh makes it, GCTRACE_TORCH_PYTHON names it");
    }
    python
}
