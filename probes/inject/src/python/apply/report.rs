//! The agent's report: facts of the process and the build, and the line for people.

use super::agent::Agent;
use super::calls;
use crate::apply::files::{command_line, peak_rss_bytes, rss_bytes};
use crate::python::api::PythonApi;
use crate::python::collector_state::version;
use gctrace_settings::{AppliedProcess, CollectionSums, GcChange};

/// Applied settings in the line for people.
const SHOWN: usize = 4;

/// Whether full collections are made in increments (3.14.0 to 3.14.4).
pub(super) fn is_incremental(api: &PythonApi) -> bool {
    !api.is_free_threaded() && matches!(version(api), Some((14, 0..=4)))
}

impl Agent {
    /// The report of a process that has just begun; the agent starts with it.
    pub(super) fn new_report(&self, now: u64) -> AppliedProcess {
        let version = self.api.version().to_string_lossy();
        AppliedProcess {
            pid: std::process::id(),
            rank: self.options.rank,
            command: command_line(),
            python: version.split_once(' ').map_or(&*version, |(number, _)| number).to_owned(),
            free_threaded: self.api.is_free_threaded(),
            setting: self.options.request.setting.clone(),
            start_ns: now,
            rss_bytes_at_start: rss_bytes(),
            ..AppliedProcess::default()
        }
    }

    /// Warnings about the effect of the settings in this build.
    pub(super) fn warn_of_build(&mut self) {
        let (is_free_threaded, is_incremental) =
            (self.api.is_free_threaded(), is_incremental(self.api));
        if self.options.counts_function && version(self.api).is_none_or(|version| version < (12, 0))
        {
            self.warn("calls of a function are seen in CPython 3.12 and later only");
        }
        let options = self.options;
        for item in options.request.setting.items() {
            match &item.change {
                GcChange::Plan(plan) => {
                    if is_free_threaded {
                        self.warn(
                            "free-threaded builds have no generations: each planned collection is a \
                             full one",
                        );
                    } else if plan.full() == 0 {
                        self.warn(&format!(
                            "generation 2 is never collected: cyclic garbage that survives two \
                             collections is never freed; plan:{},gen2:{} frees it",
                            plan.every,
                            plan.every.saturating_mul(10)
                        ));
                    }
                    if is_incremental {
                        self.warn(
                            "3.14.0 to 3.14.4 collect in increments: a planned collection of \
                             generation 1 is one increment",
                        );
                    }
                }
                GcChange::Threshold(values) if is_free_threaded && values.len() > 1 => self.warn(
                    "free-threaded builds have no generations: only the first threshold has an \
                     effect",
                ),
                GcChange::Threshold(values) if is_incremental && values.len() > 2 => self.warn(
                    "3.14.0 to 3.14.4 collect in increments: the third threshold has no effect",
                ),
                _ => {}
            }
        }
    }

    /// Updates the values that change all the time. Needs no lock of the interpreter.
    pub(super) fn update_report(&mut self, now: u64) {
        let auto = self.search_report();
        let report = &mut self.report;
        report.end_ns = now;
        report.auto = auto;
        report.parent = std::os::unix::process::parent_id();
        report.rss_bytes_at_end = rss_bytes();
        report.peak_rss_bytes = peak_rss_bytes();
        calls::with(|calls| {
            report.own_threshold = calls.thresholds.first().copied().map_or(0, u64::from);
            report.calls.clone_from(&calls.calls);
            report.asked.clone_from(&calls.asked);
        });
    }

    /// A summary for people, for a process without a folder. `None`: nothing, in a forked child.
    pub(super) fn line(&self) -> Option<String> {
        let report = &self.report;
        if self.options.folder.is_some() || (report.steps == 0 && report.forked) {
            return None;
        }
        let what = match (&report.failure, report.steps) {
            (Some(why), _) => format!("switched off by a fault of its own: {why}"),
            (None, 0) if report.applied.is_empty() => {
                "no step was seen: nothing was applied".to_owned()
            }
            (None, 0) => "no step was seen; applied at the start".to_owned(),
            (None, steps) => {
                let applied = report.applied.iter().take(SHOWN);
                let applied: Vec<String> =
                    applied.map(|one| format!("{} after step {}", one.setting, one.step)).collect();
                format!(
                    "{steps} steps by {}; applied: {}; undone {} times",
                    report.marker.as_deref().unwrap_or("nothing"),
                    if applied.is_empty() { "nothing".to_owned() } else { applied.join(", ") },
                    report.undone.iter().map(|one| one.times).sum::<u64>()
                )
            }
        };
        let sums: &CollectionSums = report.after.as_ref().unwrap_or(&report.before);
        Some(format!(
            "process {}: {}: {what}; {} collections, {:.1} ms",
            report.pid,
            self.options.request.text(),
            sums.count(),
            sums.all_pause_ns() as f64 / 1e6
        ))
    }
}
