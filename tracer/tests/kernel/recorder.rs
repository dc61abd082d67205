//! `gctrace record --keep` with kernel probes: a pause that is long is kept with what came before it, and all
//! that CPython counted is in the segments or in the totals of what was deleted.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use test_kit::recording;

/// Collects for 4 s, with a long pause in the middle; CPython's own count is in `truth.json`.
const PROGRAM: &str = "import gc, json, time
gc.disable()
start, data = time.monotonic(), None
while time.monotonic() < start + 4:
    if data is None and time.monotonic() > start + 2:
        data = [[n] for n in range(2_000_000)]
        gc.collect()
        data = []
    gc.collect(0)
    time.sleep(0.005)
with open('truth.json', 'w') as file:
    json.dump(sum(of['collections'] for of in gc.get_stats()), file)
";

fn report(trace: &str, place: &Path) -> Value {
    let output = recording::gctrace(&["analyze", "--format", "json", trace], place);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

#[test]
fn a_recorder_keeps_the_long_pause_and_counts_all() {
    let test = "a_recorder_keeps_the_long_pause_and_counts_all";
    let Some((python, place)) = recording::place_for(test) else { return };
    let place = place.path();
    let python = python.to_str().unwrap();
    let options =
        ["record", "--mode", "ebpf", "--keep", "1s", "--on-pause", "60ms", "-o", "ring", "--"];
    let output = recording::gctrace(&[&options[..], &[python, "-c", PROGRAM]].concat(), place);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    let kept = report("ring/kept-1", place);
    assert!(number(&kept, "/totals/pauses/max_ns") >= 60_000_000, "{printed}");
    let all = report("ring", place);
    let counted =
        number(&all, "/totals/pauses/count") + number(&all, "/missing/deleted/pauses/count");
    let truth = recording::json(&place.join("truth.json")).as_u64().unwrap();
    // The interpreter collects a few times more as it ends.
    assert!((truth..=truth + 5).contains(&counted), "{counted} of {truth}: {printed}");
    assert!(number(&all, "/missing/deleted/segments") > 0, "{printed}");
    assert_eq!(all.pointer("/missing/lost"), Some(&serde_json::json!({})), "{printed}");
}
