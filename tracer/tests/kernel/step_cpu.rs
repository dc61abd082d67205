//! Kernel tier: CPU time of steps that probes mark, against the program's own clock.

use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// Stands for torch's library.
const TORCH: &str = "\
int _ZN5torch8autograd6Engine7executeEv(void)
{
	volatile int turns = 0;
	while (turns < 1000)
		turns++;
	return turns;
}
";

#[test]
fn the_cpu_time_of_backward_passes_is_what_the_program_measures() {
    if !recording::privileged("the_cpu_time_of_backward_passes_is_what_the_program_measures") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (source, library) = (place.path().join("torch.c"), place.path().join("libtorch_cpu.so"));
    std::fs::write(&source, TORCH).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).args([&library, &source]);
    assert!(cc.status_in_time().unwrap().success());
    let mut command = Command::new(recording::binary());
    command.args(["--mode", "ebpf", "--cuda", "all", "--"]).arg(interpreters::any_python());
    command.arg(recording::scripts().join("step_cpu.py")).arg(&library);
    command.current_dir(place.path()).env("LD_LIBRARY_PATH", place.path());
    let output = command.env_remove("SUDO_UID").output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    let truth = serde_json::from_slice(&output.stdout).unwrap();
    // The kernel adds to a thread's time at ticks, which are 10 ms apart at most.
    trace.assert_cpu_times_of_steps("backward", truth, 15_000_000);
}
