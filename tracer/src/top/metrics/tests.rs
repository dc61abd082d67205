//! Compares the page, read by the Prometheus project's parsers, with its snapshot, and docs and
//! dashboard with the page.

mod dashboard;
mod example;
mod parsed;

use crate::top::metrics::families;
use crate::top::metrics::page::open_metrics;
use crate::top::metrics::tests::example::example;
use crate::top::metrics::tests::parsed::Parsed;
use gctrace_analysis::live::{CollectionCounts, PAUSE_CLASSES_NS, Snapshot};
use gctrace_event::RecordingMode;

fn of_any_version(snapshot: Snapshot) -> String {
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    let page = open_metrics(snapshot).unwrap();
    assert!(page.contains(version));
    page.replace(version, "version=\"0.0.0\"")
}

#[test]
fn the_whole_page() {
    insta::assert_snapshot!(of_any_version(example()));
}

#[test]
fn an_empty_snapshot_is_a_page_too() {
    insta::assert_snapshot!(of_any_version(Snapshot::default()));
}

#[test]
fn every_family_is_there_with_its_type_and_unit() {
    let Some(page) = Parsed::read("every_family_is_there_with_its_type_and_unit", &example())
    else {
        return;
    };
    for family in families::FAMILIES.iter() {
        let name = match family.unit {
            Some(unit) => format!("{}_{unit}", family.name),
            None => family.name.clone(),
        };
        let found = page.family(&name);
        assert_eq!(found.kind, family.kind.as_str(), "{name}");
        assert_eq!(found.unit, family.unit.unwrap_or(""), "{name}");
        assert_eq!(found.help, family.help, "{name}");
        assert!(found.samples > 0, "{name}");
    }
    assert_eq!(page.families(), families::FAMILIES.len());
}

#[test]
fn figures_of_all_processes_are_those_of_the_snapshot() {
    let snapshot = example();
    let Some(page) = Parsed::read("figures_of_all_processes_are_those_of_the_snapshot", &snapshot)
    else {
        return;
    };
    let all = &snapshot.totals.collections;
    reasons(&page, "gctrace_pause", &[], all);
    for (index, generation) in ["0", "1", "2"].into_iter().enumerate() {
        let labels = [("generation", generation)];
        let name = "gctrace_pause_duration_seconds";
        let count: u64 = all.histogram[index].iter().sum();
        page.is(&format!("{name}_count"), &labels, count as f64);
        let time = all.pause_ns[index] as f64 / 1e9;
        page.is(&format!("{name}_sum"), &labels, time);
        let mut below = 0;
        for (class, bound) in PAUSE_CLASSES_NS.iter().enumerate() {
            below += all.histogram[index][class];
            let found = page.bucket(name, generation, *bound as f64 / 1e9);
            assert_eq!(found, below as f64, "up to {bound}");
        }
        assert_eq!(page.bucket(name, generation, f64::INFINITY), count as f64);
    }
    page.is("gctrace_longest_pause_seconds", &[], all.outcomes.longest_ns as f64 / 1e9);
    page.is("gctrace_collected_objects_total", &[], all.outcomes.collected as f64);
    page.is("gctrace_uncollectable_objects_total", &[], all.outcomes.uncollectable as f64);
    page.is("gctrace_pauses_with_collected_total", &[], all.outcomes.with_collected as f64);
    page.is("gctrace_processes", &[], 2.0);
    page.is("gctrace_processes_seen_total", &[], 4.0);
    // 100 s before the snapshot.
    page.is("gctrace_recording_start_time_seconds", &[], 1_763_776_900.0);
}

/// Count and time by reason and generation, consistent with the totals per generation.
fn reasons(page: &Parsed, prefix: &str, labels: &[(&str, &str)], of: &CollectionCounts) {
    for (index, generation) in ["0", "1", "2", "unknown"].into_iter().enumerate() {
        let (mut count, mut time_ns) = (0, 0);
        for (reason, figures) in &of.by_reason {
            let figures = figures[index];
            count += figures.count;
            time_ns += figures.time_ns;
            if generation == "unknown" && figures.count == 0 {
                continue;
            }
            let mut labels = labels.to_vec();
            labels.extend([("generation", generation), ("reason", reason.as_ref())]);
            page.is(&format!("{prefix}s_total"), &labels, figures.count as f64);
            let seconds = figures.time_ns as f64 / 1e9;
            page.is(&format!("{prefix}_seconds_total"), &labels, seconds);
        }
        assert_eq!((count, time_ns), (of.pauses[index], of.pause_ns[index]));
    }
}

#[test]
fn figures_of_a_process_are_those_of_the_snapshot() {
    let snapshot = example();
    let Some(page) = Parsed::read("figures_of_a_process_are_those_of_the_snapshot", &snapshot)
    else {
        return;
    };
    let process = &snapshot.processes[0];
    let labels = [("pid", "4321"), ("rank", "3")];
    let with = |label| [labels[0], labels[1], label];
    reasons(&page, "gctrace_process_pause", &labels, &process.collections);
    let is = |name: &str, value: f64| page.is(&format!("gctrace_process_{name}"), &labels, value);
    is("longest_pause_seconds", process.collections.outcomes.longest_ns as f64 / 1e9);
    is("collected_objects_total", process.collections.outcomes.collected as f64);
    is("uncollectable_objects_total", process.collections.outcomes.uncollectable as f64);
    is("paused_seconds_total", 0.033);
    is("gc_enabled", 1.0);
    is("net_containers_per_second", 123_456.0);
    is("arena_bytes_per_second", -1_048_576.0);
    is("allocations_per_cpu_second", 7_000_000.0);
    is("auto_cost_seconds", 0.5);
    for (bound, seconds) in [("mean", 12.0), ("low", -1.0), ("high", 25.0)] {
        page.is("gctrace_process_auto_saved_seconds", &with(("bound", bound)), seconds);
    }
    let held = [labels[0], labels[1], ("setting", "threshold=2000,10,0"), ("state", "holding")];
    page.is("gctrace_process_auto_info", &held, 1.0);
    is("resident_memory_bytes", (3_u64 << 30) as f64);
    is("recorded_since_time_seconds", 1_763_776_910.5);
    page.is("gctrace_process_heap_objects", &with(("scope", "all")), 1_234_567.0);
    for (name, objects) in [("cell", 1200.0), ("torch.Tensor", 400.0), ("other", 7.0)] {
        let family = "gctrace_process_garbage_objects_total";
        page.is(family, &with(("type", name)), objects);
    }
    is("garbage_examined_objects_total", 1_500.0);
    is("freed_since_freeze_objects_total", 31.0);
    is("heap_growing", 1.0);
    is("heap_growth_objects_per_hour", 36_000.5);
    is("resident_growth_bytes_per_hour", 1_073_741_824.0);
    is("device_growth_bytes_per_hour", 2_147_483_648.0);
    is("growing_outside_python", 0.0);
    is("memory_limit_bytes", 17_179_869_184.0);
    is("memory_limit_reached_in_seconds", 32_400.0);
    for (generation, threshold) in [("0", 2000.0), ("1", 10.0), ("2", 0.0)] {
        let name = "gctrace_process_gc_threshold";
        page.is(name, &with(("generation", generation)), threshold);
    }
    let cuda = with(("device", "0"));
    page.is("gctrace_process_gpu_busy_seconds_total", &cuda, 60.25);
    page.is("gctrace_process_gpu_idle_seconds_total", &cuda, 20.5);
    page.is("gctrace_process_gpu_idle_in_gc_seconds_total", &cuda, 4.125);
    page.is("gctrace_process_torch_allocated_bytes", &cuda, 5e9);
    page.is("gctrace_process_torch_reserved_bytes", &cuda, 6e9);
    assert_eq!(page.labels("gctrace_process_gpu_info", &cuda)["gpu"], "1");
    for (gpu, bytes) in [("1", 8e9), ("2", 3e8)] {
        let name = "gctrace_process_gpu_memory_bytes";
        page.is(name, &with(("gpu", gpu)), bytes);
    }
    let info = page.labels("gctrace_process_info", &labels);
    assert_eq!(info["command"], process.command);
    assert_eq!(info["interpreter"], "3.13.0t");
    assert_eq!(info["parent"], "4000");
    assert_eq!(info["namespace_pid"], "17");
}

#[test]
fn in_process_the_usual_reason_has_its_series_from_the_start() {
    let mut snapshot = Snapshot { mode: RecordingMode::Inject, ..Snapshot::default() };
    snapshot.processes = vec![example().processes[1].clone()];
    let page = open_metrics(snapshot).unwrap();
    assert!(page.contains("gctrace_pauses_total{generation=\"0\",reason=\"automatic\"} 0\n"));
    assert!(!page.contains("reason=\"unknown\""));
}

#[test]
fn what_ended_has_its_counters_and_nothing_else() {
    let Some(page) = Parsed::read("what_ended_has_its_counters_and_nothing_else", &example())
    else {
        return;
    };
    let ended = [("pid", "99")];
    assert!(page.has("gctrace_process_pauses_total", &ended));
    assert!(!page.has("gctrace_process_resident_memory_bytes", &ended));
    assert!(!page.has("gctrace_process_heap_objects", &ended));
}

#[test]
fn gpus_losses_and_own_cost_are_those_of_the_snapshot() {
    let Some(page) = Parsed::read("gpus_losses_and_own_cost", &example()) else {
        return;
    };
    let gpu = [("gpu", "1")];
    page.is("gctrace_gpu_utilization_ratio", &gpu, 0.87);
    page.is("gctrace_gpu_memory_used_bytes", &gpu, 9e9);
    page.is("gctrace_gpu_memory_capacity_bytes", &gpu, 8e10);
    assert_eq!(page.labels("gctrace_gpu_info", &gpu)["name"], "NVIDIA \"H100\"");
    page.is("gctrace_lost_events_total", &[("where", "pauses")], 12.0);
    page.is("gctrace_probe_hits_total", &[], 5000.0);
    page.is("gctrace_probe_cost_seconds_total", &[], 1.5e-3);
    page.is("process_cpu_seconds_total", &[], 2.5);
    page.is("process_resident_memory_bytes", &[], 4e7);
}

#[test]
fn one_process_for_each_id_and_no_more_than_so_many() {
    let mut snapshot = Snapshot::default();
    for pid in [5, 5, 6, 5] {
        let mut process = example().processes[0].clone();
        process.pid = pid;
        process.collections.outcomes.longest_ns =
            1 + u64::try_from(snapshot.processes.len()).unwrap();
        snapshot.processes.push(process);
    }
    let page = open_metrics(snapshot).unwrap();
    let line = "gctrace_process_longest_pause_seconds{pid=\"5\",rank=\"3\"}";
    assert_eq!(page.matches(line).count(), 1);
    assert!(page.contains(&format!("{line} 4e-9\n")), "the last");

    let mut snapshot = Snapshot::default();
    for pid in 1..=1500 {
        let mut process = example().processes[0].clone();
        process.pid = pid;
        process.collections.pause_ns = [u64::from(pid), 0, 0, 0];
        snapshot.processes.push(process);
    }
    let page = open_metrics(snapshot).unwrap();
    assert_eq!(page.matches("\ngctrace_process_info{").count(), 1000);
    assert!(page.contains("gctrace_process_info{pid=\"1500\""));
    assert!(page.contains("\ngctrace_processes_left_out 500\n"));
}

/// Figures for docs/evidence.md: `cargo test --release -p gctrace --bin gctrace -- --ignored --nocapture
/// cost_of_a_page`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_page() {
    let mut snapshot = example();
    let process = snapshot.processes[0].clone();
    snapshot.processes = (1..=1000)
        .map(|pid| {
            let mut process = process.clone();
            process.pid = pid;
            process
        })
        .collect();
    for _ in 0..5 {
        let copy = snapshot.clone();
        let before = cpu_time();
        let page = open_metrics(copy).unwrap();
        let took = cpu_time() - before;
        let lines = page.lines().count();
        println!("{took:?} of CPU time, {} bytes, {lines} lines", page.len());
    }
}

fn cpu_time() -> std::time::Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}
