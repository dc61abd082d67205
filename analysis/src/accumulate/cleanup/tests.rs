use super::*;
use crate::accumulate::stacks::TraceFrames;
use crate::report::{CleanupScale, CleanupVerdict};
use gctrace_event::{Frame, GcReason};

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// A process that cleans up, and the device that it uses.
#[derive(Default)]
struct Program {
    sums: CleanupSums,
    tree: StackTree,
    now_ns: u64,
    reserved: u64,
    allocated: u64,
}

impl Program {
    fn line(&mut self, line: u32) -> Option<NodeId> {
        let mut frames = TraceFrames::default();
        let frame = Frame {
            id: line,
            function: "serve".to_owned(),
            file: "generate.py".to_owned(),
            line: Some(line),
            ..Frame::default()
        };
        frames.add(frame, &mut self.tree);
        frames.resolve(line, &mut self.tree)
    }

    fn pass(&mut self, ms: u64) {
        self.now_ns += ms * MS;
    }

    fn collect(&mut self, line: u32, ms: u64, (objects, bytes, device): (u64, u64, u64)) {
        let node = self.line(line);
        let start_ns = self.now_ns;
        self.pass(ms);
        let pause = Pause {
            tid: 1,
            start_ns,
            end_ns: self.now_ns,
            reason: GcReason::Manual,
            collected: Some(objects),
            freed_bytes: Some(bytes),
            ..Pause::default()
        };
        self.sums.add_collect(&pause, Basis::Measured, node);
        if device > 0 {
            self.sums.add_pause_memory(&PauseMemory {
                pid: 0,
                tid: 1,
                start_ns,
                end_ns: self.now_ns,
                device_type: 1,
                device: 0,
                freed_bytes: device,
                freed_blocks: 1,
            });
        }
    }

    fn call(&mut self, function: &'static str, error: Option<i32>) {
        let start_ns = self.now_ns;
        self.pass(10);
        self.sums.add_call(&CudaCall {
            tid: 1,
            function: function.into(),
            start_ns,
            end_ns: self.now_ns,
            bytes: Some(2 * MIB),
            error,
            ..CudaCall::default()
        });
    }

    /// What the allocator reports whenever it gives out or takes a block.
    fn memory(&mut self, reserved: u64, allocated: u64) {
        (self.reserved, self.allocated) = (reserved, allocated);
        self.sums.add_memory(&DeviceMemory {
            pid: 0,
            tid: 1,
            at_ns: self.now_ns,
            allocated,
            reserved,
            bytes: 1,
            device: 0,
            device_type: 1,
        });
    }

    fn report(&self) -> CleanupReport {
        let scale = CleanupScale { resident_bytes: Some(4_000 * MIB), ..CleanupScale::default() };
        self.sums.report(0, &self.tree, scale).unwrap()
    }
}

fn lines(report: &CleanupReport) -> Vec<(CleanupCall, Option<u32>, CleanupVerdict)> {
    let line = |site: &CleanupSite| site.location.as_ref().and_then(|location| location.line);
    let mut lines: Vec<_> =
        report.sites.iter().map(|site| (site.call, line(site), site.verdict)).collect();
    lines.sort_by_key(|(call, line, _)| (*call, *line));
    lines
}

/// Three useless cleanups and two that are worth their time, each at its line.
#[test]
fn cleanup_is_judged_line_by_line() {
    let mut program = Program::default();
    program.memory(4_096 * MIB, 1_024 * MIB);
    for request in 0..50_u64 {
        program.pass(500);
        program.collect(10, 30, (0, 0, 0));
        program.pass(500);
        program.collect(20, 40, (37, 4_096, 0));
        program.pass(500);
        program.collect(30, 50, (90_000, 300 * MIB, 0));
        program.pass(500);
        program.collect(40, 5, (12, 0, 900 * MIB));
        program.pass(500);
        // What it returns is taken again 12 ms later.
        program.collect(50, 5, (3, 0, 0));
        program.pass(1);
        for _ in 0..3 {
            program.call("cudaFree", None);
        }
        program.pass(12);
        program.memory(1_100 * MIB, 1_024 * MIB);
        program.memory(4_096 * MIB, 3_000 * MIB);
        program.pass(500);
        program.memory(4_096 * MIB, 1_024 * MIB + request);
    }
    program.pass(500);
    program.memory(4_096 * MIB, 1_024 * MIB);
    let report = program.report();
    let expected = [
        (CleanupCall::Collect, Some(10), CleanupVerdict::Useless),
        (CleanupCall::Collect, Some(20), CleanupVerdict::Useless),
        (CleanupCall::Collect, Some(30), CleanupVerdict::FreesCycles),
        (CleanupCall::Collect, Some(40), CleanupVerdict::FreesCycles),
        (CleanupCall::Collect, Some(50), CleanupVerdict::Useless),
        (CleanupCall::EmptyCache, Some(50), CleanupVerdict::Undone),
    ];
    assert_eq!(lines(&report), expected);
    let emptied = report.sites.iter().find(|site| site.call == CleanupCall::EmptyCache).unwrap();
    assert_eq!((emptied.calls, emptied.time_ns), (50, 50 * 30 * MS));
    assert_eq!(emptied.device_bytes, Some(50 * 2_996 * MIB));
    assert_eq!(emptied.taken_again_bytes, emptied.device_bytes);
    assert_eq!(emptied.taken_again_after_ns, Some(12 * MS));
    assert_eq!(report.emptied_by_allocator, 0);
}

/// Returned once, for another process: no line of a `gc.collect()` is near.
#[test]
fn what_stays_free_lasts() {
    let mut program = Program::default();
    for _ in 0..4 {
        program.memory(4_096 * MIB, 1_024 * MIB);
        program.pass(5_000);
        program.call("cuMemUnmap", None);
        program.call("cuMemRelease", None);
        for _ in 0..11 {
            program.pass(1_000);
            program.memory(1_024 * MIB, 1_000 * MIB);
        }
    }
    assert_eq!(lines(&program.report()), [(CleanupCall::EmptyCache, None, CleanupVerdict::Lasts)]);
}

/// A program that frees what it allocated itself empties no cache.
#[test]
fn other_frees_are_no_cleanup() {
    let mut program = Program::default();
    for _ in 0..50 {
        program.memory(1_024 * MIB, 512 * MIB);
        program.pass(300);
        program.call("cudaFree", None);
        program.call("cudaFreeHost", None);
        program.pass(300);
    }
    let scale = CleanupScale::default();
    assert_eq!(program.sums.report(0, &program.tree, scale), None);
}

/// The allocator frees its cache when the driver refuses memory: no line of the program did.
#[test]
fn out_of_memory_shows_what_was_held() {
    let mut program = Program::default();
    program.memory(4_096 * MIB, 1_024 * MIB);
    program.pass(1_000);
    program.call("cudaMalloc", Some(2));
    program.call("cudaFree", None);
    program.call("cudaMalloc", None);
    program.memory(1_026 * MIB, 1_026 * MIB);
    program.pass(1_000);
    program.collect(7, 10, (500, 0, 700 * MIB));
    program.memory(1_026 * MIB, 326 * MIB);
    let report = program.report();
    assert_eq!(report.emptied_by_allocator, 1);
    assert_eq!(lines(&report), [(CleanupCall::Collect, Some(7), CleanupVerdict::TooFew)]);
    let held = OutOfMemory {
        at_ns: 1_000 * MS,
        wanted_bytes: Some(2 * MIB),
        allocated_bytes: Some(1_024 * MIB),
        cached_bytes: Some(3_072 * MIB),
        freed_by_next_collection_bytes: Some(700 * MIB),
    };
    assert_eq!(report.out_of_memory, [held]);
}
