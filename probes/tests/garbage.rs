//! The instruction that enters the loop over the garbage: found in every build with the GIL.

use gctrace_probes::ProbePointKind;
use gctrace_probes::ResolveOptions;
use gctrace_probes::resolve;
use std::path::PathBuf;
use std::process::Command;
use test_kit::interpreters;
use test_kit::limit::WithTimeout as _;

fn collector_file(interpreter: &interpreters::Python) -> PathBuf {
    let output = Command::new("ldd")
        .arg(&interpreter.path)
        .output_in_time()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| line.contains("libpython3."))
        .find_map(|line| Some(PathBuf::from(line.split_whitespace().nth(2)?)))
        .unwrap_or_else(|| interpreter.path.clone())
}

#[test]
fn list() {
    for interpreter in interpreters::interpreters("list") {
        let start = std::time::Instant::now();
        let r = resolve(&collector_file(&interpreter), &ResolveOptions::default())
            .unwrap()
            .unwrap();
        let p = r.points.iter().find(|p| p.kind == ProbePointKind::Garbage);
        eprintln!(
            "{} {:?} {:?}",
            interpreter.name,
            p.map(|p| (
                &p.function,
                format!("{:#x}", p.address),
                format!("{:#x}", p.probe_address),
                &p.instruction,
                p.emulated
            )),
            start.elapsed()
        );
    }
}
