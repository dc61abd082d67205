//! The basis of the rules: figures of the process and the phase that the verdict names.

use crate::report::{
    AdviceId, ByCause, CalledReport, CalledSamples, CleanupCall, CleanupSite, CleanupVerdict,
    CpuReport, JudgedPhase, LoopReport, PhaseReport, ProcessReport, Report, SettingsReport,
};
use crate::time::{beyond, sum, times};
use gctrace_event::{CalledKind, ProcessOrigin, TraceEnd};
use gctrace_settings::NEXT_TO_NOTHING_PER_S;
use gctrace_stats::ratio;

/// A smaller share of the allocated objects than this is next to nothing, as fewer than
/// [`NEXT_TO_NOTHING_PER_S`] are.
const FREED_RATIO: f64 = 0.000_1;
/// The same of all that a script frees, by number and as a share: pytest and compilers of 10 s free some thousand.
const FEW_OBJECTS: u64 = 20_000;
const FEW_RATIO: f64 = 0.01;
/// Memory that collections gave back, in bytes, is more than nothing from here on.
const GIVEN_BACK: u64 = 16 << 20;
/// A program makes instances of a class again and again from this number and this part of the examined garbage on.
const INSTANCES: f64 = 100.0;
const INSTANCES_RATIO: f64 = 0.2;
/// An explicit collection that frees fewer objects frees next to nothing.
const FREED_EACH: u64 = 4;
/// A collection that takes longer, and hardly uses the CPU, hangs, in ns.
const HANGS_NS: u64 = 2_000_000_000;
/// A heap of more objects is worth freezing: a full collection of it takes some 10 ms.
const LARGE_HEAP: u64 = 200_000;

/// Code that collections run appears in at least this share of their samples. A single sample is enough: a short
/// program has ten in all. To disable a collector that frees something costs more than to keep one that frees
/// nothing.
const CALLED_RATIO: f64 = 0.05;
/// From CPython 3.13 on `gc_collect_main` calls the functions in `gc.callbacks` itself.
const CALLBACKS_INSIDE: u32 = 13;

/// The judged process, and its collections in the judged phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(super) report: &'a Report,
    pub(crate) process: &'a ProcessReport,
    /// `None`: all of the process.
    phase: Option<&'a PhaseReport>,
    /// Its collections by cause, in CPU time where that is known.
    pub(super) causes: ByCause,
}

impl<'a> Facts<'a> {
    /// `None` if no process collected.
    pub(crate) fn of(report: &'a Report) -> Option<Self> {
        let process = report.judged_process()?;
        let phase = report.judged_phase();
        Some(Self { report, process, phase, causes: report.judged_causes() })
    }

    /// Length of the judged phase without waits for a CPU, in ns: other programs change no advice.
    pub(super) fn unhindered_ns(&self) -> u64 {
        if let Some(phase) = self.phase { phase.unhindered_ns() } else { self.process.observed_ns }
    }

    /// The same of the recorded run of the process.
    pub(super) fn run_ns(&self) -> u64 {
        match &self.report.phases {
            Some(phases) => phases.unhindered_ns(),
            None => self.process.observed_ns,
        }
    }

    /// Time of its automatic collections, in ns.
    pub(super) fn automatic_ns(&self) -> u64 {
        self.causes.automatic().time_ns
    }

    /// A lower bound: CPython does not count objects that die in a finalizer, as a suspended generator does (3.8 to
    /// 3.13).
    fn freed_objects(&self) -> Option<u64> {
        let finalized = sum(self.called(CalledKind::Finalizer).map(|called| called.calls));
        self.counted_as_freed().map(|counted| counted.max(finalized))
    }

    fn counted_as_freed(&self) -> Option<u64> {
        match self.phase {
            Some(phase) => phase.freed_objects,
            None => {
                let pauses = &self.process.pauses;
                if pauses.outcome_unknown < pauses.count { Some(pauses.collected) } else { None }
            }
        }
    }

    /// The part of the containers allocated between young collections that these collections freed, at most; `None`
    /// if unknown.
    pub(super) fn garbage_ratio(&self) -> Option<f64> {
        let counted = self.process.by_generation[0].count;
        let young = if let Some(phase) = self.phase { phase.young } else { counted };
        let thresholds = match &self.process.settings {
            Some(settings) => settings.thresholds,
            None => SettingsReport::DEFAULT_THRESHOLDS,
        };
        let each = u64::try_from(thresholds[0]).unwrap_or(0);
        ratio(self.freed_objects()?, times(young, each))
    }

    /// The Python code that its collections run to free garbage, by samples: what dies in it CPython does not count.
    /// Collections of CPython 3.13 and later also run the functions in `gc.callbacks`.
    pub(crate) fn finalizer(&self) -> Option<&'a CalledSamples> {
        let is_of =
            |cpu: &&CpuReport| (cpu.trace, cpu.pid) == (self.process.trace, self.process.pid);
        let called = self.report.cpu.iter().find(is_of)?.called.as_ref()?;
        let version = self.process.interpreter.as_ref()?.version.split('.');
        let minor = version.skip(1).find_map(|part| part.parse::<u32>().ok())?;
        let is_finalizer = called.also_outside
            || called.line.function.ends_with("__del__")
            || minor < CALLBACKS_INSIDE;
        if is_finalizer && called.ratio >= CALLED_RATIO { Some(called) } else { None }
    }

    /// The same where CPython counts next to nothing else as freed.
    pub(crate) fn uncounted(&self) -> Option<&'a CalledSamples> {
        if self.counts_nothing() == Some(true) { self.finalizer() } else { None }
    }

    /// Whether its collections free next to nothing; `None` if unknown.
    pub(super) fn frees_nothing(&self) -> Option<bool> {
        Some(self.counts_nothing()? && self.finalizer().is_none())
    }

    /// Whether they free instances of classes; each of these may own much. In-process, the memory that collections
    /// give back is measured.
    pub(super) fn may_free_buffers(&self) -> bool {
        let garbage = self.process.garbage.as_ref();
        let mut kinds = garbage.iter().flat_map(|garbage| &garbage.kinds);
        let memory = &self.process.memory;
        // Probes read it around few collections.
        let is_measured = match (memory.freed_objects, memory.freed_bytes) {
            (Some(freed), Some(_)) => times(freed, 2) >= self.process.pauses.collected,
            _ => false,
        };
        !is_measured
            && kinds.any(|kind| {
                let all = kind.ratio * self.process.pauses.collected as f64;
                kind.is_class() && all >= INSTANCES && kind.ratio >= INSTANCES_RATIO
            })
    }

    fn counts_nothing(&self) -> Option<bool> {
        let freed = self.freed_objects()?;
        if self.may_free_buffers() {
            return Some(false);
        }
        if matches!(self.process.memory.freed_bytes, Some(bytes) if bytes >= GIVEN_BACK) {
            return Some(false);
        }
        let per_s = ratio(freed, self.unhindered_ns()).map(|per_ns| per_ns * 1e9);
        let is_below = |bound: f64| matches!(self.garbage_ratio(), Some(ratio) if ratio < bound);
        // A script ends before this few objects matter.
        let is_few = freed < FEW_OBJECTS && self.ends() && is_below(FEW_RATIO);
        Some(
            per_s.is_none_or(|rate| rate < NEXT_TO_NOTHING_PER_S as f64)
                || is_below(FREED_RATIO)
                || is_few,
        )
    }

    /// Whether the program is a script that ends by itself: nothing in it waits for more work, and objects never
    /// freed end with it.
    pub(super) fn ends(&self) -> bool {
        let trace = self.report.traces.get(self.process.trace);
        let by_itself =
            matches!(trace, Some(trace) if trace.ended.as_deref() == Some(TraceEnd::COMMAND_ENDED));
        let launched = self.process.origin == Some(ProcessOrigin::Launched);
        by_itself
            && launched
            && self.process.exit_code.is_some()
            && !self.grows()
            && self.steps().is_none()
            && !self.serves()
    }

    /// Whether it is a service: one that ends here runs for days elsewhere.
    pub(super) fn serves(&self) -> bool {
        let id = (self.process.trace, self.process.pid);
        let has_loop = |of: &LoopReport| (of.trace, of.pid) == id && of.waits_for_many();
        self.report.service_loops().any(has_loop)
    }

    /// The time of functions in `gc.callbacks`, in ns; 0 if there are none or it is unknown.
    pub(super) fn callbacks_ns(&self) -> u64 {
        sum(self.called(CalledKind::Callback).map(|called| called.time_ns))
    }

    fn called(&self, kind: CalledKind) -> impl Iterator<Item = &'a CalledReport> {
        self.process.called.iter().filter(move |called| called.kind == kind)
    }

    /// How long a collection had not ended when the process or the recording did, in ns; `None` if none hung. Probes
    /// show a collection in progress by the main thread's time off the CPU in it.
    pub(crate) fn hang_ns(&self) -> Option<u64> {
        let waits = self.report.worst.iter().filter(|pause| {
            pause.unfinished && pause.cpu_ns.is_none_or(|ns| ns < pause.duration_ns / 2)
        });
        let longest_ns = waits.map(|pause| pause.duration_ns).max();
        let id = (self.process.trace, self.process.pid);
        let cpu = self.report.cpu.iter().find(|cpu| (cpu.trace, cpu.pid) == id);
        let main = cpu.and_then(|cpu| cpu.main_thread.as_ref());
        let open_ns =
            main.map(|main| beyond(main.off_cpu_in_pauses_ns, self.process.pauses.time_ns));
        let ns = longest_ns.max(open_ns)?;
        if ns >= HANGS_NS { Some(ns) } else { None }
    }

    /// Whether it is one of several ranks of a job.
    pub(crate) fn is_rank(&self) -> bool {
        let Some(phases) = &self.report.phases else { return false };
        phases.rank.is_some() && phases.among > 1
    }

    /// What to do about cycles: break the known ones, or find them.
    pub(super) fn about_cycles(&self) -> AdviceId {
        let garbage = &self.process.garbage;
        let is_known = matches!(garbage, Some(garbage) if !garbage.kinds.is_empty());
        match is_known || self.uncounted().is_some() {
            true => AdviceId::BreakCycles,
            false => AdviceId::FindCycles,
        }
    }

    /// Whether the cycles that would be named are made by the standard library: no line of the program breaks them.
    pub(super) fn has_cycles_of_python(&self) -> bool {
        let Some(garbage) = &self.process.garbage else { return false };
        self.uncounted().is_none() && garbage.is_of_python()
    }

    /// The line with the most time of explicit collections.
    pub(crate) fn costliest_call(&self) -> Option<&'a CleanupSite> {
        let sites = self.process.cleanup.as_ref()?.sites.iter();
        let collects = sites.filter(|site| site.call == CleanupCall::Collect);
        collects.max_by_key(|site| site.time_ns)
    }

    /// Whether its explicit collections free garbage: removed, it would wait.
    pub(crate) fn explicit_calls_free(&self) -> bool {
        let Some(site) = self.costliest_call() else { return false };
        let each = if let Some(freed) = site.freed_objects { site.each(freed) } else { 0 };
        site.verdict != CleanupVerdict::TooFew && each >= FREED_EACH
            || site.verdict == CleanupVerdict::FreesCycles
    }

    /// Whether its memory rises beyond chance, after any set-up.
    pub(super) fn grows(&self) -> bool {
        let Some(trend) = &self.process.trend else { return false };
        trend.rises()
    }

    pub(crate) fn steps(&self) -> Option<u64> {
        let phases = self.report.phases.as_ref()?;
        phases.steps
    }

    /// Whether an interpreter forked it, with its heap.
    pub(super) fn is_forked(&self) -> bool {
        let Some(phases) = &self.report.phases else { return false };
        phases.forked
    }

    pub(super) fn at_start_up(&self) -> bool {
        let Some(phases) = &self.report.phases else { return false };
        phases.judged == JudgedPhase::StartUp
    }

    /// Whether so many objects are alive that a full collection takes long, and none of them were frozen: what is
    /// traversed after that came later.
    pub(super) fn has_large_heap(&self) -> bool {
        self.process.largest_heap >= Some(LARGE_HEAP) && self.process.after_freeze.is_none()
    }

    /// Whether its full collections traverse mostly objects of its parent. `None`: it was not forked, or had no full
    /// collection.
    /// One that froze its heap traverses that no longer.
    pub(super) fn traverses_inherited(&self) -> Option<bool> {
        let process = self.process;
        if !self.is_forked() {
            return None;
        }
        let is_parent = |other: &&ProcessReport| {
            (Some(other.pid), other.trace) == (process.parent, process.trace)
        };
        let parent = self.report.processes.iter().find(is_parent);
        let growth = parent.and_then(|parent| parent.growth.as_ref());
        let mut points = growth.iter().flat_map(|growth| growth.over_time.iter().rev());
        let before = points.find(|point| point.after_start_ns < process.since_start_ns);
        let objects = process.inherited.objects(before.map(|point| point.objects))?;
        Some(times(objects, 2) >= process.largest_heap? && process.after_freeze.is_none())
    }

    /// Time of all its collections when the interpreter ends, and after its last step, in ns. In-process, the time of
    /// the interpreter's end: collections are most of it.
    pub(super) fn exit_ns(&self) -> u64 {
        let phases = self.report.phases.as_ref();
        let seen_ns = if let Some(of) = phases { of.exit.causes.total().time_ns } else { 0 };
        seen_ns.max(self.unseen_end_ns().unwrap_or(0))
    }

    /// CPU time of the interpreter's end, in ns. In-process its collections are not seen.
    pub(crate) fn unseen_end_ns(&self) -> Option<u64> {
        self.process.unseen.as_ref()?.end_ns
    }
}
