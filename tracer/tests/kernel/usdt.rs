//! Kernel tier: the last search strategy, USDT probes with a semaphore, in a running interpreter.

use gctrace_ebpf::{
    BpfSession, CollectorArguments, KernelEvent, KernelSupport, PlannedPoint, ProbePointKind,
    SessionConfig,
};
use gctrace_probes::{ResolveOptions, SearchStrategy};
use std::fs;
use std::process::Command;
use std::time::Duration;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

/// Waits for the file `go`, collects 30 times, writes `done`.
const PROGRAM: &str = "
import gc, os, time
gc.disable()
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.005)
for _ in range(30): gc.collect()
open('done', 'w').close()
time.sleep(60)
";

fn point(found: &gctrace_probes::ProbePoint, layout: u32) -> PlannedPoint {
    PlannedPoint {
        kind: found.kind,
        layout: Some(layout),
        arguments: CollectorArguments::default(),
        runtime_delta: 0,
        entry: Some(found.file_offset),
        on_return: None,
        semaphore: found.semaphore_file_offset,
    }
}

/// Each collection is one timed pause, although nothing of the interpreter's memory is known.
#[test]
fn usdt_probes_time_every_pause() {
    let test = "usdt_probes_time_every_pause";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let options = ResolveOptions { first_rung: SearchStrategy::Usdt, ..ResolveOptions::default() };
    let Ok(Some(found)) = gctrace_probes::resolve(&python.canonicalize().unwrap(), &options) else {
        eprintln!("skipped {test}: {} has no USDT probes", python.display());
        return;
    };
    let usdt = |point: &&gctrace_probes::ProbePoint| {
        matches!(point.kind, ProbePointKind::UsdtStart | ProbePointKind::UsdtDone)
    };
    assert!(found.points.iter().filter(usdt).all(|point| point.semaphore_file_offset.is_some()));
    let mut session = BpfSession::open(
        SessionConfig {
            follow_children: true,
            ring_bytes: 1 << 20,
            stack_depth: 0,
            counters: gctrace_ebpf::CounterSet::default(),
            samples: false,
        },
        &KernelSupport::probe(),
    )
    .unwrap();
    let layout = session.add_layout(None, None, None).unwrap();
    let points: Vec<PlannedPoint> =
        found.points.iter().filter(usdt).map(|found| point(found, layout)).collect();
    assert!(points.len() >= 2, "{found:?}");
    let place = place.path();
    let mut program =
        Command::new(&python).args(["-c", PROGRAM]).current_dir(place).spawn().unwrap();
    recording::wait_until("ready", || place.join("ready").exists());
    session.follow(program.id()).unwrap();
    let probes = session.attach(&found.file, &points).unwrap();
    fs::write(place.join("go"), "").unwrap();
    recording::wait_until("done", || place.join("done").exists());
    let events = session.poll(Duration::ZERO).unwrap();
    gctrace_ebpf::detach([probes]);
    program.kill().unwrap();
    program.status_in_time().unwrap();
    let pauses = events.iter().filter(
        |event| matches!(event, KernelEvent::Pause(pause) if pause.pause.end_ns > pause.pause.start_ns),
    );
    assert_eq!(pauses.count(), 30);
}
