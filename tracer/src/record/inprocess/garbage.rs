//! The garbage of collections, put together from the records of a ring, and kept until its pause.
//! Pure.

use super::texts::RingTexts;
use gctrace_event::{
    BirthCount, CycleCount, CycleEdge, CycleId, CycleSignature, Garbage, KindCount, KindId,
    ObjectKind, Record,
};
use gctrace_ring::{RingCycleCount, RingGarbage, RingKindCount, TextId, TimeInterval};
use std::collections::HashMap;

/// Threads whose records are waited for: only those that collect at this moment have any.
const MAX_OPEN: usize = 1 << 10;

/// Kinds and cycles of a ring, and the garbage of collections that have not ended.
#[derive(Debug, Default)]
pub(super) struct GarbageRecords {
    pid: u32,
    /// Kinds of earlier rings of the process: this one's are numbered after them.
    before: KindId,
    /// The last number used.
    last: KindId,
    /// Signatures of earlier rings, and the last number used.
    cycles_before: CycleId,
    last_cycle: CycleId,
    /// The signature whose edges are coming; they come one after the other.
    edges: Vec<CycleEdge>,
    /// By thread: its collection's, parts of which may still be missing.
    open: HashMap<u32, OpenGarbage>,
}

#[derive(Debug)]
struct OpenGarbage {
    garbage: Garbage,
    /// Number of kinds that are still to come, and of cycles.
    missing: u32,
    missing_cycles: u32,
}

impl OpenGarbage {
    fn is_complete(&self) -> bool {
        self.missing == 0 && self.missing_cycles == 0
    }
}

impl GarbageRecords {
    /// `before`: those that earlier rings of the process used.
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

    /// A kind of object.
    pub(super) fn kind(
        &mut self,
        texts: &RingTexts,
        id: u32,
        type_name: TextId,
        (function, file, line): (TextId, TextId, u32),
    ) -> ObjectKind {
        let id = self.before.saturating_add(id);
        self.last = self.last.max(id);
        let owned = |text| texts.get(text).map(str::to_owned);
        ObjectKind {
            pid: self.pid,
            id,
            type_name: owned(type_name).unwrap_or_else(|| ObjectKind::UNREADABLE.to_owned()),
            function: owned(function),
            file: owned(file),
            line: (line > 0).then_some(line),
        }
    }

    /// An edge of a cycle; the signature if it is the last.
    pub(super) fn edge(
        &mut self,
        texts: &RingTexts,
        cycle: u32,
        (at, length): (u16, u16),
        (kind, name): (u32, TextId),
    ) -> Option<Record> {
        if at == 0 {
            self.edges.clear();
        }
        // One before it was lost, which was counted.
        if self.edges.len() != usize::from(at) {
            return None;
        }
        self.edges.push(CycleEdge {
            kind: self.before.saturating_add(kind),
            name: texts.get(name).map(str::to_owned),
        });
        if at + 1 < length {
            return None;
        }
        let id = self.cycles_before.saturating_add(cycle);
        self.last_cycle = self.last_cycle.max(id);
        Some(Record::CycleSignature(CycleSignature {
            pid: self.pid,
            id,
            edges: std::mem::take(&mut self.edges),
        }))
    }

    /// The head of a collection's garbage.
    pub(super) fn head(&mut self, head: &RingGarbage) {
        let open = OpenGarbage {
            garbage: Garbage {
                pid: self.pid,
                tid: head.tid,
                at_ns: head.at_ns,
                interpreter: Some(head.interpreter),
                objects: head.objects,
                cost_ns: Some(head.cost_ns),
                cycles: (head.cycles != RingGarbage::NOT_EXAMINED).then(Vec::new),
                ..Garbage::default()
            },
            missing: head.kinds,
            missing_cycles: match head.cycles {
                RingGarbage::NOT_EXAMINED => 0,
                cycles => cycles,
            },
        };
        // One that is incomplete was counted as lost when its next record was.
        if self.open.len() < MAX_OPEN || self.open.contains_key(&head.tid) {
            self.open.insert(head.tid, open);
        }
    }

    /// More of a thread's kinds.
    pub(super) fn counts(&mut self, tid: u32, counts: &[RingKindCount]) {
        let Some(open) = self.open.get_mut(&tid) else {
            return;
        };
        for count in counts.iter().filter(|count| count.kind != 0) {
            open.garbage.kinds.push(KindCount {
                kind: self.before.saturating_add(count.kind),
                objects: count.objects,
                bytes: (count.bytes != RingKindCount::UNKNOWN).then_some(count.bytes),
            });
            open.missing = open.missing.saturating_sub(1);
        }
    }

    /// One more of a thread's cycles.
    pub(super) fn cycle(&mut self, count: &RingCycleCount) {
        let Some(open) = self.open.get_mut(&count.tid) else {
            return;
        };
        open.garbage.cycles.get_or_insert_default().push(CycleCount {
            cycle: self.cycles_before.saturating_add(count.cycle),
            count: count.count.into(),
            objects: count.objects,
            held_objects: count.held_objects,
            bytes: (count.bytes != RingKindCount::UNKNOWN).then_some(count.bytes),
        });
        open.missing_cycles = open.missing_cycles.saturating_sub(1);
    }

    /// A line that some of a thread's garbage was born at. They come before its cycles.
    pub(super) fn birth(&mut self, tid: u32, kind: u32, samples: u32) {
        if let Some(open) = self.open.get_mut(&tid) {
            open.garbage.births.push(BirthCount {
                kind: self.before.saturating_add(kind),
                samples: samples.into(),
            });
        }
    }

    /// The garbage of a thread's collection, which ended; `None` if it has none, or not all of it
    /// came.
    pub(super) fn of_pause(&mut self, tid: u32, interval: TimeInterval) -> Option<Record> {
        let open = self.open.remove(&tid)?;
        let within = interval.start_ns..=interval.end_ns;
        let is_own = open.is_complete() && within.contains(&open.garbage.at_ns);
        is_own.then_some(Record::Garbage(open.garbage))
    }
}
