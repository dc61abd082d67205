//! Places in the program that idle time comes from, with samples.

use super::IdleLabel;
use crate::figure::Location;
use crate::gpu::idle::{CodePlace, IdlePlace};
use crate::gpu::timeline::{
    Call, CallIndex, NameIndex, OpIndex, StreamIndex, StringTable, ThreadIndex, Timeline,
};
use crate::spans::index::Index;
use crate::time::intervals::Intervals;
use gctrace_event::{GpuOpKind, HostCode, HostCodeKind};
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) fn code_place(names: &StringTable, label: IdleLabel) -> CodePlace {
    let text = |name: Option<NameIndex>| name.map(|name| names.text(name).to_owned());
    CodePlace {
        function: text(label.function),
        operator: text(label.operator),
        python: label.python.and_then(|name| location(names.text(name))),
        annotation: text(label.annotation),
    }
}

/// The place that a Python function is defined at.
fn location(name: &str) -> Option<Location> {
    let (file, line, function) = HostCode::python(name)?;
    let (file, function) = (file.to_owned(), function.to_owned());
    Some(Location { file, function, line: Some(line), library: false })
}

/// The places of `time_ns` of a host that nothing else names: by its share of the samples of threads that
/// call CUDA, outside of calls and pauses and within the gaps. Not the place of each interval: those without
/// a sample would be left out, and they are the short ones.
pub(super) fn sampled(timeline: &Timeline, gaps: &[(u64, u64)], time_ns: u64) -> Vec<IdlePlace> {
    let gaps: Intervals = gaps.iter().copied().collect();
    let mut taken: HashMap<_, Vec<(u64, u64)>> = HashMap::new();
    for call in &timeline.calls {
        taken.entry(call.thread).or_default().push(call.span());
    }
    for pause in &timeline.pauses {
        taken.entry(pause.thread).or_default().push(pause.span());
    }
    let taken: HashMap<_, Intervals> =
        taken.into_iter().map(|(thread, spans)| (thread, spans.into_iter().collect())).collect();
    let mut by_name: BTreeMap<NameIndex, u64> = BTreeMap::new();
    for samples in &timeline.samples {
        let within = |of: &Intervals, at: u64| of.length_within(at, crate::time::after(at, 1)) > 0;
        let is_host = |at: &u64| {
            within(&gaps, *at) && taken.get(&samples.thread).is_none_or(|of| !within(of, *at))
        };
        let count = samples.times().filter(is_host).count() as u64;
        *by_name.entry(samples.name).or_default() += count;
    }
    let all: u64 = by_name.values().sum();
    let part =
        |count: u64| (u128::from(time_ns) * u128::from(count) / u128::from(all.max(1))) as u64;
    let mut places = Vec::new();
    for (name, count) in by_name {
        let label = IdleLabel { python: Some(name), ..IdleLabel::default() };
        let code = code_place(&timeline.names, label);
        if count > 0 && code.python.is_some() {
            places.push(IdlePlace { code, gaps: None, time_ns: part(count), saves_ns: None });
        }
    }
    places
}

/// The names of the copies that calls started: they have the direction.
pub(super) fn copied(timeline: &Timeline) -> HashMap<CallIndex, NameIndex> {
    let copies = timeline.ops.iter().filter(|op| op.kind == GpuOpKind::Memcpy);
    copies.filter_map(|op| Some((op.call?, op.name))).collect()
}

/// Functions of the host without times in the trace, by the next operation launched on each stream: CUPTI records
/// them since 13.1, and no call names its stream.
pub(super) fn unseen_functions(timeline: &Timeline) -> HashMap<OpIndex, CallIndex> {
    let names = Index::enumerate(timeline.names.texts());
    let names: HashSet<NameIndex> =
        names.filter(|(_, name)| name.contains("LaunchHostFunc")).map(|(at, _)| at).collect();
    if names.is_empty() {
        return HashMap::new();
    }
    let seen: HashSet<CallIndex> = timeline.ops.iter().filter_map(|op| op.call).collect();
    let calls = Index::enumerate(&timeline.calls);
    let unseen = calls.filter(|(at, call)| names.contains(&call.function) && !seen.contains(at));
    let unseen: Vec<(u64, CallIndex)> = unseen.map(|(at, call)| (call.start_ns, at)).collect();
    let mut launched_ns: HashMap<StreamIndex, u64> = HashMap::new();
    let after = Index::enumerate(&timeline.ops).filter_map(|(at, op)| {
        let call = timeline.call(op)?;
        let before_ns = launched_ns.insert(op.stream, call.start_ns).unwrap_or_default();
        let place = unseen.partition_point(|(start_ns, _)| *start_ns < call.start_ns);
        let (start_ns, function) = unseen.get(place.checked_sub(1)?)?;
        if *start_ns >= before_ns { Some((at, *function)) } else { None }
    });
    after.collect()
}

/// The lines that calls were made at, of recordings with samples.
#[derive(Debug, Default)]
pub(super) struct CallPlaces {
    /// For calls with a thread that was sampled, or off the CPU for long.
    own: HashMap<CallIndex, NameIndex>,
    /// For a function that a thread nearly always calls at the same line.
    usual: HashMap<(ThreadIndex, NameIndex), NameIndex>,
}

impl CallPlaces {
    /// Calls of a function seen at one line before its other calls count as at that line too.
    const ENOUGH: usize = 5;
    /// The share of them with that line.
    const NEARLY_ALL: f64 = 0.9;

    pub(super) fn of(timeline: &Timeline) -> Self {
        if timeline.samples.is_empty() && (!timeline.is_ours || timeline.code.is_empty()) {
            return Self::default();
        }
        let mut by_thread: HashMap<ThreadIndex, Vec<(u64, u64, CallIndex)>> = HashMap::new();
        for (index, call) in Index::enumerate(&timeline.calls) {
            by_thread.entry(call.thread).or_default().push((call.start_ns, call.end_ns, index));
        }
        let call_at = |thread: ThreadIndex, at_ns: u64| {
            let calls = by_thread.get(&thread)?;
            let after = calls.partition_point(|(start_ns, ..)| *start_ns <= at_ns);
            let (_, end_ns, index) = calls.get(after.checked_sub(1)?)?;
            if at_ns < *end_ns { Some(*index) } else { None }
        };
        let mut own = HashMap::new();
        let waits = timeline.code.iter().filter(|code| code.kind == HostCodeKind::Function);
        let waits = waits.map(|code| (code.thread, code.start_ns, code.name));
        let samples = timeline
            .samples
            .iter()
            .flat_map(|samples| samples.times().map(|at_ns| (samples.thread, at_ns, samples.name)));
        for (thread, at_ns, name) in waits.chain(samples) {
            if let Some(call) = call_at(thread, at_ns) {
                own.entry(call).or_insert(name);
            }
        }
        let mut lines: HashMap<_, BTreeMap<NameIndex, usize>> = HashMap::new();
        for (index, name) in &own {
            let call = &timeline.calls[*index];
            *lines.entry((call.thread, call.function)).or_default().entry(*name).or_default() += 1;
        }
        let usual = lines.into_iter().filter_map(|(function, names)| {
            let all: usize = names.values().sum();
            let (name, most) = names.into_iter().max_by_key(|(_, count)| *count)?;
            let nearly = most as f64 >= Self::NEARLY_ALL * all as f64;
            if all >= Self::ENOUGH && nearly { Some((function, name)) } else { None }
        });
        Self { usual: usual.collect(), own }
    }

    /// The line of a call; `None` if unknown.
    pub(super) fn line(&self, index: CallIndex, call: &Call) -> Option<NameIndex> {
        self.own.get(&index).or_else(|| self.usual.get(&(call.thread, call.function))).copied()
    }
}
