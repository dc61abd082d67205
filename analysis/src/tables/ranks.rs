//! The tables over all traces: ranks, with their clocks, and collectives.
//!
//! Finds the clock of a process; `gpu/ranks.rs` finds the clocks of processes that share collectives.

use super::columns::{CellValue, ColumnKind, ParquetColumn, table};
use super::rows::RowProcess;
use super::{ReadProcess, Table, TableError, TraceTables};
use crate::accumulate::process::ProcessState;
use crate::accumulate::trace_state::TraceState;
use crate::gpu::ranks::{RankJob, RankMember, jobs, waits};
use crate::gpu::timeline::{Op, Timeline};
use crate::spans::index::SmallNumber;
use crate::time::{add_to, difference, later, signed, sum};
use gctrace_event::Process;
use std::collections::BTreeMap;
use std::io::Write;

/// A process: its state if it collected or was described, and its timeline if it has one.
#[derive(Default)]
struct KnownProcess<'a> {
    /// The last of the processes that had this process id one after the other.
    state: Option<&'a ProcessState>,
    /// Sums over all of them.
    pauses: u64,
    paused_ns: u64,
    read: Option<&'a ReadProcess>,
}

/// How the clock of a process relates to its job's.
#[derive(Default)]
struct KnownClock {
    job: Option<u64>,
    offset_ns: Option<i64>,
    error_ns: Option<u64>,
    collectives: Option<u64>,
    ambiguous: Option<bool>,
}

impl KnownClock {
    /// `first`: the member of the job with the job's clock.
    fn of(job: usize, member: &RankMember, first: &RankMember) -> Self {
        let aligned = member.aligned_by > 0;
        Self {
            job: Some(job as u64),
            offset_ns: Some(difference(member.offset_ns, first.offset_ns)),
            error_ns: if aligned { Some(member.error_ns) } else { None },
            collectives: Some(member.aligned_by),
            ambiguous: Some(member.ambiguous),
        }
    }
}

impl<W: Write + Send> TraceTables<W> {
    /// Writes the tables of ranks and of collectives.
    pub(super) fn write_ranks(&mut self) -> Result<(), TableError> {
        let analysis = std::mem::take(&mut self.analysis);
        let read = std::mem::take(&mut self.processes);
        let timelines: Vec<&Timeline> = read.iter().map(|one| &one.reduced).collect();
        let found = jobs(&timelines).jobs;
        let mut processes: BTreeMap<(usize, u32), KnownProcess<'_>> = BTreeMap::new();
        for state in &analysis.processes {
            let known = processes.entry((state.trace, state.sums.pid)).or_default();
            known.state = Some(state);
            known.pauses += state.tally.count();
            add_to(&mut known.paused_ns, state.tally.time_ns());
        }
        for one in &read {
            let place = (one.reduced.trace, one.reduced.pid);
            processes.entry(place).or_default().read = Some(one);
        }
        for ((trace, pid), known) in &processes {
            let Some(state) = analysis.traces.get(*trace) else { continue };
            let clock = clock(&found, &timelines, (*trace, *pid), analysis.traces.len());
            let texts = RankTexts::new(state, known);
            let row = rank((*trace, *pid), state, known, &clock, &texts);
            self.row(Table::Ranks, &row)?;
        }
        for (at, job) in found.iter().enumerate() {
            self.write_collectives(at, job, &timelines)?;
        }
        Ok(())
    }

    fn write_collectives(
        &mut self,
        job: usize,
        ranks: &RankJob,
        timelines: &[&Timeline],
    ) -> Result<(), TableError> {
        let replayed = ranks.job(timelines);
        let first_ns = if let Some(first) = ranks.members.first() { first.offset_ns } else { 0 };
        for (at, collective) in replayed.collectives.iter().enumerate() {
            let arrivals = waits::arrivals(collective, &replayed);
            let Some(last) = arrivals.last() else { continue };
            let decided = waits::is_last(&arrivals, ranks);
            for arrival in &arrivals {
                let (member, op) = (ranks.members[arrival.member], arrival.op);
                let timeline = timelines[member.timeline];
                let of = RowProcess::new(timeline.trace, timeline.rank, timeline.pid);
                let start_ns = difference(arrival.start_ns, first_ns);
                let place = (job as u64, at as u64);
                let is_last = if decided { Some(arrival.member == last.member) } else { None };
                let wait_ns = arrival.wait_ns(last.start_ns);
                let row = arrived(of, place, timeline, &op, start_ns, wait_ns, is_last);
                self.row(Table::Collectives, &row)?;
            }
        }
        Ok(())
    }
}

table! { COLLECTIVES, arrived(
    of: RowProcess, place: (u64, u64), timeline: &'a Timeline, op: &Op, start_ns: i64, wait_ns: u64,
    is_last: Option<bool>
) {}
    job: Id = place.0,
    collective: Number = place.1,
    process_group: Text = op.group.map(|group| timeline.names.text(group)),
    seq: Number = op.sequence.map(SmallNumber::get),
    name: Text = timeline.op_name(op),
    trace: Trace = of.trace,
    rank: Id = of.rank,
    pid: Id = of.pid,
    ts_ns: Time = signed(op.start_ns),
    dur_ns: Time = signed(op.duration_ns()),
    start_ns: Time = start_ns,
    end_ns: Time = later(start_ns, signed(op.duration_ns())),
    wait_ns: Number = wait_ns,
    is_last: Flag = is_last,
}

/// The clock of a process: known if it is in a job, if another process of its trace is, or if there
/// is only one trace.
fn clock(
    jobs: &[RankJob],
    timelines: &[&Timeline],
    (trace, pid): (usize, u32),
    traces: usize,
) -> KnownClock {
    let mut of_trace = None;
    for (at, job) in jobs.iter().enumerate() {
        for member in &job.members {
            let timeline = timelines[member.timeline];
            if timeline.trace != trace {
                continue;
            }
            let known = KnownClock::of(at, member, job.members.first().unwrap_or(member));
            if timeline.pid == pid {
                return known;
            }
            of_trace = Some(known);
        }
    }
    let of_trace = of_trace.map(|known| KnownClock { collectives: None, ..known });
    of_trace.unwrap_or_else(|| KnownClock {
        offset_ns: if traces == 1 { Some(0) } else { None },
        ..KnownClock::default()
    })
}

table! { RANKS, rank(
    place: (usize, u32), state: &'a TraceState, known: &KnownProcess<'a>, clock: &KnownClock, texts: &'a RankTexts
) {
    let read = known.read;
    let described = known.state.and_then(|process| process.sums.described.as_ref());
    let interpreter = described.and_then(|described| described.interpreter.as_ref());
    let number = match (described, read) {
        (Some(Process { rank: Some(rank), .. }), _) => Some(*rank),
        (_, Some(read)) if read.reduced.rank.is_some() => read.reduced.rank,
        _ => state.rank(),
    };
    let of = RowProcess::new(place.0, number, place.1);
    let (header, end) = (state.header.as_ref(), state.end.as_ref());
    let observed = known.state.map(|process| {
        let (start_ns, end_ns, _) = process.observed(end.map(|end| end.ended_ns), state.last_ns());
        (start_ns, end_ns)
    });
    let observed = observed.or(state.span);
    let host = header.map(|header| header.host.as_str());
    let omitted = end.map(|end| end.omitted);
}
    ..of,
    file: Text = state.file.as_str(),
    host: Text = host.or(state.profiler.host.as_deref()),
    command: Text = texts.command.as_str(),
    gctrace: Text = header.map(|header| header.gctrace.as_str()),
    python: Text = interpreter.map(|found| found.version.as_str()),
    collector: Text = interpreter.map(|found| found.collector.as_ref()),
    torch: Text = described.and_then(|described| described.torch.as_deref()),
    start_ns: Number = observed.map(|(start_ns, _)| start_ns),
    end_ns: Number = observed.map(|(_, end_ns)| end_ns),
    unix_offset_ns: Number = state.unix_offset_ns(),
    job: Id = clock.job,
    clock_offset_ns: Number = clock.offset_ns,
    clock_error_ns: Number = clock.error_ns,
    clock_collectives: Number = clock.collectives,
    clock_ambiguous: Flag = clock.ambiguous,
    pauses: Number = known.pauses,
    paused_ns: Number = known.paused_ns,
    omitted_pauses: Number = omitted.map(|omitted| omitted.count.0),
    omitted_ns: Number = omitted.map(|omitted| omitted.total_ns.0),
    gpu_ops: Number = if let Some(read) = read { read.ops } else { 0 },
    calls: Number = if let Some(read) = read { read.calls } else { 0 },
    counted_launches: Number = if let Some(read) = read { read.counted_launches } else { 0 },
    steps: Number = if let Some(read) = read { read.steps } else { 0 },
    annotations: Number = if let Some(read) = read { read.annotations } else { 0 },
    invalid_values: Number = state.ending.anomalies.count,
    lost: Number = end.map(|end| sum(end.lost.values())),
    complete: Flag = texts.incomplete_because.is_none(),
    incomplete_because: Text = texts.incomplete_because.as_deref(),
}

/// Texts of a row that are put together for it.
struct RankTexts {
    command: String,
    /// Why the trace lacks its end; `None` if it does not.
    incomplete_because: Option<String>,
}

impl RankTexts {
    fn new(state: &TraceState, known: &KnownProcess<'_>) -> Self {
        let no_end = state.header.is_some() && state.end.is_none();
        Self {
            command: match known.state {
                Some(process) => match &process.sums.described {
                    Some(described) => described.command.join(" "),
                    None => gctrace_units::if_known(process.name.clone()),
                },
                None => String::new(),
            },
            incomplete_because: match (&state.damage, state.ending.cut) {
                (Some(damage), _) => Some(damage.clone()),
                (None, Some(position)) => Some(format!("the file is cut off at {position}")),
                _ if no_end => Some("its recording goes on, or was killed".to_owned()),
                _ => None,
            },
        }
    }
}
