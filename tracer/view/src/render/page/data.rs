//! Data for the drawings of a page's script: pauses, steps, stacks, heaps and memory over time.
//!
//! Owns the order of the numbers; `page.js` and its neighbors read it.

use super::heat::{HeatData, MOST};
use super::pack::{or_zero, pack};
use super::stacks::PageStacks;
use crate::document::Block;
use crate::render::layers::LayersData;
use crate::units::{counted, three_digits, whole};
use gctrace_analysis::report::Report;
use gctrace_analysis::{Analysis, CommonClock, PauseList, PausedProcess, ProcessStepRow, StackId};
use gctrace_event::GcReason;
use gctrace_units::{add_to, after, beyond, sum};
use serde::Serialize;
use std::collections::HashMap;

/// Number of pauses that a page draws one by one; if there are more, the longest. With 7 bytes each, 2 MB.
pub const PAUSES_DRAWN: usize = 280_000;
/// Maximum number of processes with steps drawn along the pauses.
const STEPS_DRAWN: usize = 8;
/// Maximum number of processes with a drawn heap, and of lines of memory.
const HEAPS_DRAWN: usize = 6;
/// Number of intervals for the sums of pauses that are not drawn one by one.
const SLOTS: u64 = 1000;

/// One run. Times are in ns after the start of its first trace.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunData {
    duration: u64,
    /// Names of the processes with pauses.
    processes: Vec<String>,
    /// Columns of the pauses: start in µs after the start of the one before, length; generation (3: unknown), reason
    /// and stack; objects freed; process, if there are several. Their number comes first.
    pauses: String,
    /// Start, length and time by generation of other pauses.
    not_listed: Vec<[u64; 6]>,
    phases: Vec<(&'static str, u64, u64)>,
    steps: Vec<StepsData>,
    strings: Vec<String>,
    frames: String,
    stacks: String,
    /// Stack, time by generation (0, 1, 2, unknown), and number of pauses.
    flame: String,
    heaps: Vec<HeapData>,
    memories: Vec<MemoryData>,
    layers: Vec<LayersData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heat: Option<HeatData>,
}

/// The steps of a process, or the long turns of its loop.
#[derive(Serialize)]
struct StepsData {
    what: &'static str,
    name: String,
    /// Its place among the processes with pauses.
    process: Option<usize>,
    /// Columns: start after the start of the one before, length, time in collections; their number first.
    packed: String,
}

/// Full collections of a process: start, objects traversed, length.
#[derive(Serialize)]
struct HeapData {
    name: String,
    points: Vec<[u64; 3]>,
}

/// Memory of a process: time, MiB.
#[derive(Serialize)]
struct MemoryData {
    name: String,
    points: Vec<(u64, f64)>,
}

/// The drawings of a run.
pub(super) struct RunDrawings {
    pub(super) data: RunData,
    /// The place of the run in the data of the page.
    pub(super) run: usize,
    pub(super) has_pauses: bool,
    has_stacks: bool,
    /// The parts left out of the timeline; empty if there is none.
    pub(super) not_drawn: String,
}

impl RunDrawings {
    /// Drawings of a settled analysis and its report, at this place in the data.
    pub(super) fn of(analysis: &mut Analysis, report: &Report, run: usize) -> Self {
        let steps = analysis.step_rows();
        let clock = analysis.common_clock(report.runs);
        let list = analysis.pause_list(&clock, PAUSES_DRAWN);
        let mut stacks = PageStacks::default();
        let flame = flame(analysis, &mut stacks);
        let has_stacks = !flame.is_empty();
        let pauses = pauses(analysis, &list, &mut stacks);
        let (strings, frames) = stacks.frames();
        Self {
            run,
            has_pauses: !list.pauses.is_empty(),
            has_stacks,
            not_drawn: not_drawn(&list),
            data: RunData {
                duration: list.duration_ns,
                processes: list.processes.iter().map(name).collect(),
                pauses: pack(pauses),
                not_listed: slots(&list),
                phases: phases(report, &clock),
                steps: if steps.is_empty() {
                    turns(analysis, report, &list, &clock)
                } else {
                    let drawn = steps.iter().take(STEPS_DRAWN);
                    drawn.map(|row| steps_of(row, &list, &clock)).collect()
                },
                strings: strings.to_vec(),
                frames: pack(frames.iter().copied()),
                stacks: pack(stacks.nodes().iter().copied()),
                flame: pack(flame),
                heaps: heaps(report, &clock),
                memories: memories(analysis, &clock),
                layers: LayersData::of(report, &clock, name),
                heat: if steps.len() > 1 { HeatData::of(&steps, MOST) } else { None },
            },
        }
    }

    /// Whether there is something of this kind to draw.
    pub(super) fn has(&self, kind: &str) -> bool {
        match kind {
            "timeline" => self.has_pauses || self.has("steps"),
            "steps" => !self.data.steps.is_empty(),
            "flame" => self.has_stacks,
            "heap" => !self.data.heaps.is_empty(),
            "memory" => !self.data.memories.is_empty(),
            "layers" => !self.data.layers.is_empty(),
            _ => self.data.heat.is_some(),
        }
    }

    /// `steps`, or `long turns`, if some are drawn.
    pub(super) fn steps_drawn(&self) -> Option<&'static str> {
        self.data.steps.first().map(|steps| steps.what)
    }

    /// The drawing of this kind, if there is something to draw.
    pub(super) fn of_kind(&self, kind: &'static str) -> Option<Block> {
        if self.has(kind) { Some(Block::Drawing(kind, self.run)) } else { None }
    }
}

/// `rank 3`, `process 4242`.
fn name(process: &PausedProcess) -> String {
    match (process.rank, process.pid) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(pid)) => format!("process {pid}"),
        (None, None) => "other processes".to_owned(),
    }
}

fn pauses(analysis: &Analysis, list: &PauseList, stacks: &mut PageStacks) -> Vec<u64> {
    let mut known: HashMap<StackId, u64> = HashMap::new();
    let mut node = |stack: Option<StackId>| match stack {
        None => 0,
        Some(stack) => {
            *known.entry(stack).or_insert_with(|| stacks.node(&analysis.frames_of(stack)))
        }
    };
    let all = &list.pauses;
    let mut numbers = vec![all.len() as u64];
    let mut last_us = 0;
    for pause in all {
        let at_us = pause.at_ns / 1000;
        numbers.push(beyond(at_us, last_us));
        last_us = at_us;
    }
    numbers.extend(all.iter().map(|pause| shown(pause.duration_ns)));
    numbers.extend(all.iter().map(|pause| {
        let generation = u64::from(pause.generation.map_or(3, |generation| generation.min(3)));
        let reason = match pause.reason {
            GcReason::Unknown => 0,
            GcReason::Automatic => 1,
            GcReason::Manual => 2,
            GcReason::Shutdown => 3,
        };
        generation | reason << 2 | node(pause.stack) << 4
    }));
    numbers.extend(all.iter().map(|pause| or_zero(pause.collected)));
    if list.processes.len() > 1 {
        numbers.extend(all.iter().map(|pause| pause.process as u64));
    }
    numbers
}

/// A length, below a millisecond as it is shown: with three digits. More would be a sixth of the page.
fn shown(ns: u64) -> u64 {
    if !(1000..1_000_000).contains(&ns) {
        return ns;
    }
    let us: Option<f64> = three_digits(ns as f64 / 1e3).parse().ok();
    if let Some(us) = us { whole(us * 1e3) } else { ns }
}

/// Sums of the whole run, including pauses that are not drawn.
fn flame(analysis: &Analysis, stacks: &mut PageStacks) -> Vec<u64> {
    let mut sums: HashMap<u64, [u64; 5]> = HashMap::new();
    for stack in analysis.stacks().flat_map(|process| process.stacks()) {
        let sum = sums.entry(stacks.node(&stack.frames())).or_default();
        let generations = [0, 1, 2, gctrace_event::Pause::UNKNOWN_GENERATION];
        for (place, generation) in generations.into_iter().enumerate() {
            let pauses = stack.of_generation(generation);
            add_to(&mut sum[place], pauses.time_ns);
            add_to(&mut sum[4], pauses.count);
        }
    }
    let mut sums: Vec<(u64, [u64; 5])> = sums.into_iter().filter(|(_, sum)| sum[4] > 0).collect();
    sums.sort_unstable();
    sums.into_iter().flat_map(|(stack, sum)| [[stack].as_slice(), &sum].concat()).collect()
}

fn slots(list: &PauseList) -> Vec<[u64; 6]> {
    let width_ns = list.duration_ns.div_ceil(SLOTS).max(1);
    let mut sums: std::collections::BTreeMap<u64, [u64; 6]> = std::collections::BTreeMap::new();
    for some in &list.not_listed {
        let slot = some.at_ns / width_ns;
        let sum = sums.entry(slot).or_insert([slot * width_ns, width_ns, 0, 0, 0, 0]);
        let times = some.by_generation.iter().map(|pauses| pauses.time_ns);
        sum[2..].iter_mut().zip(times).for_each(|(sum, ns)| add_to(sum, ns));
    }
    sums.into_values().collect()
}

/// A sentence that some pauses are summed.
fn not_drawn(list: &PauseList) -> String {
    let sums = list.not_listed.iter().flat_map(|some| some.by_generation);
    let count = sum(sums.map(|pauses| pauses.count));
    let shortest = list.pauses.iter().map(|pause| pause.duration_ns).min().unwrap_or(0);
    match count {
        0 => String::new(),
        count => format!(
            "The {} longest pauses are drawn one by one. {}, none longer than {}, only in the sums \
             above.",
            crate::units::count(list.pauses.len() as u64),
            counted(count, "other"),
            crate::units::duration(shortest),
        ),
    }
}

fn phases(report: &Report, clock: &CommonClock) -> Vec<(&'static str, u64, u64)> {
    let phases = match &report.phases {
        Some(phases) if phases.steps.is_some() => phases,
        _ => return Vec::new(),
    };
    let all =
        [("start-up", &phases.start_up), ("training", &phases.training), ("exit", &phases.exit)];
    let known = all.into_iter().filter(|(_, phase)| phase.duration_ns > 0);
    let span = known.map(|(name, phase)| {
        let start_ns = clock.after_start(phases.trace, phase.after_start_ns);
        (name, start_ns, after(start_ns, phase.duration_ns))
    });
    span.collect()
}

fn steps_of(row: &ProcessStepRow, list: &PauseList, clock: &CommonClock) -> StepsData {
    let same = |process: &PausedProcess| match row.rank {
        Some(rank) => process.rank == Some(rank),
        None => (process.trace, process.pid) == (row.trace, Some(row.pid)),
    };
    let steps: Vec<[u64; 3]> = row
        .steps
        .iter()
        .map(|step| {
            let start_ns = clock.after_first(row.trace, step.start_ns);
            [start_ns, step.duration_ns, or_zero(step.gc_ns)]
        })
        .collect();
    StepsData {
        what: "steps",
        name: super::heat::name(row),
        process: list.processes.iter().position(same),
        packed: packed(&steps),
    }
}

/// The long turns of loops, as steps are drawn.
fn turns(
    analysis: &Analysis,
    report: &Report,
    list: &PauseList,
    clock: &CommonClock,
) -> Vec<StepsData> {
    let drawn = report.loops.iter().take(STEPS_DRAWN).map(|of| {
        let process = PausedProcess { trace: of.trace, pid: Some(of.pid), rank: None };
        let mut long = analysis.long_turns(of);
        for [start_ns, ..] in &mut long {
            *start_ns = clock.after_first(of.trace, *start_ns);
        }
        let is_its = |of: &PausedProcess| (of.trace, of.pid) == (process.trace, process.pid);
        StepsData {
            what: "long turns",
            name: name(&process),
            process: list.processes.iter().position(is_its),
            packed: if long.is_empty() { String::new() } else { packed(&long) },
        }
    });
    drawn.filter(|of| !of.packed.is_empty()).collect()
}

/// Columns: start after the start of the one before, length, time in collections; their number first.
fn packed(steps: &[[u64; 3]]) -> String {
    let mut numbers = vec![steps.len() as u64];
    let mut last_ns = 0;
    for [start_ns, ..] in steps {
        numbers.push(beyond(*start_ns, last_ns));
        last_ns = last_ns.max(*start_ns);
    }
    numbers.extend(steps.iter().map(|[_, length_ns, _]| *length_ns));
    numbers.extend(steps.iter().map(|[.., gc_ns]| *gc_ns));
    pack(numbers)
}

fn heaps(report: &Report, clock: &CommonClock) -> Vec<HeapData> {
    let with = report.processes.iter().filter_map(|process| {
        let growth = process.growth.as_ref()?;
        if growth.over_time.len() <= 1 {
            return None;
        }
        let points = growth.over_time.iter().map(|point| {
            let at_ns = clock.after_start(process.trace, point.after_start_ns);
            [at_ns, point.objects, point.duration_ns]
        });
        let of = PausedProcess { trace: process.trace, pid: Some(process.pid), rank: process.rank };
        Some(HeapData { name: name(&of), points: points.collect() })
    });
    with.take(HEAPS_DRAWN).collect()
}

/// Resident memory, then memory on GPUs, of each process.
fn memories(analysis: &Analysis, clock: &CommonClock) -> Vec<MemoryData> {
    let lists = analysis.memory_lists(clock);
    let is_one = lists.len() == 1;
    let lines = lists.iter().flat_map(|list| {
        let of = if is_one { String::new() } else { format!("{}, ", name(&list.process)) };
        let line = |what: &str, samples: &[(u64, u64)]| {
            let points = samples.iter();
            let points = points.map(|(at_ns, bytes)| (*at_ns, *bytes as f64 / f64::from(1 << 20)));
            MemoryData { name: format!("{of}{what}"), points: points.collect() }
        };
        [line("resident", &list.resident), line("on GPUs", &list.on_devices)]
    });
    lines.filter(|line| line.points.len() > 1).take(HEAPS_DRAWN).collect()
}

/// JSON for a script element: no `<`, whatever names contain.
pub(super) fn json(runs: &[RunData]) -> serde_json::Result<String> {
    Ok(serde_json::to_string(runs)?.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::duration;
    use gctrace_analysis::PausesNotListed;
    use gctrace_analysis::report::PauseTotal;
    use proptest::prelude::*;

    proptest! {
        /// Packed lengths are shown as the report shows them.
        #[test]
        fn lengths_are_shown_as_in_the_report(ns in 0u64..20_000_000) {
            prop_assert_eq!(duration(shown(ns)), duration(ns));
            prop_assert!(shown(ns).abs_diff(ns) <= ns / 190);
        }
    }

    #[test]
    fn no_name_ends_the_script() {
        let data = RunData { processes: vec!["</script><!--".to_owned()], ..RunData::default() };
        let json = json(&[data]).unwrap();
        assert!(!json.contains('<'), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read[0]["processes"][0], "</script><!--");
    }

    #[test]
    fn what_is_not_drawn_is_stated() {
        let mut list = PauseList::default();
        assert_eq!(not_drawn(&list), "");
        let some = |at_ns, count| {
            let sum = PauseTotal { count, time_ns: count * 1000 };
            let by_generation = [sum, PauseTotal::default(), sum, PauseTotal::default()];
            PausesNotListed { at_ns, width_ns: 1 << 20, by_generation }
        };
        list.duration_ns = 2_000_000_000;
        list.not_listed = vec![some(0, 3), some(1, 4), some(1_999_999_999, 5)];
        assert!(not_drawn(&list).contains("24 others"), "{}", not_drawn(&list));
        let slots = slots(&list);
        assert_eq!(slots.len(), 2, "one and the other end");
        assert_eq!(slots[0][2..], [7000, 0, 7000, 0]);
        assert_eq!(slots[1], [1_998_000_000, 2_000_000, 5000, 0, 5000, 0]);
    }
}
