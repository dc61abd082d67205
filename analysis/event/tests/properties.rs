//! Properties of every trace: what was written is read back, and every prefix of it is readable.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking"
)]

#[path = "strategies/garbage.rs"]
mod garbage;
#[path = "strategies/gpu_work.rs"]
mod gpu_work;

use gctrace_event::Collector;
use gctrace_event::Counter;
use gctrace_event::Counters;
use gctrace_event::EventSource;
use gctrace_event::ExaminedProcesses;
use gctrace_event::FORMAT;
use gctrace_event::Frame;
use gctrace_event::GcReason;
use gctrace_event::GcSettings;
use gctrace_event::GpuDevice;
use gctrace_event::GpuProcess;
use gctrace_event::GpuSample;
use gctrace_event::Interpreter;
use gctrace_event::Note;
use gctrace_event::OmittedPauses;
use gctrace_event::Pause;
use gctrace_event::Pressure;
use gctrace_event::ProbeCost;
use gctrace_event::Process;
use gctrace_event::ProcessCounters;
use gctrace_event::ProcessExit;
use gctrace_event::ProcessOrigin;
use gctrace_event::Record;
use gctrace_event::RecordingMode;
use gctrace_event::TraceEnd;
use gctrace_event::TraceHeader;
use gctrace_event::read::DecodedItem;
use gctrace_event::read::EventReader;
use gctrace_event::read::TraceInput;
use gctrace_event::read::TraceReader;
use gctrace_event::summary::SummaryHeader;
use gctrace_event::summary::SummaryReader;
use gctrace_event::summary::SummarySource;
use gctrace_event::summary::SummaryWriter;
use proptest::collection::btree_map;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::collections::HashSet;
use std::io::Cursor;
use std::io::Write;
use test_kit::records::written;

/// Times of a machine that has been up for at most some 280 years.
fn time() -> impl Strategy<Value = u64> {
    0..(1u64 << 62)
}

fn count() -> impl Strategy<Value = Option<u64>> {
    of(0..(1u64 << 62))
}

fn reason() -> impl Strategy<Value = GcReason> {
    prop_oneof![
        Just(GcReason::Automatic),
        Just(GcReason::Manual),
        Just(GcReason::Shutdown),
        Just(GcReason::Unknown),
    ]
}

prop_compose! {
    fn counters()(
        values in vec((prop::sample::select(&Counter::ALL[..]), 0..(1u64 << 62)), 0..12),
        (scaled, migrated) in any::<(bool, bool)>(),
    ) -> Counters {
        let mut counters = Counters::default();
        (counters.scaled, counters.migrated) = (scaled, migrated);
        values.iter().for_each(|(counter, value)| counters.set(*counter, *value));
        counters
    }
}

prop_compose! {
    fn frame()(
        (id, parent, line) in any::<(u32, Option<u32>, Option<u32>)>(),
        (function, file) in any::<(String, String)>(),
    ) -> Record {
        Record::Frame(Frame { id, parent, function, file, line })
    }
}

prop_compose! {
    fn process_counters()(
        pid in any::<u32>(),
        (since_ns, length_ns) in (time(), 0..(1u64 << 61)),
        counters in counters(),
    ) -> Record {
        let at_ns = since_ns + length_ns;
        Record::Counters(ProcessCounters { pid, since_ns, at_ns, counters })
    }
}

prop_compose! {
    fn pressure()(
        pid in any::<u32>(),
        (since_ns, length_ns) in (time(), 0..(1u64 << 61)),
        (collections, net_containers) in any::<(u64, u64)>(),
        counts in any::<Option<[u32; 3]>>(),
        (arenas_mapped, arenas_unmapped) in any::<(Option<u64>, Option<u64>)>(),
        resident_bytes in any::<Option<u64>>(),
    ) -> Record {
        Record::Pressure(Pressure {
            pid, since_ns, at_ns: since_ns + length_ns, collections, net_containers, counts,
            arenas_mapped, arenas_unmapped, resident_bytes,
        })
    }
}

prop_compose! {
    fn gpu_device()(
        (index, at_ns, mig) in (any::<u32>(), time(), any::<bool>()),
        (uuid, name, driver) in any::<(Option<String>, Option<String>, Option<String>)>(),
        memory_total_bytes in any::<Option<u64>>(),
    ) -> Record {
        Record::GpuDevice(GpuDevice { index, at_ns, uuid, name, memory_total_bytes, driver, mig })
    }
}

prop_compose! {
    fn gpu_sample()(
        (device, at_ns) in (0..3u32, time()),
        (utilization_percent, memory_utilization_percent) in any::<(Option<u32>, Option<u32>)>(),
        (memory_used_bytes, power_mw) in any::<(Option<u64>, Option<u32>)>(),
        (sm_clock_mhz, memory_clock_mhz) in any::<(Option<u32>, Option<u32>)>(),
        (pcie_rx_kb_per_s, pcie_tx_kb_per_s) in any::<(Option<u32>, Option<u32>)>(),
        throttle_reasons in of(vec(any::<String>(), 0..3)),
        processes in of(vec(any::<(u32, Option<u64>)>(), 0..3)),
    ) -> Record {
        let process = |(pid, memory_bytes)| GpuProcess { pid, memory_bytes };
        let processes = processes.map(|all| all.into_iter().map(process).collect());
        Record::GpuSample(GpuSample {
            device, at_ns, utilization_percent, memory_utilization_percent, memory_used_bytes,
            power_mw, sm_clock_mhz, memory_clock_mhz, pcie_rx_kb_per_s, pcie_tx_kb_per_s,
            throttle_reasons, processes,
        })
    }
}

fn source() -> impl Strategy<Value = EventSource> {
    let both = (time(), 0..(1u64 << 61)).prop_map(|(start_ns, length_ns)| EventSource::Both {
        start_ns,
        end_ns: start_ns + length_ns,
    });
    prop_oneof![Just(EventSource::Probes), Just(EventSource::Injected), both]
}

prop_compose! {
    fn pause()(
        (pid, tid) in any::<(u32, u32)>(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        generation in prop_oneof![0..3u8, Just(Pause::UNKNOWN_GENERATION)],
        reason in reason(),
        (collected, uncollectable, cpu_ns) in (count(), count(), count()),
        (stop_the_world_ns, oldest_objects, heap_objects) in (count(), count(), count()),
        interpreter in any::<Option<i64>>(),
        unfinished in any::<bool>(),
        (stack, young_count, counters) in (any::<Option<u32>>(), count(), counters()),
        source in source(),
    ) -> Record {
        Record::Pause(Pause {
            pid, tid, start_ns, end_ns: start_ns + length_ns, generation, reason, collected,
            uncollectable, interpreter, cpu_ns, stop_the_world_ns, oldest_objects, heap_objects,
            unfinished, stack, young_count, counters, source,
        })
    }
}

prop_compose! {
    fn interpreter()(
        (file, version, found_by) in any::<(String, String, String)>(),
        collector in prop_oneof![
            Just(Collector::Generational), Just(Collector::Incremental),
            Just(Collector::FreeThreaded), "[A-Z]*".prop_map(Collector::Other),
        ],
        free_threaded in any::<bool>(),
        build_id in any::<Option<String>>(),
    ) -> Interpreter {
        Interpreter { file, version, free_threaded, collector, found_by, build_id }
    }
}

prop_compose! {
    fn process()(
        pid in any::<u32>(),
        (namespace_pid, parent, rank) in any::<(Option<u32>, Option<u32>, Option<u32>)>(),
        origin in prop_oneof![Just(ProcessOrigin::Launched), Just(ProcessOrigin::Child), Just(ProcessOrigin::Attached)],
        since_ns in time(),
        command in vec(any::<String>(), 0..4),
        interpreter in of(interpreter()),
        torch in of(any::<String>()),
        memory_limit_bytes in any::<Option<u64>>(),
    ) -> Record {
        Record::Process(Process {
            pid, namespace_pid, parent, origin, since_ns, command, rank, interpreter, torch,
            memory_limit_bytes,
        })
    }
}

prop_compose! {
    fn end()(
        ended_ns in time(),
        why in any::<String>(),
        exit_code in any::<Option<i32>>(),
        lost in btree_map(any::<String>(), any::<u64>(), 0..3),
        processes in of((any::<u64>(), any::<Option<u64>>(), btree_map(any::<String>(), any::<u64>(), 0..3))),
        omitted in any::<(u64, u64)>(),
        probes in vec((any::<String>(), any::<u64>(), of(0.0..1e6f64)), 0..3),
    ) -> TraceEnd {
        TraceEnd {
            ended_ns, why, exit_code, lost,
            processes: processes
                .map(|(python, other, unexamined)| ExaminedProcesses { python, other, unexamined }),
            omitted: OmittedPauses { count: omitted.0, total_ns: omitted.1 },
            probes: probes
                .into_iter()
                .map(|(probe, hits, ns_per_hit)| ProbeCost { probe, hits, ns_per_hit })
                .collect(),
        }
    }
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        4 => pause(),
        1 => process(),
        2 => frame(),
        1 => process_counters(),
        1 => pressure(),
        1 => gpu_device(),
        2 => gpu_sample(),
        9 => gpu_work::record(),
        3 => garbage::record(),
        1 => (any::<u32>(), time(), any::<Option<i32>>(), any::<Option<i32>>()).prop_map(
            |(pid, at_ns, code, signal)| {
                Record::ProcessExit(ProcessExit { pid, at_ns, code, signal })
            }
        ),
        1 => (any::<u32>(), any::<u32>(), any::<String>())
            .prop_map(|(pid, tid, name)| Record::ThreadName { pid, tid, name }),
        1 => (any::<u32>(), time(), any::<Option<bool>>(), any::<[i32; 3]>()).prop_map(
            |(pid, at_ns, enabled, thresholds)| {
                Record::Settings(GcSettings { pid, at_ns, enabled, thresholds })
            }
        ),
        1 => (any::<Option<u32>>(), time(), any::<String>())
            .prop_map(|(pid, at_ns, message)| Record::Note(Note { pid, at_ns, message })),
    ]
}

prop_compose! {
    fn header()(
        (gctrace, host, kernel) in any::<(String, String, String)>(),
        command in vec(any::<String>(), 0..4),
        (attached_pid, rank) in any::<(Option<u32>, Option<u32>)>(),
        cpus in of(1..=u32::MAX),
        (started_ns, started_unix_ns, min_pause_ns) in any::<(u64, u64, u64)>(),
        (follow, stack_depth, cuda) in any::<(bool, u32, Option<String>)>(),
        mode in prop_oneof![
            Just(RecordingMode::Ebpf), Just(RecordingMode::Inject), Just(RecordingMode::Both),
            "[g-z]+".prop_map(RecordingMode::Other),
        ],
        counters in vec(any::<String>(), 0..3),
        counters_missing in btree_map(any::<String>(), any::<String>(), 0..3),
        (git_commit, git_modified, step_function) in any::<(Option<String>, Option<bool>, Option<String>)>(),
    ) -> TraceHeader {
        let started_ns = started_ns >> 2;
        TraceHeader {
            git_commit, git_modified, step_function,
            format: FORMAT.to_owned(), gctrace, command, attached_pid, host, kernel, cpus, rank,
            started_ns, started_unix_ns, min_pause_ns, follow, stack_depth, cuda, mode,
            counters,
            counters_missing,
        }
    }
}

struct Contents {
    header: Option<TraceHeader>,
    records: Vec<Record>,
    cut: bool,
    anomalies: u64,
}

/// All items of a trace; the small buffer makes the reader refill within events.
fn read(bytes: &[u8]) -> Contents {
    let input = TraceInput::new("test", Cursor::new(bytes.to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::with_buffer(input, 64));
    let mut contents = Contents {
        header: None,
        records: Vec::new(),
        cut: false,
        anomalies: 0,
    };
    loop {
        match reader.next_item().unwrap() {
            Some(DecodedItem::Header(header)) => contents.header = Some(*header),
            Some(DecodedItem::Record(record)) => contents.records.push(record),
            Some(DecodedItem::ProcessName { .. }) => {}
            Some(DecodedItem::Other(event)) if event.phase.raw_text() == Some(b"C") => {}
            Some(item) => panic!("not written by us: {item:?}"),
            None => break,
        }
    }
    let ending = reader.finish();
    contents.cut = ending.cut.is_some();
    contents.anomalies = ending.anomalies.count;
    contents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read(
        header in header(),
        mut records in vec(record(), 0..20),
        end in end(),
    ) {
        let bytes = written(&header, &records, &end);
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        let contents = read(&bytes);
        prop_assert_eq!(contents.header, Some(header));
        records.push(Record::End(end));
        prop_assert_eq!(contents.records, records);
        prop_assert!(!contents.cut);
        prop_assert_eq!(contents.anomalies, 0);
    }

    /// A summary gives what its trace gave, whole or cut.
    #[test]
    fn a_summary_is_read_as_its_trace(
        header in header(),
        records in vec(record(), 0..60),
        end in end(),
        cut in of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = written(&header, &records, &end);
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()).max(FIRST));
        }
        let summary = summarized(&bytes);
        let mut reader = SummaryReader::new("test", summary.as_slice()).unwrap();
        let mut items = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            if !matches!(item, DecodedItem::Work { .. }) {
                items.push(format!("{item:?}"));
            }
        }
        items.push(format!("{:?}", reader.finish()));
        let (mut expected, _) = read_with(&bytes, 1 << 16);
        expected.retain(|item| !item.starts_with("Other(") && item != "Unusable");
        prop_assert_eq!(items, expected);
        prop_assert!(summary == summarized(&bytes), "other bytes the second time");
    }

    /// Changed or missing bytes are noticed. With the hash of the changed body, which no accident
    /// gives it, they are an error or other items, never a panic.
    #[test]
    fn a_damaged_summary_is_refused(
        records in vec(record(), 1..20),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        any in vec(any::<u8>(), 0..200),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let whole = summarized(&written(&header, &records, &TraceEnd::default()));
        prop_assert!(SummaryReader::new("test", any.as_slice()).is_err());
        let cut = cut.index(whole.len());
        prop_assert!(SummaryReader::new("test", &whole[..cut]).is_err(), "cut at {}", cut);
        let body_at = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut body = whole[body_at..].to_vec();
        for (index, byte) in damage {
            *index.get_mut(&mut body) = byte;
        }
        let changed = [&whole[..body_at], &body].concat();
        let is_same = changed == whole;
        prop_assert_eq!(SummaryReader::new("test", changed.as_slice()).is_ok(), is_same);
        let mut first: SummaryHeader = serde_json::from_slice(&whole[..body_at]).unwrap();
        first.body_sha256 = SummarySource::of("", body.as_slice()).unwrap().sha256;
        let mut forged = serde_json::to_vec(&first).unwrap();
        forged.push(b'\n');
        forged.extend(body);
        let mut reader = SummaryReader::new("test", forged.as_slice()).unwrap();
        while let Ok(Some(_)) = reader.next_item() {}
        let _ = reader.finish();
    }

    /// Bytes changed anywhere: an error or a report, never a panic, never without end.
    #[test]
    fn damage_is_survived(
        records in vec(record(), 1..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let mut bytes = written(&header, &records, &TraceEnd::default());
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        let input = TraceInput::new("test", Cursor::new(bytes)).unwrap();
        let mut reader = TraceReader::new(EventReader::with_buffer(input, 64));
        while let Ok(Some(_)) = reader.next_item() {}
        let _ = reader.finish();
    }
}

/// Bytes that a cut trace has at least: those up to its list of events.
const FIRST: usize = 42;

fn summarized(bytes: &[u8]) -> Vec<u8> {
    let input = TraceInput::new("test", Cursor::new(bytes.to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut writer = SummaryWriter::default();
    while let Some(item) = reader.next_item().unwrap() {
        writer.add(item);
    }
    let source = SummarySource::of("trace.json", bytes).unwrap();
    writer.finish(reader.finish(), source, None)
}

fn frame_id(record: &Record) -> Option<u32> {
    match record {
        Record::Frame(frame) => Some(frame.id),
        _ => None,
    }
}

/// The result of reading with a buffer of this size: as text, and whether reading ended in an
/// error.
fn read_with(bytes: &[u8], buffer: usize) -> (Vec<String>, bool) {
    let input = TraceInput::new("test", Cursor::new(bytes.to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::with_buffer(input, buffer));
    let mut items = Vec::new();
    let failed = loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(format!("{item:?}")),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    items.push(format!("{:?}", reader.finish()));
    (items, failed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Traces of other tools: frames come from the section after the events. Whole or damaged, the
    /// result does not depend on the buffer.
    #[test]
    fn the_buffer_makes_no_difference(
        records in vec(prop_oneof![frame(), pause()], 1..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let bytes = written(&header, &records, &TraceEnd::default());
        let text = String::from_utf8(bytes).unwrap();
        let mut bytes = text.replace("gctrace_header", "other").into_bytes();
        if damage.is_empty() {
            let ids: Vec<u32> = records.iter().filter_map(frame_id).collect();
            let in_section: HashSet<_> = ids.iter().collect();
            let contents = read_with(&bytes, 64).0;
            let read = contents.iter().filter(|item| item.starts_with("Record(Frame"));
            prop_assert_eq!(read.count(), ids.len() + in_section.len());
        }
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        let (small, large) = (read_with(&bytes, 16), read_with(&bytes, 1 << 16));
        prop_assert_eq!(small.1, large.1);
        prop_assert_eq!(small.0, large.0);
    }
}

proptest! {
    // Each case reads a trace many times.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_prefix_is_readable(records in vec(pause(), 1..5), end in end()) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let bytes = written(&header, &records, &end);
        let first = bytes.iter().position(|byte| *byte == b'[').unwrap() + 1;
        let mut seen = 0;
        for length in first..bytes.len() {
            let contents = read(&bytes[..length]);
            let pauses = contents.records.len().min(records.len());
            prop_assert_eq!(&contents.records[..pauses], &records[..pauses]);
            prop_assert!(contents.records.len() >= seen, "more text, fewer records");
            // All but the last byte, a line end, is needed.
            prop_assert_eq!(contents.cut, length < bytes.len() - 1);
            seen = contents.records.len();
        }
        prop_assert_eq!(seen, records.len() + 1);
    }

    #[test]
    fn every_cut_of_a_compressed_trace_is_readable(records in vec(pause(), 1..50), end in end()) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let bytes = written(&header, &records, &end);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&bytes).unwrap();
        let packed = packed.finish().unwrap();
        for length in (packed.len() / 2..packed.len()).step_by(7) {
            let input = TraceInput::new("test", Cursor::new(packed[..length].to_vec())).unwrap();
            let mut reader = TraceReader::new(EventReader::new(input));
            let mut count = 0;
            while let Ok(Some(_)) = reader.next_item() {
                count += 1;
            }
            prop_assert!(count <= records.len() + 2);
        }
        prop_assert_eq!(read(&packed).records.len(), records.len() + 1);
    }
}
