//! Offsets in interpreters for aarch64 against the debug information of the same builds, as
//! llvm-dwarfdump prints it.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_cpython::GcBase;
use gctrace_probes::{Machine, Resolution, ResolveOptions, resolve};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use test_kit::interpreters;
use test_kit::limit::WithTimeout as _;

const STRUCTURES: [&str; 8] = [
    "_gc_runtime_state",
    "gc_generation",
    "_is",
    "_ts",
    "pyruntimestate",
    "pyinterpreters",
    "_gilstate_runtime_state",
    "PyCodeObject",
];

/// Offsets of the members of each structure in one build; of structures of one name, the first's.
fn members(resolution: &Resolution) -> HashMap<String, HashMap<String, u32>> {
    let (start, rest) = resolution.build_id.as_ref().unwrap().split_at(2);
    let folder = interpreters::aarch64_folder().join("debug/.build-id");
    let output = Command::new("llvm-dwarfdump")
        .args(STRUCTURES.map(|structure| format!("--name={structure}")))
        .arg("-c")
        .arg(folder.join(start).join(format!("{rest}.debug")))
        .output_in_time()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found: HashMap<String, HashMap<String, u32>> = HashMap::new();
    let (mut structure, mut member) = (None, String::new());
    for line in text.lines() {
        let value = || line.split_once('(')?.1.strip_suffix(')');
        if line.contains("DW_TAG_") {
            member.clear();
        }
        if line.contains("DW_TAG_structure_type") {
            structure = Some(String::new());
        } else if line.contains("DW_AT_name") {
            value().unwrap().trim_matches('"').clone_into(&mut member);
            if let Some(name) = structure.as_mut().filter(|name| name.is_empty()) {
                name.clone_from(&member);
                // A second one of that name is another's.
                structure = structure.filter(|name| !found.contains_key(name));
            }
        } else if line.contains("DW_AT_data_member_location")
            && let Some(name) = &structure
        {
            let hex = value().unwrap().trim_start_matches("0x");
            let members = found.entry(name.clone()).or_default();
            members.insert(member.clone(), u32::from_str_radix(hex, 16).unwrap());
        }
    }
    found
}

fn resolved(file: &Path) -> Resolution {
    let options = ResolveOptions {
        debug_roots: Vec::new(),
        machine: Machine::Aarch64,
        ..ResolveOptions::default()
    };
    resolve(file, &options).unwrap().unwrap()
}

/// The builds with debug information that can be read here.
fn builds(test: &str) -> Vec<(String, Resolution)> {
    if Command::new("llvm-dwarfdump").arg("--version").output_in_time().is_err() {
        interpreters::skip(test, "llvm-dwarfdump is not installed");
        return Vec::new();
    }
    let files = interpreters::aarch64_files(test).into_iter();
    let builds = files.filter(|python| python.is("symbols") && python.is("shared"));
    builds.map(|python| (python.name, resolved(&python.path))).collect()
}

#[test]
fn offsets_are_those_of_the_debug_information() {
    for (name, resolution) in builds("offsets_are_those_of_the_debug_information") {
        let truth = members(&resolution);
        let at = |structure: &str, member: &str| truth[structure].get(member).copied();
        let layout = resolution.layout.unwrap();
        let threshold = at("gc_generation", "threshold").unwrap();
        let generations = at("_gc_runtime_state", "generations").unwrap();
        assert_eq!(layout.thresholds[0], generations + threshold, "{name}");
        let interpreters = at("pyruntimestate", "interpreters").unwrap();
        let head = at("pyinterpreters", "head").unwrap();
        assert_eq!(layout.interpreters_head, interpreters + head, "{name}");
        let gc = at("_is", "gc").map(GcBase::InInterpreter);
        assert_eq!(Some(layout.gc), gc, "{name}");
        let frames = resolution.frames.unwrap();
        for (found, structure, member) in [
            (Some(layout.collecting), "_gc_runtime_state", "collecting"),
            (Some(layout.enabled), "_gc_runtime_state", "enabled"),
            (layout.heap_size, "_gc_runtime_state", "heap_size"),
            (layout.long_lived_total, "_gc_runtime_state", "long_lived_total"),
            (Some(layout.interpreter_next), "_is", "next"),
            (layout.interpreter_id, "_is", "id"),
            (Some(layout.finalizing), "pyruntimestate", "_finalizing"),
            (Some(layout.tstate_interpreter), "_ts", "interp"),
            (Some(frames.tstate_thread_id), "_ts", "thread_id"),
            (Some(frames.tstate_next), "_ts", "next"),
            (Some(frames.code_filename), "PyCodeObject", "co_filename"),
            (Some(frames.code_first_line), "PyCodeObject", "co_firstlineno"),
        ] {
            assert_eq!(found, at(structure, member), "{name} {member}");
        }
        let current =
            ["current_frame", "cframe", "frame"].into_iter().find_map(|member| at("_ts", member));
        assert_eq!(Some(frames.stack.tstate_frame), current, "{name}");
        if resolution.version.minor < 12 {
            // The GIL comes before it, with mutexes that are larger than on x86-64.
            let state = at("pyruntimestate", "gilstate").unwrap();
            let current = state + at("_gilstate_runtime_state", "tstate_current").unwrap();
            assert_eq!(frames.runtime_tstate_current, Some(current), "{name}");
        }
    }
}
