//! Every search strategy against the symbols of the same build: binutils and xz create the
//! stripped files, the debug files and the mini debug info.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_probes::{
    ProbePointKind, Resolution, ResolveOptions, SearchStrategy, resolve, resolve_bytes,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use test_kit::interpreters;
use test_kit::limit::WithTimeout as _;

fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).status_in_time().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// The file with the collector: the libpython of a shared build, the executable otherwise.
fn collector_file(interpreter: &interpreters::Python) -> PathBuf {
    let output = Command::new("ldd").arg(&interpreter.path).output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| line.contains("libpython3."))
        .find_map(|line| Some(PathBuf::from(line.split_whitespace().nth(2)?)))
        .unwrap_or_else(|| interpreter.path.clone())
}

/// Files of interpreters with symbols; if there are none, a named skip is printed.
fn with_symbols() -> Vec<PathBuf> {
    let tools = ["strip", "objcopy", "xz", "nm"];
    if let Some(missing) =
        tools.iter().find(|tool| Command::new(tool).arg("--version").output_in_time().is_err())
    {
        interpreters::skip("the ladder", &format!("{missing} is not installed"));
        return Vec::new();
    }
    let found: Vec<PathBuf> = interpreters::interpreters("with_symbols")
        .iter()
        .filter(|interpreter| interpreter.is("symbols"))
        .map(collector_file)
        .collect();
    if found.is_empty() {
        interpreters::skip("the ladder", "no interpreter with symbols");
    }
    found
}

fn found(file: &Path, options: &ResolveOptions) -> Resolution {
    resolve(file, options).unwrap().unwrap()
}

/// Kind, address, probed instruction of each point.
fn places(resolution: &Resolution) -> BTreeSet<(String, u64, u64)> {
    resolution
        .points
        .iter()
        .map(|point| (format!("{:?}", point.kind), point.address, point.file_offset))
        .collect()
}

fn options(roots: &[&Path]) -> ResolveOptions {
    ResolveOptions {
        debug_roots: roots.iter().map(|root| root.to_path_buf()).collect(),
        ..ResolveOptions::default()
    }
}

fn stripped(file: &Path, folder: &TempDir) -> PathBuf {
    let output = folder.path().join("stripped.so");
    run("strip", &[Path::new("-o"), &output, file]);
    output
}

/// Addresses from `nm` of the collector's functions, clones included.
fn named_by_nm(file: &Path) -> BTreeSet<u64> {
    let output = Command::new("nm").arg(file).output_in_time().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (address, _, name) = (fields.next()?, fields.next()?, fields.next()?);
            let clone = name.starts_with("collect.") && !name.contains("cold");
            let named =
                matches!(name, "collect" | "gc_collect_main" | "gc_collect" | "PyGC_Collect");
            (clone || named).then(|| u64::from_str_radix(address, 16).unwrap())
        })
        .collect()
}

#[test]
fn symbols_give_what_nm_gives() {
    for file in with_symbols() {
        let resolution = found(&file, &options(&[]));
        assert_eq!(resolution.rung, SearchStrategy::SymbolTable);
        let others = [ProbePointKind::CodeDealloc, ProbePointKind::Garbage];
        let collector = resolution.points.iter().filter(|point| !others.contains(&point.kind));
        let addresses: BTreeSet<u64> = collector.map(|point| point.address).collect();
        assert_eq!(addresses, named_by_nm(&file), "{}", file.display());
    }
}

#[test]
fn code_analysis_finds_what_symbols_find() {
    for file in with_symbols() {
        let folder = TempDir::new().unwrap();
        let truth = found(&file, &options(&[]));
        let analyzed = found(&stripped(&file, &folder), &options(&[]));
        assert_eq!(analyzed.rung, SearchStrategy::CodeAnalysis);
        assert_eq!(places(&analyzed), places(&truth), "{}", file.display());
        assert_eq!((analyzed.version, analyzed.layout), (truth.version, truth.layout));
        let tried: Vec<SearchStrategy> =
            analyzed.tried.iter().map(|outcome| outcome.rung).collect();
        assert_eq!(tried, SearchStrategy::ALL[..5]);
    }
}

#[test]
fn code_analysis_needs_no_section_headers() {
    for file in with_symbols() {
        let truth = found(&file, &options(&[]));
        let mut bytes = std::fs::read(&file).unwrap();
        // e_shoff, and e_shentsize to e_shstrndx.
        bytes[0x28..0x30].fill(0);
        bytes[0x3a..0x40].fill(0);
        let analyzed = resolve_bytes(&file, &bytes, &options(&[])).unwrap().unwrap();
        assert_eq!(analyzed.rung, SearchStrategy::CodeAnalysis);
        assert_eq!(places(&analyzed), places(&truth), "{}", file.display());
    }
}

#[test]
fn the_callers_lead_to_the_collector_without_its_debug_line() {
    for file in with_symbols() {
        let folder = TempDir::new().unwrap();
        let truth = found(&file, &options(&[]));
        if truth.points.iter().filter(|point| is_collector(&point.kind)).count() > 1 {
            interpreters::skip(&file.display().to_string(), "clones need the debug line");
            continue;
        }
        let mut bytes = std::fs::read(stripped(&file, &folder)).unwrap();
        let line = b"gc: collecting generation %d";
        let at = memchr::memmem::find(&bytes, line).unwrap();
        bytes[at] = b'G';
        let analyzed = resolve_bytes(&file, &bytes, &options(&[])).unwrap().unwrap();
        assert_eq!(places(&analyzed), places(&truth), "{}", file.display());
    }
}

fn is_collector(kind: &ProbePointKind) -> bool {
    *kind == ProbePointKind::Collect
}

#[test]
fn separate_debug_files_are_found_and_checked() {
    for file in with_symbols() {
        let folder = TempDir::new().unwrap();
        let truth = found(&file, &options(&[]));
        let debug = folder.path().join("python.debug");
        run("objcopy", &[Path::new("--only-keep-debug"), &file, &debug]);
        by_build_id(&file, &debug, &folder, &truth);
        by_debug_link(&file, &debug, &folder, &truth);
    }
}

fn by_build_id(file: &Path, debug: &Path, folder: &TempDir, truth: &Resolution) {
    let Some(id) = &truth.build_id else {
        interpreters::skip(&file.display().to_string(), "no build id");
        return;
    };
    let (start, rest) = id.split_at(2);
    let place = folder.path().join(".build-id").join(start);
    std::fs::create_dir_all(&place).unwrap();
    let place = place.join(format!("{rest}.debug"));
    std::fs::copy(debug, &place).unwrap();
    let stripped = stripped(file, folder);
    let here = options(&[folder.path()]);
    let resolution = found(&stripped, &here);
    assert_eq!(resolution.rung, SearchStrategy::BuildIdDebugFile);
    assert_eq!(places(&resolution), places(truth));
    // Another build's file under that name is rejected.
    std::fs::copy("/bin/true", &place).unwrap();
    let resolution = found(&stripped, &here);
    assert_eq!(resolution.rung, SearchStrategy::CodeAnalysis);
    assert!(resolution.tried[1].detail.contains("another build id"));
}

fn by_debug_link(file: &Path, debug: &Path, folder: &TempDir, truth: &Resolution) {
    let linked = folder.path().join("linked.so");
    let option = format!("--add-gnu-debuglink={}", debug.display());
    run("objcopy", &[Path::new(&option), &stripped(file, folder), &linked]);
    let resolution = found(&linked, &options(&[]));
    assert_eq!(resolution.rung, SearchStrategy::DebugLink);
    assert_eq!(places(&resolution), places(truth));
    // A changed file has another checksum.
    let mut bytes = std::fs::read(debug).unwrap();
    bytes.push(0);
    std::fs::write(debug, bytes).unwrap();
    let resolution = found(&linked, &options(&[]));
    assert_eq!(resolution.rung, SearchStrategy::CodeAnalysis);
    assert!(resolution.tried[2].detail.contains("another checksum"));
}

#[test]
fn mini_debug_info_is_unpacked() {
    for file in with_symbols() {
        let folder = TempDir::new().unwrap();
        let truth = found(&file, &options(&[]));
        let mini = folder.path().join("mini");
        // As built by Fedora: symbols only.
        run("objcopy", &[Path::new("--only-keep-debug"), &file, &mini]);
        run("strip", &[Path::new("--strip-debug"), &mini]);
        run("xz", &[&mini]);
        let packed = folder.path().join("packed.so");
        let option = format!(".gnu_debugdata={}.xz", mini.display());
        run(
            "objcopy",
            &[Path::new("--add-section"), Path::new(&option), &stripped(&file, &folder), &packed],
        );
        let resolution = found(&packed, &options(&[]));
        assert_eq!(resolution.rung, SearchStrategy::MiniDebugInfo, "{:?}", resolution.tried);
        assert_eq!(places(&resolution), places(&truth));
    }
}

#[test]
fn every_interpreter_is_resolved_without_a_warning() {
    for interpreter in interpreters::interpreters("every_interpreter_is_resolved_without_a_warning")
    {
        let resolution = found(&collector_file(&interpreter), &ResolveOptions::default());
        assert_eq!(resolution.warnings, Vec::<String>::new(), "{}", interpreter.name);
        assert!(resolution.layout.is_some() && resolution.version.micro.is_some());
        let free_threaded = interpreter.is("free-threaded");
        assert_eq!(resolution.free_threaded, free_threaded, "{}", interpreter.name);
        let collector = resolution.collector.as_ref();
        assert!(interpreter.traits.is_empty() || interpreter.is(collector), "{}", interpreter.name);
        assert!(resolution.points.iter().all(|point| point.semaphore_file_offset.is_none()));
    }
}

#[test]
fn static_trace_points_are_found_with_their_counters() {
    let options = ResolveOptions { first_rung: SearchStrategy::Usdt, ..ResolveOptions::default() };
    let mut seen = 0;
    for interpreter in
        interpreters::interpreters("static_trace_points_are_found_with_their_counters")
    {
        let Ok(Some(resolution)) = resolve(&collector_file(&interpreter), &options) else {
            interpreters::skip(&interpreter.name, "built without static trace points");
            continue;
        };
        seen += 1;
        let collecting: Vec<_> = resolution
            .points
            .iter()
            .filter(|point| point.kind != ProbePointKind::CodeDealloc)
            .collect();
        assert_eq!(collecting.len(), 2, "{}", interpreter.name);
        for point in collecting {
            assert_eq!(point.instruction, "nop");
            assert!(point.emulated && point.semaphore_file_offset.is_some());
        }
    }
    eprintln!("{seen} interpreters with static trace points");
}
