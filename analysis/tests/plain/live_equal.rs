//! The live figures at the end of a recording against the report of the same trace. Sums come from
//! the same accumulators, kept for another time; steps, lines and GPU times are computed in another
//! way. The recordings: real traces of the PyTorch profiler with inserted pauses, and a simulated
//! training. Further traces, for example gctrace's own recordings, can be named in
//! `GCTRACE_LIVE_TRACES` (separated by `:`).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::live::{
    Live, ProcessDetail, ProcessFigures, ProcessGpu, Snapshot, SnapshotRequest,
};
use gctrace_analysis::report::{
    DeviceId, IdleCause, PauseTotal, ProcessReport, ProcessSteps, Report,
};
use gctrace_event::read::{DecodedItem, TraceCompletion, TraceReader};
use gctrace_event::{
    GcReason, GpuOp, GpuOpKind, NamedMarker, Pause, ProcessExit, Record, StepMark, TraceHeader,
};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use test_kit::reports;

const REASONS: [GcReason; 4] =
    [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];

/// How far the live share of a cause in the idle time may be from the report's, in percent of it.
const NEAR: f64 = 10.0;

/// A recording: its first records, and the following ones.
#[derive(Default)]
struct Recording {
    header: TraceHeader,
    records: Vec<Record>,
}

fn read(path: &Path) -> Recording {
    let mut recording = Recording::default();
    let mut reader = TraceReader::open(path).unwrap();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Header(header) => recording.header = *header,
            DecodedItem::Record(record) => recording.records.push(record),
            _ => {}
        }
    }
    recording
}

impl Recording {
    fn report(&self) -> Report {
        let mut analysis = Analysis::default();
        analysis.begin_trace("trace.json");
        if !self.header.format.is_empty() {
            analysis.add(DecodedItem::Header(Box::new(self.header.clone())));
        }
        for record in &self.records {
            analysis.add(DecodedItem::Record(record.clone()));
        }
        analysis.end_trace(TraceCompletion::default(), None);
        analysis.settle();
        analysis.report()
    }

    /// Last states by process: of those that ended right after that, of the others at the end.
    fn live(&self) -> LiveRun {
        let mut lived = LiveRun::default();
        let mut live = Live::new(self.header.clone(), 0);
        let end_ns = self.records.iter().filter_map(end_of).max().unwrap_or(0);
        let mut pids: Vec<u32> = Vec::new();
        for record in &self.records {
            live.record(record);
            match record {
                Record::Pause(pause) if !pids.contains(&pause.pid) => pids.push(pause.pid),
                Record::ProcessExit(exit) => lived.take(&live, exit.pid, exit.at_ns),
                _ => {}
            }
        }
        for pid in pids {
            lived.take(&live, pid, end_ns);
        }
        lived.last = state(&live, None, end_ns);
        lived
    }
}

#[derive(Default)]
struct LiveRun {
    processes: HashMap<u32, (ProcessFigures, ProcessDetail)>,
    last: Snapshot,
}

impl LiveRun {
    fn take(&mut self, live: &Live, pid: u32, at_ns: u64) {
        let mut snapshot = state(live, Some(pid), at_ns);
        snapshot.processes.retain(|process| process.pid == pid);
        if let (Some(figures), Some(detail)) = (snapshot.processes.pop(), snapshot.detail) {
            self.processes.insert(pid, (figures, detail));
        }
    }
}

fn state(live: &Live, detail: Option<u32>, now_ns: u64) -> Snapshot {
    live.snapshot(&SnapshotRequest { now_ns, interval_ns: 1_000_000_000, detail })
}

fn end_of(record: &Record) -> Option<u64> {
    match record {
        Record::Pause(pause) => Some(pause.end_ns),
        Record::GpuOp(op) => Some(op.end_ns),
        Record::ProcessExit(exit) => Some(exit.at_ns),
        Record::End(end) => Some(end.ended_ns),
        _ => None,
    }
}

/// How many processes, steps, lines and devices were compared.
type Compared = [usize; 4];

fn compare(recording: &Recording) -> Compared {
    let (report, lived) = (recording.report(), recording.live());
    let totals = &lived.last.totals.collections;
    let pauses = &report.totals.pauses;
    assert_eq!(totals.pauses.iter().sum::<u64>(), pauses.count);
    assert_eq!(totals.pause_ns.iter().sum::<u64>(), pauses.time_ns);
    assert_eq!(totals.histogram.iter().flatten().sum::<u64>(), pauses.count);
    assert_eq!(totals.outcomes.collected, pauses.collected);
    assert_eq!(totals.outcomes.uncollectable, pauses.uncollectable);
    assert_eq!(totals.outcomes.with_collected, pauses.count - pauses.outcome_unknown);
    assert_eq!(Some(totals.outcomes.longest_ns), pauses.max_ns);
    let mut compared = [0; 4];
    for process in &report.processes {
        let (figures, detail) = &lived.processes[&process.pid];
        same_process(process, figures);
        compared[0] += 1;
        compared[3] += same_devices(&report, figures);
        compared[2] += same_lines(process, detail);
        let steps = report.steps.iter().flat_map(|steps| &steps.processes);
        for steps in steps.filter(|steps| steps.pid == process.pid) {
            compared[1] += same_steps(steps, detail);
        }
    }
    let last = lived.last.long_pauses.iter().map(|pause| pause.duration_ns);
    if report.totals.pauses.count <= 200 {
        assert_eq!(last.max(), pauses.max_ns);
    }
    compared
}

fn same_process(process: &ProcessReport, figures: &ProcessFigures) {
    let collections = &figures.collections;
    for generation in 0..4 {
        let sum = PauseTotal {
            count: collections.pauses[generation],
            time_ns: collections.pause_ns[generation],
        };
        assert_eq!(process.by_generation[generation], sum);
    }
    for (effort, reason) in process.by_reason.iter().zip(REASONS) {
        let sums = collections.by_reason.get(&reason);
        let value = sums.copied().unwrap_or_default();
        let count = value.iter().map(|sum| sum.count).sum();
        let time_ns = value.iter().map(|sum| sum.time_ns).sum();
        assert_eq!(*effort, PauseTotal { count, time_ns });
    }
    assert_eq!(collections.outcomes.collected, process.pauses.collected);
    assert_eq!(Some(collections.outcomes.longest_ns), process.pauses.max_ns);
    assert_eq!(figures.worst.map(|worst| worst.duration_ns), process.pauses.max_ns);
    assert_eq!(figures.paused_ns, process.paused_ns);
    assert_eq!(figures.rank, process.rank);
    assert_eq!(figures.namespace_pid, process.namespace_pid);
    if let Some(settings) = &process.settings {
        assert_eq!(figures.thresholds, Some(settings.thresholds));
        assert_eq!(figures.enabled, settings.enabled);
    }
    assert_eq!(figures.command, process.command.join(" "));
    assert_eq!(figures.ended.as_ref().and_then(|ended| ended.code), process.exit_code);
}

fn same_lines(process: &ProcessReport, detail: &ProcessDetail) -> usize {
    let Some(lines) = &process.lines else {
        assert!(detail.lines.is_empty());
        return 0;
    };
    assert_eq!(detail.lines.len(), lines.own.len());
    for (reported, line) in lines.own.iter().zip(&detail.lines) {
        assert_eq!(reported.pauses, line.pauses);
        // Of lines with the same figures either may be first.
        let is_it = |line: &&gctrace_analysis::live::LineFigures| {
            let (line, other) = (&line.line, &reported.location);
            (&line.file, &line.function, line.line) == (&other.file, &other.function, other.line)
        };
        let found = detail.lines.iter().find(is_it);
        if let Some(found) = found {
            assert_eq!(reported.pauses, found.pauses);
        } else {
            let last = detail.lines.last().unwrap();
            assert_eq!(reported.pauses, last.pauses);
        }
    }
    lines.own.len()
}

/// The last steps; those that the report lists are the longest.
fn same_steps(steps: &ProcessSteps, detail: &ProcessDetail) -> usize {
    let mut compared = 0;
    for step in &detail.steps {
        let other = steps.longest.iter();
        for other in other.filter(|other| other.start_ns == step.start_ns) {
            assert_eq!(step.duration_ns, other.duration_ns);
            assert_eq!(Some(step.pauses.time_ns), other.gc_ns);
            compared += 1;
        }
    }
    if steps.count <= 60 {
        assert_eq!(detail.steps.len() as u64, steps.count);
        let length = detail.steps.iter().map(|step| step.duration_ns);
        assert_eq!(length.sum::<u64>(), steps.length.total_ns);
        let gc = detail.steps.iter().map(|step| step.pauses.time_ns);
        assert_eq!(Some(gc.sum::<u64>()), steps.gc_ns);
        let with = detail.steps.iter().filter(|step| step.pauses.count > 0);
        assert_eq!(with.count() as u64, steps.with_gc);
    }
    compared
}

fn same_devices(report: &Report, figures: &ProcessFigures) -> usize {
    let Some(gpu) = &report.gpu else {
        return 0;
    };
    let mut compared = 0;
    for device in gpu.devices.iter().filter(|device| device.id.pid == figures.pid) {
        let gpus = figures.gpus.iter().find(|gpus| gpus.device == device.id.device);
        let busy = gpus.unwrap().busy.unwrap();
        assert_eq!(busy.total_busy_ns, device.busy_ns);
        assert_eq!(busy.total_idle_ns, device.idle_ns);
        same_causes(report, device.id, gpus.unwrap());
        let cause = gpu.cause.iter().find(|cause| cause.pid == figures.pid);
        let costs = cause.unwrap().devices.iter();
        for cost in costs.filter(|cost| cost.device == device.id.device) {
            assert_eq!(busy.total_idle_in_gc_ns, cost.overlap_ns);
            compared += 1;
        }
    }
    compared
}

/// Idle time by cause beside the report's ledger: the sum is the same, and the share of each cause
/// nearly.
fn same_causes(report: &Report, id: DeviceId, gpu: &ProcessGpu) {
    let mut ledgers = report.gpu.iter().flat_map(|work| &work.idle);
    let ledger = ledgers.find(|ledger| ledger.id == id);
    let (Some(ledger), Some(idle)) = (ledger, &gpu.idle) else {
        return;
    };
    assert_eq!(idle.total.iter().map(|part| part.time_ns).sum::<u64>(), ledger.idle_ns);
    let mut causes: BTreeMap<IdleCause, [u64; 2]> = BTreeMap::new();
    for row in &ledger.rows {
        // What only annotations show is the host's, and the latency of a launch.
        let host = matches!(
            row.cause,
            IdleCause::Profiler
                | IdleCause::Files
                | IdleCause::Data
                | IdleCause::RankWait
                | IdleCause::LaunchLatency
        );
        let cause = if host { IdleCause::Host } else { row.cause };
        causes.entry(cause).or_default()[0] += row.time_ns;
    }
    for part in &idle.total {
        causes.entry(part.cause).or_default()[1] += part.time_ns;
    }
    println!("{id:?}: idle {:.1} % of the time", percent(ledger.idle_ns, ledger.span_ns));
    for (cause, [reported, lived]) in causes {
        let [reported, lived] = [reported, lived].map(|ns| percent(ns, ledger.idle_ns));
        println!("  {:16} {reported:5.1} % {lived:5.1} %", cause.as_ref());
        assert!((reported - lived).abs() < NEAR, "{cause}: {reported} %, live {lived} %");
    }
}

fn percent(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 * 100.0 / whole_ns as f64
}

/// A real trace of the PyTorch profiler, and pauses on the thread that launched, of up to 20 ms.
fn with_pauses(name: &str) -> Recording {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto");
    let mut recording = read(&folder.join(name));
    let mut launches: Vec<(u64, u32, u32)> = recording
        .records
        .iter()
        .filter_map(|record| match record {
            Record::CudaCall(call) if call.is_launch() => Some((call.start_ns, call.pid, call.tid)),
            _ => None,
        })
        .collect();
    launches.sort_unstable();
    let pid = launches[0].1;
    for record in &mut recording.records {
        // The profiler has the device in its place; gctrace's own recordings contain it.
        if let Record::GpuOp(op) = record {
            op.pid = Some(pid);
        }
    }
    let process = reports::process(pid, 0, "generational");
    recording.records.insert(0, process);
    for place in 1..40 {
        let (end_ns, _, tid) = launches[launches.len() * place / 40];
        let mut pause = reports::pause(pid, 0, 0);
        pause.tid = tid;
        (pause.start_ns, pause.end_ns) = (end_ns - place as u64 * 500_000, end_ns - 1_000);
        pause.generation = (place % 3) as u8;
        recording.records.push(Record::Pause(pause));
    }
    let at_ns = recording.records.iter().filter_map(end_of).max().unwrap();
    recording.records.push(Record::ProcessExit(ProcessExit {
        pid,
        at_ns,
        code: Some(0),
        signal: None,
    }));
    recording
}

#[test]
fn real_profiles_with_pauses() {
    for name in [
        "sampled_rank0.json.gz",
        "sampled_rank1.json.gz",
        "nccl_rank0.json.gz",
        "ns_resolution_rank0.json.gz",
    ] {
        let [processes, steps, _, devices] = compare(&with_pauses(name));
        assert_eq!((processes, devices), (1, 1), "{name}");
        assert!(steps > 0, "{name}");
    }
}

/// Three training processes, one after another ending; GPU work received late and out of order.
fn simulated() -> Recording {
    let mut random = fastrand::Rng::with_seed(7);
    let mut reported: Vec<(u64, Record)> = Vec::new();
    for pid in [11, 12, 13] {
        reported.push((0, reports::process(pid, 0, "generational")));
        let mut now = reports::START;
        for step in 0..400u64 {
            let start = now;
            for _ in 0..random.u64(0..30) {
                let length = random.u64(20_000..3_000_000);
                let tid = pid + random.u32(0..2) * 100;
                let pause = Pause {
                    tid,
                    start_ns: now,
                    end_ns: now + length,
                    generation: random.u8(0..3),
                    reason: [GcReason::Automatic, GcReason::Manual][random.usize(0..2)],
                    collected: random.bool().then(|| random.u64(0..1000)),
                    stack: Some(random.u32(1..60)),
                    ..reports::pause(pid, 0, 0)
                };
                reported.push((pause.end_ns + random.u64(0..100_000_000), Record::Pause(pause)));
                now += random.u64(0..2 * length);
            }
            for n in 0..20 {
                let start_ns = start + n * 2_000_000 + random.u64(0..1_000_000);
                let op = GpuOp {
                    pid: Some(pid),
                    device: random.u32(0..2),
                    stream: random.u64(0..3),
                    kind: GpuOpKind::Kernel,
                    name: "kernel".to_owned(),
                    start_ns,
                    end_ns: start_ns + random.u64(0..2_000_000),
                    ..GpuOp::default()
                };
                reported.push((op.end_ns + random.u64(0..3_000_000_000), Record::GpuOp(op)));
            }
            now = now.max(start + 5_000_000);
            let pass = StepMark {
                marker: NamedMarker::Backward,
                pid,
                tid: pid,
                start_ns: start,
                end_ns: start + 1_000_000,
                cpu_ns: None,
            };
            if step < 50 || pid != 11 {
                reported.push((pass.end_ns, Record::Step(pass)));
            }
        }
        reported
            .push((now + 4_000_000_000, reports::exit(pid, (now - reports::START) / 1_000_000)));
    }
    for id in 1..60u32 {
        let library = id % 3 == 0;
        let frame = gctrace_event::Frame {
            id,
            parent: (id > 1).then_some(id / 2),
            function: format!("f{}", id % 25),
            file: if library {
                "/usr/lib/python3/dist-packages/torch/x.py".to_owned()
            } else {
                format!("train{}.py", id % 7)
            },
            line: Some(id % 25),
        };
        reported.push((u64::from(id > 1), Record::Frame(frame)));
    }
    reported.sort_by_key(|(reported, _)| *reported);
    Recording {
        header: reports::header(),
        records: reported.into_iter().map(|(_, record)| record).collect(),
    }
}

#[test]
fn a_simulated_training() {
    let [processes, steps, lines, devices] = compare(&simulated());
    assert_eq!((processes, devices), (3, 6));
    assert!(steps > 5 && lines > 40, "{steps} steps, {lines} lines");
}

#[test]
fn other_traces() {
    let Some(paths) = std::env::var_os("GCTRACE_LIVE_TRACES") else {
        println!("skipped other_traces: none are named in GCTRACE_LIVE_TRACES");
        return;
    };
    for path in std::env::split_paths(&paths) {
        let compared = compare(&read(&path));
        println!("{}: {compared:?}", path.display());
    }
}
