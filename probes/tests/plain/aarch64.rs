//! Interpreters for aarch64, examined on any machine: what is found in the stripped files against
//! the symbols of the same builds, which are files of their own, and against what readelf prints.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_abi::AllocationSize;
use gctrace_probes::{
    Machine, ProbePoint, ProbePointKind, Resolution, ResolveError, ResolveOptions, SearchStrategy,
    allocator, resolve, resolve_bytes,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::interpreters;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;

/// Without the files that have the symbols.
fn stripped() -> ResolveOptions {
    ResolveOptions {
        debug_roots: Vec::new(),
        machine: Machine::Aarch64,
        ..ResolveOptions::default()
    }
}

fn with_symbols() -> ResolveOptions {
    ResolveOptions { debug_roots: vec![interpreters::aarch64_folder().join("debug")], ..stripped() }
}

fn found(file: &Path, options: &ResolveOptions) -> Resolution {
    resolve(file, options).unwrap().unwrap()
}

/// The files whose symbols are known.
fn with_truth(test: &str) -> Vec<Python> {
    let mut all = interpreters::aarch64_files(test);
    all.retain(|python| python.is("symbols"));
    all
}

/// The points, whatever the functions' names: symbols have the suffixes of clones.
fn places(resolution: &Resolution) -> Vec<ProbePoint> {
    let mut points = resolution.points.clone();
    for point in &mut points {
        point.function.clear();
    }
    points.sort_by_key(|point| (point.kind as u32, point.address));
    points
}

/// Defined functions in a symbol table, by name, as readelf prints them.
fn functions(file: &Path, option: &str) -> BTreeMap<String, u64> {
    let output = Command::new("readelf").args([option, "-W"]).arg(file).output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, address, _, "FUNC", _, _, section, name, ..] = fields.as_slice() else {
            return None;
        };
        let address = u64::from_str_radix(address, 16).ok()?;
        (*section != "UND").then(|| ((*name).to_owned(), address))
    };
    text.lines().filter_map(line).collect()
}

fn debug_file(resolution: &Resolution) -> PathBuf {
    let (start, rest) = resolution.build_id.as_ref().unwrap().split_at(2);
    let folder = interpreters::aarch64_folder().join("debug/.build-id");
    folder.join(start).join(format!("{rest}.debug"))
}

/// The function's name in its source, without the suffixes of link-time optimization.
fn source_name(name: &str) -> &str {
    name.split(".lto_priv").next().unwrap()
}

#[test]
fn symbols_give_what_readelf_gives() {
    for python in with_truth("symbols_give_what_readelf_gives") {
        let resolution = found(&python.path, &with_symbols());
        assert_eq!(resolution.rung, SearchStrategy::BuildIdDebugFile);
        let wanted = ["collect", "gc_collect_main", "gc_collect", "PyGC_Collect"];
        let truth: BTreeSet<u64> = functions(&debug_file(&resolution), "-s")
            .into_iter()
            .filter(|(name, _)| wanted.contains(&source_name(name)))
            .map(|(_, address)| address)
            .collect();
        assert_eq!(truth.len(), 3, "{}", python.name);
        let addresses: BTreeSet<u64> = resolution
            .points
            .iter()
            .filter(|point| point.kind != ProbePointKind::CodeDealloc)
            .map(|point| point.address)
            .collect();
        assert_eq!(addresses, truth, "{}", python.name);
    }
}

#[test]
fn code_analysis_finds_what_symbols_find() {
    for python in with_truth("code_analysis_finds_what_symbols_find") {
        let truth = found(&python.path, &with_symbols());
        let analyzed = found(&python.path, &stripped());
        assert_eq!(analyzed.rung, SearchStrategy::CodeAnalysis);
        assert_eq!(places(&analyzed), places(&truth), "{}", python.name);
        assert_eq!(
            (&analyzed.version, &analyzed.layout, &analyzed.frames),
            (&truth.version, &truth.layout, &truth.frames)
        );
        let deallocates = named(&analyzed, ProbePointKind::CodeDealloc);
        let symbols = functions(&debug_file(&truth), "-s");
        let named_so = symbols.iter().filter(|(name, _)| source_name(name) == "code_dealloc");
        let truth: Vec<u64> = named_so.map(|(_, address)| *address).collect();
        assert_eq!(truth, [deallocates.unwrap()], "{}", python.name);
    }
}

/// Code analysis of the changed files finds what the symbols of the unchanged ones give.
fn found_in_changed(test: &str, change: impl Fn(&mut [u8])) {
    for python in with_truth(test) {
        let truth = found(&python.path, &with_symbols());
        let mut bytes = std::fs::read(&python.path).unwrap();
        change(&mut bytes);
        let analyzed = resolve_bytes(&python.path, &bytes, &stripped());
        assert_eq!(places(&analyzed.unwrap().unwrap()), places(&truth), "{}", python.name);
    }
}

#[test]
fn code_analysis_needs_no_section_headers() {
    found_in_changed("code_analysis_needs_no_section_headers", |bytes| {
        // e_shoff, and e_shentsize to e_shstrndx.
        bytes[0x28..0x30].fill(0);
        bytes[0x3a..0x40].fill(0);
    });
}

#[test]
fn the_callers_lead_to_the_collector_without_its_debug_line() {
    let test = "the_callers_lead_to_the_collector_without_its_debug_line";
    found_in_changed(test, |bytes| {
        let at = memchr::memmem::find(bytes, b"gc: collecting generation %d").unwrap();
        bytes[at] = b'G';
    });
}

/// Compilers name a clone that lacks arguments; without one, all arguments are there.
#[test]
fn collectors_that_are_not_clones_have_all_arguments() {
    for python in with_truth("collectors_that_are_not_clones_have_all_arguments") {
        let resolution = found(&python.path, &with_symbols());
        let collector =
            resolution.points.iter().find(|point| point.kind == ProbePointKind::Collect).unwrap();
        let is_clone =
            ["constprop", "isra", "part"].iter().any(|suffix| collector.function.contains(suffix));
        let arguments = collector.arguments;
        let of_version = match resolution.version.minor {
            13.. => arguments.reason,
            _ => arguments.no_fail,
        };
        let all = [arguments.tstate, arguments.generation, of_version];
        if !is_clone {
            assert!(all.iter().all(Option::is_some), "{}: {all:?}", python.name);
        }
    }
}

fn named(resolution: &Resolution, kind: ProbePointKind) -> Option<u64> {
    let mut points = resolution.points.iter();
    let point = points.find(|point| point.kind == kind)?;
    Some(point.address)
}

#[test]
fn every_file_is_resolved_without_a_warning() {
    for python in interpreters::aarch64_files("every_file_is_resolved_without_a_warning") {
        let resolution = found(&python.path, &stripped());
        let name = &python.name;
        assert_eq!(resolution.warnings, Vec::<String>::new(), "{name}");
        let version = &resolution.version;
        let numbers = (3, u32::from(version.minor), version.micro.unwrap().into());
        assert_eq!(numbers, python.version, "{name}");
        assert!(python.is(resolution.collector.as_ref()), "{name}");
        assert_eq!(resolution.free_threaded, python.is("free-threaded"), "{name}");
        let places = resolution.points.iter();
        let places = places.map(|point| format!("{:?} {}", point.kind, point.instruction));
        eprintln!("{name}: {}: {}", resolution.rung, places.collect::<Vec<_>>().join(", "));
        let exported = functions(&python.path, "--dyn-syms");
        for (kind, function) in [
            (ProbePointKind::PyGcCollect, "PyGC_Collect"),
            (ProbePointKind::StopTheWorld, "_PyEval_StopTheWorld"),
            (ProbePointKind::StartTheWorld, "_PyEval_StartTheWorld"),
        ] {
            let truth = exported.get(function).copied();
            let expected = kind == ProbePointKind::PyGcCollect || resolution.free_threaded;
            match named(&resolution, kind) {
                // 3.13 does not export the functions that stop and start the world.
                Some(address) if truth.is_some() => assert_eq!(Some(address), truth, "{name}"),
                found => assert_eq!(found.is_some(), expected, "{name} {function}"),
            }
        }
    }
}

/// A return probe takes the return address from the link register: it must come before the
/// instruction that saves it, whatever that is.
#[test]
fn return_probes_come_before_the_link_register_is_saved() {
    for python in
        interpreters::aarch64_files("return_probes_come_before_the_link_register_is_saved")
    {
        for point in found(&python.path, &stripped()).points {
            if !point.kind.has_return() || point.offset_in_function == 0 {
                continue;
            }
            let start = format!("--start-address={}", point.address);
            let stop = format!("--stop-address={}", point.probe_address);
            let Ok(output) = Command::new("llvm-objdump")
                .args(["-d", "--no-show-raw-insn", &start, &stop])
                .arg(&python.path)
                .output_in_time()
            else {
                interpreters::skip(&python.name, "llvm-objdump is not installed");
                continue;
            };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(!text.contains("x30"), "{}: {text}", python.name);
            assert!(!text.contains("hint\t#25"), "{}: {text}", python.name);
        }
    }
}

#[test]
fn allocations_are_counted_in_every_copy_of_the_allocator() {
    for python in with_truth("allocations_are_counted_in_every_copy_of_the_allocator") {
        let found = allocator(&python.path, Machine::Aarch64).unwrap().unwrap();
        let exported = functions(&python.path, "--dyn-syms");
        let function = exported["PyObject_Malloc"];
        let name = &python.name;
        let lowest = if python.is("shared") { 0 } else { 0x40_0000 };
        let within = found.points.iter().filter(|point| {
            let address = point.file_offset + lowest;
            (function..function + 0x100).contains(&address)
        });
        assert_eq!(within.count(), 1, "{name}: the function itself has one point");
        if python.is("shared") {
            let [point] = found.points.as_slice() else {
                panic!("{name}: {:?}", found.points);
            };
            assert_eq!(point.size, AllocationSize::Register(0), "{name}");
        } else {
            // Link-time optimization inlines it; DWARF counts as many copies.
            assert!(found.points.len() > 100, "{name}: {}", found.points.len());
            assert!(found.points.iter().all(|point| point.emulated), "{name}");
            assert!(found.unseen * 20 < found.points.len(), "{name}: {}", found.unseen);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 6,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// In code and everywhere else: an answer or an error, never a panic.
    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<u32>(), any::<u8>()), 400..4000)
    ) {
        let files = interpreters::aarch64_files("changed_bytes_never_panic");
        if let Some(python) = files.iter().find(|python| !python.is("shared")) {
            let mut bytes = std::fs::read(&python.path).unwrap();
            for (at, value) in changes {
                // Past the headers, so that most damage is in code and tables.
                let place = 4096 + at as usize % (bytes.len() - 4096);
                bytes[place] = value;
            }
            let damaged = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(damaged.path(), bytes).unwrap();
            let _any_answer = resolve(damaged.path(), &stripped());
            let _any_answer = allocator(damaged.path(), Machine::Aarch64);
        }
    }
}

#[test]
fn files_for_another_machine_are_refused() {
    let other = match Machine::HOST {
        Machine::X86_64 => Machine::Aarch64,
        Machine::Aarch64 => Machine::X86_64,
    };
    let executable = std::env::current_exe().unwrap();
    let options = ResolveOptions { machine: other, ..ResolveOptions::default() };
    let error = resolve(&executable, &options).unwrap_err();
    assert!(matches!(error, ResolveError::Architecture { .. }), "{error}");
}
