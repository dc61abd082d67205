//! The records of calls and device memory, without a kernel.

use super::*;
use gctrace_event::GcReason;
use gctrace_probes::cuda::TABLE;

fn number(name: &str) -> u16 {
    let index = TABLE.iter().position(|function| function.shown() == name);
    u16::try_from(index.unwrap()).unwrap()
}

fn call(name: &str, start_ns: u64, end_ns: u64) -> Call {
    Call {
        pid: 7,
        tid: 8,
        function: number(name),
        start_ns,
        end_ns,
        stream: 5,
        bytes: 9,
        grid: [1, 2, 3],
        ..Call::default()
    }
}

fn memory(at_ns: u64, tid: u32, bytes: i64, allocated: u64) -> DeviceMemory {
    DeviceMemory {
        pid: 7,
        tid,
        device_type: 1,
        device: 0,
        at_ns,
        bytes,
        allocated,
        reserved: 1 << 30,
    }
}

fn pause(start_ns: u64, end_ns: u64) -> Pause {
    Pause {
        pid: 7,
        tid: 8,
        start_ns,
        end_ns,
        generation: 2,
        reason: GcReason::Automatic,
        ..Pause::default()
    }
}

fn allocated(records: &[Record]) -> Vec<u64> {
    let memories = records.iter().filter_map(|record| match record {
        Record::DeviceMemory(memory) => Some(memory.allocated),
        _ => None,
    });
    memories.collect()
}

#[test]
fn launches_of_one_millisecond_are_one_record() {
    let (mut store, mut records) = (CudaStore::new(CudaMode::Launches), Vec::new());
    for at_ns in [1_100_000, 1_200_000, 1_999_999, 2_000_000] {
        let launch = call("cuLaunchKernel", at_ns, at_ns);
        store.call(&launch, &mut records);
    }
    assert_eq!(records.len(), 1);
    store.tick(11_000_000, &mut records);
    assert_eq!(records.len(), 1, "more may come");
    store.finish(&mut records);
    let counts: Vec<u64> = records
        .iter()
        .map(|record| match record {
            Record::CudaLaunches(launches) => launches.count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [3, 1]);
}

#[test]
fn a_call_has_the_fields_of_its_function() {
    let (mut store, mut records) = (CudaStore::new(CudaMode::All), Vec::new());
    let mut failed = call("cudaMalloc", 10, 30);
    failed.result = 2;
    store.call(&failed, &mut records);
    let launch = call("cudaLaunchKernel", 40, 40);
    store.call(&launch, &mut records);
    let [Record::CudaCall(malloc), Record::CudaCall(launch)] = records.as_slice() else {
        panic!("{records:?}");
    };
    assert_eq!((malloc.stream, malloc.bytes), (None, Some(9)));
    assert_eq!((malloc.grid, malloc.error), (None, Some(2)));
    assert_eq!((launch.stream, launch.bytes), (Some(5), None));
    assert_eq!((launch.grid, launch.error), (Some([1, 2, 3]), None));
}

#[test]
fn steps_ended_by_an_exception_have_no_end() {
    let (mut store, mut records) = (CudaStore::new(CudaMode::All), Vec::new());
    let mut step = |start_ns, end_ns| {
        let name = "torch::autograd::Engine::execute";
        let step = call(name, start_ns, end_ns);
        store.call(&step, &mut records);
    };
    step(10, 10);
    step(10, 20);
    step(30, 30);
    step(40, 40);
    step(40, 45);
    step(50, 50);
    store.ended(7, &mut records);
    let steps: Vec<_> = records
        .iter()
        .map(|record| match record {
            Record::Step(step) => (step.start_ns, step.end_ns),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(steps, [(10, 20), (30, 30), (40, 45), (50, 50)]);
}

#[test]
fn device_memory_is_thinned_and_known_around_pauses() {
    let (mut store, mut records) = (CudaStore::new(CudaMode::All), Vec::new());
    // Ten events within a millisecond: the first is written.
    for i in 0..10 {
        store.memory(&memory(1_000_000 + i * 1000, 8, 100, 100 * (i + 1)), &mut records);
    }
    assert_eq!(allocated(&records), [100]);
    // Within the pause the collecting thread frees two blocks, another thread one.
    store.memory(&memory(1_020_000, 8, -300, 700), &mut records);
    store.memory(&memory(1_021_000, 9, -100, 600), &mut records);
    store.memory(&memory(1_022_000, 8, -200, 400), &mut records);
    store.memory(&memory(1_040_000, 8, -50, 350), &mut records);
    store.pause(&pause(1_015_000, 1_030_000), &mut records);
    assert_eq!(allocated(&records), [100, 1000, 400]);
    let Some(Record::PauseMemory(freed)) = records.last() else {
        panic!("{records:?}");
    };
    assert_eq!((freed.freed_bytes, freed.freed_blocks), (500, Some(2)));
    store.finish(&mut records);
    assert_eq!(allocated(&records), [100, 1000, 400, 350]);
    assert_eq!(records.len(), 5);
}

#[test]
fn an_exited_process_is_forgotten() {
    let (mut store, mut records) = (CudaStore::new(CudaMode::All), Vec::<Record>::new());
    store.memory(&memory(5, 8, 1, 1), &mut records);
    store.ended(7, &mut records);
    store.pause(&pause(0, 100), &mut records);
    assert_eq!(records.len(), 1);
}
