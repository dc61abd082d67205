//! A day of training, and the memory of the live figures after an hour and after all of it.

use crate::live_allocated;

use gctrace_analysis::live::{Live, RecorderCost, Snapshot, SnapshotRequest};
use gctrace_event::{
    Allocations, Annotation, CudaLaunches, DeviceMemory, Frame, FrameId, GcReason, GcSettings,
    GpuDevice, GpuOp, GpuOpKind, GpuProcess, GpuSample, NamedMarker, Note, Pause, Pressure,
    Process, ProcessExit, Record, StepMark, ThreadName,
};
use test_kit::reports;
use test_kit::reports::{START, header};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600;
/// Seconds from one round of records to the next.
const EVERY: u64 = 3;
/// Data loading processes, all restarted from time to time.
const WORKERS: u32 = 36;
/// The process that trains.
const RANK: u32 = 100;
/// Process ids are reused after this many.
const IDS: u32 = 10_000;

/// A recording, and counts of its records.
struct Day {
    live: Live,
    pauses: u64,
    pause_ns: u64,
    processes: u64,
    /// How many workers there were.
    workers: u32,
    frames: FrameId,
    random: fastrand::Rng,
}

impl Day {
    fn begin() -> Self {
        let mut day = Self {
            live: Live::new(header(), 20 * MS),
            pauses: 0,
            pause_ns: 0,
            processes: 0,
            workers: 0,
            frames: 0,
            random: fastrand::Rng::with_seed(1),
        };
        day.process(RANK, START);
        day
    }

    fn process(&mut self, pid: u32, since_ns: u64) {
        let Record::Process(python) = reports::process(pid, 0, "generational") else {
            unreachable!()
        };
        let before = Process { since_ns, interpreter: None, ..python.clone() };
        self.live.record(&Record::Process(before));
        let python = Process { since_ns, ..python };
        self.live.record(&Record::Process(python));
        self.processes += 1;
    }

    fn pause(&mut self, pid: u32, end_ns: u64, length_ns: u64) {
        let generation = self.random.u8(0..3);
        let reason = [GcReason::Automatic, GcReason::Manual][usize::from(generation / 2)];
        self.live.record(&Record::Pause(Pause {
            start_ns: end_ns - length_ns,
            end_ns,
            generation,
            reason,
            stack: Some(self.random.u32(1..=self.frames.max(1))),
            oldest_objects: Some(end_ns / 1000),
            ..reports::pause(pid, 0, 0)
        }));
        self.pauses += 1;
        self.pause_ns += length_ns;
    }

    fn frame(&mut self) {
        self.frames += 1;
        let frame = Frame {
            id: self.frames,
            parent: (self.frames > 1).then_some(self.frames / 2),
            function: format!("function_{}", self.frames),
            file: format!("/home/user/project/module_{}.py", self.frames % 100),
            line: Some(self.frames),
        };
        self.live.record(&Record::Frame(frame));
    }

    /// Workers that load data live until the next do.
    fn workers(&mut self, second: u64) {
        for n in 0..WORKERS {
            let number = self.workers + n;
            let pid = 1000 + number % IDS;
            if second > 0 {
                let before = 1000 + (number - WORKERS) % IDS;
                self.pause(before, at(second) - MS, 30_000);
                self.live.record(&Record::ProcessExit(ProcessExit {
                    pid: before,
                    at_ns: at(second),
                    code: Some(0),
                    signal: None,
                }));
            }
            self.process(pid, at(second) + 1);
            self.pause(pid, at(second) + 50 * MS, 200_000);
        }
        self.workers += WORKERS;
    }

    /// GPU work is received two seconds late.
    fn gpu(&mut self, second: u64) {
        let start_ns = at(second.saturating_sub(2));
        for n in 0..4 {
            self.live.record(&Record::GpuOp(GpuOp {
                pid: Some(RANK),
                device: 0,
                stream: n,
                kind: GpuOpKind::Kernel,
                name: "kernel".to_owned(),
                start_ns: start_ns + n * 200 * MS,
                end_ns: start_ns + n * 200 * MS + 150 * MS,
                ..GpuOp::default()
            }));
        }
        self.live.record(&Record::GpuSample(GpuSample {
            device: 0,
            at_ns: at(second),
            utilization_percent: Some((second % 100) as u32),
            processes: Some(vec![GpuProcess { pid: RANK, memory_bytes: Some(second) }]),
            ..GpuSample::default()
        }));
        self.live.record(&Record::DeviceMemory(DeviceMemory {
            pid: RANK,
            tid: RANK,
            at_ns: at(second),
            device_type: 1,
            device: 0,
            bytes: 5,
            allocated: second,
            reserved: second,
        }));
        self.live.record(&Record::CudaLaunches(CudaLaunches {
            pid: RANK,
            tid: RANK,
            stream: 0,
            first_ns: at(second),
            last_ns: at(second),
            count: 5,
        }));
    }

    fn reported(&mut self, second: u64) {
        self.live.record(&Record::Pressure(Pressure {
            pid: RANK,
            since_ns: at(second.saturating_sub(1)),
            at_ns: at(second),
            net_containers: second,
            ..Pressure::default()
        }));
        self.live.record(&Record::Step(StepMark {
            marker: NamedMarker::Backward,
            pid: RANK,
            tid: RANK,
            start_ns: at(second),
            end_ns: at(second) + 300 * MS,
            cpu_ns: None,
        }));
        self.live.record(&Record::Annotation(Annotation {
            pid: RANK,
            tid: RANK,
            name: format!("ProfilerStep#{second}"),
            start_ns: at(second),
            end_ns: at(second + 1),
        }));
        self.live.record(&Record::ThreadName(ThreadName {
            pid: RANK,
            tid: second as u32,
            name: format!("Thread-{second}"),
        }));
        self.live.resident(RANK, at(second), second);
        let recorder = RecorderCost { cpu_ns: Some(second * MS), ..RecorderCost::default() };
        self.live.recorder(at(second), recorder);
        if second.is_multiple_of(20) {
            self.live.record(&Record::Note(Note {
                pid: Some(RANK),
                at_ns: at(second),
                message: format!("The interpreter of process {second} was not found in time."),
            }));
            self.live.record(&Record::GpuDevice(GpuDevice {
                name: Some("NVIDIA H100".to_owned()),
                ..GpuDevice::default()
            }));
            self.live.record(&Record::Settings(GcSettings {
                pid: RANK,
                at_ns: at(second),
                enabled: Some(true),
                thresholds: [700, 10, 10],
                stack: None,
            }));
            self.live.record(&Record::Allocations(Allocations {
                pid: RANK,
                at_ns: at(second),
                per_cpu_second: Some(second),
                ..Allocations::default()
            }));
        }
    }

    fn second(&mut self, second: u64) {
        // A program loads its modules first, and makes new lines all day.
        for _ in 0..if second < HOUR { 225 } else { 1 } {
            self.frame();
        }
        // Often in the first hour, so that every bound is reached in it.
        if second.is_multiple_of(if second < HOUR { 30 } else { 120 }) {
            self.workers(second);
        }
        for n in 1..=4 {
            self.pause(RANK, at(second) + n * 200 * MS, n * MS);
        }
        if second.is_multiple_of(30) {
            self.pause(RANK, at(second) + 950 * MS, 40 * MS);
        }
        self.gpu(second);
        self.reported(second);
        if second.is_multiple_of(600) {
            assert!(self.snapshot(second).processes.len() <= 80);
        }
    }

    fn snapshot(&self, second: u64) -> Snapshot {
        self.live.snapshot(&SnapshotRequest {
            now_ns: at(second) + SECOND,
            interval_ns: SECOND,
            detail: Some(RANK),
        })
    }
}

fn at(second: u64) -> u64 {
    START + (second + 3) * SECOND
}

#[test]
fn a_day_takes_no_more_memory_than_an_hour() {
    let before = live_allocated::allocated();
    let mut day = Day::begin();
    (0..HOUR).step_by(EVERY as usize).for_each(|second| day.second(second));
    let after_an_hour = live_allocated::allocated() - before;
    (HOUR..24 * HOUR).step_by(EVERY as usize).for_each(|second| day.second(second));
    let after_a_day = live_allocated::allocated() - before;
    println!("bytes after an hour {after_an_hour}, after a day {after_a_day}");
    assert!(
        after_a_day.abs_diff(after_an_hour) < 256 << 10,
        "{after_an_hour} bytes after an hour, {after_a_day} after a day"
    );
    let last = 24 * HOUR - EVERY;
    let snapshot = day.snapshot(last);
    let totals = &snapshot.totals;
    assert_eq!(totals.collections.pauses.iter().sum::<u64>(), day.pauses);
    assert_eq!(totals.collections.pause_ns.iter().sum::<u64>(), day.pause_ns);
    assert_eq!(totals.processes, day.processes);
    assert_eq!(totals.ended, day.processes - 1 - u64::from(WORKERS));
    let detail = snapshot.detail.unwrap();
    let lines = detail.lines.iter().map(|line| line.pauses.count);
    let processes = &snapshot.processes[0];
    assert_eq!(
        lines.sum::<u64>() + detail.other_lines.count,
        processes.collections.pauses.iter().sum::<u64>()
    );
    let busy = processes.gpus[0].busy.unwrap();
    // 150 ms of every 200 for 800 ms of every round.
    assert_eq!(busy.total_busy_ns, 24 * HOUR / EVERY * 600 * MS);
}
