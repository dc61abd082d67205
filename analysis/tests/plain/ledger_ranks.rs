//! Which rank the others wait for, and why: two ranks, one late by something that was planted.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::report::{IdleCause, IdleLedger, LateRank};
use gctrace_event::{
    Annotation, Collective, CudaCall, CudaLayer, GpuOp, GpuOpKind, HostCode, HostCodeKind, Pause,
    Process, Record,
};
use test_kit::reports::{MS, START, end, pause, process, report};

const US: u64 = 1_000;
const STEPS: u64 = 30;
const LATE_NS: u64 = 5 * MS;
const LOADER: &str = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

/// What makes a rank late in a step.
#[derive(Clone, Copy, PartialEq)]
enum Plant {
    Nothing,
    Data,
    Collection,
    /// Kernels that take longer, with the launches far ahead of them.
    Work,
}

#[derive(Default)]
struct Rank {
    pid: u32,
    records: Vec<Record>,
    now_ns: u64,
    gpu_ns: u64,
    correlation: u64,
    /// It has another device, on which nothing of all ranks runs.
    second_device: bool,
}

impl Rank {
    fn call(&mut self, function: &'static str, start_ns: u64) {
        self.records.push(Record::CudaCall(CudaCall {
            pid: self.pid,
            tid: self.pid,
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
    fn launch(&mut self) -> u64 {
        self.correlation += 1;
        let start_ns = self.now_ns;
        self.now_ns += 4 * US;
        self.call("cudaLaunchKernel", start_ns);
        (self.gpu_ns + US).max(start_ns + 6 * US)
    }

    fn op(&mut self, name: &str, start_ns: u64, end_ns: u64, sequence: Option<u64>) {
        self.gpu_ns = end_ns;
        self.records.push(Record::GpuOp(GpuOp {
            pid: Some(self.pid),
            device: self.pid - 1,
            stream: 7,
            kind: GpuOpKind::Kernel,
            name: name.to_owned(),
            start_ns,
            end_ns,
            correlation: Some(self.correlation),
            collective: sequence.map(|sequence| {
                Box::new(Collective {
                    name: "allreduce".to_owned(),
                    group: Some("0".to_owned()),
                    sequence: Some(sequence),
                    size: Some(2),
                    ..Collective::default()
                })
            }),
            ..GpuOp::default()
        }));
    }

    fn plant(&mut self, plant: Plant) {
        let (pid, tid, start_ns) = (self.pid, self.pid, self.now_ns);
        match plant {
            Plant::Nothing | Plant::Work => return,
            Plant::Data => self.now_ns += LATE_NS,
            Plant::Collection => {
                self.now_ns += LATE_NS;
                let (end_ns, pause) = (self.now_ns, pause(pid, 0, 1));
                return self.records.push(Record::Pause(Pause { start_ns, end_ns, ..pause }));
            }
        }
        let (name, end_ns) = (LOADER.to_owned(), self.now_ns);
        self.records.push(Record::Annotation(Annotation { pid, tid, name, start_ns, end_ns }));
        let (name, kind) = ("data.py(40): load".to_owned(), HostCodeKind::Function);
        self.records.push(Record::HostCode(HostCode {
            pid: Some(pid),
            tid: Some(tid),
            kind,
            name,
            start_ns,
            end_ns,
        }));
    }

    /// The part of a step before the ranks meet; returns when the rank is ready.
    fn compute(&mut self, plant: Plant) -> u64 {
        self.plant(plant);
        for launch in 0..20 {
            self.now_ns += 40 * US;
            let longer_ns = if plant == Plant::Work && launch == 19 { LATE_NS } else { 0 };
            let start_ns = self.launch();
            self.op("gemm", start_ns, start_ns + 30 * US + longer_ns, None);
        }
        if self.second_device {
            let gpu_ns = self.gpu_ns;
            let start_ns = self.launch();
            self.op("gemm", start_ns, start_ns + 30 * US, None);
            if let Some(Record::GpuOp(op)) = self.records.last_mut() {
                (op.device, op.stream) = (9, 99);
            }
            self.gpu_ns = gpu_ns;
        }
        self.launch()
    }
}

/// `plant`: of a rank and a step.
fn ledgers(plant: impl Fn(u32, u64) -> Plant) -> Vec<IdleLedger> {
    ledgers_with(false, plant)
}

/// `second_device`: each rank has two.
fn ledgers_with(second_device: bool, plant: impl Fn(u32, u64) -> Plant) -> Vec<IdleLedger> {
    let new = |pid: u32| Rank {
        pid,
        now_ns: START,
        correlation: u64::from(pid) * 1_000_000,
        second_device,
        ..Rank::default()
    };
    let mut ranks = [new(1), new(2)];
    for step in 0..STEPS {
        let ready = ranks.each_mut().map(|rank| rank.compute(plant(rank.pid - 1, step)));
        let end_ns = ready[0].max(ready[1]) + 30 * US;
        for (rank, ready_ns) in ranks.iter_mut().zip(ready) {
            rank.op("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ready_ns, end_ns, Some(step));
            rank.correlation += 1;
            let start_ns = rank.now_ns;
            rank.now_ns = (start_ns + 4 * US).max(end_ns + 6 * US);
            rank.call("cudaStreamSynchronize", start_ns);
        }
    }
    let mut records = Vec::new();
    for rank in ranks {
        let Record::Process(about) = process(rank.pid, 0, "generational") else { unreachable!() };
        let about = Process { rank: Some(rank.pid - 1), ..about };
        records.push(Record::Process(about));
        records.extend(rank.records);
    }
    report(records, Some(end(60_000))).gpu.unwrap().idle
}

/// The wait of the first rank, which is for the second: its time, and what made that late.
fn wait(ledgers: &[IdleLedger]) -> (u64, LateRank) {
    let [first, second] = ledgers else { unreachable!("{ledgers:?}") };
    assert!(second.rank_waits.is_empty(), "{second:?}");
    let [wait] = first.rank_waits.as_slice() else { unreachable!("{first:?}") };
    assert_eq!(wait.rank, 1);
    assert!(wait.time_ns <= first.communication_ns);
    (wait.time_ns, wait.late.clone().unwrap())
}

fn near(one_ns: u64, other_ns: u64) -> bool {
    one_ns.abs_diff(other_ns) <= other_ns / 50
}

#[test]
fn the_late_rank_is_named_with_its_own_cause() {
    for (plant, cause) in [
        (Plant::Data, Some(IdleCause::Data)),
        (Plant::Collection, Some(IdleCause::Gc)),
        (Plant::Work, None),
    ] {
        let every_third = |rank, step: u64| {
            if rank == 1 && step % 3 == 1 { plant } else { Plant::Nothing }
        };
        let (time_ns, late) = wait(&ledgers(every_third));
        assert!(near(time_ns, STEPS / 3 * LATE_NS), "{time_ns}");
        assert_eq!(late.cause, cause);
        assert!(late.ratio > 0.95, "{late:?}");
        let place = late.place;
        if plant == Plant::Data {
            let place = place.unwrap();
            assert_eq!(place.annotation.as_deref(), Some(LOADER));
            assert_eq!(place.python.unwrap().file, "data.py");
        }
    }
}

/// Of a rank with several devices the one that takes part in the collective shows why it was late.
#[test]
fn a_rank_with_two_devices_is_late_by_one() {
    let every_third =
        |rank, step: u64| if rank == 1 && step % 3 == 1 { Plant::Data } else { Plant::Nothing };
    let all = ledgers_with(true, every_third);
    assert_eq!(all.len(), 4);
    let (own, second): (Vec<_>, Vec<_>) = all.into_iter().partition(|ledger| ledger.id.device != 9);
    assert!(second.iter().all(|ledger| ledger.rank_waits.is_empty()), "{second:?}");
    let (time_ns, late) = wait(&own);
    assert!(near(time_ns, STEPS / 3 * LATE_NS), "{time_ns}");
    assert_eq!(late.cause, Some(IdleCause::Data));
    assert!(late.place.is_some());
}

/// What both ranks wait for alike makes none late: only the difference counts.
#[test]
fn what_both_do_makes_none_late() {
    let alike = ledgers(|rank, step| match (rank, step % 3) {
        (_, 0) => Plant::Data,
        (1, 1) => Plant::Collection,
        _ => Plant::Nothing,
    });
    let (time_ns, late) = wait(&alike);
    assert!(near(time_ns, STEPS / 3 * LATE_NS), "{time_ns}");
    assert_eq!(late.cause, Some(IdleCause::Gc));
}

#[test]
fn ranks_that_arrive_together_wait_for_none() {
    for ledger in ledgers(|_, _| Plant::Data) {
        let waits = ledger.rank_waits;
        assert!(waits.iter().all(|wait| wait.time_ns < MS), "{waits:?}");
    }
}
