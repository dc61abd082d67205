//! `--garbage types` with probes: the objects that collections free, by kind.
//!
//! Owns the kinds of each process and their ids. Garbage arrives before its pause, and is written
//! right before it if the pause is.

use crate::record::kernel::stacks::StackResolver;
use crate::record::output::{RecordOutput, RecordSink as _};
use gctrace_cpython::{FrameLayout, decode_unicode};
use gctrace_ebpf::{
    CapturedFrame, CapturedKind, CodeId, GarbageCounts, GarbageEvent, KindOwner, TypeEvent, TypeId,
};
use gctrace_event::{Garbage, KindCount, KindId, KindName, ObjectKind, Pause, Record};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Most lists of one thread with an open pause: `MAX_DEPTH` of the BPF programs.
const OPEN_PAUSES: usize = 3;

/// The module that Python leaves out of names.
const BUILTINS: &str = "builtins";

/// The garbage of all recorded processes.
#[derive(Default)]
pub(super) struct GarbageKinds {
    processes: HashMap<u32, ProcessKinds>,
    /// Garbage of open pauses, by process and thread.
    open: HashMap<(u32, u32), Vec<GarbageEvent>>,
    /// Processes that exited since the last drain: their last pauses may still be in the ring.
    ended: Vec<u32>,
    /// Pauses that freed something.
    freed: u64,
}

/// The kinds of objects of one process.
#[derive(Default)]
struct ProcessKinds {
    types: HashMap<TypeId, TypeNames>,
    captured: HashMap<(TypeId, Option<KindOwner>), KindId>,
    /// Types and code at several addresses are one kind if they look the same.
    written: HashMap<KindName, KindId>,
}

/// The names of a type, and its first method.
struct TypeNames {
    /// With its module, as `KindName` has it.
    full: String,
    /// Without.
    qualified: String,
    method: Option<CodeId>,
}

impl GarbageKinds {
    /// Stores the name of a type that was seen for the first time.
    pub(super) fn type_seen(&mut self, event: &TypeEvent, layout: Option<&FrameLayout>) {
        let process = self.processes.entry(event.pid).or_default();
        if let Some(names) = TypeNames::of(event, layout) {
            process.types.insert(event.id, names);
        }
    }

    /// Keeps garbage until its pause is known.
    pub(super) fn garbage(&mut self, event: GarbageEvent) {
        let open = self.open.entry((event.garbage.pid, event.garbage.tid)).or_default();
        // If an inner pause is lost, its garbage would stay.
        if open.len() == OPEN_PAUSES {
            open.remove(0);
        }
        open.push(event);
    }

    /// A pause ended: writes its garbage if the pause is written.
    pub(super) fn pause(
        &mut self,
        pause: &Pause,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) {
        self.freed += u64::from(pause.collected > Some(0));
        let thread = (pause.pid, pause.tid);
        let Some(open) = self.open.get_mut(&thread) else { return };
        let within = pause.start_ns..=pause.end_ns;
        let examined: Vec<GarbageEvent> =
            open.extract_if(.., |event| within.contains(&event.garbage.at_ns)).collect();
        if open.is_empty() {
            self.open.remove(&thread);
        }
        if output.omits(pause) {
            return;
        }
        let process = self.processes.entry(pause.pid).or_default();
        for event in examined {
            process.write(event, pause.interpreter, stacks, output);
        }
    }

    /// Why no garbage was examined although there was some and it was looked for: the probe is not
    /// where its list is.
    pub(super) fn fault(&self, counts: GarbageCounts) -> Option<&'static str> {
        let found = counts.examined + counts.skipped;
        if self.freed == 0 || counts.empty == 0 || found > 0 {
            return None;
        }
        Some("what collections free was not recorded: its list was not found in this interpreter")
    }

    /// The process exited.
    pub(super) fn ended(&mut self, pid: u32) {
        self.ended.push(pid);
    }

    /// Forgets exited processes, once every event up to their exit was handled.
    pub(super) fn forget_ended(&mut self) {
        for pid in self.ended.drain(..) {
            self.processes.remove(&pid);
            self.open.retain(|(of, _), _| *of != pid);
        }
    }
}

impl ProcessKinds {
    fn write(
        &mut self,
        event: GarbageEvent,
        interpreter: Option<i64>,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) {
        let mut counts: HashMap<KindId, KindCount> = HashMap::new();
        for captured in &event.kinds {
            let kind = self.id(event.garbage.pid, captured, stacks, output);
            let count =
                counts.entry(kind).or_insert(KindCount { kind, objects: 0, bytes: Some(0) });
            gctrace_units::add_to(&mut count.objects, captured.objects);
            count.bytes = match (count.bytes, captured.bytes) {
                (Some(one), Some(other)) => Some(gctrace_units::sum([one, other])),
                _ => None,
            };
        }
        let mut kinds: Vec<KindCount> = counts.into_values().collect();
        kinds.sort_by_key(|count| (Reverse(count.objects), count.kind));
        output.write(&Record::Garbage(Garbage { interpreter, kinds, ..event.garbage }));
    }

    /// The id of a kind; a new kind is written.
    fn id(
        &mut self,
        pid: u32,
        captured: &CapturedKind,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) -> KindId {
        let key = (captured.type_id, captured.owner);
        if let Some(id) = self.captured.get(&key) {
            return *id;
        }
        let name = self.types.get(&captured.type_id);
        let name = if let Some(names) = name { &names.full } else { KindName::UNREADABLE };
        let mut kind = KindName { type_name: name.to_owned(), ..KindName::default() };
        let place = |frame| stacks.place(pid, frame);
        let place = match captured.owner {
            Some(KindOwner::Code(frame)) => place(frame),
            Some(KindOwner::Class(class)) => {
                let names = self.types.get(&class);
                kind.function = names.map(|names| names.qualified.clone());
                let method = names.and_then(|names| names.method);
                method.and_then(|code| place(CapturedFrame { code, offset: None }))
            }
            None => None,
        };
        if let Some(place) = place {
            kind.function.get_or_insert(place.function.to_string());
            kind.file = Some(place.file.to_string());
            kind.line = place.line;
        }
        let id = match self.written.get(&kind) {
            Some(id) => *id,
            None => {
                let id = self.written.len() as KindId + 1;
                self.written.insert(kind.clone(), id);
                output.write(&Record::ObjectKind(ObjectKind { pid, id, name: kind }));
                id
            }
        };
        self.captured.insert(key, id);
        id
    }
}

impl TypeNames {
    /// `None` if nothing of them could be read.
    fn of(event: &TypeEvent, layout: Option<&FrameLayout>) -> Option<Self> {
        let text = |bytes: &[u8]| decode_unicode(bytes, layout?);
        // Of types in C it has the module.
        let name = String::from_utf8_lossy(&event.name);
        let (own_module, last) = match name.rsplit_once('.') {
            Some((module, last)) => (Some(module.to_owned()), last),
            None => (None, &*name),
        };
        let Some(qualified) = text(&event.qualname) else {
            if name.is_empty() {
                return None;
            }
            let (qualified, full) = (last.to_owned(), name.to_string());
            return Some(Self { qualified, full, method: event.method });
        };
        let module = text(&event.module).or(own_module);
        let full = match module {
            Some(module) if module != BUILTINS => format!("{module}.{qualified}"),
            _ => qualified.clone(),
        };
        Some(Self { full, qualified, method: event.method })
    }
}
