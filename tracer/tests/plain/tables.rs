//! `gctrace export --format parquet`: the tables, read by other programs. Needs no privileges.

#![cfg(feature = "parquet")]

use std::path::PathBuf;
use std::process::Command;
use test_kit::interpreters::root;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::run_with_package;

/// A Python with DuckDB, pyarrow and, from `scripts/venv.sh tables`, further engines; `None` is a named skip.
fn python(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("GCTRACE_TABLES_PYTHON").filter(|path| !path.is_empty());
    let [all, two] =
        ["tables", "tables-short"].map(|name| root().join(format!(".venv-{name}/bin/python")));
    let made = if all.exists() { all } else { two };
    let python = named.map_or(made, PathBuf::from);
    if python.exists() {
        return Some(python);
    }
    println!(
        "skipped {test}: no DuckDB and pyarrow at {}; scripts/venv.sh tables makes it, \
         GCTRACE_TABLES_PYTHON names it",
        python.display()
    );
    None
}

#[test]
fn tables_are_true_in_every_engine() {
    let Some(python) = python("tables_are_true_in_every_engine") else {
        return;
    };
    let checked = Command::new(python)
        .arg(root().join("tests/python/tables_truth.py"))
        .arg(env!("CARGO_BIN_EXE_gctrace"))
        .arg(root())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{printed}{errors}");
    assert!(printed.contains("queries answered"), "{printed}");
    print!("{printed}");
}

#[test]
fn the_package_loads_them() {
    if let Some(python) = python("the_package_loads_them") {
        run_with_package(&python, "package_tables.py", &[]);
    }
}
