//! A training program whose steps leave cycles, as records.

use crate::reports::{MS, START, pause, process};
use gctrace_event::{
    BirthCount, CycleCount, CycleEdge, CycleSignature, Garbage, GcSettings, KindCount, KindName,
    NamedMarker, ObjectKind, Pause, Record, StepMark,
};

/// Process id of the program.
pub const PID: u32 = 7;
/// Closures that each step leaves: a cell, a function and its tuple of cells, which hold a tensor.
pub const PER_STEP: u64 = 6;
/// Steps from one collection to the next, in halves.
const STEP_HALVES: u64 = 5;
/// When the first step starts, and the length of each, in ms.
const FIRST_MS: u64 = 500;
const STEP_MS: u64 = 10;

/// The program, and how it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct ClosuresRun {
    /// Steps; an even number shows whole figures.
    pub steps: u64,
    /// One collection in `every` is examined; full ones always are.
    pub every: u64,
    /// Whether cycles were examined, too.
    pub cycles: bool,
    /// Whether each step leaves the same; otherwise more and more.
    pub constant: bool,
}

impl Default for ClosuresRun {
    fn default() -> Self {
        Self { steps: 200, every: 1, cycles: true, constant: true }
    }
}

/// The kinds of its garbage: cell, function, tuple, tensor, and an exception of the imports.
pub fn kinds() -> [ObjectKind; 5] {
    let kind = |id, name| ObjectKind { pid: PID, id, name };
    let plain =
        |type_name: &str| KindName { type_name: type_name.to_owned(), ..Default::default() };
    let closure = |type_name| KindName {
        function: Some("Trainer.step.<locals>.closure".to_owned()),
        file: Some("/srv/train.py".to_owned()),
        line: Some(10),
        ..plain(type_name)
    };
    [
        kind(1, closure("cell")),
        kind(2, closure("function")),
        kind(3, plain("tuple")),
        kind(4, plain("torch.Tensor")),
        kind(5, plain("ModuleNotFoundError")),
    ]
}

/// The cycle of a closure.
pub fn closure_cycle() -> CycleSignature {
    let edge = |kind, name: &str| CycleEdge { kind, name: Some(name.to_owned()) };
    CycleSignature {
        pid: PID,
        id: 1,
        edges: vec![edge(1, ".cell_contents"), edge(2, ".__closure__"), edge(3, "[]")],
    }
}

fn garbage(pause: &Pause, closures: u64, errors: u64, cycles: bool) -> Garbage {
    let count = |kind, objects, each| KindCount { kind, objects, bytes: Some(objects * each) };
    let mut kinds = vec![
        count(1, closures, 40),
        count(2, closures, 136),
        count(3, closures, 48),
        count(4, closures, 80),
        count(5, errors, 88),
    ];
    kinds.retain(|count| count.objects > 0);
    let cycle_count = CycleCount {
        cycle: 1,
        count: closures,
        objects: 3 * closures,
        held_objects: closures,
        bytes: Some(closures * (40 + 136 + 48 + 80)),
    };
    Garbage {
        pid: PID,
        tid: PID,
        at_ns: pause.start_ns + pause.duration_ns() / 2,
        interpreter: Some(0),
        objects: 4 * closures + errors,
        kinds,
        births: Vec::new(),
        cycles: cycles.then(|| if closures > 0 { vec![cycle_count] } else { Vec::new() }),
        cost_ns: Some(1_000),
    }
}

/// Its records: imports whose collections free exceptions, then steps with a collection of 1 ms
/// every two and a half of them, every tenth of 5 ms and full. Garbage comes before its pause.
pub fn records(run: ClosuresRun) -> Vec<Record> {
    let mut records = vec![
        process(PID, 0, "generational"),
        Record::Settings(GcSettings {
            pid: PID,
            at_ns: START,
            enabled: Some(true),
            thresholds: [200, 10, 10],
            stack: None,
        }),
    ];
    records.extend(kinds().map(Record::ObjectKind));
    records.push(Record::CycleSignature(closure_cycle()));
    let collect = |from_ms: u64, index: u64, closures, errors, records: &mut Vec<Record>| {
        let full = index % 10 == 9;
        let pause = Pause {
            generation: if full { 2 } else { 0 },
            collected: Some(4 * closures + errors),
            oldest_objects: Some(100_000),
            young_count: Some(201),
            ..pause(PID, from_ms, from_ms + if full { 5 } else { 1 })
        };
        if full || index.is_multiple_of(run.every) {
            let garbage = garbage(&pause, closures, errors, run.cycles);
            records.push(Record::Garbage(garbage));
        }
        records.push(Record::Pause(pause));
    };
    for index in 0..4 {
        collect(100 * index, index, 0, 50, &mut records);
    }
    let mut collections = 0;
    for half in 0..=2 * run.steps {
        let at_ms = FIRST_MS + half * STEP_MS / 2;
        if half % 2 == 0 {
            records.push(Record::Step(StepMark {
                pid: PID,
                tid: PID,
                marker: NamedMarker::Optimizer("SGD".to_owned()),
                start_ns: START + at_ms * MS,
                end_ns: START + at_ms * MS,
                cpu_ns: None,
            }));
        }
        if half % STEP_HALVES == STEP_HALVES - 1 {
            collections += 1;
            let closures = if run.constant { PER_STEP * STEP_HALVES / 2 } else { collections };
            collect(at_ms, collections, closures, 0, &mut records);
        }
    }
    records
}

/// The same; of each ten tensors one was sampled, and three in four of these were born in
/// `/srv/model.py:31`, the others in line 40.
pub fn with_births(mut records: Vec<Record>) -> Vec<Record> {
    let born = |id, function: &str, line| {
        Record::ObjectKind(ObjectKind {
            pid: PID,
            id,
            name: KindName {
                type_name: "torch.Tensor".to_owned(),
                function: Some(function.to_owned()),
                file: Some("/srv/model.py".to_owned()),
                line: Some(line),
            },
        })
    };
    for record in &mut records {
        let Record::Garbage(garbage) = record else {
            continue;
        };
        let tensors = garbage.kinds.iter().find(|kind| kind.kind == 4);
        let samples = tensors.map_or(0, |tensor| tensor.objects / 10);
        let birth = |kind, samples| BirthCount { kind, samples };
        let second = samples / 4;
        garbage.births = vec![birth(6, samples - second), birth(7, second)];
        garbage.births.retain(|birth| birth.samples > 0);
    }
    let at = records.iter().position(|record| matches!(record, Record::Garbage(_)));
    let lines = [born(6, "Model.build", 31), born(7, "Model.grow", 40)];
    records.splice(at.unwrap_or(0)..at.unwrap_or(0), lines);
    records
}

/// When the recording of this run ends, in ms.
pub fn end_ms(run: ClosuresRun) -> u64 {
    FIRST_MS + run.steps * STEP_MS + 500
}
