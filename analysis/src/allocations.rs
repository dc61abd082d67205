//! Allocations of one process, from allocation windows or counted in-process.

use crate::figure::Location;
use crate::stacks::{MovedNodes, NodeId, StackTree};
use crate::time::{duration_ns, sum};
use gctrace_event::Allocations;
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::HashMap;

/// Allocations of the interpreter (`--alloc`), estimated from allocation windows or counted
/// exactly.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllocationsReport {
    /// Whether every allocation was counted, by the injected library. There are then no windows and
    /// no sampling error, and `cost_ratio` and `budget_ratio` have no meaning.
    pub exact: bool,
    /// Number of allocation windows opened; 0 if `exact`.
    pub windows: u64,
    /// Allocations in the windows, or all allocations if `exact`.
    pub allocations_seen: u64,
    /// Allocations per second of CPU time of the program without recording; `null` if there is no
    /// estimate (see `basis`).
    pub per_cpu_s: Option<f64>,
    /// Allocations per second of wall time; `null` if there is no estimate.
    pub per_s: Option<f64>,
    /// Bytes allocated per second of CPU time, from the mean of the known sizes; `null` if there is
    /// no estimate.
    pub bytes_per_cpu_s: Option<f64>,
    /// Standard error of the rates, as a share of them; `null` if unknown.
    pub relative_error: Option<f64>,
    /// The basis of the estimate, or why there is none, as text.
    pub basis: String,
    /// Overhead of the windows, as a share of the CPU time; `null` if it was not measured.
    pub cost_ratio: Option<f64>,
    /// Limit of that overhead (`--alloc-budget`), as a share of the CPU time.
    pub budget_ratio: f64,
    /// Shares by size: pymalloc's classes of 16 bytes up to 512 bytes, then powers of two.
    pub sizes: Vec<SizeClass>,
    /// The lines that allocate, most allocations first.
    pub lines: Vec<AllocatingLine>,
}

/// The share of one size class.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeClass {
    /// Largest size of the class, in bytes; `null` for allocations of unknown size.
    pub up_to_bytes: Option<u64>,
    /// Share of all allocations seen, 0 to 1.
    pub share: f64,
}

/// A Python line that allocates, with its share of the sampled allocations.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllocatingLine {
    /// The innermost line outside the standard library and installed packages.
    pub location: Location,
    /// Number of sampled allocations with this line.
    pub samples: u64,
    /// Share of all sampled allocations, 0 to 1.
    pub share: f64,
    /// Standard error of `share`, assuming independent samples.
    pub standard_error: f64,
}

/// Lines of a report.
const LINES: usize = 10;

/// The last summary of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastAllocations {
    summary: Option<Allocations>,
    stacks: Vec<(NodeId, u64)>,
}

impl LastAllocations {
    /// Replaces an earlier summary. `stacks`: its own, resolved.
    pub(crate) fn set(&mut self, summary: Allocations, stacks: Vec<(NodeId, u64)>) {
        self.summary = Some(summary);
        self.stacks = stacks;
    }

    /// Renumbers the stacks after their tree was added to another.
    pub(crate) fn renumber(&mut self, moved: &MovedNodes) {
        self.stacks.retain_mut(|(node, _)| {
            let moved = moved.of(*node);
            moved.inspect(|moved| *node = *moved).is_some()
        });
    }

    /// `None` where no window was opened.
    pub(crate) fn report(&self, tree: &StackTree) -> Option<AllocationsReport> {
        let summary = self.summary.as_ref()?;
        let covered_ns = duration_ns(summary.since_ns, summary.at_ns);
        let per_cpu_s = summary.per_cpu_second.map(|rate| rate as f64);
        let classes = summary.classes.iter();
        let known = sum(classes.filter_map(|(size, count)| size.and(Some(*count))));
        // Counted ones all have a size, if not all a class with an end.
        let sized = if summary.exact { summary.hits } else { known };
        let mean_bytes = ratio(summary.bytes, sized);
        let product = |one: Option<f64>, other: Option<f64>| Some(one? * other?);
        Some(AllocationsReport {
            exact: summary.exact,
            windows: summary.windows,
            allocations_seen: summary.hits,
            per_cpu_s,
            per_s: product(per_cpu_s, ratio(summary.cpu_ns, covered_ns)),
            bytes_per_cpu_s: product(per_cpu_s, mean_bytes),
            relative_error: summary.error_ppm.map(|error| error as f64 / 1e6),
            basis: summary.basis.clone(),
            cost_ratio: ratio(summary.cost_ns, summary.cpu_ns),
            budget_ratio: summary.budget_ppm as f64 / 1e6,
            sizes: summary
                .classes
                .iter()
                .map(|(size, count)| SizeClass {
                    up_to_bytes: *size,
                    share: ratio(*count, summary.hits).unwrap_or(0.0),
                })
                .collect(),
            lines: self.lines(tree),
        })
    }

    fn lines(&self, tree: &StackTree) -> Vec<AllocatingLine> {
        let total = sum(self.stacks.iter().map(|(_, count)| *count));
        let mut by_line: HashMap<_, u64> = HashMap::new();
        for (node, count) in &self.stacks {
            *by_line.entry(tree.own_line(*node)).or_default() += count;
        }
        let mut lines: Vec<_> = by_line.into_iter().collect();
        lines.sort_by(|(a, many), (b, few)| {
            few.cmp(many).then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line)))
        });
        lines
            .into_iter()
            .take(LINES)
            .map(|(location, count)| {
                let share = ratio(count, total).unwrap_or(0.0);
                AllocatingLine {
                    location: location.clone(),
                    samples: count,
                    share,
                    // of a share of independent samples (binomial)
                    standard_error: (share * (1.0 - share) / total.max(1) as f64).sqrt(),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_the_summary() {
        let mut state = LastAllocations::default();
        assert!(state.report(&StackTree::default()).is_none());
        let summary = Allocations {
            since_ns: 1_000_000_000,
            at_ns: 11_000_000_000,
            windows: 20,
            hits: 1000,
            bytes: 32_000,
            classes: vec![(Some(32), 800), (None, 200)],
            per_cpu_second: Some(10_000_000),
            error_ppm: Some(20_000),
            cpu_ns: 5_000_000_000,
            cost_ns: 45_000_000,
            budget_ppm: 10_000,
            ..Allocations::default()
        };
        state.set(summary, Vec::new());
        let report = state.report(&StackTree::default()).unwrap();
        assert_eq!(report.per_s, Some(5e6), "on a CPU half of the time");
        assert_eq!(report.bytes_per_cpu_s, Some(4e8), "40 bytes each where the size is known");
        assert_eq!(report.cost_ratio, Some(0.009));
        assert_eq!(report.relative_error, Some(0.02));
        assert_eq!(report.sizes.len(), 2);
    }

    #[test]
    fn counted_ones_need_no_size_of_a_class() {
        let mut state = LastAllocations::default();
        let summary = Allocations {
            at_ns: 10_000_000_000,
            exact: true,
            hits: 1000,
            bytes: 64_000,
            classes: vec![(Some(32), 800), (None, 200)],
            per_cpu_second: Some(100),
            cpu_ns: 10_000_000_000,
            ..Allocations::default()
        };
        state.set(summary, Vec::new());
        let report = state.report(&StackTree::default()).unwrap();
        assert!(report.exact && report.relative_error.is_none());
        assert_eq!(report.bytes_per_cpu_s, Some(6400.0));
    }
}
