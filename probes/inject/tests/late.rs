//! Programs that load a libpython after their start.

mod common;

use common::interpreters;
use common::limit::InTime as _;
use common::run;
use gctrace_ring::Options;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// The program, built; `None`, said, where there is no C compiler.
fn program(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("late");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/late.c");
    let built = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .arg("-ldl")
        .status_in_time();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: cc cannot build tests/late.c");
        return None;
    }
    Some(program)
}

#[test]
fn libpython_loaded_late_initialised_twice() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else {
        return;
    };
    let mut tried = 0;
    for python in interpreters("libpython_loaded_late_initialised_twice") {
        let ask = "import sys, sysconfig as s; print(sys.base_prefix); \
                   print(s.get_config_var('LIBDIR') + '/' + (s.get_config_var('INSTSONAME') or ''))";
        let said = python.command(ask).output_in_time().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let (home, library) = said.trim().split_once('\n').unwrap_or_default();
        let library = Path::new(library);
        // Debian's later ones need their own C library.
        if !library.is_file()
            || !library.to_string_lossy().contains(".so")
            || python.name.starts_with("debian")
        {
            eprintln!(
                "skipped {}: it has no library that can be loaded here",
                python.name
            );
            continue;
        }
        for scope in ["global", "local"] {
            let mut command = Command::new(&program);
            let command = command.arg(library).arg(scope).env("PYTHONHOME", home);
            let run = run(Options::default(), command);
            assert!(
                run.status.success(),
                "{} {:?} {}",
                python.name,
                run.status,
                run.errors
            );
            let pauses = run.only().pauses();
            let middle = pauses.iter().filter(|pause| pause.generation == 1);
            // Of both lives of the interpreter.
            assert!(
                middle.count() >= 12,
                "{} {scope} {:?}",
                python.name,
                run.only().hooks()
            );
            tried += 1;
        }
    }
    if tried == 0 {
        eprintln!("skipped: no interpreter here has a library");
    }
}
