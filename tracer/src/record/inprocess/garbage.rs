//! The garbage of collections, put together from the records of a ring. Pure.

use super::texts::RingTexts;
use gctrace_event::Garbage;
use gctrace_event::KindCount;
use gctrace_event::KindId;
use gctrace_event::ObjectKind;
use gctrace_event::Record;
use gctrace_ring::RingGarbage;
use gctrace_ring::RingKindCount;
use gctrace_ring::TextId;
use std::collections::HashMap;

/// Threads whose records are waited for: only those that collect at this moment have any.
const MAX_OPEN: usize = 1 << 10;

/// Garbage whose kinds have not all come, by thread.
#[derive(Debug, Default)]
pub(super) struct GarbageRecords {
    pid: u32,
    /// Kinds of earlier rings of the process: numbers start after them.
    before: KindId,
    /// The last number used.
    last: KindId,
    open: HashMap<u32, OpenGarbage>,
}

#[derive(Debug)]
struct OpenGarbage {
    garbage: Garbage,
    /// Number of kinds that are still to come.
    missing: u32,
}

impl GarbageRecords {
    /// `before`: the last number that an earlier ring of the process used.
    pub(super) fn new(pid: u32, before: KindId) -> Self {
        Self {
            pid,
            before,
            last: before,
            ..Self::default()
        }
    }

    /// The last number used.
    pub(super) fn last_kind(&self) -> KindId {
        self.last
    }

    /// A kind of object.
    pub(super) fn kind(
        &mut self,
        texts: &RingTexts,
        id: u32,
        type_name: TextId,
        (function, file, line): (TextId, TextId, u32),
    ) -> Record {
        let id = self.before.saturating_add(id);
        self.last = self.last.max(id);
        let owned = |text| texts.get(text).map(str::to_owned);
        Record::ObjectKind(ObjectKind {
            pid: self.pid,
            id,
            type_name: owned(type_name).unwrap_or_else(|| ObjectKind::UNREADABLE.to_owned()),
            function: owned(function),
            file: owned(file),
            line: (line > 0).then_some(line),
        })
    }

    /// The head of a collection's garbage; complete if no kinds follow.
    pub(super) fn head(&mut self, head: &RingGarbage) -> Option<Record> {
        let open = OpenGarbage {
            garbage: Garbage {
                pid: self.pid,
                tid: head.tid,
                at_ns: head.at_ns,
                interpreter: Some(head.interpreter),
                objects: head.objects,
                cost_ns: Some(head.cost_ns),
                ..Garbage::default()
            },
            missing: head.kinds,
        };
        if open.missing == 0 {
            return Some(Record::Garbage(open.garbage));
        }
        // One that is incomplete was counted as lost when its next record was.
        if self.open.len() < MAX_OPEN || self.open.contains_key(&head.tid) {
            self.open.insert(head.tid, open);
        }
        None
    }

    /// More of a thread's kinds; the record if these were the last.
    pub(super) fn counts(&mut self, tid: u32, counts: &[RingKindCount]) -> Option<Record> {
        let open = self.open.get_mut(&tid)?;
        for count in counts.iter().filter(|count| count.kind != 0) {
            open.garbage.kinds.push(KindCount {
                kind: self.before.saturating_add(count.kind),
                objects: count.objects,
                bytes: (count.bytes != RingKindCount::UNKNOWN).then_some(count.bytes),
            });
            open.missing = open.missing.saturating_sub(1);
        }
        if open.missing > 0 {
            return None;
        }
        let complete = self.open.remove(&tid)?;
        Some(Record::Garbage(complete.garbage))
    }
}
