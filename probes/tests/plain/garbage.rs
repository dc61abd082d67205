//! The instruction that enters the loop over the garbage, and the layout of objects: in every build
//! with the GIL, against its symbols and its own memory. What the probe sees there is compared with
//! the interpreter's statistics by the tracer's kernel/garbage.rs.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_probes::{Machine, ProbePoint, ProbePointKind, Resolution, ResolveOptions, resolve};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::interpreters;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;

/// The file with the collector: the libpython of a shared build, the executable otherwise.
fn collector_file(interpreter: &Python) -> PathBuf {
    let output = Command::new("ldd").arg(&interpreter.path).output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| line.contains("libpython3."))
        .find_map(|line| Some(PathBuf::from(line.split_whitespace().nth(2)?)))
        .unwrap_or_else(|| interpreter.path.clone())
}

fn found(file: &Path, machine: Machine) -> Resolution {
    let options = ResolveOptions { machine, ..ResolveOptions::default() };
    resolve(file, &options).unwrap().unwrap()
}

fn garbage(resolution: &Resolution) -> Vec<&ProbePoint> {
    let points = resolution.points.iter();
    points.filter(|point| point.kind == ProbePointKind::Garbage).collect()
}

/// One point where there is a list, none in free-threaded builds.
fn assert_one(interpreter: &Python, resolution: &Resolution, machine: Machine) {
    let points = garbage(resolution);
    let expected = usize::from(!interpreter.is("free-threaded"));
    assert_eq!(points.len(), expected, "{}: {points:?}", interpreter.name);
    assert_eq!(resolution.objects.is_some(), expected == 1);
    for point in points {
        eprintln!("{}: {} at {:#x}", interpreter.name, point.instruction, point.probe_address);
        // Single-stepping costs thirty times as much on x86-64, and twice on aarch64.
        assert!(point.emulated || machine == Machine::Aarch64, "{point:?}");
    }
}

#[test]
fn every_build_with_the_gil_has_one() {
    let mut seen = 0;
    for interpreter in interpreters::interpreters("every_build_with_the_gil_has_one") {
        let resolution = found(&collector_file(&interpreter), Machine::HOST);
        assert_one(&interpreter, &resolution, Machine::HOST);
        seen += garbage(&resolution).len();
    }
    eprintln!("{seen} builds");
}

#[test]
fn it_is_in_the_collector() {
    let symbols = interpreters::interpreters("it_is_in_the_collector");
    for interpreter in symbols.iter().filter(|python| python.is("symbols")) {
        let file = collector_file(interpreter);
        let resolution = found(&file, Machine::HOST);
        let [point] = garbage(&resolution)[..] else {
            panic!("{}", interpreter.name);
        };
        let output = Command::new("nm").arg("-S").arg(&file).output_in_time();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let containing = text.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [start, size, "t" | "T", name] = fields[..] else {
                return None;
            };
            let start = u64::from_str_radix(start, 16).ok()?;
            let size = u64::from_str_radix(size, 16).ok()?;
            (start..start + size).contains(&point.probe_address).then_some(name)
        });
        let name = containing.unwrap().split('.').next().unwrap();
        // 3.8 alone has a function of its own for it.
        let expected: &[&str] = match interpreter.version {
            (3, 8, _) => &["delete_garbage"],
            _ => &["collect", "gc_collect_main"],
        };
        assert!(expected.contains(&name), "{}: {name}", interpreter.name);
    }
}

#[test]
fn builds_for_aarch64_have_one() {
    for interpreter in interpreters::aarch64_files("builds_for_aarch64_have_one") {
        let resolution = found(&interpreter.path, Machine::Aarch64);
        assert_one(&interpreter, &resolution, Machine::Aarch64);
    }
}

/// Prints where this interpreter's objects have what `ObjectLayout` names, found by searching their
/// memory.
const SEARCH: &str = r#"
import ctypes, json, sys

def word(address):
    return ctypes.c_uint64.from_address(address).value

def places(start, value, end, tags=0):
    return [at for at in range(16, end, 8) if word(id(start) + at) & ~tags == value]

class Outer:
    class Named:
        pass

def function():
    yield

generator = function()
next(generator)
frame = sys._getframe()
size = type(generator).__basicsize__
print(json.dumps({
    "qualname": places(Outer.Named, id(Outer.Named.__qualname__), type.__basicsize__),
    "function": places(function, id(function.__code__), type(function).__basicsize__),
    "generator": places(generator, id(function.__code__), size + 16, 3),
    "generator_frame": places(generator, id(generator.gi_frame), size),
    "frame": [] if sys.version_info < (3, 11) else
        [at for at in (16, 24, 32) if word(id(frame) + at) and at != 16],
}))
"#;

#[test]
fn objects_are_laid_out_as_the_table_says() {
    let test = "objects_are_laid_out_as_the_table_says";
    for interpreter in interpreters::interpreters(test) {
        let resolution = found(&collector_file(&interpreter), Machine::HOST);
        let Some(layout) = &resolution.objects else {
            continue;
        };
        let output = interpreter.command(SEARCH).output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        let has = |name: &str, offset: u32| {
            let places = seen[name].as_array().unwrap();
            let expected = Value::from(offset);
            assert!(
                places.contains(&expected),
                "{}: {name} at {offset}, found at {places:?}",
                interpreter.name
            );
        };
        has("qualname", layout.type_qualname);
        has("function", layout.function_code);
        match (layout.generator_code, &resolution.frames) {
            (Some(code), _) => {
                has("generator", code);
                has("generator_frame", layout.generator_frame);
            }
            (None, Some(frames)) => {
                has("generator", layout.generator_frame + frames.stack.frame_code)
            }
            (None, None) => panic!("{}: no frames", interpreter.name),
        }
        if let Some(offset) = layout.frame_object_frame {
            has("frame", offset);
        }
        assert!(layout.types.iter().all(Option::is_some), "{layout:?}");
    }
}
