//! Which items a summary can have: those that a trace can.
//!
//! Owns what the reader of traces never returns, and the figures of a report therefore need not
//! expect: a summary with the right hash may still be of anybody.

use crate::read::{DecodedItem, LONGEST_NS, MAX_COUNT};
use crate::{Counters, EventSource, Pause, Record};

/// Whether the reader of a trace could have returned it, judged by its times and counts.
pub(super) fn is_possible(item: &DecodedItem<'_>) -> bool {
    match item {
        DecodedItem::Record(record) => {
            times(record).is_none_or(|(start_ns, end_ns)| is_span(start_ns, end_ns))
                && match record {
                    Record::Pause(pause) => is_pause(pause),
                    Record::Counters(counters) => {
                        counters.since_ns <= counters.at_ns && are_counts(&counters.counters)
                    }
                    _ => true,
                }
        }
        DecodedItem::Work { start_ns, end_ns, .. } => start_ns <= end_ns,
        _ => true,
    }
}

/// Starts and lengths are read.
fn is_span(start_ns: u64, end_ns: u64) -> bool {
    let length_ns = end_ns.checked_sub(start_ns);
    start_ns <= LONGEST_NS && length_ns.is_some_and(|length_ns| length_ns <= LONGEST_NS)
}

fn is_pause(pause: &Pause) -> bool {
    let counts = [
        pause.collected,
        pause.uncollectable,
        pause.cpu_ns,
        pause.stop_the_world_ns,
        pause.oldest_objects,
        pause.heap_objects,
        pause.young_count,
        pause.freed_bytes,
    ];
    let source = match pause.source {
        EventSource::Both { start_ns, end_ns } => is_span(start_ns, end_ns),
        EventSource::Probes | EventSource::Injected => true,
    };
    source
        && matches!(pause.generation, 0..=2 | Pause::UNKNOWN_GENERATION)
        && counts.into_iter().flatten().all(|count| count < MAX_COUNT)
        && are_counts(&pause.counters)
}

fn are_counts(counters: &Counters) -> bool {
    counters.iter().all(|(_, count)| count < MAX_COUNT)
}

/// Start and end of a record, twice the same of those with one time; `None` without any.
fn times(record: &Record) -> Option<(u64, u64)> {
    let once = |at_ns: u64| Some((at_ns, at_ns));
    match record {
        Record::Pause(pause) => Some((pause.start_ns, pause.end_ns)),
        Record::CudaCall(cuda_call) => Some((cuda_call.start_ns, cuda_call.end_ns)),
        Record::GpuOp(gpu_op) => Some((gpu_op.start_ns, gpu_op.end_ns)),
        Record::Annotation(annotation) => Some((annotation.start_ns, annotation.end_ns)),
        Record::HostCode(code) => Some((code.start_ns, code.end_ns)),
        Record::GpuSync(gpu_sync) => Some((gpu_sync.start_ns, gpu_sync.end_ns)),
        Record::Step(step) => Some((step.start_ns, step.end_ns)),
        Record::CudaLaunches(cuda_launches) => {
            Some((cuda_launches.first_ns, cuda_launches.last_ns))
        }
        Record::OmittedGpuWork(work) => Some((work.since_ns, work.until_ns)),
        Record::Pressure(pressure) => Some((pressure.since_ns, pressure.at_ns)),
        Record::Process(process) => once(process.since_ns),
        Record::ProcessExit(process_exit) => once(process_exit.at_ns),
        Record::Settings(settings) => once(settings.at_ns),
        Record::Counters(counters) => once(counters.at_ns),
        Record::Allocations(allocations) => once(allocations.at_ns),
        Record::Garbage(garbage) => once(garbage.at_ns),
        Record::Called(called) => once(called.at_ns),
        Record::OffCpu(off) => Some((off.at_ns, off.end_ns())),
        Record::CpuSamples(samples) => Some((samples.at_ns, samples.until_ns)),
        Record::Layers(layers) => once(layers.at_ns),
        Record::GpuDevice(gpu_device) => once(gpu_device.at_ns),
        Record::GpuSample(gpu_sample) => once(gpu_sample.at_ns),
        Record::DeviceMemory(device_memory) => once(device_memory.at_ns),
        Record::AliveLines(alive) => once(alive.at_ns),
        Record::EmptyCache(call) => Some((call.start_ns, call.end_ns)),
        Record::PauseMemory(pause_memory) => once(pause_memory.start_ns),
        Record::Note(note) => once(note.at_ns),
        Record::End(end) => once(end.ended_ns),
        Record::Frame(_)
        | Record::ObjectKind(_)
        | Record::CycleSignature(_)
        | Record::ThreadName { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::TraceCompletion;
    use crate::summary::{SummaryReader, SummarySource, SummaryWriter};

    /// Whether a summary of a pause is read.
    fn is_read(pause: Pause) -> bool {
        let mut writer = SummaryWriter::default();
        writer.add(DecodedItem::Record(Record::Pause(pause)));
        let source = SummarySource::of("t.json", &b""[..]).unwrap();
        let file = writer.finish(TraceCompletion::default(), source, None);
        let mut reader = SummaryReader::new("t.gcsum", std::io::Cursor::new(file)).unwrap();
        match reader.next_item() {
            Ok(item) => item.is_some(),
            Err(error) => {
                assert!(error.to_string().contains("an item that no trace can have"));
                false
            }
        }
    }

    #[test]
    fn impossible_pauses_are_refused() {
        let possible = Pause {
            start_ns: 5,
            end_ns: LONGEST_NS,
            generation: 2,
            collected: Some(MAX_COUNT - 1),
            ..Pause::default()
        };
        assert!(is_read(Pause::default()) && is_read(possible.clone()));
        let impossible: [fn(&mut Pause); 4] = [
            |pause| pause.end_ns = 4,
            |pause| pause.end_ns = u64::MAX,
            |pause| pause.generation = 3,
            |pause| pause.collected = Some(MAX_COUNT),
        ];
        for change in impossible {
            let mut pause = possible.clone();
            change(&mut pause);
            assert!(!is_read(pause.clone()), "{pause:?}");
        }
    }
}
