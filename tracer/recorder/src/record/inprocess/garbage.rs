//! Kinds of objects, cycles and the garbage of collections, numbered by process. Pure.

use super::texts::RingTexts;
use gctrace_event::{
    BirthCount, CycleCount, CycleEdge, CycleId, CycleSignature, Garbage, KindCount, KindId,
    KindName, ObjectKind,
};
use gctrace_ring::{RingCycleEdge, RingGarbage, TextId, TimeInterval};
use std::collections::HashMap;

/// Maximum number of threads with garbage that waits for its pause: only threads that are collecting have some, each in
/// an interpreter of its own. The garbage of each may take half a megabyte.
const MAX_OPEN: usize = 1 << 7;

/// The numbers that rings have used, and the garbage of collections that have not ended.
#[derive(Debug, Default)]
pub(super) struct GarbageRecords {
    pid: u32,
    /// Kinds of earlier rings of the process: this one's are numbered after them.
    before: KindId,
    /// The last number used.
    last: KindId,
    /// The same of cycles.
    cycles_before: CycleId,
    last_cycle: CycleId,
    /// By thread.
    open: HashMap<u32, Garbage>,
}

impl GarbageRecords {
    /// `before`: the numbers that earlier rings of the process used.
    pub(super) fn new(pid: u32, (before, cycles_before): (KindId, CycleId)) -> Self {
        Self {
            pid,
            before,
            last: before,
            cycles_before,
            last_cycle: cycles_before,
            ..Self::default()
        }
    }

    /// The last numbers used, of kinds and of cycles.
    pub(super) fn last_numbers(&self) -> (KindId, CycleId) {
        (self.last, self.last_cycle)
    }

    fn kind_id(&self, kind: u32) -> KindId {
        self.before.saturating_add(kind)
    }

    fn cycle_id(&self, cycle: u32) -> CycleId {
        self.cycles_before.saturating_add(cycle)
    }

    /// A kind of object.
    pub(super) fn kind(
        &mut self,
        texts: &RingTexts,
        id: u32,
        type_name: TextId,
        (function, file, line): (TextId, TextId, u32),
    ) -> ObjectKind {
        let id = self.kind_id(id);
        self.last = self.last.max(id);
        let unreadable = || KindName::UNREADABLE.to_owned();
        ObjectKind {
            pid: self.pid,
            id,
            name: KindName {
                type_name: texts.owned(type_name).unwrap_or_else(unreadable),
                function: texts.owned(function),
                file: texts.owned(file),
                line: if line > 0 { Some(line) } else { None },
            },
        }
    }

    /// A cycle.
    pub(super) fn cycle(
        &mut self,
        texts: &RingTexts,
        id: u32,
        edges: &[RingCycleEdge],
    ) -> CycleSignature {
        let id = self.cycle_id(id);
        self.last_cycle = self.last_cycle.max(id);
        let edge = |edge: &RingCycleEdge| CycleEdge {
            kind: self.kind_id(edge.kind),
            name: texts.owned(edge.name),
        };
        CycleSignature { pid: self.pid, id, edges: edges.iter().map(edge).collect() }
    }

    /// The garbage of a thread's collection that has not ended.
    pub(super) fn found(&mut self, garbage: &RingGarbage) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&garbage.tid) {
            return;
        }
        let kinds = garbage.kinds.iter().map(|count| KindCount {
            kind: self.kind_id(count.kind),
            objects: count.objects,
            bytes: count.bytes,
        });
        let births = garbage.births.iter().map(|count| BirthCount {
            kind: self.kind_id(count.kind),
            samples: count.samples.into(),
        });
        let cycles = garbage.cycles.iter().flatten().map(|count| CycleCount {
            cycle: self.cycle_id(count.cycle),
            count: count.count.into(),
            objects: count.objects,
            held_objects: count.held_objects,
            bytes: count.bytes,
        });
        let found = Garbage {
            pid: self.pid,
            tid: garbage.tid,
            at_ns: garbage.at_ns,
            interpreter: Some(garbage.interpreter),
            objects: garbage.objects,
            cost_ns: Some(garbage.cost_ns),
            kinds: kinds.collect(),
            births: births.collect(),
            cycles: if garbage.cycles.is_some() { Some(cycles.collect()) } else { None },
        };
        self.open.insert(garbage.tid, found);
    }

    /// The garbage of a thread's collection that ended; `None` if it has none.
    pub(super) fn of_pause(&mut self, tid: u32, interval: TimeInterval) -> Option<Garbage> {
        let garbage = self.open.remove(&tid)?;
        if !(interval.start_ns..=interval.end_ns).contains(&garbage.at_ns) {
            return None;
        }
        Some(garbage)
    }
}
