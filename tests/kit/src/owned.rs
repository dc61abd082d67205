//! Programs whose garbage owns memory that the collector does not know, and what a raised threshold
//! makes them take: the truth is the kernel's (`VmHWM`), without gctrace.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The thresholds that are advised in place of the default ones.
const RAISED: &str = "import gc; gc.set_threshold(7000, 10, 10)\n";

/// Names and programs.
pub const OWNERS: [(&str, &str); 4] = [
    (
        "blocks of malloc, alive in every other collection",
        "
class Batch:
    def __init__(self):
        self.tensor = bytearray(300_000)
        self.me = self

for _ in range(1500):
    Batch()
    [[key] for key in range(300)]
",
    ),
    (
        "mappings",
        "
import mmap

class Shared:
    def __init__(self):
        self.me = self
        self.map = mmap.mmap(-1, 300_000)
        self.map.write(bytes(300_000))

for _ in range(1500):
    Shared()
    [[key] for key in range(300)]
",
    ),
    (
        "locals of a frame that an exception keeps",
        "
def attempt():
    buffer = bytearray(20_000)
    try:
        raise ValueError
    except ValueError as error:
        last = error

for _ in range(200_000):
    attempt()
",
    ),
    (
        "nothing",
        "
class Node:
    def __init__(self):
        self.me = self

for _ in range(1_500_000):
    Node()
",
    ),
];

/// By how much more memory the program takes with the raised threshold, in bytes.
///
/// # Panics
/// If the program fails.
pub fn taken_by_raised(python: &Path, program: &str) -> u64 {
    peak(python, &format!("{RAISED}{program}")).saturating_sub(peak(python, program))
}

/// The most resident memory of the program, in bytes.
fn peak(python: &Path, program: &str) -> u64 {
    let script = format!("{program}\nprint(open('/proc/self/status').read())");
    let output = Command::new(python).args(["-c", &script]).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let line = printed.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("{output:?}")) * 1024
}

/// What a report says of the raised threshold: the memory, in bytes, and whether that is the least.
///
/// # Panics
/// If it is neither among the advice nor among what is not advised.
pub fn predicted(report: &Value) -> (Option<u64>, bool) {
    let lists = ["advice", "not_advised"].map(|list| report[list].as_array().expect("a list"));
    let raise = lists.into_iter().flatten().find(|advice| advice["id"] == "raise-threshold");
    let raise = raise.expect("it is priced");
    (raise["memory_bytes"].as_u64(), raise["memory_is_least"] == true)
}
