//! State of a program at one moment, without its objects: threads with their Python stacks, collector, memory.
//!
//! Slow work is done before the stop (find the interpreter, name threads) or after it (count frozen objects and the
//! allocator's blocks). While the program is stopped, stacks and the collector's state are read, for some milliseconds.

use crate::HeapError;
use crate::state::{InterpreterState, ProgramMemory, ProgramState, StackFrame, ThreadState};
use crate::take::collector;
use crate::take::layout::{GC_FLAGS, lists};
use crate::take::limits::CpuBudget;
use crate::take::pymalloc::pymalloc;
use crate::take::running::{find, image};
use crate::take::stop::{StoppedThreads, while_stopped};
use crate::take::watchdog::{StopPurpose, Watchdog};
use gctrace_cpython::frames::{WalkedFrame, walk};
use gctrace_cpython::{
    CodeObject, CollectorLayout, FoundInterpreter, FrameLayout, Memory as _, current_thread,
    interpreters,
};
use gctrace_event::OffCpuReason;
use gctrace_probes::{ProcessMemory, Resolution, ResolveOptions, proc_status};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

/// Longest time of reading stacks while the program is stopped. Then the rest is left out, and a note reports it.
const READ_LIMIT: Duration = Duration::from_millis(8);
/// CPU time for counting frozen objects while the program runs: some 10,000 in a build without optimization.
const COUNT_LIMIT: Duration = Duration::from_millis(60);
/// Most threads of all interpreters.
const MOST_THREADS: usize = 10_000;
/// Distance of a generation's count from its threshold, two `int`s (`struct gc_generation`).
const COUNT: u64 = 4;

/// How a program is looked at.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// How the interpreter's file is examined.
    pub resolve: ResolveOptions,
    /// Most frames of each stack, the innermost ones.
    pub depth: usize,
    /// Reason for a thread's wait in a system call, by the call's number and first argument.
    pub reason: fn(i64, u64) -> OffCpuReason,
}

/// State of a program now. It is stopped for some milliseconds; a watchdog limits the stop to 1.8 s, whatever happens.
///
/// # Errors
/// There is no such process, it may not be stopped or read, or it runs no CPython that is known.
///
/// ```no_run
/// use gctrace_heap::{StateOptions, look};
///
/// let reason = |_number, _first_argument| gctrace_event::OffCpuReason::Other;
/// let options = StateOptions { resolve: Default::default(), depth: 64, reason };
/// for thread in look(4242, &options)?.threads {
///     println!("{:?}: {} frames", thread.name, thread.frames.len());
/// }
/// # Ok::<(), gctrace_heap::HeapError>(())
/// ```
pub fn look(pid: u32, options: &StateOptions) -> Result<ProgramState, HeapError> {
    let watchdog = Watchdog::start(StopPurpose::State)
        .map_err(|source| HeapError::Watchdog { pid, source })?;
    let (found, runtime) = find(pid, &options.resolve)?;
    let version = || HeapError::Version { pid, version: found.version.to_string() };
    let program = StoppedProgram {
        memory: ProcessMemory::open(pid)?,
        collector: found.layout.clone().ok_or_else(version)?,
        frames: found.frames,
        runtime,
        depth: options.depth,
    };
    let natives: Vec<NativeThread> = proc_status::threads(pid)?
        .into_iter()
        .map(|tid| NativeThread::of(pid, tid, options.reason))
        .collect();
    let (seen, stopped) = while_stopped(pid, &watchdog, |threads, _| {
        program.read(threads, Instant::now() + READ_LIMIT)
    })?;
    // The main interpreter's state is part of the runtime's, or shares the allocator that is found from there.
    let others: Vec<u64> = seen.interpreters.iter().map(|(place, _)| place.address).collect();
    let pymalloc = pymalloc(
        pid,
        found.version.minor,
        found.free_threaded,
        &program.memory,
        program.runtime,
        if found.version.minor >= 12 { &others } else { &[] },
    );
    let taken = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut notes = Vec::new();
    if seen.is_late {
        notes.push(format!(
            "Not all stacks were read within the {} ms that the program is stopped",
            READ_LIMIT.as_millis()
        ));
    }
    if program.frames.is_none() {
        notes.push(format!("Where CPython {} keeps its stacks is unknown", found.version));
    }
    let interpreters = seen.interpreters.into_iter().rev();
    Ok(ProgramState {
        schema: ProgramState::SCHEMA,
        pid,
        command: proc_status::last_command_line(pid),
        version: found.version.to_string(),
        collector: found.collector.clone(),
        taken_s: taken.map_or(0, |since_1970| since_1970.as_secs()),
        stopped_ns: gctrace_units::u64_or_most(stopped.as_nanos()),
        memory: memory(pid),
        without_pymalloc: pymalloc.as_ref().err().map(|why| (*why).to_owned()),
        pymalloc: pymalloc.ok(),
        interpreters: interpreters
            .map(|(place, mut state)| {
                count_frozen(pid, &found, &place, &mut state);
                state
            })
            .collect(),
        threads: joined(pid, seen.threads, natives),
        notes,
    })
}

/// A thread, as the kernel shows it.
struct NativeThread {
    tid: u32,
    name: Option<String>,
    is_running: Option<bool>,
    waits_for: Option<OffCpuReason>,
}

impl NativeThread {
    fn of(pid: u32, tid: u32, reason: fn(i64, u64) -> OffCpuReason) -> Self {
        // `running`, or the number and the arguments (proc_pid_syscall(5)); -1: blocked, in no system call.
        let call = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
        let call = call.unwrap_or_default();
        let mut words = call.split_ascii_whitespace();
        let first = words.next();
        let number = first.and_then(|word| word.parse::<i64>().ok());
        let argument = words.next().and_then(|word| word.strip_prefix("0x"));
        let argument = argument.and_then(|word| u64::from_str_radix(word, 16).ok());
        let waits_for = match number {
            Some(number @ 0..) => Some(reason(number, argument.unwrap_or(0))),
            Some(_) => Some(OffCpuReason::PageFault),
            None => None,
        };
        Self {
            tid,
            name: proc_status::thread_name(pid, tid).ok(),
            is_running: first.map(|word| word == "running"),
            waits_for,
        }
    }
}

/// A thread of an interpreter.
struct PythonThread {
    /// Its `pthread_self`.
    pointer: u64,
    tid: Option<u32>,
    interpreter: i64,
    has_gil: Option<bool>,
    frames: Vec<StackFrame>,
    is_cut: bool,
}

/// Data read while the program was stopped.
struct SeenProgram {
    interpreters: Vec<(FoundInterpreter, InterpreterState)>,
    threads: Vec<PythonThread>,
    is_late: bool,
}

/// Where everything is.
struct StoppedProgram {
    memory: ProcessMemory,
    collector: CollectorLayout,
    frames: Option<FrameLayout>,
    runtime: u64,
    depth: usize,
}

impl StoppedProgram {
    fn read(&self, stopped: &StoppedThreads, deadline: Instant) -> SeenProgram {
        let tids: HashMap<u64, u32> =
            stopped.pointers().filter_map(|(tid, pointer)| Some((pointer?, tid))).collect();
        let places = interpreters(&mut &self.memory, &self.collector, self.runtime);
        let mut seen =
            SeenProgram { interpreters: Vec::new(), threads: Vec::new(), is_late: false };
        let mut codes = HashMap::new();
        for place in places {
            if let Some(frames) = &self.frames {
                self.read_threads(&place, frames, &mut codes, deadline, &mut seen);
            }
            seen.interpreters.push((place, self.state(&place)));
        }
        for thread in &mut seen.threads {
            thread.tid = tids.get(&thread.pointer).copied();
        }
        seen
    }

    fn read_threads(
        &self,
        place: &FoundInterpreter,
        layout: &FrameLayout,
        codes: &mut HashMap<u64, Option<CodeObject>>,
        deadline: Instant,
        seen: &mut SeenProgram,
    ) {
        let mut memory = &self.memory;
        let holder = current_thread(&mut memory, self.runtime, &self.collector, layout);
        let mut next = memory.field(place.address, layout.interpreter_threads_head);
        while let Some(thread) = next.filter(|thread| *thread != 0) {
            if seen.threads.len() >= MOST_THREADS || Instant::now() >= deadline {
                seen.is_late = true;
                return;
            }
            let walked = walk(&mut memory, thread, &layout.stack, self.depth.saturating_add(1));
            let mut walked = walked.unwrap_or_default();
            let is_cut = walked.len() > self.depth;
            walked.truncate(self.depth);
            let mut frames = Vec::new();
            for frame in walked {
                if Instant::now() >= deadline && !codes.contains_key(&frame.code) {
                    seen.is_late = true;
                    codes.insert(frame.code, None);
                }
                let code = codes
                    .entry(frame.code)
                    .or_insert_with(|| CodeObject::read(&mut memory, frame.code, layout));
                frames.push(shown(code.as_ref(), &frame));
            }
            seen.threads.push(PythonThread {
                pointer: memory.pointer(thread, layout.tstate_thread_id),
                tid: None,
                interpreter: place.id,
                has_gil: holder.map(|holder| holder == thread),
                frames,
                is_cut,
            });
            next = memory.field(thread, layout.tstate_next);
        }
    }

    fn state(&self, place: &FoundInterpreter) -> InterpreterState {
        let layout = &self.collector;
        let at = |offset: u32| place.collector.wrapping_add(offset.into());
        let thresholds = layout.thresholds.map(at);
        let int = |address| (&self.memory).int(address);
        let word = |address| (&self.memory).word(address);
        let generations = layout.stats.generations.iter();
        InterpreterState {
            id: place.id,
            is_enabled: int(at(layout.enabled)).map(|enabled| enabled != 0),
            is_collecting: int(at(layout.collecting)).map(|collecting| collecting != 0),
            thresholds: thresholds.iter().filter_map(|one| int(*one)).collect(),
            counts: thresholds.iter().filter_map(|one| int(one.wrapping_add(COUNT))).collect(),
            generations: generations
                .filter_map(|one| collector::statistics(&mut &self.memory, layout, place, one))
                .collect(),
            oldest_objects: layout.long_lived_total.and_then(|offset| word(at(offset))),
            heap_objects: layout.heap_size.and_then(|offset| word(at(offset))),
            frozen_objects: None,
            is_more_frozen: false,
        }
    }
}

/// Counts the list of the permanent generation. It changes only by `gc.freeze()`, by `gc.unfreeze()` and when a frozen
/// object is freed: then the count ends early and is dropped.
fn count_frozen(
    pid: u32,
    found: &Resolution,
    place: &FoundInterpreter,
    state: &mut InterpreterState,
) {
    let Some(layout) = &found.layout else { return };
    let lists = lists(found.version.minor, &found.collector, layout);
    let permanent = lists.iter().flatten().find(|(_, generation)| generation.is_none());
    let (Some((offset, _)), Ok(mut image)) = (permanent, image(pid)) else { return };
    let head = place.collector.wrapping_add(*offset);
    let (mut at, mut count, end) = (head, 0_u64, CpuBudget::of(COUNT_LIMIT));
    loop {
        let Some(next) = image.word(at).map(|next| next & !GC_FLAGS) else { return };
        let Some(before) = image.field(next, 8_u64) else { return };
        if before & !GC_FLAGS != at {
            return;
        }
        // The clock takes as long as some objects.
        let is_late = count.is_multiple_of(256) && end.is_spent();
        if next == head || is_late {
            (state.frozen_objects, state.is_more_frozen) = (Some(count), next != head);
            return;
        }
        (at, count) = (next, count + 1);
    }
}

fn shown(code: Option<&CodeObject>, frame: &WalkedFrame) -> StackFrame {
    let Some(code) = code else { return StackFrame::default() };
    StackFrame {
        function: Some(code.function.clone()),
        file: Some(code.file.clone()),
        line: code.frame_line(frame.byte_offset),
    }
}

/// Threads with Python frames first, the main one before all; then the others by id.
fn joined(pid: u32, python: Vec<PythonThread>, natives: Vec<NativeThread>) -> Vec<ThreadState> {
    let mut natives: HashMap<u32, NativeThread> =
        natives.into_iter().map(|native| (native.tid, native)).collect();
    let mut all: Vec<ThreadState> = python
        .into_iter()
        .map(|thread| {
            let native = thread.tid.and_then(|tid| natives.remove(&tid));
            ThreadState {
                tid: thread.tid,
                interpreter: Some(thread.interpreter),
                has_gil: thread.has_gil,
                frames: thread.frames,
                is_cut: thread.is_cut,
                name: native.as_ref().and_then(|native| native.name.clone()),
                waits_for: native.as_ref().and_then(|native| native.waits_for),
                is_running: native.and_then(|native| native.is_running),
            }
        })
        .collect();
    all.extend(natives.into_values().map(|native| ThreadState {
        tid: Some(native.tid),
        interpreter: None,
        has_gil: None,
        frames: Vec::new(),
        is_cut: false,
        name: native.name,
        waits_for: native.waits_for,
        is_running: native.is_running,
    }));
    let order =
        |one: &ThreadState| (one.frames.is_empty(), one.tid != Some(pid), one.tid, one.interpreter);
    all.sort_by_key(order);
    all
}

/// From /proc/PID/status, in KiB there.
fn memory(pid: u32) -> ProgramMemory {
    let text = proc_status::read(pid, "status").unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    ProgramMemory {
        resident_bytes: bytes("VmRSS"),
        anonymous_bytes: bytes("RssAnon"),
        peak_bytes: bytes("VmHWM"),
        swapped_bytes: bytes("VmSwap"),
    }
}
