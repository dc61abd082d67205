//! `gctrace export --format perfetto`, read back by another program. Needs no privileges.

use std::process::Command;
use test_kit::interpreters::root;
use test_kit::limit::WithTimeout as _;

/// `tests/python/pftrace.py` compares each pause and operation with traces of which the truth is known. It uses
/// Perfetto's own classes where its Python has them, and says where not.
#[test]
fn timelines_are_true() {
    let python = std::env::var_os("GCTRACE_PERFETTO_PYTHON").filter(|path| !path.is_empty());
    let checked = Command::new(python.unwrap_or_else(|| "python3".into()))
        .arg(root().join("tests/python/pftrace.py"))
        .args(["--test", env!("CARGO_BIN_EXE_gctrace")])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{printed}{errors}");
    assert!(printed.contains("timelines are true"), "{printed}");
    print!("{printed}");
}

#[test]
fn a_timeline_needs_files_and_all_generations() {
    let export = |options: &[&str]| {
        let gctrace = env!("CARGO_BIN_EXE_gctrace");
        let done = Command::new(gctrace).arg("export").args(options).output_in_time().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = export(&["-", "--format", "perfetto"]);
    assert_ne!(code, Some(0));
    assert!(said.contains("is read twice"), "{said}");
    let (code, said) = export(&["/dev/stdin", "--format", "perfetto"]);
    assert_ne!(code, Some(0));
    assert!(said.contains("is read twice"), "{said}");
    let (code, said) = export(&["no.json", "--format", "perfetto", "--generation", "2"]);
    assert_ne!(code, Some(0));
    assert!(said.contains("has all collections"), "{said}");
    let (code, said) = export(&["no.json", "-o", "no.pftrace"]);
    assert_ne!(code, Some(0));
    assert!(said.contains("no.json"), "{said}");
}
