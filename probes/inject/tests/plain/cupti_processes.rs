//! Forks, kills, exits in the middle, and processes into which CUDA did not load the library.

#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use crate::cupti_harness;

use cupti_harness::{Recorded, injected, options, record, recorded, truth, work};
use gctrace_ring::{CuptiState, GpuMessage};
use nix::libc;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};
use test_kit::limit::WithTimeout as _;
use test_kit::simulator;
use test_kit::simulator::gpu::{Gpu, c};

/// Longest time without a flush before a kill, by our flush thread's clock, on a machine that does
/// other work too.
const INTERVAL_NS: u64 = 300_000_000;

fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Runs `play` in a forked child and waits for it; returns its status.
fn in_a_child(play: impl FnOnce() -> i32, by_exit: bool) -> i32 {
    // SAFETY: the test's other thread only waits; the child ends below.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = play();
        // SAFETY: ends the child, with or without the handlers it inherited.
        unsafe {
            if by_exit {
                libc::exit(code);
            }
            libc::_exit(code);
        }
    }
    let mut status = 0;
    // SAFETY: a child of ours; `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_child_never_flushes_its_parents_records() {
    let test = "a_child_never_flushes_its_parents_records";
    let Some(recorded) = recorded(test, &[], &options(), |_| {
        let gpu = Gpu::ready();
        work::stream(&gpu, 5_000, 300);
        for by_exit in [true, false] {
            let refused = || {
                let mut count = 0;
                i32::from(c!(gpu.runtime, cudaGetDeviceCount(&mut count => &mut i32)) == 0)
            };
            assert_eq!(in_a_child(refused, by_exit), 0, "it ends, and has no CUDA");
        }
        work::stream(&gpu, 5_000, 300);
    }) else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let truth = truth::work_of_log(&recorded.log);
    assert_eq!(truth::work_of_ring(ring), truth);
    assert_eq!(truth.len(), 2 * 4 * 300);
    assert_eq!((ring.lost, ring.dropped()), (0, 0));
}

#[test]
fn children_that_initialize_cuda_themselves_are_recorded() {
    let test = "children_that_initialize_cuda_themselves_are_recorded";
    let Some(recorded) = recorded(test, &[], &options(), |_| {
        for rounds in [20, 30] {
            let play = || {
                work::stream(&Gpu::ready(), 5_000, rounds);
                0
            };
            assert_eq!(in_a_child(play, true), 0);
        }
    }) else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let truth = truth::work_of_log(&recorded.log);
    assert_eq!(recorded.rings.len(), 2);
    let mut seen = std::collections::BTreeSet::new();
    for ring in &recorded.rings {
        assert_eq!(ring.states().len(), 1);
        assert!(ring.hello.own_pid == ring.pid);
        seen.extend(truth::work_of_ring(ring));
    }
    assert_eq!(seen, truth);
}

/// Works forever.
fn play_forever() {
    let gpu = Gpu::ready();
    let (kernel, stream) = (gpu.kernel(20_000), gpu.stream());
    loop {
        (0..20).for_each(|_| {
            gpu.launch(kernel, stream);
        });
        gpu.wait(stream);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_program_loses_one_interval_at_most() {
    let test = "a_killed_program_loses_one_interval_at_most";
    if simulator::playing().is_some() {
        play_forever();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = simulator::command(test, folder.path(), &[]);
    injected(&mut command, folder.path(), &options());
    let begun = Instant::now();
    let mut killed_ns = 0;
    let recorded = record(command, folder.path(), |child, _| {
        if begun.elapsed() > Duration::from_millis(1800) && killed_ns == 0 {
            child.kill().expect("killed");
            killed_ns = now_ns();
        }
    });
    assert_eq!(recorded.status.signal(), Some(libc::SIGKILL));
    let ring = recorded.ring();
    let seen = truth::work_of_ring(ring);
    let flushed_ns = *ring.flushed_ns().last().expect("it was flushed");
    let truth = truth::work_of_log(&recorded.log);
    let missing = truth.difference(&seen).filter(|work| work.4 <= flushed_ns);
    assert_eq!(missing.count(), 0, "all that had ended by the last flush is there");
    assert!(seen.len() > 100);
    // Flushes happen on schedule: what is lost depends on how long ago the last one was.
    let gaps = ring.flushed_ns().windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    assert!(gaps.iter().any(|gap_ns| *gap_ns < 2 * INTERVAL_NS), "{gaps:?}");
    assert!(killed_ns > flushed_ns);
}

#[test]
fn a_program_that_leaves_without_handlers_loses_one_interval_at_most() {
    let test = "a_program_that_leaves_without_handlers_loses_one_interval_at_most";
    let Some(recorded) = recorded(test, &[], &options(), |_| {
        let gpu = Gpu::ready();
        work::stream(&gpu, 5_000, 100);
        std::thread::sleep(Duration::from_millis(1500));
        c!(gpu.driver, simgpuFlush());
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(7) };
    }) else {
        return;
    };
    assert_eq!(recorded.status.code(), Some(7));
    let seen = truth::work_of_ring(recorded.ring());
    assert_eq!(seen, truth::work_of_log(&recorded.log));
}

#[test]
fn exit_on_another_thread_while_others_launch() {
    let test = "exit_on_another_thread_while_others_launch";
    let Some(recorded) = recorded(test, &[], &options(), |_| {
        let gpu = Gpu::ready();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    c!(gpu.runtime, cudaSetDevice(0 => i32));
                    loop {
                        work::stream(&gpu, 1_000, 5);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            std::process::exit(3);
        });
    }) else {
        return;
    };
    assert_eq!(recorded.status.code(), Some(3), "{}", recorded.output);
    let ring = recorded.ring();
    assert!(truth::work_of_ring(ring).len() > 100);
    let last = ring.records.iter().rfind(|record| matches!(record, GpuMessage::Flushed { .. }));
    assert!(last.is_some());
}

#[test]
fn without_a_listener_nothing_is_attempted() {
    let test = "without_a_listener_nothing_is_attempted";
    if simulator::playing().is_some() {
        return work::everything(20);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = simulator::command(test, folder.path(), &[]);
    injected(&mut command, folder.path(), &options());
    let output = command.output_in_time().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A driver without a CUPTI: what is reported if its folder contains this instead.
fn with_the_driver_alone(test: &str, cupti: Option<&Path>) -> Option<Recorded> {
    if simulator::playing().is_some() {
        let driver = std::env::var_os("ALONE").expect("set below");
        // SAFETY: the simulated driver runs nothing when it is loaded.
        let driver = unsafe { libloading::Library::new(driver) }.expect("it loads");
        assert_eq!(c!(driver, cuInit(0 => u32)), 0);
        std::mem::forget(driver);
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("libcuda.so.1");
    std::fs::copy(simulator::libraries().join("libcuda.so.1"), &alone).expect("copied");
    if let Some(cupti) = cupti {
        std::fs::copy(cupti, folder.path().join("libcupti.so.12")).expect("copied");
    }
    let mut command = simulator::command(test, folder.path(), &[]);
    injected(&mut command, folder.path(), &options());
    command.env("ALONE", &alone);
    command.env("LD_LIBRARY_PATH", folder.path());
    let recorded = record(command, folder.path(), |_, _| {});
    assert!(recorded.status.success(), "{}", recorded.output);
    Some(recorded)
}

#[test]
fn without_cupti_it_is_absent() {
    let recorded = with_the_driver_alone("without_cupti_it_is_absent", None);
    let Some(recorded) = recorded else { return };
    assert_eq!(recorded.ring().states(), [(CuptiState::Absent, 0, "")]);
}

#[test]
fn a_cupti_that_lacks_functions_is_too_old() {
    // Any library but CUPTI.
    let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
    let mut files = maps.split_whitespace();
    let other = files.find(|file| file.contains("/libgcc_s.so") || file.contains("/libm.so"));
    let Some(other) = other else {
        return eprintln!("skipped: this test is linked statically");
    };
    let test = "a_cupti_that_lacks_functions_is_too_old";
    let Some(recorded) = with_the_driver_alone(test, Some(Path::new(other))) else {
        return;
    };
    let lacks = [(CuptiState::TooOld, 0, "cuptiSubscribe")];
    assert_eq!(recorded.ring().states(), lacks);
}

#[test]
fn children_that_are_not_followed_see_nothing_of_us() {
    let test = "children_that_are_not_followed_see_nothing_of_us";
    if simulator::playing().is_some() {
        let ours = ["LD_PRELOAD", "CUDA_INJECTION64_PATH", "GCTRACE_RENDEZVOUS", "GCTRACE_INJECT"];
        let environment =
            std::process::Command::new("env").output_in_time().expect("it starts").stdout;
        let environment = String::from_utf8(environment).expect("text");
        assert!(ours.iter().all(|name| !environment.contains(name)), "{environment}");
        let gpu = Gpu::ready();
        // The driver is polled for every 20 ms.
        std::thread::sleep(Duration::from_millis(500));
        return work::stream(&gpu, 5_000, 300);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = simulator::command(test, folder.path(), &[]);
    let options = gctrace_ring::InjectOptions { follow: false, ..options() };
    injected(&mut command, folder.path(), &options);
    command.env("LD_PRELOAD", cupti_harness::library());
    let recorded = record(command, folder.path(), |_, _| {});
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    assert!(matches!(ring.states()[..], [(CuptiState::Recording, 22, _)]));
    let truth = truth::work_of_log(&recorded.log);
    assert_eq!(truth.len(), 4 * 300);
    assert_eq!(truth::work_of_ring(ring), truth);
}
