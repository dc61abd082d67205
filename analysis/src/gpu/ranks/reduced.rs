//! A timeline reduced to its relations to other ranks' timelines.
//!
//! Chooses the data to keep: kernels of NCCL, the calls that launched them, PyTorch's annotations around these calls,
//! and the process. [`super::jobs`] finds the same jobs, clocks and collectives in it.

use super::kernels::{ANNOTATION, KERNEL};
use crate::gpu::timeline::{
    AnnotationSpan, Call, CallIndex, NameIndex, Op, OpIndex, StringTable, Timeline,
};
use crate::spans::index::Index;
use gctrace_event::GpuOpKind;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The operations of a timeline that other ranks may take part in, by start: kernels of NCCL.
pub(crate) fn shared_ops(timeline: &Timeline) -> Vec<OpIndex> {
    let mut is_nccl: HashMap<NameIndex, bool> = HashMap::new();
    let ops = Index::enumerate(&timeline.ops).filter_map(|(at, op)| {
        let known = is_nccl.entry(op.name);
        let is_nccl = *known.or_insert_with(|| timeline.op_name(op).starts_with(KERNEL));
        if is_nccl && op.kind == GpuOpKind::Kernel { Some(at) } else { None }
    });
    ops.collect()
}

/// The part of a timeline that other ranks need: [`shared_ops`] of its operations. It takes the process.
pub(crate) fn reduced(timeline: &mut Timeline) -> Timeline {
    let process = std::mem::take(&mut timeline.process);
    let ops = shared_ops(timeline);
    let ops: Vec<&Op> = ops.iter().map(|at| &timeline.ops[*at]).collect();
    let mut calls: BTreeMap<CallIndex, CallIndex> = BTreeMap::new();
    let launches = ops.iter().filter_map(|op| op.call);
    calls.extend(launches.map(|call| (call, call)));
    let mut names = StringTable::default();
    let mut name = |index: NameIndex| names.intern(timeline.names.text(index));
    let streams = timeline.streams.clone();
    let mut reduced = Timeline { process, streams, ..Timeline::default() };
    for (call, kept) in &mut calls {
        let call = timeline.calls[*call];
        let function = name(call.function);
        *kept = Index::push(&mut reduced.calls, Call { function, ..call });
    }
    let kept = ops.iter().map(|op| Op {
        name: name(op.name),
        group: op.group.map(&mut name),
        call: op.call.and_then(|call| calls.get(&call).copied()),
        ..**op
    });
    reduced.ops = kept.collect();
    for span in &timeline.annotations {
        if timeline.names.text(span.name).starts_with(ANNOTATION) {
            let name = name(span.name);
            reduced.annotations.push(AnnotationSpan { name, ..*span });
        }
    }
    reduced.names = Arc::new(names);
    reduced
}
