//! Python's file names: whether a file is library code, judged by the path alone, as recorded in the
//! code object.

/// Commands of packages that run the user's program: their script in `bin` calls the package, and is nobody's line.
const LAUNCHERS: [&str; 16] = [
    "accelerate",
    "celery",
    "daphne",
    "deepspeed",
    "fastapi",
    "flask",
    "gunicorn",
    "hypercorn",
    "ipython",
    "jupyter",
    "pytest",
    "ray",
    "rq",
    "torchrun",
    "uvicorn",
    "vllm",
];

/// Whether a file belongs to the standard library or to an installed package rather than to the
/// program: it lies under `lib/pythonX.Y` (also `lib64`, and a zipped library `pythonXY.zip`),
/// `site-packages` or Debian's `dist-packages`, is frozen into the interpreter, or is a package's command.
#[must_use]
pub fn is_library(file: &str) -> bool {
    file.starts_with("<frozen ")
        || file == "<__array_function__ internals>"
        || within_library(file).is_some()
        || is_launcher(file)
}

fn is_launcher(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let name = parts.next().unwrap_or_default();
    parts.next() == Some("bin") && LAUNCHERS.contains(&name)
}

/// The path of a library's file after its library directory: `torch/optim/adam.py`; `None` of others.
#[must_use]
pub fn within_library(file: &str) -> Option<&str> {
    let mut rest = file;
    let mut found = None;
    let mut before = "";
    while let Some((directory, behind)) = rest.split_once('/') {
        if is_root(before, directory) {
            found = Some(behind);
        }
        (before, rest) = (directory, behind);
    }
    found
}

fn is_root(before: &str, directory: &str) -> bool {
    match directory {
        "site-packages" | "dist-packages" => true,
        _ if directory.ends_with(".zip") => is_python(directory.trim_end_matches(".zip")),
        _ => matches!(before, "lib" | "lib64" | "Lib") && is_python(directory),
    }
}

/// `python3`, `python3.11`, `python3.13t`, `pypy3.10`.
fn is_python(directory: &str) -> bool {
    let Some(version) = directory.strip_prefix("python").or_else(|| directory.strip_prefix("pypy"))
    else {
        return false;
    };
    let digits = version.trim_end_matches('t');
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}
