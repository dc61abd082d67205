//! Predictions for two ranks that wait for each other in a collective, against the same job run
//! again with the change.

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::kept::KeptTimeline;
use gctrace_analysis::gpu::replay::JoinedSkeletons;
use gctrace_analysis::gpu::replays::{JobReplays, RunLength};
use gctrace_analysis::gpu::what_if::{Assumption, FullLengths, ProgramModel, planned};
use gctrace_analysis::report::{Report, ScenarioId, WhatIf};
use gctrace_event::{
    Annotation, Collective, CudaCall, CudaLayer, GpuOp, GpuOpKind, Pause, Process, Record,
};
use std::num::NonZeroUsize;
use test_kit::reports;
use test_kit::reports::{MS, START, end, pause, process, report};

const US: u64 = 1_000;
const LATENCY_NS: u64 = 6 * US;
const CALL_NS: u64 = 4 * US;
const TRANSFER_NS: u64 = 30 * US;
const STEPS: u64 = 40;
const FULL_NS: u64 = 8 * MS;

#[derive(Default)]
struct Rank {
    records: Vec<Record>,
    now_ns: u64,
    gpu_ns: u64,
    correlation: u64,
}

impl Rank {
    fn call(&mut self, pid: u32, function: &'static str, start_ns: u64) {
        self.records.push(Record::CudaCall(CudaCall {
            pid,
            tid: pid,
            layer: CudaLayer::Runtime,
            function: function.into(),
            start_ns,
            end_ns: self.now_ns,
            stream: Some(7),
            correlation: Some(self.correlation),
            ..CudaCall::default()
        }));
    }

    /// Launches; returns the start of the operation.
    fn launch(&mut self, pid: u32) -> u64 {
        self.correlation += 1;
        let start_ns = self.now_ns;
        self.now_ns += CALL_NS;
        self.call(pid, "cudaLaunchKernel", start_ns);
        self.gpu_ns.max(start_ns + LATENCY_NS)
    }

    fn op(&mut self, pid: u32, name: &str, start_ns: u64, end_ns: u64, sequence: Option<u64>) {
        self.gpu_ns = end_ns;
        self.records.push(Record::GpuOp(GpuOp {
            pid: Some(pid),
            device: pid - 1,
            stream: 7,
            kind: GpuOpKind::Kernel,
            name: name.to_owned(),
            start_ns,
            end_ns,
            correlation: Some(self.correlation),
            bytes: None,
            collective: sequence.map(|sequence| {
                Box::new(Collective {
                    name: "allreduce".to_owned(),
                    group: Some("0".to_owned()),
                    sequence: Some(sequence),
                    size: Some(2),
                    ..Collective::default()
                })
            }),
        }));
    }

    fn collect(&mut self, pid: u32) {
        let start_ns = self.now_ns;
        self.now_ns += FULL_NS;
        self.records.push(Record::Pause(Pause {
            start_ns,
            end_ns: self.now_ns,
            generation: 2,
            oldest_objects: Some(200_000),
            collected: Some(100),
            ..pause(pid, 0, 1)
        }));
    }
}

/// The job and its length. `collects`: whether a rank collects in a step, at its start or in its
/// middle.
fn run(collects: impl Fn(u32, u64) -> bool, at_start: bool) -> (Vec<Record>, u64) {
    let mut ranks = [Rank::default(), Rank::default()];
    for rank in &mut ranks {
        rank.now_ns = START;
        rank.correlation = 0;
    }
    ranks[1].correlation = 1_000_000;
    for step in 0..STEPS {
        let starts = ranks.each_ref().map(|rank| rank.now_ns);
        let ready = [0, 1].map(|index| {
            let (rank, pid) = (&mut ranks[index], index as u32 + 1);
            let now = collects(pid - 1, step);
            if now && at_start {
                rank.collect(pid);
            }
            for launch in 0..20 {
                rank.now_ns += 40 * US;
                if now && !at_start && launch == 10 {
                    rank.collect(pid);
                }
                let start_ns = rank.launch(pid);
                rank.op(pid, "gemm", start_ns, start_ns + 30 * US, None);
            }
            rank.launch(pid)
        });
        let end_ns = ready[0].max(ready[1]) + TRANSFER_NS;
        for index in [0, 1] {
            let (rank, pid) = (&mut ranks[index], index as u32 + 1);
            let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
            rank.op(pid, name, ready[index], end_ns, Some(step));
            rank.correlation += 1;
            let start_ns = rank.now_ns;
            rank.now_ns = (start_ns + CALL_NS).max(end_ns + LATENCY_NS);
            rank.call(pid, "cudaStreamSynchronize", start_ns);
            rank.now_ns += US;
            rank.records.push(Record::Annotation(Annotation {
                pid,
                tid: pid,
                name: format!("ProfilerStep#{step}"),
                start_ns: starts[index],
                end_ns: rank.now_ns,
            }));
        }
    }
    let end_ns = ranks[0].now_ns.max(ranks[1].now_ns) - US;
    let first_ns = START + 40 * US;
    let records = ranks.into_iter().flat_map(|rank| rank.records);
    (records.collect(), end_ns - first_ns)
}

fn described() -> [Record; 2] {
    [1, 2].map(|pid| match process(pid, 0, "generational") {
        Record::Process(process) => Record::Process(Process { rank: Some(pid - 1), ..process }),
        other => other,
    })
}

fn analyzed(records: Vec<Record>) -> Report {
    let all = described().into_iter().chain(records);
    report(all.collect(), Some(end(5_000)))
}

fn of(report: &Report, id: ScenarioId) -> Option<&WhatIf> {
    report.what_if.iter().find(|what_if| what_if.id == id)
}

fn holds(what: &WhatIf, truth_ns: u64) -> Option<()> {
    let run = what.run?;
    let slack_ns = 100 * US;
    assert!(
        run.at_least_ns <= truth_ns + slack_ns && truth_ns <= run.at_most_ns + slack_ns,
        "{truth_ns} is not in {what:#?}"
    );
    Some(())
}

/// Each rank collects in steps of its own, so that each pause makes both wait.
fn at_different_steps(rank: u32, step: u64) -> bool {
    step % 10 == u64::from(rank) * 5 + 2
}

#[test]
fn disabling_on_all_ranks() {
    let (records, measured_ns) = run(at_different_steps, false);
    let (_, without_ns) = run(|_, _| false, false);
    // Eight pauses, each of which delays both ranks.
    assert!(measured_ns - without_ns > 7 * FULL_NS);
    let report = analyzed(records);
    let disable = of(&report, ScenarioId::Disable).unwrap();
    assert_eq!(disable.run.unwrap().measured_ns, measured_ns);
    holds(disable, without_ns).unwrap();
    assert!(report.gpu_cost.is_some());
}

#[test]
fn planned_on_all_ranks_at_once() {
    let (records, measured_ns) = run(at_different_steps, false);
    let report = analyzed(records);
    let planned = of(&report, ScenarioId::Planned).unwrap();
    let every = planned.every_steps.unwrap();
    // 8 ms may cost 0.5 % of a step of 2.6 ms: far too rare for 40 steps, so a share of one pause
    // is added.
    let (_, without_ns) = run(|_, _| false, false);
    let share_ns = FULL_NS * STEPS / every;
    holds(planned, without_ns + share_ns).unwrap();
    assert!(planned.saved_ns.at_least_ns.unwrap() > 0);

    assert!(measured_ns > planned.run.unwrap().at_most_ns);
}

/// As many pauses as measured, but on both ranks at once: the replay of the plan against the job
/// run so.
#[test]
fn plans_fall_into_the_same_step_of_every_rank() {
    let (records, measured_ns) = run(at_different_steps, false);
    let mut analysis = Analysis::default();
    let ranks = described().into_iter().chain(records).collect();
    reports::add(&mut analysis, "t.json", ranks, Some(end(5_000)));
    let timelines: Vec<&KeptTimeline> = analysis.timelines().iter().collect();
    let programs: Vec<ProgramModel<'_>> = timelines
        .iter()
        .map(|timeline| ProgramModel {
            timeline,
            span_ns: (START, START + measured_ns),
            free_threaded: false,
            thresholds: [700, 10, 10],
            device_freed_bytes: 0,
            device_reserved_bytes: 0,
            bytes_per_object: None,
        })
        .collect();
    let lengths = FullLengths::of(&programs).unwrap();
    let plan = planned(&programs, &lengths, 10, Assumption::Pessimistic);
    assert_eq!(plan.inserted.len(), 6);
    let replays = JobReplays::of(&timelines, &[&plan], NonZeroUsize::MIN);
    let jobs = replays.jobs();
    assert_eq!(jobs.len(), 1);
    let measured = RunLength::of(&jobs, JoinedSkeletons::MEASURED);
    assert_eq!(measured.length_ns, measured_ns);
    let (_, without_ns) = run(|_, _| false, false);
    let (_, at_once_ns) = run(|_, step| step > 0 && step % 10 == 0, true);
    let predicted_ns = RunLength::of(&jobs, JoinedSkeletons::FIRST_CHANGE).length_ns;
    assert!(predicted_ns.abs_diff(at_once_ns) < 100 * US, "{predicted_ns} {at_once_ns}");
    assert!(measured_ns - without_ns > 2 * (at_once_ns - without_ns));
}
