//! Kernel tier: processes that cannot be recorded.

use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

#[test]
fn what_cannot_be_recorded_is_refused_in_one_line() {
    if !recording::privileged("what_cannot_be_recorded_is_refused_in_one_line") {
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    // kthreadd, unless this is a namespace of its own.
    let kernel_thread =
        std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
    let mut uses = vec![("4194303", "gctrace: no process 4194303 (ps -ef lists them)\n")];
    if kernel_thread {
        uses.push(("2", "gctrace: process 2 is a kernel thread and never runs Python\n"))
    } else {
        eprintln!("skipped a part: no thread of the kernel is to be seen here")
    }
    for (pid, expected) in uses {
        let output = Command::new(recording::binary())
            .args(["record", "-p", pid])
            .current_dir(place.path())
            .env_remove("SUDO_UID")
            .output_in_time()
            .expect("gctrace runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    }
    let left = std::fs::read_dir(place.path()).expect("a folder").count();
    assert_eq!(left, 0, "no trace is made");
}

/// What the overhead is a share of: CPU time of all processes of the program, as they measure it. Stops are no
/// part of it, nor what other programs use.
#[test]
fn overhead_is_a_share_of_the_cpu_time_of_all_processes() {
    const PROGRAM: &str = "
import os, time
def use(seconds):
    while time.process_time() < seconds:
        x = [[] for _ in range(1000)]
use(0.3)
if os.fork() == 0:
    use(0.3)
    os._exit(0)
os.wait()
time.sleep(0.2)
print(sum(os.times()[:4]))
";
    let test = "overhead_is_a_share_of_the_cpu_time_of_all_processes";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    for mode in ["ebpf", "inject"] {
        let output = Command::new(recording::binary())
            .args(["record", "-q", "--mode", mode, "-o", "trace.json", "--"])
            .arg(&python)
            .args(["-c", PROGRAM])
            .current_dir(place.path())
            .env_remove("SUDO_UID")
            .output_in_time()
            .expect("gctrace runs");
        let printed = String::from_utf8_lossy(&output.stdout).trim().parse::<f64>();
        let used_s = printed.unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let analyzed =
            recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
        let report: serde_json::Value = serde_json::from_slice(&analyzed.stdout).expect("a report");
        let cost = &report["overhead"];
        let number = |name: &str| cost[name].as_f64().unwrap_or_else(|| panic!("{name}: {cost}"));
        // It prints before it ends; its clock has hundredths of a second.
        let more_s = number("cpu_ns") / 1e9 - used_s;
        assert!((-0.03..0.3).contains(&more_s), "{mode}: {used_s} s, {cost}");
        let [least, likely, most] =
            ["cpu_ratio_at_least", "cpu_ratio", "cpu_ratio_at_most"].map(number);
        assert!(0.0 < least && least <= likely && likely <= most, "{mode}: {cost}");
        let without_ns = number("cpu_ns") - number("time_ns");
        assert!((number("time_ns") / without_ns - likely).abs() < 1e-6, "{mode}: {cost}");
        let text = recording::gctrace(&["analyze", "trace.json"], place.path());
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        let words = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("gctrace slowed the program by"), "{words}");
    }
}

/// With probes no library is in the program that could apply a setting.
#[test]
fn a_setting_that_is_not_applied_is_said() {
    let test = "a_setting_that_is_not_applied_is_said";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let record = |mode: &str| {
        let output = Command::new(recording::binary())
            .args(["record", "--mode", mode, "--"])
            .arg(&python)
            .args(["-c", "import gc; gc.collect()"])
            .current_dir(place.path())
            .env("GCTRACE_APPLY", "threshold=7000,10,10")
            .env_remove("SUDO_UID")
            .output_in_time()
            .expect("gctrace runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let probes = record("ebpf");
    let expected = "GCTRACE_APPLY is not applied: with --mode ebpf no library is in the program; \
                    --mode both and inject apply it";
    assert_eq!(probes.matches(expected).count(), 1, "{probes}");
    let inject = record("inject");
    assert!(!inject.contains("is not applied"), "{inject}");
    assert!(inject.contains("threshold=7000,10,10"), "{inject}");
}
