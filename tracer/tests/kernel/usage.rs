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
