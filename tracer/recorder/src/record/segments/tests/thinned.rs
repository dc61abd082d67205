//! Records beside pauses beyond the bytes of a day: what a pause called is counted with it, samples stay exact.

use super::{HOUR_NS, SECOND_NS, Simulated, keeping};
use crate::args::{DailyLimit, KeepConfig};
use crate::files::segments::segments_in;
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{
    Allocations, Called, CpuSamples, DeviceMemory, Garbage, LayerRow, Layers, LayersRemark,
    NamedMarker, OmittedPauses, Record, SpacedClass, StepMark, TraceEnd,
};
use std::collections::BTreeMap;
use std::path::Path;

/// What was recorded, or is in segments: records with their counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    pauses: u64,
    called: OmittedPauses,
    /// Outside of collections and in them.
    samples: [u64; 2],
    memory: u64,
    layers: u64,
    allocations: u64,
    steps: u64,
    backward: OmittedPauses,
}

/// What all segments have, what they state to be only counted, and records of pauses without a pause after them.
fn read(path: &Path) -> (Sums, BTreeMap<String, OmittedPauses>, OmittedPauses) {
    let (mut sums, mut others) = (Sums::default(), BTreeMap::<String, OmittedPauses>::new());
    let mut pauses = OmittedPauses::default();
    for (_, segment) in segments_in(path) {
        let mut reader = TraceReader::open(&segment).unwrap();
        // Those of a pause come right before it.
        let mut of_pause: Vec<u64> = Vec::new();
        let mut has_rows = false;
        while let Some(item) = reader.next_item().unwrap() {
            let DecodedItem::Record(record) = item else { continue };
            match record {
                Record::Called(called) => {
                    sums.called.add(OmittedPauses::of(called.calls, called.time_ns));
                    of_pause.push(called.at_ns);
                }
                Record::Garbage(garbage) => of_pause.push(garbage.at_ns),
                Record::Pause(pause) => {
                    let span = pause.start_ns..=pause.end_ns;
                    assert!(of_pause.drain(..).all(|at_ns| span.contains(&at_ns)));
                    sums.pauses += 1;
                }
                Record::CpuSamples(samples) => {
                    sums.samples[usize::from(samples.in_pause)] += samples.count;
                }
                Record::DeviceMemory(_) => sums.memory += 1,
                Record::Layers(layers) => {
                    has_rows |= layers.rows.is_some();
                    assert!(has_rows, "the first one of a segment has its rows");
                    sums.layers += 1;
                }
                Record::Step(StepMark {
                    marker: NamedMarker::Backward, start_ns, end_ns, ..
                }) => {
                    sums.backward.add(OmittedPauses::of(1, end_ns - start_ns));
                }
                Record::Step(_) => sums.steps += 1,
                Record::Allocations(allocations) => sums.allocations = allocations.hits,
                Record::End(end) => {
                    assert!(of_pause.is_empty());
                    pauses.add(end.omitted);
                    for (name, omitted) in end.omitted_others {
                        others.entry(name).or_default().add(omitted);
                    }
                }
                _ => {}
            }
        }
    }
    (sums, others, pauses)
}

/// A program with a `__del__` in half of its collections, of which a quarter were examined, 30 samples and a step a second.
struct Program {
    recorder: Simulated,
    truth: Sums,
}

impl Program {
    fn second(&mut self, second: u64) {
        for number in 0..10 {
            self.recorder.pass(SECOND_NS / 10);
            let now_ns = self.recorder.now.monotonic_ns;
            let one = second * 10 + number;
            // With what it called, all pauses are equally long.
            let own_ns = 10_000 + one * 7919 % 400_000;
            let time_ns = 1_000_000 - own_ns;
            let called = Called {
                pid: 7,
                tid: 7,
                at_ns: now_ns - own_ns,
                calls: 3,
                time_ns,
                stack: Some(2),
                ..Called::default()
            };
            if one.is_multiple_of(2) {
                self.recorder.trace.write(&Record::Called(called));
                self.truth.called.add(OmittedPauses::of(3, time_ns));
            }
            if one.is_multiple_of(4) {
                let at_ns = now_ns - own_ns / 2;
                let garbage =
                    Garbage { pid: 7, tid: 7, at_ns, objects: one % 90, ..Garbage::default() };
                self.recorder.trace.write(&Record::Garbage(garbage));
            }
            self.recorder.pause(own_ns);
            self.truth.pauses += 1;
            for sample in 0..3u64 {
                let in_pause = sample == 2;
                let at_ns = now_ns + sample;
                let count = 1 + one % 3;
                self.truth.samples[usize::from(in_pause)] += count;
                self.recorder.trace.write(&Record::CpuSamples(CpuSamples {
                    pid: 7,
                    tid: 8 + sample as u32,
                    at_ns,
                    until_ns: at_ns,
                    count,
                    in_pause,
                    stack: Some(2),
                    ..CpuSamples::default()
                }));
            }
            let memory = DeviceMemory {
                pid: 7,
                tid: 7,
                at_ns: now_ns,
                device_type: 1,
                device: 0,
                bytes: 512,
                allocated: one << 9,
                reserved: 1 << 30,
            };
            self.recorder.trace.write(&Record::DeviceMemory(memory));
            self.truth.memory += 1;
        }
        let at_ns = self.recorder.now.monotonic_ns;
        self.truth.allocations = second;
        self.recorder.trace.write(&Record::Allocations(Allocations {
            pid: 7,
            at_ns,
            hits: second,
            stacks: vec![(2, second)],
            ..Allocations::default()
        }));
        self.layers(second, at_ns, Vec::new());
        let length_ns = 1_000_000 + second * 7919 % 100_000;
        for (marker, start_ns, end_ns) in [
            (NamedMarker::Backward, at_ns - length_ns, at_ns),
            (NamedMarker::Optimizer("SGD".into()), at_ns, at_ns),
        ] {
            let mark = StepMark { pid: 7, tid: 7, marker, start_ns, end_ns, cpu_ns: None };
            self.recorder.trace.write(&Record::Step(mark));
        }
        self.truth.steps += 1;
        self.truth.backward.add(OmittedPauses::of(1, length_ns));
    }

    /// Of a step like the one before but for the first.
    fn layers(&mut self, step: u64, at_ns: u64, remarks: Vec<LayersRemark>) {
        let row = LayerRow { path: format!("block.{step}"), ..LayerRow::default() };
        let rows = (step == 0).then(|| vec![row]);
        self.truth.layers += 1;
        let layers = Layers { pid: 7, at_ns, step, rows, remarks, ..Layers::default() };
        self.recorder.trace.write(&Record::Layers(layers));
    }
}

#[test]
fn a_day_holds_with_what_collections_call_and_free_and_samples() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    // An hour of them is 125,000 bytes; that of this program some 2 million. Nothing is deleted.
    let keep = KeepConfig { per_day: DailyLimit(Some(3_000_000)), ..keeping(None, Some(800_000)) };
    let recorder = Simulated::start(&path, &keep);
    let mut program = Program { recorder, truth: Sums::default() };
    for second in 0..2 * HOUR_NS / SECOND_NS {
        program.second(second);
    }
    let Program { mut recorder, mut truth } = program;
    let at_ns = recorder.now.monotonic_ns;
    let remarks = vec![LayersRemark::AtEnd];
    recorder.trace.write(&Record::Layers(Layers { pid: 7, at_ns, remarks, ..Layers::default() }));
    truth.layers += 1;
    recorder.trace.finish(TraceEnd { ended_ns: at_ns, ..TraceEnd::default() }).unwrap();
    let bytes: u64 =
        segments_in(&path).iter().map(|(_, file)| file.metadata().unwrap().len()).sum();
    let (written, others, pauses) = read(&path);
    // Two hours, and what an hour saves.
    assert!((250_000..=390_000).contains(&bytes), "{bytes}");
    let omitted = |name: &str| others.get(name).copied().unwrap_or_default();
    assert!(written.called.count.0 < truth.called.count.0 / 2 && written.called.count.0 > 1000);
    let all_of = |mut written: OmittedPauses, name: &str| {
        written.add(omitted(name));
        written
    };
    assert!(written.backward.count.0 < truth.backward.count.0 * 9 / 10, "{written:?}");
    let all = Sums {
        pauses: written.pauses + pauses.count.0,
        called: all_of(written.called, TraceEnd::CALLED),
        backward: all_of(written.backward, TraceEnd::BACKWARD),
        memory: written.memory + omitted(SpacedClass::Memory.name()).count.0,
        layers: written.layers + omitted(SpacedClass::Layers.name()).count.0,
        ..written
    };
    assert_eq!(all, truth, "{others:?}");
    let moved = omitted(SpacedClass::Samples.name()).count.0;
    assert!(moved > truth.samples[0] / 4 && moved < truth.samples[0] + truth.samples[1], "{moved}");
}
