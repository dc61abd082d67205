//! Programs that load a libpython after their start.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_ring::InjectOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::interpreters::interpreters;
use test_kit::limit::WithTimeout as _;
use test_kit::preload::run;

/// The built program; `None`, which is reported, without a C compiler.
fn program(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("late");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/late.c");
    let built = Command::new("cc").arg("-o").arg(&program).arg(source).arg("-ldl").status_in_time();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: cc cannot build tests/late.c");
        return None;
    }
    Some(program)
}

/// A library that only needs `library`, like plugins of servers and editors.
fn plugin(folder: &Path, library: &Path) -> PathBuf {
    let plugin = folder.join("plugin.so");
    let source = folder.join("empty.c");
    std::fs::write(&source, "").unwrap();
    let runpath = library.parent().unwrap().display();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"])
        .arg(&plugin)
        .arg(&source)
        .arg(library)
        .arg(format!("-Wl,-rpath,{runpath}"))
        .status();
    assert!(built.unwrap().success());
    plugin
}

#[test]
fn libpython_loaded_late_initialized_twice() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else {
        return;
    };
    let mut tried = 0;
    for python in interpreters("libpython_loaded_late_initialized_twice") {
        let ask = "import sys, sysconfig as s; print(sys.base_prefix); \
                   print(s.get_config_var('LIBDIR') + '/' + (s.get_config_var('INSTSONAME') or ''))";
        let printed = python.command(ask).output_in_time().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        let (home, library) = printed.trim().split_once('\n').unwrap_or_default();
        let library = Path::new(library);
        // Debian's later ones need their own C library.
        if !library.is_file()
            || !library.to_string_lossy().contains(".so")
            || python.name.starts_with("debian")
        {
            eprintln!("skipped {}: it has no library that can be loaded here", python.name);
            continue;
        }
        let plugin = plugin(folder.path(), library);
        let ways = [library, &plugin].map(|opened| [(opened, "global"), (opened, "local")]);
        for (opened, scope) in ways.into_iter().flatten() {
            let mut command = Command::new(&program);
            let command = command.arg(opened).arg(scope).env("PYTHONHOME", home);
            let run = run(InjectOptions::default(), command);
            assert!(run.status.success(), "{} {:?} {}", python.name, run.status, run.errors);
            let pauses = run.only().pauses();
            let middle = pauses.iter().filter(|pause| pause.generation == 1);
            // Of both lives of the interpreter.
            assert!(
                middle.count() >= 12,
                "{} {} {scope} {:?}",
                python.name,
                opened.display(),
                run.only().hooks()
            );
            tried += 1;
        }
    }
    if tried == 0 {
        eprintln!("skipped: no interpreter here has a library");
    }
}
