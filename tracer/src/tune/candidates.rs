//! Settings that whole runs try, by the time of the first run's collections and the memory they freed.

use gctrace_settings::{AppliedProcess, CollectionSums, GcSetting, NEXT_TO_NOTHING_PER_S};
use gctrace_units::{add_to, sum, times};

/// More memory than this is too much to try, in bytes, and as a share of the program's memory.
const SPARE: u64 = 64 << 20;
const ALLOWED: f64 = 0.25;
/// Bytes of an object of garbage, with all that only it holds: it was 50 to 400 in 20 programs.
const EACH: u64 = 400;

/// A run with the program's own settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProgramRun {
    /// Its CPU time, in seconds.
    pub(super) cpu_s: f64,
    /// The most memory of all processes, in bytes; `None`: unknown.
    pub(super) peak_bytes: Option<u64>,
    /// Whether a process made steps.
    pub(super) has_steps: bool,
    /// Objects that collections freed; `None`: unknown, as of a process that confined itself.
    pub(super) garbage: Option<u64>,
    /// CPU time of collections, in ns: of all processes, and of forked ones.
    pub(super) collecting_ns: u64,
    pub(super) forked_ns: u64,
    /// Time of all collections, and of collections that the program asked for, in ns.
    pub(super) pause_ns: u64,
    pub(super) asked_ns: u64,
    /// The line that asked for most of these.
    pub(super) asked_by: Option<String>,
}

impl ProgramRun {
    pub(super) fn of(
        processes: &[AppliedProcess],
        cpu_ns: Option<f64>,
        peak_bytes: Option<u64>,
    ) -> Self {
        let mut run = Self { cpu_s: cpu_ns.unwrap_or(0.0) / 1e9, peak_bytes, ..Self::default() };
        let sums = || processes.iter().flat_map(all_sums);
        let freed = sum(sums().map(CollectionSums::all_garbage));
        run.garbage = sums().next().map(|_| freed);
        for process in processes {
            run.has_steps |= process.steps > 2;
            for sums in all_sums(process) {
                add_to(&mut run.pause_ns, sums.all_pause_ns());
                add_to(&mut run.collecting_ns, sums.cpu_ns);
                let forked_ns = if process.forked { sums.cpu_ns } else { 0 };
                add_to(&mut run.forked_ns, forked_ns);
            }
        }
        let asked = || processes.iter().flat_map(|process| &process.asked);
        run.asked_ns = sum(asked().map(|asked| asked.pause_ns));
        run.asked_by = asked().max_by_key(|asked| asked.pause_ns).map(|asked| asked.by.clone());
        run
    }

    /// Whether most of the collector's time is in collections that the program asks for: if other collections become
    /// rarer, these take longer.
    pub(super) fn is_asked(&self) -> bool {
        self.asked_ns > self.pause_ns / 2
    }

    /// The most memory that a run with another setting may take, in bytes.
    pub(super) fn limit_bytes(&self) -> Option<u64> {
        let peak = self.peak_bytes?;
        Some(sum([peak, SPARE, (peak as f64 * ALLOWED) as u64]))
    }

    fn frees_nothing(&self) -> bool {
        let few = NEXT_TO_NOTHING_PER_S as f64 * self.cpu_s;
        let Some(garbage) = self.garbage else { return false };
        (garbage as f64) < few
    }

    /// Whether the garbage of collections may wait for the end of the run.
    fn may_keep_all(&self) -> bool {
        let (Some(limit), Some(peak)) = (self.limit_bytes(), self.peak_bytes) else { return false };
        let Some(garbage) = self.garbage else { return false };
        times(garbage, EACH) <= limit - peak
    }
}

/// The collections of a process from its start to its end.
pub(super) fn all_sums(process: &AppliedProcess) -> impl Iterator<Item = &CollectionSums> {
    let always = [&process.before, &process.freezing];
    let others = process.startup.iter().chain(&process.after);
    always.into_iter().chain(others).chain(&process.later)
}

/// The settings to try, the most likely first, at points that exist in the program: the objects to freeze are there at
/// a step, or a fork.
pub(super) fn candidates(run: &ProgramRun) -> Vec<GcSetting> {
    const OFF: &str = "disable@start";
    const RARE: &str = "threshold=50000,10,10";
    const RARER: &str = "threshold=7000,10,10";
    const FROZEN: &str = "freeze@step:2";
    const BOTH: &str = "threshold=50000,10,10,freeze@step:2";
    let mut texts = Vec::new();
    // Anyone would notice a tenth of the collector's time.
    if run.forked_ns > run.collecting_ns / 10 {
        texts.push("freeze-forks");
    }
    if run.is_asked() {
        if run.has_steps {
            texts.push(FROZEN);
        }
    } else if run.frees_nothing() {
        texts.extend([OFF, RARE]);
        if run.has_steps {
            texts.extend([BOTH, FROZEN]);
        }
        texts.push(RARER);
    } else {
        texts.extend([RARER, RARE]);
        if run.has_steps {
            texts.extend([FROZEN, BOTH]);
        }
        if run.may_keep_all() {
            texts.push(OFF);
        }
    }
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(run: &ProgramRun) -> Vec<String> {
        candidates(run).iter().map(GcSetting::to_string).collect()
    }

    const RUN: ProgramRun = ProgramRun {
        cpu_s: 4.0,
        peak_bytes: Some(100 << 20),
        has_steps: false,
        garbage: Some(145),
        collecting_ns: 2_000_000_000,
        forked_ns: 0,
        pause_ns: 2_000_000_000,
        asked_ns: 0,
        asked_by: None,
    };

    #[test]
    fn where_nothing_is_freed_collections_are_switched_off_first() {
        let expected = ["disable@start", "threshold=50000,10,10", "threshold=7000,10,10"];
        assert_eq!(texts(&RUN), expected);
        let stepping = ProgramRun { has_steps: true, ..RUN };
        let both = "threshold=50000,10,10,freeze@step:2";
        assert_eq!(texts(&stepping)[..3], ["disable@start", "threshold=50000,10,10", both]);
        assert!(texts(&stepping).contains(&"freeze@step:2".to_owned()));
        let forking = ProgramRun { forked_ns: 1_000_000_000, ..RUN };
        assert_eq!(texts(&forking)[0], "freeze-forks");
    }

    #[test]
    fn collections_that_are_asked_for_have_no_threshold() {
        let asked = ProgramRun { asked_ns: 1_500_000_000, ..RUN };
        assert_eq!(texts(&asked), [""; 0]);
        assert_eq!(texts(&ProgramRun { has_steps: true, ..asked }), ["freeze@step:2"]);
    }

    #[test]
    fn what_frees_memory_is_not_switched_off() {
        let freeing = ProgramRun { garbage: Some(4_000_000), ..RUN };
        assert_eq!(texts(&freeing), ["threshold=7000,10,10", "threshold=50000,10,10"]);
        // 40 MB of garbage are no harm.
        let little = ProgramRun { garbage: Some(100_000), ..RUN };
        assert_eq!(texts(&little).last().map(String::as_str), Some("disable@start"));
        for unknown in [
            ProgramRun { peak_bytes: None, ..little.clone() },
            ProgramRun { garbage: None, ..little },
        ] {
            assert_eq!(texts(&unknown), ["threshold=7000,10,10", "threshold=50000,10,10"]);
        }
    }
}
