//! Faults of CUPTI: each is reported once, and the program ends as it would have without gctrace.

#![expect(clippy::expect_used, clippy::panic, reason = "a helper that fails is a failed test")]

use crate::cupti_harness;

use cupti_harness::{Recorded, options, recorded, truth, work};
use gctrace_ring::{CuptiState, GpuMessage, InjectOptions};
use std::os::unix::process::ExitStatusExt;
use test_kit::simulator;
use test_kit::simulator::gpu::Gpu;

/// Work that a program plays, with output that must come through.
fn play(_: &std::path::Path) {
    work::everything(200);
    println!("the program's own words");
}

fn with_fault(test: &str, fault: &str) -> Option<Recorded> {
    let recorded = recorded(test, &[("SIMGPU_FAULT", fault)], &options(), play)?;
    assert!(recorded.output.contains("the program's own words"));
    Some(recorded)
}

/// The program ended well, and nothing but this state was reported, once.
fn check_refused(recorded: &Recorded, state: CuptiState, code: i64) {
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let [(printed, with, _)] = ring.states().as_slice()[..] else {
        panic!("{:?}", ring.states());
    };
    assert_eq!((printed, with), (state, code));
    assert!(truth::work_of_ring(ring).is_empty());
    assert!(!truth::work_of_log(&recorded.log).is_empty());
}

#[test]
fn another_library_has_subscribed() {
    if let Some(recorded) = with_fault("another_library_has_subscribed", "subscribe-busy") {
        check_refused(&recorded, CuptiState::Busy, 39);
    }
}

#[test]
fn cupti_is_not_initialized() {
    if let Some(recorded) = with_fault("cupti_is_not_initialized", "cupti-15") {
        check_refused(&recorded, CuptiState::NoDriver, 15);
    }
}

#[test]
fn cupti_does_not_know() {
    if let Some(recorded) = with_fault("cupti_does_not_know", "cupti-999") {
        check_refused(&recorded, CuptiState::NoDriver, 999);
    }
}

#[test]
fn it_is_left_to_the_program() {
    let options = InjectOptions { yields: true, ..options() };
    if let Some(recorded) = recorded("it_is_left_to_the_program", &[], &options, |folder| {
        play(folder);
        subscribe_as_a_profiler();
    }) {
        check_refused(&recorded, CuptiState::Yielded, 0);
    }
}

/// Like torch.profiler: must succeed.
fn subscribe_as_a_profiler() {
    use test_kit::simulator::gpu::c;
    let path = simulator::libraries().join("libcupti.so.12");
    // SAFETY: the library runs nothing when it is loaded.
    let cupti = unsafe { libloading::Library::new(path) }.expect("laid out");
    let mut subscriber = 0_u64;
    let code = c!(cupti, cuptiSubscribe(&mut subscriber => &mut u64, 0 => usize, 0 => usize));
    assert_eq!(code, 0);
}

#[test]
fn cuda_was_not_requested() {
    let options = InjectOptions { cuda: false, ..options() };
    if let Some(recorded) = recorded("cuda_was_not_requested", &[], &options, play) {
        assert!(recorded.status.success(), "{}", recorded.output);
        assert!(recorded.rings.is_empty());
    }
}

#[test]
fn kinds_that_are_refused_are_missing() {
    let Some(recorded) = with_fault("kinds_that_are_refused_are_missing", "cupti-partial") else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let states = ring.states().into_iter().map(|(state, code, _)| (state, code));
    let partial = [CuptiState::Partial; 2].into_iter().zip([38, 36]);
    let expected: Vec<_> = partial.chain([(CuptiState::Recording, 22)]).collect();
    assert_eq!(states.collect::<Vec<_>>(), expected);
    assert_eq!(truth::work_of_ring(ring), truth::work_of_log(&recorded.log));
}

#[test]
fn dropped_records_are_counted() {
    let Some(recorded) = with_fault("dropped_records_are_counted", "dropped-records") else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let (truth, seen) = (truth::work_of_log(&recorded.log), truth::work_of_ring(ring));
    assert!(seen.is_subset(&truth) && seen.len() < truth.len());
    assert!(ring.dropped() >= (truth.len() - seen.len()) as u64);
    assert_eq!(ring.states().len(), 1);
}

#[test]
fn the_wrong_clock_is_converted() {
    let Some(recorded) = with_fault("the_wrong_clock_is_converted", "wrong-clock") else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let states = ring.states();
    let calibrated = states.iter().filter(|state| state.0 == CuptiState::Calibrated);
    let error_ns = calibrated.map(|state| state.1).max().expect("it is reported");
    assert!((1..1_000_000).contains(&error_ns), "{error_ns} ns");
    let (truth, seen) = (truth::work_of_log(&recorded.log), truth::work_of_ring(ring));
    assert_eq!(truth.len(), seen.len());
    // The same work by correlation id and start; one call may have enqueued several kernels.
    let key = |work: &truth::Work| (work.5, work.3);
    let (mut truth, mut seen): (Vec<_>, Vec<_>) =
        (truth.into_iter().collect(), seen.into_iter().collect());
    truth.sort_by_key(key);
    seen.sort_by_key(key);
    for (truth, seen) in truth.iter().zip(&seen) {
        let wrong_ns = truth.3.abs_diff(seen.3).max(truth.4.abs_diff(seen.4));
        assert!(wrong_ns <= error_ns.cast_unsigned(), "{wrong_ns} of {error_ns} ns");
        assert_eq!((&truth.1, truth.5), (&seen.1, seen.5));
    }
}

#[test]
fn kernels_that_never_end_are_counted() {
    let Some(recorded) = with_fault("kernels_that_never_end_are_counted", "never-completing")
    else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let (truth, seen) = (truth::work_of_log(&recorded.log), truth::work_of_ring(ring));
    let kernels = truth.iter().filter(|work| work.0 == "kernel").count();
    let never = kernels / 100;
    assert!(never > 0 && seen.is_subset(&truth));
    assert_eq!(truth.len() - seen.len(), never);
    assert_eq!(ring.dropped(), never as u64);
    assert_eq!(ring.states().len(), 1);
}

#[test]
fn a_crash_at_the_end_is_the_programs_own() {
    let test = "a_crash_at_the_end_is_the_programs_own";
    let Some(recorded) = with_fault(test, "crash-at-exit") else {
        return;
    };
    assert_eq!(recorded.status.signal(), Some(nix::libc::SIGSEGV));
    let seen = truth::work_of_ring(recorded.ring());
    // The log is written before the crash.
    assert_eq!(truth::work_of_log(&recorded.log), seen);
}

#[test]
fn work_in_progress_at_the_end_does_not_hang() {
    let test = "work_in_progress_at_the_end_does_not_hang";
    let Some(recorded) = recorded(test, &[], &options(), |_| {
        let gpu = Gpu::ready();
        let (kernel, stream) = (gpu.kernel(3_000_000_000), gpu.stream());
        (0..5).for_each(|_| {
            gpu.launch(kernel, stream);
        });
    }) else {
        return;
    };
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    assert_eq!(ring.dropped(), 5, "they were reported as missing");
    let calls = truth::calls_of_ring(ring);
    assert_eq!(calls.iter().filter(|call| call.0 == "cudaLaunchKernel").count(), 5);
    assert!(matches!(ring.records.last(), Some(GpuMessage::Flushed { .. })));
}

/// NVIDIA's own library on a machine without a driver:
/// `CUPTI_LIBRARY=.../libcupti.so.12 cargo test`.
#[test]
fn the_real_cupti_without_a_driver() {
    let Some(cupti) = std::env::var_os("CUPTI_LIBRARY") else {
        return eprintln!("skipped: CUPTI_LIBRARY names no libcupti");
    };
    let test = "the_real_cupti_without_a_driver";
    let recorded = recorded(test, &[], &options(), |_| {
        use test_kit::simulator::gpu::c;
        // SAFETY: libraries that are made to be loaded, with functions of this type.
        let (cupti, inject) = unsafe {
            let load = |path: std::ffi::OsString| libloading::Library::new(path).expect("it loads");
            (load(cupti), load(cupti_harness::library().into_os_string()))
        };
        assert_eq!(c!(inject, InitializeInjection()), 1);
        assert_eq!(c!(inject, InitializeInjection()), 1, "and nothing more is done");
        std::mem::forget((cupti, inject));
    });
    let Some(recorded) = recorded else { return };
    assert!(recorded.status.success(), "{}", recorded.output);
    let states = recorded.ring().states();
    let [(CuptiState::NoDriver, 15 | 999, function)] = states[..] else {
        panic!("{states:?}");
    };
    assert_eq!(function, "cuptiSubscribe");
}
