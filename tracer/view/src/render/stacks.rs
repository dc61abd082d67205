//! The section on Python lines and stacks that trigger collections.
//!
//! A collection is attributed to the innermost line of the program's own code, as that is the one
//! a user can change; the library line that was executing is shown below it.

use crate::document::{Block, Cell, Column, Section, Table, paragraph};
use crate::text::rank_or_pid;
use crate::units::{count, counted, duration, percent, short_count};
use gctrace_analysis::paths;
use gctrace_analysis::report::{
    LineReport, LinesReport, Location, PauseTotal, ProcessReport, Report, StackReport,
};
use gctrace_event::Frame;
use gctrace_units::{beyond, if_known, part, sum};

/// Maximum number of lines listed; the others are in the JSON.
const LINES_SHOWN: usize = 10;
/// Minimum share of the pause time for a line to be listed.
const LINE_RATIO: f64 = 0.005;
/// Maximum number of processes with their costliest line.
const PROCESSES_SHOWN: usize = 10;
/// Maximum number of stacks listed.
const STACKS_SHOWN: usize = 3;
/// Maximum number of frames shown per stack.
const FRAMES_SHOWN: usize = 8;
/// Characters of a line of the short report that are reserved for the share beside a place.
const BESIDE_PLACE: usize = 12;
/// Minimum share of the pause time for a stack to be listed.
const STACK_RATIO: f64 = 0.02;

pub(crate) fn lines(report: &Report) -> Section {
    Section::new(
        "Lines that trigger collections",
        report.lines.as_ref().map_or_else(Vec::new, |lines| section(lines, &report.processes)),
    )
}

fn section(lines: &LinesReport, processes: &[ProcessReport]) -> Vec<Block> {
    let names = FileNames::new(lines);
    let mut text = line_table(lines, &names);
    text.extend(by_process(processes, &names));
    text.extend(remarks(lines, &names).iter().map(paragraph));
    text
}

pub(crate) fn stacks(report: &Report) -> Section {
    let mut text = Vec::new();
    if let Some(lines) = &report.lines {
        let names = FileNames::new(lines);
        let worth =
            |stack: &&StackReport| stack.time_ratio >= STACK_RATIO && stack.frames.len() > 1;
        for stack in lines.stacks.iter().filter(worth).take(STACKS_SHOWN) {
            text.extend(stack_lines(stack, &names));
        }
    }
    Section::new("Stacks that trigger collections", text)
}

/// The lines of the program with the largest shares of the pause time of training, at most `most`;
/// of the whole run if its phases are unknown.
pub(crate) fn costliest(report: &Report, most: usize) -> Option<Block> {
    let phases = report.phases.as_ref();
    let lines = if let Some(phases) = phases { &phases.lines } else { &report.lines };
    let lines = lines.as_ref()?;
    let names = FileNames::new(lines);
    let place = |line: &LineReport| {
        let place = names.line(line);
        match below(line, &names).map(|below| format!("{place}  {below}")) {
            Some(both) => Cell::fitted(move |width| {
                let fits = both.chars().count() <= width - BESIDE_PLACE;
                if fits { both.clone() } else { place.clone() }
            }),
            None => place.into(),
        }
    };
    let table = Table::of(shown(lines).take(most))
        .right("", |line| percent(line.time_ratio))
        .left("", place);
    Some(Table { is_headless: true, ..table.table() }.into())
}

/// Shortens file names: libraries' start at the package, the program's lose their common directory.
pub(super) struct FileNames<'a> {
    directory: &'a str,
}

impl<'a> FileNames<'a> {
    pub(super) fn new(lines: &'a LinesReport) -> Self {
        let stacks = lines.stacks.iter().flat_map(|stack| &stack.frames);
        let own_lines = lines.own.iter().map(|line| &line.location);
        Self { directory: paths::common_directory(own_lines.chain(stacks)) }
    }

    fn file<'b>(&self, location: &'b Location) -> &'b str {
        if location.library {
            paths::short(&location.file)
        } else {
            location.file.strip_prefix(self.directory).unwrap_or(&location.file)
        }
    }

    /// As [`Self::place`]; an import as `import torch (train.py:11)`.
    pub(super) fn line(&self, line: &LineReport) -> String {
        match &line.imports {
            None => self.place(&line.location),
            Some(module) => {
                let number = line.location.line;
                let number = number.map_or(String::new(), |number| format!(":{number}"));
                let space = if module.is_empty() { "" } else { " " };
                format!("import{space}{module} ({}{number})", self.file(&line.location))
            }
        }
    }

    /// `train.py:57 in build_batch`.
    fn place(&self, location: &Location) -> String {
        let line = if let Some(line) = location.line { format!(":{line}") } else { String::new() };
        match location.file.as_str() {
            "" => location.function.clone(),
            _ => format!("{}{line} in {}", self.file(location), location.function),
        }
    }
}

/// Index and name of the generations that occur in any of the lines.
fn generations(lines: &[LineReport]) -> Vec<(usize, &'static str)> {
    let used = |index: usize| {
        let of = |line: &LineReport| line.by_generation.get(index).copied();
        let efforts = lines.iter().filter_map(of);
        efforts.map(|effort| effort.count).sum::<u64>() > 0
    };
    let all = ["0", "1", "2", "?"].into_iter().enumerate();
    all.filter(|(index, _)| used(*index)).collect()
}

fn line_table(lines: &LinesReport, names: &FileNames<'_>) -> Vec<Block> {
    let generations = generations(&lines.own);
    let heads: Vec<&str> = generations.iter().map(|(_, name)| *name).collect();
    let by_generation = |line: &LineReport| {
        let efforts = generations.iter().filter_map(|(index, _)| line.by_generation.get(*index));
        let counts: Vec<String> = efforts.map(|effort| short_count(effort.count)).collect();
        Cell::figure(counts.join("/"), line.pauses.count)
    };
    let largest = if let Some(line) = lines.own.first() { line.time_ratio } else { 0.0 };
    let share = Column { name: "share".to_owned(), is_sorted: true, ..Column::default() };
    let table = Table::of(shown(lines))
        .column(share, |line| Cell::share(percent(line.time_ratio), line.time_ratio, largest))
        .right("time", |line| Cell::figure(duration(line.pauses.time_ns), line.pauses.time_ns))
        .right("longest", |line| Cell::figure(duration(line.max_ns), line.max_ns))
        .right(&format!("gen {}", heads.join("/")), by_generation)
        .left("line", |line| Cell::from(names.line(line)).below(if_known(below(line, names))));
    std::iter::once(table.sortable().into()).chain(others(lines)).collect()
}

/// The lines in the table: always the costliest, and others from [`LINE_RATIO`] on.
pub(super) fn shown(lines: &LinesReport) -> impl Iterator<Item = &LineReport> {
    let worth = |(index, line): &(usize, &LineReport)| *index == 0 || line.time_ratio >= LINE_RATIO;
    let lines = lines.own.iter().take(LINES_SHOWN).enumerate();
    lines.take_while(worth).map(|(_, line)| line)
}

/// The number and total time of the lines that are not in the table.
fn others(lines: &LinesReport) -> Option<Block> {
    let in_table_ns = sum(shown(lines).map(|line| line.pauses.time_ns));
    let time_ns = beyond(lines.with_stack.time_ns, in_table_ns);
    let more = beyond(lines.own_total, shown(lines).count() as u64);
    if more == 0 {
        return None;
    }
    Some(paragraph(format!(
        "and {}, {} in total (--format json lists more)",
        counted(more, "other line"),
        duration(time_ns)
    )))
}

/// The library line that was executing most often below this line, if any; an import is named by
/// its module.
pub(super) fn below(line: &LineReport, names: &FileNames<'_>) -> Option<String> {
    if line.imports.is_some() {
        return None;
    }
    let place = names.place(&line.with.first()?.location);
    Some(match line.with_total {
        1 => format!("└ {place}"),
        total => format!("└+{} {place}", count(total - 1)),
    })
}

/// With several processes: the costliest line of each.
pub(super) fn by_process(processes: &[ProcessReport], names: &FileNames<'_>) -> Vec<Block> {
    let with: Vec<(&ProcessReport, &LineReport, &LinesReport)> = processes
        .iter()
        .filter_map(|process| {
            let lines = process.lines.as_ref()?;
            Some((process, lines.own.first()?, lines))
        })
        .collect();
    if with.len() < 2 {
        return Vec::new();
    }
    let table = Table::of(with.iter().take(PROCESSES_SHOWN))
        .right("process", |(process, ..)| rank_or_pid(process.rank, process.pid))
        .right("pauses", |(.., lines)| short_count(lines.with_stack.count))
        .right("time", |(.., lines)| duration(lines.with_stack.time_ns))
        .left("costliest line", |(_, line, _)| {
            format!("{} {}", percent(line.time_ratio), names.line(line))
        });
    let mut blocks = vec![Block::Gap, table.into()];
    let more = with.iter().skip(PROCESSES_SHOWN).count() as u64;
    if more > 0 {
        blocks.push(paragraph(format!("and {}", counted(more, "other process"))));
    }
    blocks
}

/// The legend, and pauses without a line.
pub(super) fn remarks(lines: &LinesReport, names: &FileNames<'_>) -> Vec<String> {
    let mut legend = Vec::new();
    if shown(lines).any(|line| line.with_total > 0) {
        legend.push("└ library line that was executing below it (+n: and n others).".to_owned());
    }
    let under = |line: &LineReport| {
        !line.location.library && line.location.file.starts_with(names.directory)
    };
    if !names.directory.is_empty() && shown(lines).any(under) {
        legend.push(format!("Files are in {}", names.directory));
    }
    let mut text = vec![legend.join(" ")];
    let some = |effort: &PauseTotal, what: &str| {
        let pauses = counted(effort.count, "pause");
        (effort.count > 0).then(|| format!("{pauses} ({}){what}", duration(effort.time_ns)))
    };
    let without = [
        some(
            &lines.without_stack_at_shutdown,
            " at interpreter shutdown, when no Python code runs",
        ),
        some(
            &lines.without_stack,
            " while no Python code was running, or without a recorded stack",
        ),
        some(&lines.unreadable, " without a readable line"),
    ];
    let without: Vec<String> = without.into_iter().flatten().collect();
    if !without.is_empty() {
        text.push(format!("Without a line: {}.", without.join("; ")));
    }
    let deep = &lines.own_line_too_deep;
    let worth = deep.time_ns as f64 >= lines.with_stack.time_ns as f64 * LINE_RATIO;
    let deep = if worth { some(deep, "") } else { None };
    text.extend(deep.map(|pauses| {
        format!(
            "Stacks cut off before a line of the program: {pauses}. A larger --stack-depth may show \
             it."
        )
    }));
    text.retain(|sentence| !sentence.is_empty());
    text
}

fn stack_lines(stack: &StackReport, names: &FileNames<'_>) -> Vec<Block> {
    const DEEPER: &str = "    ";
    let mut blocks = vec![paragraph(format!(
        "{} of the pause time, {} in {}",
        percent(stack.time_ratio),
        duration(stack.pauses.time_ns),
        counted(stack.pauses.count, "pause"),
    ))];
    let mut frames = stack.frames.as_slice();
    let known = |frame: &Location| frame.function != Frame::OUTER;
    let outer = matches!(frames.last(), Some(frame) if !known(frame));
    if outer {
        frames = part(frames, ..frames.len() - 1);
    }
    let shown = frames.iter().take(FRAMES_SHOWN).map(|frame| names.place(frame));
    let more = frames.iter().skip(FRAMES_SHOWN).count() as u64;
    let rest = match (more, outer) {
        (0, false) => None,
        (0, true) => Some(Frame::OUTER.to_owned()),
        (more, false) => Some(format!("and {}", counted(more, "outer frame"))),
        (more, true) => {
            Some(format!("and {}, and more that were not recorded", counted(more, "outer frame")))
        }
    };
    blocks.extend(shown.chain(rest).map(|text| Block::Line(DEEPER, text)));
    blocks
}
