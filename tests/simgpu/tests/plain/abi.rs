//! One process: the effect of calls, and their entries in the log.

use test_kit::simulator;
use test_kit::simulator::gpu::{Gpu, c};
use test_kit::simulator::scenario;

#[test]
fn a_synchronizing_call_returns_after_the_end_of_the_work() {
    let outcome = scenario("a_synchronizing_call_returns_after_the_end_of_the_work", &[], |_| {
        let gpu = Gpu::ready();
        let (kernel, stream) = (gpu.kernel(100_000_000), gpu.stream());
        for _ in 0..5 {
            assert_eq!(gpu.launch(kernel, stream), 0);
        }
        assert_eq!(c!(gpu.runtime, cudaStreamQuery(stream => u64)), 600, "not ready");
        gpu.wait(stream);
        assert_eq!(c!(gpu.runtime, cudaStreamQuery(stream => u64)), 0);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let log = outcome.log;
    let work = log.work();
    assert_eq!(work.len(), 5);
    for pair in work.windows(2) {
        assert_eq!(pair[1].start_ns, pair[0].end_ns + 1000, "one after another, a gap between");
    }
    for op in &work {
        assert_eq!(op.end_ns - op.start_ns, 100_000_000);
        assert!(op.start_ns >= op.launched_ns + 5000);
    }
    for function in ["cudaStreamSynchronize", "cuStreamSynchronize"] {
        let calls = log.calls_of(function);
        assert_eq!(calls.len(), 1, "both layers are in the log");
        assert!(calls[0].end_ns >= work[4].end_ns, "it waited");
    }
}

#[test]
fn a_launch_is_one_call_in_each_layer_and_one_operation() {
    let outcome = scenario("a_launch_is_one_call_in_each_layer_and_one_operation", &[], |_| {
        let gpu = Gpu::ready();
        assert_eq!(gpu.launch(gpu.kernel(1000), gpu.stream()), 0);
        gpu.launch(0x1234, 0);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let log = outcome.log;
    let (runtime, driver) = (log.calls_of("cudaLaunchKernel"), log.calls_of("cuLaunchKernel"));
    assert_eq!((runtime.len(), driver.len(), log.work().len()), (2, 2, 1));
    let op = log.work()[0];
    assert_eq!(runtime[0].correlation, op.correlation);
    assert_eq!(driver[0].correlation, op.correlation);
    assert_eq!(runtime[0].stream, op.stream);
    assert_eq!(driver[0].grid, [4, 3, 2]);
    assert!(runtime[0].start_ns <= driver[0].start_ns && driver[0].end_ns <= runtime[0].end_ns);
    assert_eq!(op.name, "kernel_1000");
    assert_eq!(runtime[1].result, 400, "not a function");
}

#[test]
fn events_order_streams_and_measure_them() {
    let outcome = scenario("events_order_streams_and_measure_them", &[], |_| {
        let gpu = Gpu::ready();
        let (first, second) = (gpu.stream(), gpu.stream());
        let (start, end) = (gpu.event(), gpu.event());
        c!(gpu.runtime, cudaEventRecord(start => u64, first => u64));
        gpu.launch(gpu.kernel(400_000_000), first);
        c!(gpu.runtime, cudaEventRecord(end => u64, first => u64));
        assert_eq!(c!(gpu.runtime, cudaEventQuery(end => u64)), 600);
        c!(gpu.runtime, cudaStreamWaitEvent(second => u64, end => u64, 0 => u32));
        gpu.launch(gpu.kernel(1_000_000), second);
        gpu.wait(second);
        assert_eq!(c!(gpu.runtime, cudaEventQuery(end => u64)), 0);
        let mut milliseconds = 0.0_f32;
        c!(gpu.runtime, cudaEventElapsedTime(&mut milliseconds => &mut f32, start => u64, end => u64));
        assert!(milliseconds >= 400.0, "{milliseconds}");
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let work = outcome.log.work();
    assert!(work[1].start_ns >= work[0].end_ns, "the second stream waited");
    assert_ne!(work[0].stream, work[1].stream);
    let records = outcome.log.calls_of("cudaEventRecord");
    let wait = outcome.log.calls_of("cudaStreamWaitEvent")[0];
    assert_eq!(wait.event, records[1].event, "the end's");
    assert_ne!(wait.event, records[0].event);
    let waits = outcome.log.ops.iter().filter(|op| op.kind == "wait");
    let awaited: Vec<u32> = waits.map(|op| op.awaited).collect();
    assert_eq!(awaited, [records[1].correlation]);
}

#[test]
fn a_full_queue_blocks_the_launching_thread() {
    let outcome = scenario("a_full_queue_blocks_the_launching_thread", &[], |_| {
        let gpu = Gpu::ready();
        let (long, short, stream) = (gpu.kernel(2_000_000_000), gpu.kernel(1000), gpu.stream());
        gpu.launch(long, stream);
        for _ in 0..1024 {
            gpu.launch(short, stream);
        }
        gpu.wait(stream);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let log = outcome.log;
    let launches = log.calls_of("cudaLaunchKernel");
    let first_end = log.work()[0].end_ns;
    assert!(launches[1023].end_ns < first_end, "1,024 fit");
    assert!(
        launches[1024].start_ns < first_end && launches[1024].end_ns >= first_end,
        "one more waits"
    );
}

#[test]
fn a_captured_graph_runs_all_its_kernels_at_one_launch() {
    let outcome = scenario("a_captured_graph_runs_all_its_kernels_at_one_launch", &[], |_| {
        let gpu = Gpu::ready();
        let (kernel, stream) = (gpu.kernel(10_000), gpu.stream());
        let (mut graph, mut executable) = (0, 0);
        c!(gpu.runtime, cudaStreamBeginCapture(stream => u64, 0 => i32));
        for _ in 0..7 {
            gpu.launch(kernel, stream);
        }
        c!(gpu.runtime, cudaStreamEndCapture(stream => u64, &mut graph => &mut u64));
        c!(gpu.runtime, cudaGraphInstantiate(&mut executable => &mut u64, graph => u64, 0 => u64));
        for _ in 0..3 {
            assert_eq!(c!(gpu.runtime, cudaGraphLaunch(executable => u64, stream => u64)), 0);
        }
        gpu.wait(stream);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let work = outcome.log.work();
    assert_eq!(work.len(), 21);
    assert!(
        work.chunks(7)
            .all(|launch| { launch.iter().all(|op| op.correlation == launch[0].correlation) })
    );
}

#[test]
fn memory_has_a_limit_and_freeing_waits_for_the_device() {
    let settings = [("SIMGPU_MEMORY", "1000000")];
    let outcome =
        scenario("memory_has_a_limit_and_freeing_waits_for_the_device", &settings, |_| {
            let gpu = Gpu::ready();
            let address = gpu.allocate(600_000).expect("fits");
            assert_eq!(gpu.allocate(400_001), Err(2), "out of memory");
            assert_eq!(c!(gpu.runtime, cudaGetLastError()), 2);
            let (mut free, mut total) = (0, 0);
            c!(gpu.runtime, cudaMemGetInfo(&mut free => &mut u64, &mut total => &mut u64));
            assert_eq!((free, total), (400_000, 1_000_000));
            gpu.launch(gpu.kernel(5_000_000), 0);
            assert_eq!(c!(gpu.runtime, cudaFree(address => u64)), 0);
            assert!(gpu.allocate(1_000_000).is_ok());
        });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let log = outcome.log;
    assert!(log.calls_of("cudaFree")[0].end_ns >= log.work()[0].end_ns);
    assert_eq!(log.calls_of("cuMemFree_v2")[0].bytes, 600_000);
}

#[test]
fn initializing_loads_the_injection_library() {
    let library = std::env::current_exe().expect("file");
    let library = library.ancestors().nth(2).expect("folder").join("examples/libinjection.so");
    let path = library.to_str().expect("text");
    let settings = [("CUDA_INJECTION64_PATH", path)];
    let outcome = scenario("initializing_loads_the_injection_library", &settings, |folder| {
        let witness = folder.join("witness");
        // SAFETY: the only thread of this process that uses the environment.
        unsafe { std::env::set_var("INJECTION_WITNESS", &witness) };
        let gpu = Gpu::load();
        assert!(!witness.exists(), "not before cuInit");
        assert_eq!(c!(gpu.driver, cuInit(0 => u32)), 0);
        assert_eq!(std::fs::read_to_string(witness).expect("written"), "injected");
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
}

#[test]
fn a_missing_injection_library_is_ignored() {
    let settings = [("CUDA_INJECTION64_PATH", "/nonexistent/library.so")];
    let outcome = scenario("a_missing_injection_library_is_ignored", &settings, |_| {
        let gpu = Gpu::load();
        assert_eq!(c!(gpu.driver, cuInit(0 => u32)), 0);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
}

#[test]
fn a_child_of_a_fork_has_no_driver() {
    let outcome = scenario("a_child_of_a_fork_has_no_driver", &[], |_| {
        let gpu = Gpu::ready();
        // SAFETY: the child makes calls that fail at once and leaves without running handlers.
        let child = unsafe { nix::libc::fork() };
        if child == 0 {
            let refused = gpu.launch(0, 0) == 3 && c!(gpu.driver, cuInit(0 => u32)) == 3;
            // SAFETY: ends the child.
            unsafe { nix::libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { nix::libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    assert!(outcome.log.calls_of("cuLaunchKernel").is_empty());
}

#[test]
fn entry_points_by_name_are_the_exported_functions() {
    let outcome = scenario("entry_points_by_name_are_the_exported_functions", &[], |_| {
        let gpu = Gpu::ready();
        let (mut address, mut found) = (0_usize, -1);
        let result = c!(gpu.driver, cuGetProcAddress_v2(c"cuMemAlloc".as_ptr() => *const std::ffi::c_char,
            &mut address => &mut usize, 12_000 => i32, 0 => u64, &mut found => &mut i32));
        // SAFETY: only the address is used.
        let exported = unsafe { gpu.driver.get::<usize>(b"cuMemAlloc_v2\0") }.expect("exported");
        // SAFETY: as above.
        let exported = unsafe { exported.try_as_raw_ptr() }.expect("address");
        assert_eq!((result, found, address), (0, 0, exported as usize));
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
}

#[test]
fn a_crash_at_exit_can_be_injected() {
    let settings = [("SIMGPU_FAULT", "crash-at-exit")];
    let outcome = scenario("a_crash_at_exit_can_be_injected", &settings, |_| drop(Gpu::ready()));
    let Some(outcome) = outcome else { return };
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(outcome.status.signal(), Some(nix::libc::SIGSEGV));
    assert_eq!(outcome.log.calls_of("cudaSetDevice").len(), 1, "the log was written before");
}

/// Launches on the calling thread's own default stream and waits for it.
fn launch_per_thread(gpu: &Gpu, kernel: u64, launches: usize) {
    use test_kit::simulator::gpu::Dim3;
    assert_eq!(c!(gpu.runtime, cudaSetDevice(0 => i32)), 0);
    for _ in 0..launches {
        let result = c!(gpu.runtime, cudaLaunchKernel_ptsz(kernel => u64, Dim3(1, 1, 1) => Dim3,
            Dim3(32, 1, 1) => Dim3, 0 => u64, 0 => u64, 0 => u64));
        assert_eq!(result, 0);
    }
    assert_eq!(c!(gpu.runtime, cudaStreamSynchronize_ptsz(0 => u64)), 0);
}

#[test]
fn threads_launch_concurrently_on_their_own_default_streams() {
    let test = "threads_launch_concurrently_on_their_own_default_streams";
    let outcome = scenario(test, &[], |_| {
        let gpu = Gpu::ready();
        let kernel = gpu.kernel(2_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| launch_per_thread(&gpu, kernel, 500));
            }
        });
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
    let log = outcome.log;
    let mut streams = std::collections::BTreeMap::<&str, Vec<_>>::new();
    for op in log.work() {
        streams.entry(&op.stream).or_default().push(op);
    }
    assert_eq!(streams.len(), 4);
    for ops in streams.values() {
        assert_eq!(ops.len(), 500);
        assert!(ops.windows(2).all(|pair| pair[0].end_ns < pair[1].start_ns));
        let of = |op: &simulator::log::Op| {
            let launches = log.calls_of("cudaLaunchKernel_ptsz");
            launches.iter().find(|call| call.correlation == op.correlation).map(|call| call.tid)
        };
        assert!(ops.iter().step_by(50).all(|op| of(op) == of(ops[0])), "one thread's launches");
    }
    let threads: std::collections::BTreeSet<u32> =
        log.calls_of("cuLaunchKernel_ptsz").iter().map(|call| call.tid).collect();
    assert_eq!(threads.len(), 4);
}
