//! Which lines and stacks cost most.

use super::{LocationId, NodeId, StackSums, StackTree, TraceStacks};
use crate::paths;
use crate::report::{
    LibraryReport, LineReport, LineTotal, LinesReport, Location, PauseTotal, StackReport,
    TrainingLibrary,
};
use gctrace_event::{Frame, GcReason};
use gctrace_stats::ratio;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Number of lines listed in `with`.
const WITH: usize = 3;
/// Lines listed for one kind of collection.
const OF_A_KIND: usize = 5;

/// Number of lines and stacks that are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankingLimits {
    lines: usize,
    stacks: usize,
}

impl RankingLimits {
    /// For all processes together.
    pub(crate) const ALL: Self = Self { lines: 50, stacks: 20 };
    /// For one of maybe thousands of processes.
    pub(crate) const PROCESS: Self = Self { lines: 20, stacks: 5 };
}

/// Sums over one or more processes, on the way to a report.
pub(crate) struct StackRanking<'a> {
    tree: &'a StackTree,
    /// Time of all pauses, those without a stack included.
    all_ns: u64,
    lines: LinesReport,
    innermost: BTreeMap<LocationId, LineGroup>,
    own_lines: BTreeMap<LocationId, LineGroup>,
    stacks: BTreeMap<NodeId, StackSums>,
    libraries: BTreeMap<TrainingLibrary, PauseTotal>,
}

/// Pauses of one line, and of the lines at the other end.
#[derive(Default)]
struct LineGroup {
    sums: StackSums,
    with: BTreeMap<LocationId, PauseTotal>,
    /// By imported module; empty if the line is not an import.
    imports: BTreeMap<String, PauseTotal>,
}

impl<'a> StackRanking<'a> {
    pub(crate) fn new(tree: &'a StackTree, all_ns: u64) -> Self {
        Self {
            tree,
            all_ns,
            lines: LinesReport::default(),
            innermost: BTreeMap::new(),
            own_lines: BTreeMap::new(),
            stacks: BTreeMap::new(),
            libraries: BTreeMap::new(),
        }
    }

    /// Adds the stacks of one process.
    pub(crate) fn add(&mut self, stacks: &TraceStacks) {
        self.add_without_stack(&stacks.without_stack);
        let at_shutdown = &mut self.lines.without_stack_at_shutdown;
        at_shutdown.add_all(&stacks.without_stack_at_shutdown);
        for (node, sums) in stacks.iter() {
            self.add_stack(node, sums);
        }
    }

    /// Adds the pauses of one stack.
    pub(crate) fn add_stack(&mut self, node_id: NodeId, sums: &StackSums) {
        let node = &self.tree.nodes[node_id];
        let total = sums.total();
        let lines = &mut self.lines;
        lines.with_stack.add_all(&total);
        lines.automatic_full_total.add_all(&sums.automatic_full);
        let partial = sums.automatic_partial();
        lines.automatic_partial_total.add_all(&partial);
        if node.cut {
            self.lines.stack_too_deep.add_all(&total);
            if node.lines.own_line.is_none() {
                self.lines.own_line_too_deep.add_all(&total);
            }
        }
        if self.tree.location(node.location).function == Frame::UNREADABLE {
            self.lines.unreadable.add_all(&total);
        }
        self.add_libraries(node_id, &total);
        let (line, own_line) = (node.lines.line, node.lines.shown());
        self.stacks.entry(node_id).or_default().merge(sums);
        let innermost = self.innermost.entry(line).or_default();
        innermost.add(sums, Some(own_line).filter(|own_line| *own_line != line));
        let executed = Some(line).filter(|line| *line != own_line);
        let group = self.own_lines.entry(own_line).or_default();
        group.add(sums, executed);
        if let Some(module) = self.tree.imported(node) {
            group.imports.entry(module).or_default().add_all(&total);
        }
    }

    fn add_libraries(&mut self, node: NodeId, pauses: &PauseTotal) {
        let frames = self.tree.frames(node);
        let found = frames.filter_map(|frame| paths::training_library(&frame.file));
        let found: BTreeSet<TrainingLibrary> = found.collect();
        for library in found {
            self.libraries.entry(library).or_default().add_all(pauses);
        }
    }

    /// Adds pauses without a stack.
    pub(crate) fn add_without_stack(&mut self, pauses: &PauseTotal) {
        self.lines.without_stack.add_all(pauses);
    }

    /// The report on everything added, `None` if nothing had a stack.
    pub(crate) fn report(self, limits: RankingLimits) -> Option<LinesReport> {
        if self.stacks.is_empty() {
            return None;
        }
        let of_kind = |effort: fn(&StackSums) -> PauseTotal| {
            let efforts = self.own_lines.iter().map(|(id, group)| (*id, effort(&group.sums)));
            let used: BTreeMap<_, _> = efforts.filter(|(_, effort)| effort.count > 0).collect();
            self.efforts(&used, OF_A_KIND)
        };
        Some(LinesReport {
            explicit: of_kind(|sums| sums.of(GcReason::Manual)),
            automatic_full: of_kind(|sums| sums.automatic_full),
            automatic_partial: of_kind(StackSums::automatic_partial),
            libraries: self.library_reports(),
            innermost: self.line_reports(&self.innermost, limits),
            innermost_total: self.innermost.len() as u64,
            own: self.line_reports(&self.own_lines, limits),
            own_total: self.own_lines.len() as u64,
            stacks: self.stack_reports(limits),
            stacks_total: self.stacks.len() as u64,
            ..self.lines
        })
    }

    fn library_reports(&self) -> Vec<LibraryReport> {
        let report = |(library, pauses): (&TrainingLibrary, &PauseTotal)| LibraryReport {
            library: *library,
            switch: library.switch(),
            pauses: *pauses,
        };
        self.libraries.iter().map(report).collect()
    }

    fn line_reports(
        &self,
        groups: &BTreeMap<LocationId, LineGroup>,
        limits: RankingLimits,
    ) -> Vec<LineReport> {
        let mut sorted: Vec<(&Location, &LineGroup)> =
            groups.iter().map(|(id, group)| (self.tree.location(*id), group)).collect();
        sorted.sort_by_key(|(location, group)| (Reverse(group.sums.total().time_ns), *location));
        let report = |(location, group): (&Location, &LineGroup)| {
            let sums = &group.sums;
            LineReport {
                location: location.clone(),
                pauses: sums.total(),
                time_ratio: self.share(sums.total()),
                max_ns: sums.max_ns,
                by_generation: sums.by_generation,
                by_reason: sums.by_reason,
                with: self.efforts(&group.with, WITH),
                with_total: group.with.len() as u64,
                imports: group.imported().cloned(),
            }
        };
        sorted.into_iter().take(limits.lines).map(report).collect()
    }

    fn efforts(&self, efforts: &BTreeMap<LocationId, PauseTotal>, most: usize) -> Vec<LineTotal> {
        let mut sorted: Vec<(&Location, PauseTotal)> =
            efforts.iter().map(|(id, effort)| (self.tree.location(*id), *effort)).collect();
        sorted.sort_by_key(|(location, effort)| (Reverse(effort.time_ns), *location));
        let report = |(location, pauses): (&Location, PauseTotal)| LineTotal {
            location: location.clone(),
            pauses,
        };
        sorted.into_iter().take(most).map(report).collect()
    }

    fn stack_reports(&self, limits: RankingLimits) -> Vec<StackReport> {
        let mut sorted: Vec<(NodeId, &StackSums)> =
            self.stacks.iter().map(|(id, sums)| (*id, sums)).collect();
        // Ties are broken by the frames, independent of the order of the input.
        sorted.sort_by(|(a, a_sums), (b, b_sums)| {
            let frames = || self.tree.frames(*a).cmp(self.tree.frames(*b));
            let time = b_sums.total().time_ns.cmp(&a_sums.total().time_ns);
            time.then_with(frames)
        });
        let report = |(id, sums): (NodeId, &StackSums)| StackReport {
            frames: self.tree.frames(id).cloned().collect(),
            pauses: sums.total(),
            time_ratio: self.share(sums.total()),
            max_ns: sums.max_ns,
            by_generation: sums.by_generation,
        };
        sorted.into_iter().take(limits.stacks).map(report).collect()
    }

    fn share(&self, effort: PauseTotal) -> f64 {
        ratio(effort.time_ns, self.all_ns).unwrap_or(0.0)
    }
}

impl LineGroup {
    fn add(&mut self, sums: &StackSums, with: Option<LocationId>) {
        self.sums.merge(sums);
        if let Some(with) = with {
            self.with.entry(with).or_default().add_all(&sums.total());
        }
    }

    /// The module whose import took most of the time, named if possible.
    fn imported(&self) -> Option<&String> {
        let modules = self.imports.iter();
        let most = modules.max_by_key(|(name, pauses)| (!name.is_empty(), pauses.time_ns));
        most.map(|(name, _)| name)
    }
}
