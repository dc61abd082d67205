//! `gctrace export --format perfetto`: traces as one timeline for ui.perfetto.dev.
//!
//! Owns the tracks and their contents. Traces are read twice: first for GPU work and clocks, as `analyze` does, then
//! for the pauses; these are written as they are read. `packets.rs` has Perfetto's format.

mod packets;
mod protobuf;

use super::{frame_name, output};
use crate::analyze::{DistinctTraces, TraceItems};
use crate::args::ExportArgs;
use crate::files::STANDARD_STREAM;
use crate::files::segments::segments_in;
use crate::print::clean;
use crate::{analyze, render, text};
use gctrace_analysis::gpu::delayed::delayed;
use gctrace_analysis::gpu::timeline::{StepSource, ThreadIndex, Timeline};
use gctrace_analysis::report::{IdleLedger, Location};
use gctrace_analysis::spans::index::Index;
use gctrace_analysis::{Analysis, OneClock, ProcessOnClock, paths};
use gctrace_event::read::DecodedItem;
use gctrace_event::{ForeignTimes, Frame, FrameId, Pause, Record};
use gctrace_units::{after, duration_ns};
use packets::{Note, PacketWriter, Slice, SliceName, TrackId, TrackProcess};
use std::collections::HashMap;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes the timeline of all traces. Returns the exit code: 0, or 1 if an error kept any trace from being
/// read completely.
///
/// # Errors
/// A trace is no file, none can be read, or the timeline cannot be written.
pub(super) fn run(config: &ExportArgs) -> anyhow::Result<u8> {
    anyhow::ensure!(
        config.generation.is_none(),
        "the timeline has all collections: instead of --generation, search for gc gen2 in it"
    );
    let mut traces = analyze::with_summaries(&config.traces);
    for trace in &traces {
        let is_stream = trace.as_path() == Path::new(STANDARD_STREAM)
            || (trace.exists() && !trace.is_file() && segments_in(trace).is_empty());
        anyhow::ensure!(
            !is_stream,
            "{}: a trace is read twice for a timeline: name a file",
            trace.display()
        );
    }
    let (mut analysis, code) = analyze::read_all(&config.traces, None)?;
    analysis.settle();
    // Traces that count, in the order of the analysis.
    let mut distinct = DistinctTraces::default();
    traces.retain(|path| {
        let items = TraceItems::open(path);
        items.is_ok_and(|items| distinct.add(path, items.summary()).is_ok())
    });
    let has_gpu_times = analysis.timelines().iter().any(|timeline| timeline.has_gpu_times());
    let gpu = if has_gpu_times { render::report(&mut analysis).gpu } else { None };
    let idle = if let Some(gpu) = gpu { gpu.idle } else { Vec::new() };
    output(config, &|out| write(&analysis, &idle, &traces, out))?;
    Ok(code)
}

fn write(
    analysis: &Analysis,
    idle: &[IdleLedger],
    traces: &[PathBuf],
    out: &mut dyn Write,
) -> io::Result<()> {
    let clock = analysis.on_one_clock();
    let mut tracks = TimelineTracks::new(analysis, &clock, out)?;
    for kept in clock.timelines() {
        tracks.work(&kept.whole())?;
    }
    for kept in analysis.timelines() {
        tracks.steps(&kept.whole())?;
    }
    for ledger in idle {
        tracks.idle(ledger)?;
    }
    for (trace, path) in traces.iter().enumerate() {
        tracks.pauses(trace, path)?;
    }
    Ok(())
}

/// Subjects with a track of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TrackKind {
    Pauses(u32),
    Steps(u32, StepSource),
    Annotations(u32),
    Calls(u32),
    Stream(Option<u32>, u64),
    Idle(u32),
}

/// The innermost line of a stack that is no library's; without one the innermost.
#[derive(Clone, Debug)]
struct TriggerLine {
    text: Arc<str>,
    is_own: bool,
}

struct TimelineTracks<'a> {
    clock: &'a OneClock<'a>,
    packets: PacketWriter<'a>,
    many_traces: bool,
    ranks: HashMap<ProcessOnClock, u32>,
    thread_names: HashMap<(ProcessOnClock, u32), String>,
    processes: HashMap<ProcessOnClock, TrackProcess>,
    tracks: HashMap<(ProcessOnClock, TrackKind), TrackId>,
    /// Arrows from pauses that delayed operations, by start of the pause.
    delays: HashMap<(ProcessOnClock, u64), Vec<u64>>,
    arrows: u64,
}

impl<'a> TimelineTracks<'a> {
    fn new(
        analysis: &Analysis,
        clock: &'a OneClock<'a>,
        out: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let (mut ranks, mut thread_names) = (HashMap::new(), HashMap::new());
        let mut traces = 0;
        for timeline in analysis.timelines() {
            let process = clock.process((timeline.trace, timeline.pid));
            traces = traces.max(process.0 + 1);
            if let Some(rank) = timeline.rank {
                ranks.entry(process).or_insert(rank);
            }
            for thread in &timeline.threads {
                if let Some(name) = &thread.name {
                    let tid = clock.thread(timeline.trace, thread.tid);
                    thread_names.entry((process, tid)).or_insert_with(|| name.clone());
                }
            }
        }
        let first_ns = clock.first_ns();
        let unix_ns = clock.unix_ns().map(|unix_ns| unix_ns + i128::from(first_ns));
        let unix_ns = unix_ns.and_then(|unix_ns| u64::try_from(unix_ns).ok());
        Ok(Self {
            clock,
            packets: PacketWriter::new(out, first_ns, unix_ns, clock.is_monotonic())?,
            many_traces: traces > 1,
            ranks,
            thread_names,
            processes: HashMap::new(),
            tracks: HashMap::new(),
            delays: HashMap::new(),
            arrows: 0,
        })
    }

    /// GPU work, calls and annotations of a process, and its arrows.
    fn work(&mut self, timeline: &Timeline) -> io::Result<()> {
        let on_clock = (timeline.trace, timeline.pid);
        let process = (timeline.process_trace, timeline.pid);
        let clock = self.clock;
        let time = |at_ns| clock.time(on_clock, at_ns);
        let tid = |thread: ThreadIndex| clock.thread(timeline.trace, timeline.threads[thread].tid);
        let mut due_to = HashMap::new();
        for (pause, op) in delayed(timeline) {
            self.arrows += 1;
            let start_ns = time(timeline.pauses[pause].start_ns);
            self.delays.entry((process, start_ns)).or_default().push(self.arrows);
            due_to.insert(op, self.arrows);
        }
        for (index, op) in Index::enumerate(&timeline.ops) {
            let stream = timeline.streams[op.stream];
            let track = self.track(process, TrackKind::Stream(stream.device, stream.number))?;
            let bytes = timeline.op_bytes.binary_search_by_key(&index, |(op, _)| *op);
            let bytes = bytes.ok().map(|at| timeline.op_bytes[at].1);
            let launched = op.call.map(|call| timeline.calls[call]);
            let waited = launched.map(|call| duration_ns(call.start_ns, op.start_ns));
            let mut notes = Vec::new();
            notes.extend(bytes.map(|bytes| ("bytes", Note::Number(bytes))));
            notes.extend(waited.map(|wait_ns| ("launched ns before", Note::Number(wait_ns))));
            self.packets.slice(
                track,
                &Slice {
                    start_ns: time(op.start_ns),
                    end_ns: time(op.end_ns),
                    category: op.kind.category(),
                    name: SliceName::Common(&clean::line(timeline.op_name(op))),
                    notes,
                    causes: &[],
                    due_to: due_to.get(&index).copied(),
                },
            )?;
        }
        for call in &timeline.calls {
            let track = self.track(process, TrackKind::Calls(tid(call.thread)))?;
            self.packets.slice(
                track,
                &Slice {
                    start_ns: time(call.start_ns),
                    end_ns: time(call.end_ns),
                    category: if call.kind.may_block() { "wait" } else { "call" },
                    name: SliceName::Common(&clean::line(timeline.names.text(call.function))),
                    notes: Vec::new(),
                    causes: &[],
                    due_to: None,
                },
            )?;
        }
        for span in &timeline.annotations {
            let track = self.track(process, TrackKind::Annotations(tid(span.thread)))?;
            self.packets.slice(
                track,
                &Slice {
                    start_ns: time(span.start_ns),
                    end_ns: time(span.end_ns),
                    category: "user_annotation",
                    name: SliceName::Common(&clean::line(timeline.names.text(span.name))),
                    notes: Vec::new(),
                    causes: &[],
                    due_to: None,
                },
            )?;
        }
        Ok(())
    }

    fn steps(&mut self, timeline: &Timeline) -> io::Result<()> {
        let on_clock = (timeline.trace, timeline.pid);
        let process = self.clock.process(on_clock);
        for step in &timeline.steps {
            let tid = self.clock.thread(timeline.trace, timeline.threads[step.thread].tid);
            let track = self.track(process, TrackKind::Steps(tid, step.source))?;
            self.packets.slice(
                track,
                &Slice {
                    start_ns: self.clock.time(on_clock, step.start_ns),
                    end_ns: self.clock.time(on_clock, step.end_ns),
                    category: "step",
                    name: SliceName::Own(&format!("step {}", step.number)),
                    notes: Vec::new(),
                    causes: &[],
                    due_to: None,
                },
            )?;
        }
        Ok(())
    }

    /// The longest idle times of a device, by cause.
    fn idle(&mut self, ledger: &IdleLedger) -> io::Result<()> {
        let on_clock = (ledger.id.trace, ledger.id.pid);
        let process = self.clock.process(on_clock);
        let mut gaps: Vec<_> = ledger.longest.iter().collect();
        gaps.sort_by_key(|gap| gap.start_ns);
        for gap in gaps {
            let track = self.track(process, TrackKind::Idle(ledger.id.device))?;
            let causes: Vec<(String, u64)> =
                gap.causes.iter().map(|part| (part.cause.to_string(), part.time_ns)).collect();
            let all: Vec<String> =
                causes.iter().map(|(cause, time_ns)| format!("{cause}: {time_ns} ns")).collect();
            let name = if let Some((cause, _)) = causes.first() { cause } else { "idle" };
            self.packets.slice(
                track,
                &Slice {
                    start_ns: self.clock.time(on_clock, gap.start_ns),
                    end_ns: self.clock.time(on_clock, after(gap.start_ns, gap.duration_ns)),
                    category: "idle",
                    name: SliceName::Common(name),
                    notes: vec![("causes", Note::Text(&all.join(", ")))],
                    causes: &[],
                    due_to: None,
                },
            )?;
        }
        Ok(())
    }

    /// Reads a trace again and writes its pauses; its damage was reported the first time.
    fn pauses(&mut self, trace: usize, path: &Path) -> io::Result<()> {
        let items =
            TraceItems::open(path).map_err(|error| io::Error::other(text::chain(&error)))?;
        let mut lines: HashMap<FrameId, TriggerLine> = HashMap::new();
        let mut foreign = ForeignTimes::default();
        let progress = analyze::ReadProgress::new(std::slice::from_ref(&path));
        let done = items.each(&mut progress.trace(), |item| {
            let DecodedItem::Record(record) = item else { return Ok(()) };
            match &record {
                Record::Frame(frame) => {
                    lines.insert(frame.id, line(frame, &lines));
                }
                Record::Garbage(garbage) => foreign.add(garbage),
                Record::Called(called) => foreign.add_called(called),
                Record::Pause(pause) => {
                    let mut without = pause.clone();
                    let called_ns = foreign.without(&mut without);
                    let stack = pause.stack.and_then(|stack| lines.get(&stack));
                    self.pause(trace, pause, &without, called_ns, stack)?;
                }
                _ => {}
            }
            Ok::<(), io::Error>(())
        });
        progress.finish();
        done.map(|_| ())
    }

    /// A pause as it was recorded. `without`: the collector's part of it.
    fn pause(
        &mut self,
        trace: usize,
        pause: &Pause,
        without: &Pause,
        called_ns: u64,
        stack: Option<&TriggerLine>,
    ) -> io::Result<()> {
        let on_clock = (trace, pause.pid);
        if self.clock.is_repeated(on_clock, pause.start_ns) {
            return Ok(());
        }
        let process = self.clock.process(on_clock);
        let tid = self.clock.thread(trace, pause.tid);
        let track = self.track(process, TrackKind::Pauses(tid))?;
        let examined_ns = pause.duration_ns() - without.duration_ns() - called_ns;
        let number = |key, value: Option<u64>| Some((key, Note::Number(value?)));
        let above_0 = |key, value| if value > 0 { Some((key, Note::Number(value))) } else { None };
        let end = ("ended", Note::Text("by the end of its thread"));
        let notes = [
            match pause.generation {
                Pause::UNKNOWN_GENERATION => None,
                known => Some(("generation", Note::Number(known.into()))),
            },
            Some(("reason", Note::Text(pause.reason.as_ref()))),
            stack.map(|stack| ("line", Note::Text(&stack.text))),
            number("collected", pause.collected),
            number("uncollectable", pause.uncollectable.filter(|count| *count > 0)),
            number("objects", pause.heap_objects.or(pause.oldest_objects)),
            number("freed bytes", pause.freed_bytes),
            number("CPU ns", pause.cpu_ns),
            above_0("called ns", called_ns),
            above_0("examining ns", examined_ns),
            if pause.unfinished { Some(end) } else { None },
        ];
        let start_ns = self.clock.time(on_clock, without.start_ns);
        let causes = self.delays.get(&(process, start_ns));
        let name = match pause.generation {
            Pause::UNKNOWN_GENERATION => "gc",
            0 => "gc gen0",
            1 => "gc gen1",
            _ => "gc gen2",
        };
        self.packets.slice(
            track,
            &Slice {
                start_ns: self.clock.time(on_clock, pause.start_ns),
                end_ns: self.clock.time(on_clock, pause.end_ns),
                category: "gc",
                name: SliceName::Common(name),
                notes: notes.into_iter().flatten().collect(),
                causes: causes.map_or(&[], Vec::as_slice),
                due_to: None,
            },
        )
    }

    /// The track of this kind, written when it is first used, after the tracks that it belongs to.
    fn track(&mut self, process: ProcessOnClock, kind: TrackKind) -> io::Result<TrackId> {
        if let Some(known) = self.tracks.get(&(process, kind.clone())) {
            return Ok(*known);
        }
        let of_process = self.process(process)?;
        let mut below = |tid, name: &str| {
            let thread = self.track(process, TrackKind::Pauses(tid))?;
            self.packets.track(thread, name)
        };
        let device = |device: Option<u32>| match device {
            Some(device) => format!("GPU {device}"),
            None => "GPU".to_owned(),
        };
        let track = match &kind {
            TrackKind::Pauses(tid) => {
                let name = self.thread_names.get(&(process, *tid));
                let name = name.map_or_else(|| format!("thread {tid}"), |name| clean_name(name));
                self.packets.thread(of_process, *tid, &name)?
            }
            TrackKind::Steps(tid, source) => below(*tid, &format!("steps: {}", source.basis()))?,
            TrackKind::Annotations(tid) => below(*tid, "annotations")?,
            TrackKind::Calls(tid) => below(*tid, "CUDA calls")?,
            TrackKind::Stream(on, stream) => {
                let name = format!("{} stream {stream}", device(*on));
                self.packets.track(of_process.track(), &name)?
            }
            TrackKind::Idle(on) => {
                let name = format!("{} idle: the longest, by cause", device(Some(*on)));
                self.packets.track(of_process.track(), &name)?
            }
        };
        self.tracks.insert((process, kind), track);
        Ok(track)
    }

    fn process(&mut self, process: ProcessOnClock) -> io::Result<TrackProcess> {
        if let Some(known) = self.processes.get(&process) {
            return Ok(*known);
        }
        let (trace, pid) = process;
        let command = self.clock.command(process);
        let command = if command.is_empty() { "process".to_owned() } else { command };
        let of = if self.many_traces { format!("#{} ", trace + 1) } else { String::new() };
        let rank = self.ranks.get(&process);
        let rank = if let Some(rank) = rank { format!("rank {rank}: ") } else { String::new() };
        let name = clean_name(&format!("{of}{rank}{command} ({pid})"));
        let added = self.packets.process(pid, &name)?;
        self.processes.insert(process, added);
        Ok(added)
    }
}

fn clean_name(name: &str) -> String {
    clean::line(name).into_owned()
}

/// The line of a frame; or the line of its callers, if they are the program's and it is not.
fn line(frame: &Frame, known: &HashMap<FrameId, TriggerLine>) -> TriggerLine {
    let special = frame.file.is_empty() || paths::is_import(&frame.file);
    let is_own = !special && !paths::is_library(&frame.file);
    if let Some(parent) = frame.parent
        && let Some(outer) = known.get(&parent)
        && outer.is_own
        && !is_own
    {
        return outer.clone();
    }
    let location = Location {
        library: !is_own,
        file: frame.file.clone(),
        function: frame.function.clone(),
        line: frame.line,
    };
    TriggerLine { text: frame_name(&location).into(), is_own }
}
