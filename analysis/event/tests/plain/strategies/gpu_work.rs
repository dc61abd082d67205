//! Records of CUDA calls and of GPU work, any.

use super::time;
use gctrace_event::{
    Annotation, Collective, CudaCall, CudaLaunches, CudaLayer, DeviceMemory, EmptyCache, GpuOp,
    GpuOpKind, GpuSync, GpuSyncKind, NamedMarker, OmittedGpuWork, OmittedPauses, PauseMemory,
    Record, StepMark,
};
use proptest::option::of;
use proptest::prelude::*;

pub(crate) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        2 => cuda_call(),
        1 => cuda_launches(),
        1 => device_memory(),
        1 => pause_memory(),
        1 => empty_cache(),
        1 => step(),
        2 => gpu_op(),
        1 => gpu_sync(),
        1 => annotation(),
        1 => omitted_gpu_work(),
    ]
}

fn layer() -> impl Strategy<Value = CudaLayer> {
    prop::sample::select(vec![CudaLayer::Driver, CudaLayer::Runtime, CudaLayer::Nccl])
}

prop_compose! {
    fn cuda_call()(
        (pid, tid) in any::<(u32, u32)>(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        layer in layer(),
        function in any::<String>(),
        (stream, bytes) in any::<(Option<u64>, Option<u64>)>(),
        grid in any::<Option<[u32; 3]>>(),
        correlation in named(),
        error in of(prop_oneof![i32::MIN..0, 1..=i32::MAX]),
    ) -> Record {
        Record::CudaCall(CudaCall {
            pid, tid, layer, function: function.into(), start_ns, end_ns: start_ns + length_ns,
            stream, bytes, grid, correlation, error,
        })
    }
}

/// A correlation id; 0 names nothing.
fn named() -> impl Strategy<Value = Option<u64>> {
    of(1..=u64::MAX)
}

fn op_kind() -> impl Strategy<Value = GpuOpKind> {
    prop::sample::select(GpuOpKind::ALL.to_vec())
}

prop_compose! {
    fn collective()(
        (name, group) in any::<(String, Option<String>)>(),
        (sequence, size) in any::<(Option<u64>, Option<u32>)>(),
        ranks in any::<Option<String>>(),
        (source, destination) in any::<(Option<u32>, Option<u32>)>(),
    ) -> Option<Box<Collective>> {
        let collective = Collective { name, group, sequence, size, ranks, source, destination };
        (collective != Collective::default()).then(|| Box::new(collective))
    }
}

prop_compose! {
    fn gpu_op()(
        (pid, device, stream) in any::<(Option<u32>, u32, u64)>(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        (kind, name) in (op_kind(), any::<String>()),
        (correlation, bytes) in (named(), any::<Option<u64>>()),
        collective in collective(),
    ) -> Record {
        Record::GpuOp(GpuOp {
            pid, device, stream, kind, name, start_ns, end_ns: start_ns + length_ns, correlation,
            bytes, collective,
        })
    }
}

fn sync_kind() -> impl Strategy<Value = GpuSyncKind> {
    prop::sample::select(vec![
        GpuSyncKind::Event,
        GpuSyncKind::StreamWaitEvent,
        GpuSyncKind::Stream,
        GpuSyncKind::Context,
    ])
}

prop_compose! {
    fn gpu_sync()(
        kind in sync_kind(),
        (pid, device, stream) in any::<(Option<u32>, Option<u32>, Option<u64>)>(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        correlation in named(),
        (event_stream, event_correlation) in any::<(Option<u64>, Option<u64>)>(),
    ) -> Record {
        Record::GpuSync(GpuSync {
            pid, kind, device, stream, start_ns, end_ns: start_ns + length_ns, correlation,
            event_stream, event_correlation,
        })
    }
}

prop_compose! {
    fn omitted_gpu_work()(
        pid in any::<u32>(),
        (since_ns, length_ns) in (time(), 0..(1u64 << 61)),
        (operations, calls) in any::<((u64, u64), (u64, u64))>(),
    ) -> Record {
        Record::OmittedGpuWork(OmittedGpuWork {
            pid, since_ns, until_ns: since_ns + length_ns,
            operations: OmittedPauses::of(operations.0, operations.1),
            calls: OmittedPauses::of(calls.0, calls.1),
        })
    }
}

prop_compose! {
    fn annotation()(
        (pid, tid) in any::<(u32, u32)>(),
        name in any::<String>()
            .prop_filter("a step", |name| NamedMarker::from_annotation(name).is_none()),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
    ) -> Record {
        Record::Annotation(Annotation { pid, tid, name, start_ns, end_ns: start_ns + length_ns })
    }
}

prop_compose! {
    fn cuda_launches()(
        (pid, tid, stream, count) in any::<(u32, u32, u64, u64)>(),
        (first_ns, length_ns) in (time(), 0..(1u64 << 61)),
    ) -> Record {
        Record::CudaLaunches(CudaLaunches {
            pid, tid, stream, first_ns, last_ns: first_ns + length_ns, count,
        })
    }
}

prop_compose! {
    fn device_memory()(
        (pid, tid, at_ns) in (any::<u32>(), any::<u32>(), time()),
        (device_type, device, bytes) in any::<(i8, i8, i64)>(),
        (allocated, reserved) in any::<(u64, u64)>(),
    ) -> Record {
        Record::DeviceMemory(DeviceMemory {
            pid, tid, at_ns, device_type, device, bytes, allocated, reserved,
        })
    }
}

prop_compose! {
    fn pause_memory()(
        (pid, tid) in any::<(u32, u32)>(),
        (start_ns, end_ns) in (time(), any::<u64>()),
        (device_type, device) in any::<(i8, i8)>(),
        (freed_bytes, freed_blocks) in any::<(u64, Option<u64>)>(),
    ) -> Record {
        Record::PauseMemory(PauseMemory {
            pid, tid, start_ns, end_ns, device_type, device, freed_bytes, freed_blocks,
        })
    }
}

prop_compose! {
    fn empty_cache()(
        (pid, tid) in any::<(u32, u32)>(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        (reserved_before, reserved_after) in any::<(Option<u64>, Option<u64>)>(),
        stack in any::<Option<u32>>(),
    ) -> Record {
        Record::EmptyCache(EmptyCache {
            pid, tid, start_ns, end_ns: start_ns + length_ns, reserved_before, reserved_after, stack,
        })
    }
}

/// Names may contain the words around them.
fn step_marker() -> impl Strategy<Value = NamedMarker> {
    let name = || prop_oneof![any::<String>(), "(Optimizer\\.step#|\\.step|backward| ){0,4}"];
    prop_oneof![
        name().prop_map(NamedMarker::Function),
        name().prop_map(NamedMarker::Optimizer),
        Just(NamedMarker::Backward),
        name().prop_map(NamedMarker::DataLoader),
    ]
}

prop_compose! {
    fn step()(
        (pid, tid) in any::<(u32, u32)>(),
        marker in step_marker(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        cpu_ns in any::<Option<u64>>(),
    ) -> Record {
        Record::Step(StepMark { pid, tid, marker, start_ns, end_ns: start_ns + length_ns, cpu_ns })
    }
}
