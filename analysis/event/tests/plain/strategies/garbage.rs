//! Records of garbage, its kinds of objects and its cycles, any.

use super::{count, time};
use gctrace_event::{
    AliveLines, BirthCount, Called, CalledKind, CpuSamples, CycleCount, CycleEdge, CycleSignature,
    Garbage, KindCount, ObjectKind, OffCpu, OffCpuReason, Record,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub(crate) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        1 => kind(),
        1 => cycle(),
        2 => garbage(),
        1 => called(),
        1 => samples(),
        1 => off_cpu(),
        1 => alive(),
    ]
}

prop_compose! {
    fn kind()(
        (pid, id, line) in any::<(u32, u32, Option<u32>)>(),
        (type_name, function, file) in any::<(String, Option<String>, Option<String>)>(),
    ) -> Record {
        Record::ObjectKind(ObjectKind { pid, id, type_name, function, file, line })
    }
}

prop_compose! {
    fn cycle()(
        (pid, id) in any::<(u32, u32)>(),
        edges in vec(any::<(u32, Option<String>)>(), 0..4),
    ) -> Record {
        let edge = |(kind, name)| CycleEdge { kind, name };
        Record::CycleSignature(CycleSignature { pid, id, edges: edges.into_iter().map(edge).collect() })
    }
}

prop_compose! {
    fn alive()(
        (pid, at_ns) in (any::<u32>(), time()),
        lines in vec(any::<(u32, u64, u64)>(), 0..4),
    ) -> Record {
        Record::AliveLines(AliveLines { pid, at_ns, lines })
    }
}

prop_compose! {
    fn called()(
        (pid, tid, at_ns) in (any::<u32>(), any::<u32>(), time()),
        (is_callback, calls, time_ns) in any::<(bool, u64, u64)>(),
        stack in of(1..=u32::MAX),
    ) -> Record {
        let kind = if is_callback { CalledKind::Callback } else { CalledKind::Finalizer };
        Record::Called(Called { pid, tid, at_ns, kind, calls, time_ns, stack })
    }
}

prop_compose! {
    fn samples()(
        (pid, tid, at_ns, lasts_ns) in (any::<u32>(), any::<u32>(), time(), 0..1u64 << 40),
        (count, in_pause) in (1..=u64::MAX, any::<bool>()),
        file in of("[a-z]+"),
        stack in of(1..=u32::MAX),
    ) -> Record {
        let until_ns = at_ns + lasts_ns;
        Record::CpuSamples(CpuSamples { pid, tid, at_ns, until_ns, count, file, in_pause, stack })
    }
}

prop_compose! {
    fn off_cpu()(
        (pid, tid, at_ns) in (any::<u32>(), any::<u32>(), time()),
        reason in prop::sample::select(vec![
            OffCpuReason::Gil,
            OffCpuReason::Poll,
            OffCpuReason::PageFault,
            OffCpuReason::Other,
        ]),
        gaps in prop::collection::vec((0..1u64 << 30, 0..1u64 << 30), 0..4),
        in_pause in any::<bool>(),
        stack in of(1..=u32::MAX),
    ) -> Record {
        let mut after_ns = 0;
        let times = gaps.into_iter().map(|(gap_ns, length_ns)| {
            let start_ns = after_ns + gap_ns;
            after_ns = start_ns + length_ns;
            (start_ns, length_ns)
        });
        Record::OffCpu(OffCpu { pid, tid, at_ns, reason, times: times.collect(), in_pause, stack })
    }
}

prop_compose! {
    fn kind_count()(
        kind in any::<u32>(),
        objects in any::<u64>(),
        bytes in count(),
    ) -> KindCount {
        KindCount { kind, objects, bytes }
    }
}

prop_compose! {
    fn cycle_count()(
        cycle in any::<u32>(),
        (count, objects, held_objects) in any::<(u64, u64, u64)>(),
        bytes in count(),
    ) -> CycleCount {
        CycleCount { cycle, count, objects, held_objects, bytes }
    }
}

prop_compose! {
    fn garbage()(
        (pid, tid, at_ns) in (any::<u32>(), any::<u32>(), time()),
        interpreter in any::<Option<i64>>(),
        (objects, cost_ns) in (any::<u64>(), count()),
        kinds in vec(kind_count(), 0..4),
        cycles in of(vec(cycle_count(), 0..4)),
        births in vec(any::<(u32, u64)>(), 0..4),
    ) -> Record {
        let birth = |(kind, samples)| BirthCount { kind, samples };
        let births = births.into_iter().map(birth).collect();
        Record::Garbage(Garbage {
            pid, tid, at_ns, interpreter, objects, kinds, cycles, births, cost_ns,
        })
    }
}
