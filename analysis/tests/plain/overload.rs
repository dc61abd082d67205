//! The same programs on an idle machine and next to others: verdict and advice are the same.

use gctrace_analysis::report::{AdviceId, Level, PhasesReport, Report};
use gctrace_event::{GcReason, Pause, Pressure, Record};
use test_kit::reports::{MS, START, end, pause, process, report};

/// A machine on which each program gets one of `load` equal slices.
struct Machine {
    load: u64,
    /// Whether the kernel counts waits.
    counts: bool,
    now_ns: u64,
    slice_left_ns: u64,
    cpu_ns: u64,
    waited_ns: u64,
    read_ns: u64,
    records: Vec<Record>,
}

impl Machine {
    const SLICE_NS: u64 = 3 * MS;

    fn new(load: u64, counts: bool) -> Self {
        Self {
            load,
            counts,
            now_ns: START,
            slice_left_ns: Self::SLICE_NS,
            cpu_ns: 0,
            waited_ns: 0,
            read_ns: START,
            records: vec![process(1, 0, "generational")],
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.waited_ns += ns;
        self.slice_left_ns = Self::SLICE_NS;
    }

    fn run(&mut self, mut ns: u64) {
        while ns > 0 {
            if self.slice_left_ns == 0 {
                self.wait((self.load - 1) * Self::SLICE_NS);
            }
            let part_ns = ns.min(self.slice_left_ns);
            self.now_ns += part_ns;
            self.cpu_ns += part_ns;
            self.slice_left_ns -= part_ns;
            ns -= part_ns;
        }
        if self.counts && self.now_ns >= self.read_ns {
            self.read_ns = self.now_ns + 100 * MS;
            self.records.push(Record::Pressure(Pressure {
                pid: 1,
                since_ns: self.now_ns,
                at_ns: self.now_ns,
                cpu_ns: Some(self.cpu_ns),
                cpu_wait_ns: Some(self.waited_ns),
                ..Pressure::default()
            }));
        }
    }

    fn collect(&mut self, ns: u64, tid: u32) {
        self.collect_for(ns, tid, GcReason::Automatic);
    }

    fn collect_for(&mut self, ns: u64, tid: u32, reason: GcReason) {
        let start_ns = self.now_ns;
        self.run(ns);
        let (end_ns, cpu_ns, collected) = (self.now_ns, Some(ns), Some(10));
        let times = Pause { start_ns, end_ns, tid, cpu_ns, collected, reason, ..pause(1, 0, 1) };
        self.records.push(Record::Pause(times));
    }

    /// Sleeps, and waits for a CPU when it is over.
    fn sleep(&mut self, ns: u64) {
        self.now_ns += ns;
        self.wait((self.load - 1) * Self::SLICE_NS / 2);
    }

    fn report(self) -> Report {
        let end_ns = self.now_ns;
        report(self.records, Some(end((end_ns - START).div_ceil(MS))))
    }
}

fn computes(machine: &mut Machine) {
    for _ in 0..200 {
        machine.run(9 * MS);
        machine.collect(MS, 1);
    }
}

fn mostly_waits(machine: &mut Machine) {
    for _ in 0..50 {
        machine.sleep(90 * MS);
        machine.run(7 * MS);
        machine.collect(3 * MS, 1);
    }
}

/// Four threads under one lock: those that do not have it wait for a CPU too, whenever they ask for it.
fn has_threads(machine: &mut Machine) {
    for turn in 0..400 {
        machine.run(4 * MS);
        machine.collect(MS, 1 + turn % 4);
        machine.waited_ns += 3 * (machine.load - 1) * Machine::SLICE_NS;
    }
}

type Program = fn(&mut Machine);

fn phases_of(program: Program, load: u64, counts: bool) -> (Level, Option<PhasesReport>, String) {
    let mut machine = Machine::new(load, counts);
    program(&mut machine);
    let report = machine.report();
    (report.verdict.level, report.phases, report.verdict.sentence)
}

const PROGRAMS: [(&str, Program, f64, Level); 3] = [
    ("computes", computes, 0.1, Level::Heavy),
    ("mostly waits", mostly_waits, 0.03, Level::Noticeable),
    ("has threads", has_threads, 0.2, Level::Heavy),
];

#[test]
fn load_changes_no_verdict() {
    for (name, program, share, level) in PROGRAMS {
        for load in [1, 2, 4, 10] {
            let (found, phases, sentence) = phases_of(program, load, true);
            let ratio = phases.as_ref().unwrap().training.paused_ratio.unwrap();
            assert_eq!(found, level, "{name} at load {load}: {sentence}");
            assert!((ratio / share - 1.0).abs() < 0.1, "{name} at load {load}: {sentence}");
            // Two programs wait for each other for about half of the time.
            let is_said = sentence.contains("overloaded");
            assert!(is_said == (load > 2) || load == 2, "{sentence}");
        }
    }
}

/// Also of what they free in a second, and of the end of the interpreter.
#[test]
fn load_changes_no_advice() {
    let ends: Program = |machine| {
        computes(machine);
        machine.collect_for(40 * MS, 1, GcReason::Shutdown);
    };
    let programs = PROGRAMS.map(|(name, program, ..)| (name, program)).into_iter();
    for (name, program) in programs.chain([("ends", ends)]) {
        let advice = |load| {
            let mut machine = Machine::new(load, true);
            program(&mut machine);
            let list = machine.report().advice.into_iter();
            list.map(|one| (one.id, one.effect.saves_at_most_ns, one.effect.settings))
                .collect::<Vec<_>>()
        };
        let alone = advice(1);
        assert!(alone.iter().any(|(_, saves_ns, _)| saves_ns.is_some()), "{name}: {alone:?}");
        let at_exit = alone.iter().any(|(id, ..)| *id == AdviceId::FreezeAtExit);
        assert_eq!(at_exit, name == "ends", "{name}: {alone:?}");
        for load in [2, 4, 10] {
            assert_eq!(advice(load), alone, "{name} at load {load}");
        }
    }
}

/// A collection of seconds, on a heap of tens of millions of objects.
#[test]
fn cpu_time_of_the_longest_pauses_is_known() {
    let works = |machine: &mut Machine| {
        for _ in 0..3 {
            machine.run(30_000 * MS);
            machine.collect(6_000 * MS, 1);
        }
    };
    for load in [1, 10] {
        let (_, phases, sentence) = phases_of(works, load, true);
        assert_eq!(
            phases.as_ref().unwrap().training.longest_cpu_ns,
            Some(6_000 * MS),
            "{sentence}"
        );
        assert_eq!(
            phases.as_ref().unwrap().training.causes.total().time_ns,
            18_000 * MS,
            "{sentence}"
        );
    }
}

/// Where the kernel does not count waits, all is taken to wait as the pauses did.
#[test]
fn without_counted_waits_work_is_judged_as_well() {
    for (name, program, share, level) in PROGRAMS {
        for load in [1, 2, 4, 10] {
            let (found, phases, sentence) = phases_of(program, load, false);
            let ratio = phases.as_ref().unwrap().training.paused_ratio.unwrap();
            let most = if name == "mostly waits" { load as f64 } else { 1.1 };
            assert!((0.9..=most).contains(&(ratio / share)), "{name} at load {load}: {sentence}");
            assert!(found == level || name == "mostly waits", "{name} at load {load}: {sentence}");
        }
    }
}

#[test]
fn a_pause_is_felt_by_its_cpu_time() {
    let works = |machine: &mut Machine| {
        machine.run(4_000 * MS);
        machine.collect(15 * MS, 1);
        for _ in 0..10 {
            machine.run(500 * MS);
            machine.collect(MS / 10, 1);
        }
    };
    for load in [1, 10] {
        let (level, phases, sentence) = phases_of(works, load, true);
        assert_eq!(level, Level::Negligible, "{sentence}");
        assert_eq!(phases.as_ref().unwrap().training.longest_cpu_ns, Some(15 * MS));
        assert!(sentence.contains("longest pause was 15.0 ms"), "{sentence}");
    }
    let (_, phases, _) = phases_of(works, 10, true);
    assert!(phases.as_ref().unwrap().training.longest_ns > Some(100 * MS));
}

/// A heap that was swapped out: the collection waits for the disk, for no CPU.
#[test]
fn waits_that_are_for_no_cpu_are_the_collections() {
    let swaps = |machine: &mut Machine| {
        for _ in 0..10 {
            machine.run(400 * MS);
            let start_ns = machine.now_ns;
            machine.run(10 * MS);
            machine.now_ns += 200 * MS;
            let (end_ns, cpu_ns) = (machine.now_ns, Some(10 * MS));
            let times = Pause { start_ns, end_ns, cpu_ns, ..pause(1, 0, 1) };
            machine.records.push(Record::Pause(times));
        }
    };
    let (level, phases, sentence) = phases_of(swaps, 1, true);
    assert_eq!(level, Level::Heavy, "{sentence}");
    assert!(phases.as_ref().unwrap().training.paused_ratio > Some(0.3), "{sentence}");
    assert!(!sentence.contains("overloaded"), "{sentence}");
}

/// A switch was missed in the longest, or they called finalizers.
#[test]
fn pauses_without_cpu_time_are_like_the_others() {
    for load in [1, 10] {
        let mut machine = Machine::new(load, true);
        for turn in 0..200 {
            machine.run(9 * MS);
            machine.collect(if turn % 10 == 0 { 21 } else { 1 } * MS, 1);
        }
        for record in &mut machine.records {
            if let Record::Pause(pause) = record {
                pause.cpu_ns = pause.cpu_ns.filter(|cpu_ns| *cpu_ns <= MS);
            }
        }
        let report = machine.report();
        let training = report.phases.unwrap().training;
        let (ratio, sentence) = (training.paused_ratio.unwrap(), report.verdict.sentence);
        assert!((ratio / 0.25 - 1.0).abs() < 0.2, "at load {load}: {sentence}");
        assert_eq!(sentence.contains("overloaded"), load > 1, "{sentence}");
    }
}

/// As in traces of other tools, and old ones.
#[test]
fn without_cpu_times_the_length_of_pauses_counts() {
    let mut machine = Machine::new(4, true);
    computes(&mut machine);
    for record in &mut machine.records {
        if let Record::Pause(pause) = record {
            pause.cpu_ns = None;
        }
    }
    let report = machine.report();
    let training = report.phases.unwrap().training;
    assert_eq!((training.paused_cpu_ns, training.longest_cpu_ns), (None, None));
    let ratio = training.paused_ns as f64 / training.duration_ns as f64;
    assert_eq!(training.paused_ratio, Some(ratio));
    assert!(!report.verdict.sentence.contains("overloaded"));
}
