use super::*;
use crate::cleanup::figures::{
    CleanupCall, CleanupReport, CleanupScale, CleanupSite, CleanupVerdict, CleanupWorth,
    OutOfMemory, Workload,
};
use crate::cleanup::words::cleanup_worth;
use crate::figure::Basis;
use crate::stacks::TraceFrames;
use gctrace_event::{EmptyCache, Frame, GcReason};

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
                freed_blocks: Some(1),
            });
        }
    }

    fn empty(&mut self, line: u32, ms: u64, reserved: Option<(u64, u64)>) {
        let node = self.line(line);
        let start_ns = self.now_ns;
        self.pass(ms);
        let call = EmptyCache {
            tid: 1,
            start_ns,
            end_ns: self.now_ns,
            reserved_before: reserved.map(|reserved| reserved.0),
            reserved_after: reserved.map(|reserved| reserved.1),
            ..EmptyCache::default()
        };
        self.sums.add_empty_cache(&call, node);
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
    let total = report.total.unwrap();
    assert_eq!((total.calls, total.useless_ns), (300, 50 * (30 + 40 + 5 + 30) * MS));
    assert_eq!((total.worth, total.workload), (CleanupWorth::IfMemoryIsShort, Workload::Replacing));
    assert_eq!(
        cleanup_worth(&total).unwrap(),
        "In all 300 calls, 8.00 s: it pays only if memory is short: cycles hold up to 300 MiB and 900 MiB of \
         device memory in this program (it makes large data and drops it again and again), until a call or \
         the next full collection. The other lines take 5.25 s for nothing."
    );
}

/// Calls that the library recorded: each at its own line, also where it gives nothing back.
#[test]
fn recorded_calls_have_lines() {
    let mut program = Program::default();
    for _ in 0..10 {
        program.memory(2_048 * MIB, 1_024 * MIB);
        program.pass(1_000);
        program.empty(60, 41, Some((2_048 * MIB, 1_024 * MIB)));
        program.pass(1);
        program.empty(70, 2, Some((1_024 * MIB, 1_024 * MIB)));
        program.pass(9);
        program.memory(1_500 * MIB, 1_024 * MIB);
        program.pass(2);
        program.memory(2_000 * MIB, 2_000 * MIB);
    }
    program.empty(80, 2, None);
    let report = program.report();
    let expected = [
        (CleanupCall::EmptyCache, Some(60), CleanupVerdict::Undone),
        (CleanupCall::EmptyCache, Some(70), CleanupVerdict::Useless),
        (CleanupCall::EmptyCache, Some(80), CleanupVerdict::TooFew),
    ];
    assert_eq!(lines(&report), expected);
    let undone = &report.sites[0];
    assert_eq!((undone.calls, undone.time_ns, undone.basis), (10, 410 * MS, Basis::Measured));
    assert_eq!(undone.device_bytes, Some(10_240 * MIB));
    assert_eq!(undone.taken_again_bytes, Some((9 * 1_024 + 976) * MIB));
    assert_eq!(undone.taken_again_after_ns, Some(14 * MS));
    assert_eq!(report.sites[2].device_bytes, None);
}

/// With kernel probes beside the library its freeing calls are seen, too: they are no second call.
#[test]
fn a_call_that_both_saw_is_one() {
    let mut program = Program::default();
    for _ in 0..5 {
        program.memory(2_048 * MIB, 1_024 * MIB);
        program.pass(500);
        program.call("cudaFree", None);
        program.now_ns -= 12 * MS;
        program.empty(60, 20, Some((2_048 * MIB, 1_024 * MIB)));
        program.memory(1_024 * MIB, 1_024 * MIB);
        program.pass(500);
    }
    assert_eq!(
        lines(&program.report()),
        [(CleanupCall::EmptyCache, Some(60), CleanupVerdict::Undone)]
    );
    assert_eq!(program.report().sites[0].calls, 5);
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

/// One sentence for each kind of program, from figures.
#[test]
fn what_cleanup_is_worth_depends_on_the_program() {
    let sentence = |act: fn(&mut Program), scale: CleanupScale| {
        let mut program = Program::default();
        (0..4).for_each(|_| act(&mut program));
        let report = program.sums.report(0, &program.tree, scale).unwrap();
        cleanup_worth(&report.total.unwrap())
    };
    let scale = |workload| CleanupScale {
        resident_bytes: Some(2_000 * MIB),
        limit_bytes: Some(6_000 * MIB),
        observed_ns: 10_000 * MS,
        workload,
        ..CleanupScale::default()
    };
    let useless = |program: &mut Program| program.collect(1, 100, (7, 100, 0));
    let cycles = |program: &mut Program| program.collect(1, 100, (7, 100 * MIB, 0));
    assert_eq!(
        sentence(useless, scale(Workload::Script)).unwrap(),
        "In all 4 calls, 400 ms, 4.00 % of the time: none of it pays in this short script (its end \
         frees all): nothing that it frees stays free."
    );
    assert_eq!(
        sentence(cycles, scale(Workload::Service)).unwrap(),
        "In all 4 calls, 400 ms, 4.00 % of the time: it pays only if memory is short: cycles hold up to 100 MiB \
         in this service, until a call or the next full collection; there is room for that 40 times."
    );
    let lasts = |program: &mut Program| {
        program.empty(2, 10, Some((900 * MIB, 100 * MIB)));
        program.pass(20_000);
    };
    assert_eq!(
        sentence(lasts, scale(Workload::Training)).unwrap(),
        "In all 4 calls, 40.0 ms, 0.400 % of the time: it pays only if another process needs device memory: up \
         to 800 MiB stays free in this training."
    );
    let mut once = Program::default();
    once.collect(1, 100, (0, 0, 0));
    let total = once.sums.report(0, &once.tree, scale(Workload::Notebook)).unwrap().total.unwrap();
    assert_eq!((total.worth, cleanup_worth(&total)), (CleanupWorth::TooFew, None));
}
