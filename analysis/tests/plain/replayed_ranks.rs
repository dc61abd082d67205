//! What pauses cost two ranks that wait for each other in a collective, by replay, against the same job run
//! without them.

use gctrace_analysis::report::Report;
use gctrace_event::{
    Annotation, Collective, CudaCall, CudaLayer, GpuOp, GpuOpKind, Pause, Process, Record,
};
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

/// Each rank collects in steps of its own, so that each pause makes both wait.
fn at_different_steps(rank: u32, step: u64) -> bool {
    step % 10 == u64::from(rank) * 5 + 2
}

#[test]
fn all_pauses_of_all_ranks() {
    let (records, measured_ns) = run(at_different_steps, false);
    let (_, without_ns) = run(|_, _| false, false);
    // Eight pauses, each of which delays both ranks.
    assert!(measured_ns - without_ns > 7 * FULL_NS);
    let cost = analyzed(records).gpu_cost.unwrap();
    assert_eq!((cost.run_ns, cost.pauses.count), (measured_ns, 8));
    assert!(cost.cost_ns.abs_diff(measured_ns - without_ns) < 100 * US, "{cost:?}");
}
