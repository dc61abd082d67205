//! CUPTI's activity records, read by their documented offsets, against the truth log.

#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::Mutex;
use test_kit::simulator;
use test_kit::simulator::gpu::{Gpu, c};
use test_kit::simulator::{Outcome, scenario};

const BUFFER: usize = 64 << 10;

/// Buffers that were completed: their bytes.
static COMPLETED: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let memory = Box::leak(vec![0_u64; BUFFER / 8].into_boxed_slice());
    // SAFETY: out parameters of the callback.
    unsafe {
        buffer.write(memory.as_mut_ptr().cast());
        size.write(BUFFER);
        most.write(0);
    }
}

extern "C" fn complete(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    // SAFETY: one of the buffers above, aligned for u64.
    let words = unsafe { std::slice::from_raw_parts(buffer.cast::<u64>(), valid.div_ceil(8)) };
    COMPLETED.lock().expect("not poisoned").push(words.to_vec());
}

extern "C" fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

fn cupti() -> libloading::Library {
    // SAFETY: the library runs nothing when it is loaded.
    let library =
        unsafe { libloading::Library::new(simulator::libraries().join("libcupti.so.12")) };
    library.expect("laid out")
}

/// Enables records with gctrace's order of calls.
fn enable(cupti: &libloading::Library) {
    let mut subscriber = 0;
    c!(cupti, cuptiActivityRegisterTimestampCallback(monotonic => extern "C" fn() -> u64));
    let result = c!(cupti, cuptiSubscribe(&mut subscriber => &mut u64, 0 => usize, 0 => usize));
    assert_eq!(result, 0);
    c!(cupti, cuptiSetThreadIdType(1 => u32));
    c!(cupti, cuptiActivityRegisterCallbacks(
        request => extern "C" fn(*mut *mut u8, *mut usize, *mut usize),
        complete => extern "C" fn(*mut c_void, u32, *mut u8, usize, usize)));
    for kind in [10, 1, 22, 2, 38, 36, 5, 4, 17] {
        assert_eq!(c!(cupti, cuptiActivityEnable(kind => u32)), 0);
    }
}

fn work(gpu: &Gpu) {
    let (kernel, stream, event) = (gpu.kernel(20_000), gpu.stream(), gpu.event());
    for _ in 0..400 {
        gpu.launch(kernel, stream);
    }
    c!(gpu.runtime, cudaMemcpyAsync(0 => u64, 0 => u64, 4096 => u64, 1 => i32, stream => u64));
    c!(gpu.runtime, cudaEventRecord(event => u64, stream => u64));
    gpu.wait(stream);
}

/// Writes what a reader of the buffers sees, as lines of numbers.
fn write_down(cupti: &libloading::Library, folder: &Path) {
    let mut lines = String::new();
    for buffer in COMPLETED.lock().expect("not poisoned").iter() {
        let start = buffer.as_ptr().cast::<u8>();
        let mut record: *const u8 = std::ptr::null();
        while c!(cupti, cuptiActivityGetNextRecord(
            start => *const u8, buffer.len() * 8 => usize, &mut record => &mut *const u8))
            == 0
        {
            lines += &line(record);
        }
    }
    std::fs::write(folder.join("records"), lines).expect("written");
}

fn line(record: *const u8) -> String {
    // SAFETY: records are longer than the offsets below, which are the documented ones.
    let u32_at = |at: usize| unsafe { record.add(at).cast::<u32>().read_unaligned() };
    // SAFETY: as above.
    let u64_at = |at: usize| unsafe { record.add(at).cast::<u64>().read_unaligned() };
    match u32_at(0) {
        10 => {
            // SAFETY: the name is a C string that stays.
            let name = unsafe { CStr::from_ptr(u64_at(104) as *const c_char) };
            let name = name.to_str().expect("text");
            format!("kernel {name} {} {} {}\n", u64_at(16), u64_at(24), u32_at(92))
        }
        1 => format!("memcpy {} {} {} {}\n", u64_at(8), u64_at(16), u64_at(24), u32_at(44)),
        kind @ (4 | 5) => {
            format!("api{kind} {} {} {} {}\n", u32_at(4), u64_at(8), u64_at(16), u32_at(32))
        }
        kind => format!("kind{kind}\n"),
    }
}

fn play(folder: &Path) {
    let cupti = cupti();
    enable(&cupti);
    work(&Gpu::ready());
    assert_eq!(c!(cupti, cuptiActivityFlushAll(0 => u32)), 0);
    write_down(&cupti, folder);
    let mut dropped = 0_usize;
    c!(cupti, cuptiActivityGetNumDroppedRecords(0 => usize, 0 => u32, &mut dropped => &mut usize));
    std::fs::write(folder.join("records.dropped"), dropped.to_string()).expect("written");
}

fn check(outcome: &Outcome) {
    assert!(outcome.status.success());
    let kernels = outcome.log.work().into_iter().filter(|op| op.kind == "kernel");
    let reported = kernels
        .map(|op| format!("kernel {} {} {} {}", op.name, op.start_ns, op.end_ns, op.correlation));
    let seen = outcome.records.lines().filter(|line| line.starts_with("kernel"));
    assert!(reported.eq(seen.map(str::to_owned)), "records agree with the log");
    let count =
        |prefix: &str| outcome.records.lines().filter(|line| line.starts_with(prefix)).count();
    assert_eq!((count("kernel"), count("memcpy")), (400, 1));
    assert_eq!((count("api5 211 "), count("api4 307 ")), (400, 400), "launches in both layers");
    assert_eq!((count("kind38"), count("kind36")), (1, 1), "a synchronization and an event");
    assert!(outcome.records.contains("memcpy 4096 "));
}

#[test]
fn records_of_12_4_agree_with_the_log() {
    if let Some(outcome) = scenario("records_of_12_4_agree_with_the_log", &[], play) {
        check(&outcome);
    }
}

#[test]
fn records_of_11_8_agree_with_the_log() {
    let settings = [("SIMGPU_CUPTI", "11.8")];
    if let Some(outcome) = scenario("records_of_11_8_agree_with_the_log", &settings, play) {
        check(&outcome);
    }
}

#[test]
fn records_of_13_0_agree_with_the_log() {
    let settings = [("SIMGPU_CUPTI", "13.0")];
    if let Some(outcome) = scenario("records_of_13_0_agree_with_the_log", &settings, play) {
        check(&outcome);
    }
}

#[test]
fn records_of_13_2_agree_with_the_log() {
    let settings = [("SIMGPU_CUPTI", "13.2")];
    if let Some(outcome) = scenario("records_of_13_2_agree_with_the_log", &settings, play) {
        check(&outcome);
    }
}

#[test]
fn longer_records_of_future_versions_are_skipped() {
    let settings = [("SIMGPU_CUPTI", "future")];
    if let Some(outcome) =
        scenario("longer_records_of_future_versions_are_skipped", &settings, play)
    {
        check(&outcome);
    }
}

#[test]
fn dropped_records_are_counted() {
    let settings = [("SIMGPU_FAULT", "dropped-records")];
    let outcome = scenario("dropped_records_are_counted", &settings, play);
    let Some(outcome) = outcome else { return };
    let dropped: usize = outcome.dropped.parse().expect("a number");
    let seen = outcome.records.lines().count();
    assert!(dropped > 0);
    assert!((seen + dropped) / 10 == dropped, "every tenth: {dropped} of {}", seen + dropped);
}

#[test]
fn never_completing_kernels_come_only_when_forced() {
    let settings = [("SIMGPU_FAULT", "never-completing")];
    let outcome = scenario("never_completing_kernels_come_only_when_forced", &settings, |_| {
        let cupti = cupti();
        enable(&cupti);
        work(&Gpu::ready());
        let unfinished = || {
            let folder = tempfile::tempdir().expect("folder");
            write_down(&cupti, folder.path());
            let records = std::fs::read_to_string(folder.path().join("records")).expect("written");
            let kernels = records.lines().filter(|line| line.starts_with("kernel"));
            let open = kernels.clone().filter(|line| line.split(' ').nth(3) == Some("0"));
            (kernels.count(), open.count())
        };
        c!(cupti, cuptiActivityFlushAll(0 => u32));
        assert_eq!(unfinished(), (396, 0));
        c!(cupti, cuptiActivityFlushAll(1 => u32));
        assert_eq!(unfinished(), (400, 4));
    });
    if let Some(outcome) = outcome {
        assert!(outcome.status.success());
    }
}

#[test]
fn faults_refuse_their_calls() {
    let test = "faults_refuse_their_calls";
    for (fault, code) in [("subscribe-busy", "39"), ("cupti-15", "15"), ("cupti-999", "999")] {
        let settings = [("SIMGPU_FAULT", fault), ("EXPECTED_CODE", code)];
        let outcome = scenario(test, &settings, |_| {
            let mut subscriber = 0_u64;
            let cupti = cupti();
            let result =
                c!(cupti, cuptiSubscribe(&mut subscriber => &mut u64, 0 => usize, 0 => usize));
            assert_eq!(Ok(result.to_string()), std::env::var("EXPECTED_CODE"));
        });
        let Some(outcome) = outcome else { return };
        assert!(outcome.status.success());
    }
}

#[test]
fn without_a_callback_and_with_the_wrong_clock_timestamps_are_real_time() {
    let test = "without_a_callback_and_with_the_wrong_clock_timestamps_are_real_time";
    let outcome = scenario(test, &[("SIMGPU_FAULT", "wrong-clock")], |_| {
        let cupti = cupti();
        let mut timestamp = 0_u64;
        c!(cupti, cuptiActivityRegisterTimestampCallback(monotonic => extern "C" fn() -> u64));
        c!(cupti, cuptiGetTimestamp(&mut timestamp => &mut u64));
        let real =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let apart = real.as_nanos().abs_diff(u128::from(timestamp));
        assert!(apart < 60_000_000_000, "{apart} ns apart");
    });
    if let Some(outcome) = outcome {
        assert!(outcome.status.success());
    }
}
