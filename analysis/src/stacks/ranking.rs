//! Most expensive lines and stacks.

use super::{LocationId, NodeId, StackSums, StackTree, TraceStacks, WithoutStack};
use crate::figure::{Location, PauseTotal};
use crate::paths::{self, TrainingLibrary};
use gctrace_event::{Frame, GcReason};
use gctrace_stats::ratio;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Where collections were triggered, measured: the Python stack of the collecting thread when the
/// pause started. An automatic collection is triggered by the line that happens to exceed the
/// threshold, so the more containers a line allocates, the more often it triggers one.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinesReport {
    /// Count and time of the pauses with a recorded Python stack.
    pub with_stack: PauseTotal,
    /// Pauses without a stack, except at shutdown: stacks were not recorded, or no Python code was
    /// running.
    pub without_stack: PauseTotal,
    /// Pauses without a stack at interpreter shutdown, when no Python code runs.
    pub without_stack_at_shutdown: PauseTotal,
    /// Of the pauses with a stack: it was deeper than `--stack-depth`, so its outermost frames are
    /// unknown.
    pub stack_too_deep: PauseTotal,
    /// The part of `stack_too_deep` without a recorded frame in the program's own code.
    pub own_line_too_deep: PauseTotal,
    /// Of the pauses with a stack: the innermost frame could not be read.
    pub unreadable: PauseTotal,
    /// Pauses by the innermost line, the most time first: at most 50, for a single process 20.
    pub innermost: Vec<LineReport>,
    /// Number of distinct innermost lines, listed or not.
    pub innermost_total: u64,
    /// Pauses by own line, the most time first: the innermost line outside the standard library and
    /// installed packages, or the innermost line if there is none. At most as many as in
    /// `innermost`.
    pub own: Vec<LineReport>,
    /// Number of distinct own lines, listed or not.
    pub own_total: u64,
    /// Pauses by whole stack, the most time first: at most 20, for a single process 5.
    pub stacks: Vec<StackReport>,
    /// Number of distinct stacks, listed or not.
    pub stacks_total: u64,
    /// Lines that call `gc.collect()` or `PyGC_Collect`, own lines if the stack has one, the most
    /// time first, at most 5. Count and time of these calls only.
    pub explicit: Vec<LineTotal>,
    /// Own lines that trigger automatic full collections, at most 5. Count and time of these only.
    pub automatic_full: Vec<LineTotal>,
    /// Count and time of all automatic full collections with a stack.
    pub automatic_full_total: PauseTotal,
    /// Own lines that trigger other automatic collections, at most 5. Count and time of these only.
    pub automatic_partial: Vec<LineTotal>,
    /// Count and time of all other automatic collections with a stack.
    pub automatic_partial_total: PauseTotal,
    /// Training libraries in these stacks, the most specific first.
    pub libraries: Vec<LibraryReport>,
}

/// A training library with files in stacks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LibraryReport {
    /// The library.
    pub library: TrainingLibrary,
    /// Its own switch for planned collections, as the user writes it, `N` for the number of steps;
    /// `null` if it has none.
    pub switch: Option<&'static str>,
    /// Count and time of the pauses with a stack through it.
    pub pauses: PauseTotal,
}

/// Count and time of the pauses that one line triggered.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineTotal {
    /// The line that these pauses have in common.
    pub location: Location,
    /// Count and time of the pauses with this line.
    pub pauses: PauseTotal,
}

/// All pauses that one line triggered.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineReport {
    /// The line that these pauses have in common.
    pub location: Location,
    /// Count and time of the pauses with this line.
    pub pauses: PauseTotal,
    /// Share of the time of all pauses, including pauses without a stack, 0 to 1.
    pub time_ratio: f64,
    /// Longest of these pauses, in ns.
    pub max_ns: u64,
    /// Pauses by generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
    /// Pauses by reason: automatic, manual, shutdown, unknown.
    pub by_reason: [PauseTotal; 4],
    /// Lines that occur with it, the most time first, at most 3. In `innermost`: the own lines that led to a library
    /// line. In `own`: the library lines that were being executed. Empty if both are the same line.
    pub with: Vec<LineTotal>,
    /// Number of distinct lines in `with`, listed or not.
    pub with_total: u64,
    /// In `own`, if the line executes an import: the imported module, empty if only the import
    /// system itself was running; `null` for other lines.
    pub imports: Option<String>,
}

/// All pauses that one stack triggered.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StackReport {
    /// Frames of the stack, innermost first, without frames of the import system (`importlib`). If it was deeper than
    /// `--stack-depth`, the last is `[outer frames not recorded]`.
    pub frames: Vec<Location>,
    /// Count and time of the pauses that started with exactly this stack.
    pub pauses: PauseTotal,
    /// Share of the time of all pauses, including pauses without a stack, 0 to 1.
    pub time_ratio: f64,
    /// Longest of these pauses, in ns.
    pub max_ns: u64,
    /// Pauses by generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
}

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
    /// Time of all pauses, including pauses without a stack.
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
        let [shown, executed] =
            if own_line != line { [Some(own_line), Some(line)] } else { [None; 2] };
        innermost.add(sums, shown);
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
    pub(crate) fn add_without_stack(&mut self, pauses: &WithoutStack) {
        self.lines.without_stack.add_all(&pauses.before);
        self.lines.without_stack_at_shutdown.add_all(&pauses.at_shutdown);
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

    /// The module with the most time of import, named if possible.
    fn imported(&self) -> Option<&String> {
        let modules = self.imports.iter();
        let most = modules.max_by_key(|(name, pauses)| (!name.is_empty(), pauses.time_ns));
        most.map(|(name, _)| name)
    }
}
