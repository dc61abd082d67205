//! A broken invariant of the library ends the recording, not the program.

use gctrace_ring::{GarbageDetail, InjectOptions};
use std::process::Command;
use test_kit::interpreters::interpreters;
use test_kit::limit::WithTimeout as _;
use test_kit::preload::run;

/// Breaks one: that each of the library's entries in `gc.callbacks` has a capsule of its own, by
/// giving that another name.
const BREAK: &str = r"
import ctypes, gc, os, sys
gc.disable()
for _ in range(3): gc.collect()
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
for entry in gc.callbacks: rename(entry.__self__, b'other')
class Cycle:
    def __init__(self): self.own = self
for _ in range(5):
    Cycle()
    print(gc.collect())
print(len([bytes(100) for _ in range(1000)]), flush=True)
child = os.fork()
if child == 0:
    gc.collect()
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if sys.version_info >= (3, 9) else 5)
print('the end', file=sys.stderr)
sys.exit(7)
";

#[test]
fn the_program_goes_on_and_the_recording_ends() {
    for python in interpreters("the_program_goes_on_and_the_recording_ends") {
        let alone: std::process::Output = python.command(BREAK).output_in_time().unwrap();
        assert_eq!(alone.status.code(), Some(7), "{}: {alone:?}", python.name);
        let options = InjectOptions {
            allocations: true,
            garbage: GarbageDetail::Types,
            ..InjectOptions::default()
        };
        let mut command: Command = python.command(BREAK);
        let run = run(options, &mut command);
        assert_eq!(run.status, alone.status, "{}: {}", python.name, run.errors);
        assert_eq!(run.output.as_bytes(), alone.stdout, "{}", python.name);
        assert_eq!(run.errors.as_bytes(), alone.stderr, "{}", python.name);
        // The forked child has none.
        let ring = run.only();
        let pauses = ring.pauses();
        let full = pauses.iter().filter(|pause| pause.generation == 2).count();
        assert_eq!(full, 3, "{}", python.name);
        let (since_ns, reason) = ring.switched_off.clone().expect("switched off");
        let last = pauses.last().expect("a pause");
        assert!(since_ns > last.interval.end_ns, "{}", python.name);
        assert!(
            reason.starts_with("probes/inject/src/python/interpreter.rs:"),
            "{}: {reason}",
            python.name
        );
    }
}
