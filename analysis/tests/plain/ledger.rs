//! The idle ledger against planted causes: the truth is the same program without them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::compare::compare;
use gctrace_analysis::report::{IdleCause, IdleLedger, IdleRow, Report};
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{
    Annotation, CudaCall, CudaLayer, GpuOp, GpuOpKind, HostCode, HostCodeKind, Pause, Record,
};
use std::collections::{BTreeSet, HashMap};
use test_kit::reports;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const PID: u32 = 1;
const STEPS: u64 = 40;
const LAUNCHES: u64 = 60;
const LATENCY: u64 = 5 * US;
const GAP: u64 = US;
const CALL: u64 = 3 * US;
/// From the end of an operation to the return of the call that waited for it.
const RETURN: u64 = 8 * US;
const QUEUE: usize = 1_024;

/// How often a cause comes, and how long it takes.
#[derive(Clone, Copy)]
struct Plant {
    cause: IdleCause,
    every: u64,
    length_ns: u64,
}

const GC: Plant = Plant { cause: IdleCause::Gc, every: 3, length_ns: 6 * MS };
/// Within a launch, before the kernel is enqueued.
const PROFILER: Plant = Plant { cause: IdleCause::Profiler, every: 7, length_ns: 4 * MS };
const ALLOCATION: Plant = Plant { cause: IdleCause::Allocation, every: 5, length_ns: 2_500 * US };
const FILES: Plant = Plant { cause: IdleCause::Files, every: 16, length_ns: 9 * MS };
const DATA: Plant = Plant { cause: IdleCause::Data, every: 4, length_ns: 3 * MS };
/// The length is of the Python after it.
const SYNCHRONIZATION: Plant =
    Plant { cause: IdleCause::Synchronization, every: 1, length_ns: 150 * US };
/// At the end of a step, in the stream.
const FUNCTION: Plant = Plant { cause: IdleCause::HostFunction, every: 4, length_ns: 5 * MS };
const COPY: Plant = Plant { cause: IdleCause::Copy, every: 2, length_ns: 400 * US };
const RANK_WAIT: Plant = Plant { cause: IdleCause::RankWait, every: 6, length_ns: 2 * MS };
/// Within a launch, which loads its kernel.
const LAUNCH: Plant = Plant { cause: IdleCause::LaunchCall, every: 9, length_ns: 7 * MS };
const ALL: [Plant; 10] =
    [GC, PROFILER, ALLOCATION, FILES, DATA, FUNCTION, SYNCHRONIZATION, COPY, RANK_WAIT, LAUNCH];

/// A kernel takes longer than to launch one, or less.
const GPU_BOUND: u64 = 14 * US;
const HOST_BOUND: u64 = 8 * US;

struct Machine<'a> {
    plants: &'a [Plant],
    /// Causes that are planted and have no effect.
    off: &'a BTreeSet<IdleCause>,
    records: Vec<Record>,
    now: u64,
    free_ns: u64,
    starts: Vec<u64>,
    spans: Vec<(u64, u64)>,
    noise: fastrand::Rng,
}

impl Machine<'_> {
    /// Whether a cause comes in a step, and its length.
    fn planted(&self, cause: IdleCause, step: u64) -> Option<u64> {
        let plant = self.plants.iter().find(|plant| plant.cause == cause)?;
        step.is_multiple_of(plant.every).then_some(plant.length_ns)
    }

    fn on(&self, cause: IdleCause) -> bool {
        !self.off.contains(&cause)
    }

    fn annotated(&mut self, name: &str, length_ns: u64) {
        let (start_ns, end_ns) = (self.now, self.now + length_ns);
        let name = name.to_owned();
        let annotation = Annotation { pid: PID, tid: PID, name, start_ns, end_ns };
        self.records.push(Record::Annotation(annotation));
        self.now = end_ns;
    }

    fn call(&mut self, function: &'static str, start_ns: u64, correlation: Option<u64>) {
        self.records.push(Record::CudaCall(CudaCall {
            pid: PID,
            tid: PID,
            layer: CudaLayer::Runtime,
            function: function.into(),
            start_ns,
            end_ns: self.now,
            correlation,
            ..CudaCall::default()
        }));
    }

    fn enqueue(&mut self, kind: GpuOpKind, length_ns: u64, blocks: bool) -> u64 {
        self.enqueue_after((0, 0), kind, length_ns, blocks)
    }

    /// With work of the profiler at the start of the call, and then a kernel that is loaded.
    fn enqueue_after(
        &mut self,
        (profiler_ns, loading_ns): (u64, u64),
        kind: GpuOpKind,
        length_ns: u64,
        blocks: bool,
    ) -> u64 {
        let call_ns = self.now;
        if profiler_ns > 0 {
            self.records.push(Record::HostCode(HostCode {
                pid: None,
                tid: None,
                kind: HostCodeKind::Overhead,
                name: "Buffer Flush".to_owned(),
                start_ns: call_ns,
                end_ns: call_ns + profiler_ns,
            }));
        }
        let ready_ns = call_ns + profiler_ns + loading_ns;
        let room = self.starts.len().checked_sub(QUEUE).map(|at| self.starts[at]);
        self.now = (ready_ns + CALL).max(room.unwrap_or(0));
        let start_ns = (ready_ns + LATENCY).max(self.free_ns + GAP);
        let end_ns = start_ns + length_ns;
        self.free_ns = end_ns;
        self.starts.push(start_ns);
        if kind != GpuOpKind::HostFunction {
            self.spans.push((start_ns, end_ns));
        }
        if blocks {
            self.now = self.now.max(end_ns + RETURN);
        }
        let correlation = Some(self.starts.len() as u64);
        let function = match kind {
            GpuOpKind::Kernel => "cudaLaunchKernel",
            GpuOpKind::HostFunction => "cudaLaunchHostFunc",
            _ => "cudaMemcpyAsync",
        };
        let name = match kind {
            GpuOpKind::Kernel => "volta_sgemm",
            GpuOpKind::HostFunction => "Host function",
            _ if blocks => "Memcpy HtoD (Pageable -> Device)",
            _ => "Memcpy DtoH (Device -> Pinned)",
        };
        self.records.push(Record::GpuOp(GpuOp {
            pid: Some(PID),
            device: 0,
            stream: 7,
            kind,
            name: name.to_owned(),
            start_ns,
            end_ns,
            correlation,
            ..GpuOp::default()
        }));
        self.call(function, call_ns, correlation);
        end_ns
    }

    fn step(&mut self, step: u64, kernel_ns: u64) {
        let start_ns = self.now;
        if let Some(length_ns) =
            self.planted(IdleCause::Data, step).filter(|_| self.on(IdleCause::Data))
        {
            self.annotated(
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                length_ns,
            );
        }
        let mut places = fastrand::Rng::with_seed(step);
        let (collects, allocates) = (places.u64(..LAUNCHES), places.u64(..LAUNCHES));
        let profiled = places.u64(1..LAUNCHES);
        let loads = places.u64(1..LAUNCHES);
        for launch in 0..LAUNCHES {
            if launch == collects
                && let Some(length_ns) =
                    self.planted(IdleCause::Gc, step).filter(|_| self.on(IdleCause::Gc))
            {
                let start_ns = self.now;
                self.now += length_ns;
                self.records.push(Record::Pause(Pause {
                    tid: PID,
                    start_ns,
                    end_ns: self.now,
                    ..reports::pause(PID, 0, 0)
                }));
            }
            if launch == allocates
                && let Some(length_ns) = self
                    .planted(IdleCause::Allocation, step)
                    .filter(|_| self.on(IdleCause::Allocation))
            {
                let start_ns = self.now;
                self.now += length_ns;
                self.call("cudaMalloc", start_ns, None);
            }
            if launch == LAUNCHES / 3
                && let Some(length_ns) = self.planted(IdleCause::Copy, step)
            {
                self.think();
                let blocks = self.on(IdleCause::Copy);
                self.enqueue(GpuOpKind::Memcpy, length_ns, blocks);
                if blocks {
                    // As PyTorch does: this would wait as long if the copy did not block.
                    let start_ns = self.now + US;
                    self.now = start_ns + CALL;
                    self.call("cudaStreamSynchronize", start_ns, None);
                }
            }
            self.think();
            let planted = self.planted(IdleCause::Profiler, step);
            let planted = planted.filter(|_| self.on(IdleCause::Profiler) && launch == profiled);
            let loading = self.planted(IdleCause::LaunchCall, step);
            let loading = loading.filter(|_| self.on(IdleCause::LaunchCall) && launch == loads);
            let before = (planted.unwrap_or(0), loading.unwrap_or(0));
            self.enqueue_after(before, GpuOpKind::Kernel, kernel_ns, false);
        }
        if let Some(length_ns) = self.planted(IdleCause::HostFunction, step) {
            self.think();
            let length_ns = if self.on(IdleCause::HostFunction) { length_ns } else { 0 };
            self.enqueue(GpuOpKind::HostFunction, length_ns, false);
        }
        if let Some(length_ns) = self.planted(IdleCause::Synchronization, step) {
            self.think();
            let end_ns = self.enqueue(GpuOpKind::Memcpy, 2 * US, false);
            let start_ns = self.now;
            let done_ns = if self.on(IdleCause::Synchronization) { end_ns + RETURN } else { 0 };
            self.now = (start_ns + CALL).max(done_ns);
            self.call("cudaStreamSynchronize", start_ns, None);
            self.now += length_ns;
        }
        for (cause, name) in
            [(IdleCause::Files, "save_checkpoint"), (IdleCause::RankWait, "barrier")]
        {
            if let Some(length_ns) = self.planted(cause, step).filter(|_| self.on(cause)) {
                self.annotated(name, length_ns);
            }
        }
        let (name, end_ns) = (format!("ProfilerStep#{step}"), self.now);
        let annotation = Annotation { pid: PID, tid: PID, name, start_ns, end_ns };
        self.records.push(Record::Annotation(annotation));
    }

    /// 9 µs of Python and operators, give or take 15 %.
    fn think(&mut self) {
        self.now += 7_650 + self.noise.u64(..2_700);
    }
}

/// What a run without some causes has.
struct Outcome {
    records: Vec<Record>,
    idle_ns: u64,
    /// From the first start to the last end of an operation.
    length_ns: u64,
}

fn run(plants: &[Plant], off: &BTreeSet<IdleCause>, kernel_ns: u64) -> Outcome {
    let mut machine = Machine {
        plants,
        off,
        records: Vec::new(),
        now: 1_000 * MS,
        free_ns: 0,
        starts: Vec::new(),
        spans: Vec::new(),
        noise: fastrand::Rng::with_seed(1),
    };
    for step in 0..STEPS {
        machine.step(step, kernel_ns);
    }
    let busy: u64 = machine.spans.iter().map(|(start, end)| end - start).sum();
    let last = machine.spans.last().unwrap().1;
    let first = machine.spans[0].0;
    Outcome { records: machine.records, idle_ns: last - first - busy, length_ns: last - first }
}

fn report(records: Vec<Record>) -> Report {
    let mut analysis = Analysis::default();
    analysis.begin_trace("t.json");
    for record in records {
        analysis.add(DecodedItem::Record(record));
    }
    analysis.end_trace(TraceCompletion::default(), None);
    analysis.settle();
    analysis.report()
}

fn ledger(records: Vec<Record>) -> IdleLedger {
    let work = report(records).gpu.unwrap();
    let [ledger] = work.idle.try_into().unwrap();
    closes(&ledger);
    ledger
}

/// Nothing is missing and nothing is counted twice.
fn closes(ledger: &IdleLedger) {
    let busy_ns = ledger.compute_ns + ledger.communication_ns + ledger.copies_ns;
    assert_eq!(busy_ns + ledger.idle_ns, ledger.span_ns);
    assert_eq!(ledger.rows.iter().map(|row| row.time_ns).sum::<u64>(), ledger.idle_ns);
    for row in &ledger.rows {
        assert!(
            row.places.iter().map(|place| place.time_ns).sum::<u64>() <= row.time_ns,
            "{row:?}"
        );
    }
}

fn row(ledger: &IdleLedger, cause: IdleCause) -> Option<&IdleRow> {
    ledger.rows.iter().find(|row| row.cause == cause)
}

fn near(one_ns: u64, other_ns: u64) -> bool {
    one_ns.abs_diff(other_ns) <= MS.max(other_ns / 20)
}

/// Each cause alone and in order against the program without it.
fn check(plants: &[Plant], kernel_ns: u64) {
    let bound = if kernel_ns == GPU_BOUND { "GPU" } else { "host" };
    eprintln!("{} planted, {bound}-bound:", plants.len());
    let measured = run(plants, &BTreeSet::new(), kernel_ns);
    let ledger = ledger(measured.records);
    assert_eq!(ledger.idle_ns, measured.idle_ns);
    let mut off = BTreeSet::new();
    let mut before_ns = measured.idle_ns;
    for cause in IdleCause::REMOVABLE {
        if !plants.iter().any(|plant| plant.cause == cause) {
            continue;
        }
        off.insert(cause);
        let without = run(plants, &off, kernel_ns);
        let true_ns = before_ns.saturating_sub(without.idle_ns);
        before_ns = without.idle_ns;
        let row = row(&ledger, cause);
        let time_ns = row.map_or(0, |row| row.time_ns);
        let alone = run(plants, &BTreeSet::from([cause]), kernel_ns);
        let true_saves_ns = measured.length_ns - alone.length_ns;
        let saves_ns = row.and_then(|row| row.saves_ns);
        eprintln!(
            "{cause:?}: idle {} (true {}) µs, saves {} (true {}) µs",
            time_ns / US,
            true_ns / US,
            saves_ns.map_or_else(|| "-".to_owned(), |ns| (ns / US).to_string()),
            true_saves_ns / US
        );
        assert!(near(time_ns, true_ns), "{cause:?}: {time_ns} for {true_ns} of {:?}", ledger.rows);
        // Without a row nothing is shown.
        assert!(saves_ns.is_none_or(|ns| near(ns, true_saves_ns)), "{cause:?}: {saves_ns:?}");
    }
}

#[test]
fn each_cause_alone() {
    for plant in ALL {
        check(&[plant], GPU_BOUND);
        check(&[plant], HOST_BOUND);
    }
}

#[test]
fn all_causes_mixed() {
    check(&ALL, GPU_BOUND);
    check(&ALL, HOST_BOUND);
}

/// What is before the first operation is no idle time, and removing it saves none.
#[test]
fn a_start_up_saves_nothing() {
    let saves_ns =
        |records| row(&ledger(records), IdleCause::Allocation).unwrap().saves_ns.unwrap();
    let records = run(&[ALLOCATION], &BTreeSet::new(), GPU_BOUND).records;
    let first_ns = 1_000 * MS;
    let mut started = records.clone();
    started.insert(
        0,
        Record::CudaCall(CudaCall {
            pid: PID,
            tid: PID,
            function: "cudaMalloc".into(),
            start_ns: first_ns - 50 * MS,
            end_ns: first_ns - US,
            ..CudaCall::default()
        }),
    );
    assert!(near(saves_ns(started), saves_ns(records)));
}

/// The line that is named is the one that the time was planted in.
#[test]
fn places_are_those_of_the_plants() {
    let ledger = ledger(run(&ALL, &BTreeSet::new(), GPU_BOUND).records);
    let place = |cause| {
        let place = row(&ledger, cause).unwrap().places.first().unwrap();
        (place.code.function.clone(), place.code.annotation.clone())
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(place(IdleCause::Synchronization), (text("cudaStreamSynchronize"), None));
    assert_eq!(place(IdleCause::Copy), (text("Memcpy HtoD (Pageable -> Device)"), None));
    assert_eq!(place(IdleCause::Allocation), (text("cudaMalloc"), None));
    assert_eq!(place(IdleCause::HostFunction), (text("cudaLaunchHostFunc"), None));
    assert_eq!(place(IdleCause::Files), (None, text("save_checkpoint")));
    assert_eq!(place(IdleCause::Profiler), (None, text("Buffer Flush")));
    let loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
    assert_eq!(place(IdleCause::Data), (None, text(loader)));
}

/// A driver may return from the copy, for which PyTorch then waits: the time is the copy's in both forms.
#[test]
fn a_blocking_copy_in_two_calls_is_a_copy() {
    let one = run(&[COPY], &BTreeSet::new(), HOST_BOUND).records;
    let (mut two, mut copied_ns) = (one.clone(), None);
    for record in &mut two {
        let Record::CudaCall(call) = record else { continue };
        if call.function == "cudaMemcpyAsync" {
            call.end_ns = call.start_ns + CALL;
            copied_ns = Some(call.end_ns);
        } else if call.function == "cudaStreamSynchronize" {
            call.start_ns = copied_ns.take().unwrap() + US / 2;
        }
    }
    let [one, two] = [one, two].map(ledger);
    let time = |ledger: &IdleLedger, cause| row(ledger, cause).map_or(0, |row| row.time_ns);
    let [copy, in_two] = [&one, &two].map(|ledger| time(ledger, IdleCause::Copy));
    assert!(copy > 0 && copy.abs_diff(in_two) < copy / 20, "{one:?} {two:?}");
    assert_eq!(time(&two, IdleCause::Synchronization), 0, "{two:?}");
}

/// The cause that went comes first, with its share of the time before and nothing after. What stayed
/// has the same time, which is more of a shorter run.
#[test]
fn a_comparison_shows_which_cause_went() {
    let plants = [DATA, COPY];
    let before = run(&plants, &BTreeSet::new(), HOST_BOUND);
    let after = run(&plants, &BTreeSet::from([IdleCause::Data]), HOST_BOUND);
    let ledger = ledger(before.records.clone());
    let was = row(&ledger, IdleCause::Data).unwrap();
    let share = was.time_ns as f64 / ledger.span_ns as f64;
    let idle = compare(&[report(before.records)], &[report(after.records)]).idle;
    assert_eq!(idle[0].cause, IdleCause::Data, "{idle:?}");
    assert!((idle[0].before_ratio - share).abs() < 1e-9 && share > 0.02, "{idle:?}");
    assert!(idle[0].after_ratio < 1e-9, "{idle:?}");
    let copy = idle.iter().find(|row| row.cause == IdleCause::Copy).unwrap();
    let of_shorter = copy.before_ratio / (1.0 - share);
    assert!((copy.after_ratio / of_shorter - 1.0).abs() < 0.01, "{idle:?}");
    // Per step it did not change.
    let (before_ns, after_ns) = (copy.before_step_ns.unwrap(), copy.after_step_ns.unwrap());
    assert!((after_ns / before_ns - 1.0).abs() < 0.01, "{idle:?}");
    let per_step = was.time_ns as f64 / STEPS as f64;
    assert!((idle[0].before_step_ns.unwrap() / per_step - 1.0).abs() < 1e-9, "{idle:?}");
    assert!(idle[0].after_step_ns.unwrap() < 1e-9, "{idle:?}");
}

/// Where CUPTI records no functions of the host, what waits for one is blocked, for an unknown reason; the place
/// names the function.
#[test]
fn a_function_without_times_is_a_place_of_what_is_blocked() {
    let records = run(&[FUNCTION], &BTreeSet::new(), GPU_BOUND).records;
    let known = row(&ledger(records.clone()), IdleCause::HostFunction).unwrap().time_ns;
    let is_function =
        |record: &Record| matches!(record, Record::GpuOp(op) if op.kind == GpuOpKind::HostFunction);
    let without = records.into_iter().filter(|record| !is_function(record)).collect();
    let ledger = ledger(without);
    assert!(row(&ledger, IdleCause::HostFunction).is_none(), "{ledger:?}");
    let blocked = row(&ledger, IdleCause::Blocked).unwrap();
    assert!(near(blocked.time_ns, known), "{blocked:?} for {known}");
    assert_eq!(blocked.saves_ns, None);
    let [place] = blocked.places.as_slice() else { panic!("{blocked:?}") };
    assert_eq!(place.code.function.as_deref(), Some("cudaLaunchHostFunc"), "{place:?}");
    assert_eq!((place.time_ns, place.saves_ns), (blocked.time_ns, None));
}

/// The idle time of a stream by HTA's classes, as its documentation defines them, in ns: what started
/// after the previous operation had ended, else what took less than 30 µs, else the rest.
fn hta_classes(records: &[Record]) -> [u64; 3] {
    let launches: HashMap<u64, u64> = records
        .iter()
        .filter_map(|record| match record {
            Record::CudaCall(call) => Some((call.correlation?, call.start_ns)),
            _ => None,
        })
        .collect();
    let ops = records.iter().filter_map(|record| match record {
        Record::GpuOp(op) => Some((op.start_ns, op.end_ns, launches[&op.correlation?])),
        _ => None,
    });
    let mut ops: Vec<(u64, u64, u64)> = ops.collect();
    ops.sort_unstable();
    let mut classes = [0; 3];
    for pair in ops.windows(2) {
        let ((_, ended, _), (started, _, launched)) = (pair[0], pair[1]);
        let gap_ns = started - ended;
        let class = if launched > ended {
            0
        } else if gap_ns < 30 * US {
            1
        } else {
            2
        };
        classes[class] += gap_ns;
    }
    classes
}

/// Of one stream, HTA's host wait is what the ledger gives to the host, to waits and to launches, its
/// kernel wait is back-to-back, its rest blocked, where launches are well ahead. What the profiler does in a
/// launch is "other" there.
#[test]
fn the_ledger_summed_is_hta_s_classes() {
    let program = [GC, ALLOCATION, FILES, DATA, SYNCHRONIZATION, COPY, RANK_WAIT];
    for (plants, kernel_ns) in
        [(&program[..], GPU_BOUND), (&program[..], HOST_BOUND), (&[], GPU_BOUND), (&[], HOST_BOUND)]
    {
        let records = run(plants, &BTreeSet::new(), kernel_ns).records;
        let hta = hta_classes(&records);
        let work = report(records).gpu.unwrap();
        let [stream] = work.devices[0].streams.as_slice() else { unreachable!() };
        let ours = stream.exact_idle_ns;
        assert_eq!([ours.host_wait, ours.kernel_wait, ours.other], hta);
        let ledger = &work.idle[0];
        assert_eq!(hta.iter().sum::<u64>(), ledger.idle_ns);
        let mut summed = [0; 3];
        for row in &ledger.rows {
            let class = match row.cause {
                IdleCause::BackToBack => 1,
                IdleCause::Blocked => 2,
                IdleCause::OtherStream | IdleCause::Unknown => unreachable!("{row:?}"),
                _ => 0,
            };
            summed[class] += row.time_ns;
        }
        eprintln!("HTA {hta:?}, ledger {summed:?}");
        if kernel_ns == GPU_BOUND {
            assert_eq!(summed, hta);
        } else {
            // Each kernel is launched just before the one before it ends, and its launch is what it
            // waits for.
            assert!(summed[0] > hta[0] && summed[2] == hta[2]);
        }
    }
}
